"""Figures that pages quote are those of the files of results."""

from __future__ import annotations

import json
import re
import statistics

import pytest
from benchmarks.few_labels import OURS, THEIRS, Results, groups, pairs
from benchmarks.readme import LINES

from benchmarks import confidence, defaults, labeling, quoted, scale

GENERATED = re.compile(rf"<!-- table of .*?{quoted.END}", re.DOTALL)
FIGURE = re.compile(r"[*+<-]*\d[\d,]*(\.\d|( (%|[MG]B|ms|s))?\**$)")
"""How a cell with a figure begins."""
NOT_MEASURED = {
    "how-to/export.md": "limits that an export must keep",
    "how-to/pairs.md": "defaults of keys",
    "how-to/plain-texts.md": "settings of the papers",
    "how-to/serve.md": "HTTP status codes",
    "reference/papers.md": "sections and settings of the papers; written by docs/generate_papers.py",
}


def page_text(name):
    """A page of docs on one line."""
    return " ".join((quoted.DOCS / name).read_text(encoding="utf-8").split())


def figures_outside(text):
    """The cells with figures in tables that are not generated."""
    rows = re.findall(r"^ *\|(.*)\|$", GENERATED.sub("", text), re.MULTILINE)
    return [cell.strip() for row in rows for cell in row.split("|") if FIGURE.match(cell.strip())]


@pytest.mark.parametrize("quote", quoted.QUOTES, ids=lambda quote: quote.page)
def test_the_table_of_the_page_is_that_of_the_results(quote):
    page = quote.path.read_text(encoding="utf-8")
    assert quote.inserted(page) == page, "run make pages"
    assert quote.table().count("\n") >= 3


def test_another_figure_on_a_page_is_noticed():
    quote = quoted.QUOTES[0]
    page = quote.path.read_text(encoding="utf-8")
    wrong = re.sub(r"\d\d\.\d \|", "99.9 |", page, count=1)
    assert wrong != page
    assert quote.inserted(wrong) == page


@pytest.mark.parametrize("text", ["no table", f"{quoted.QUOTES[0].begin} no end"])
def test_a_page_without_a_place_is_refused(text):
    with pytest.raises(SystemExit, match="table"):
        quoted.QUOTES[0].inserted(text)


def test_what_the_page_concludes_from_the_table_of_labels_is_true():
    """120 labels in the proposed order reach 200 in random order, 30 do not reach 50."""
    scores = quoted.label_orders(labeling.read_lines(labeling.RESULTS))
    page = page_text("how-to/label.md")
    assert (
        "120 labels in this order reach the accuracy of 200 in random order; 30 labels do not reach that of 50" in page
    )
    assert scores["proposed"][120] >= scores["random"][200]
    assert scores["proposed"][30] < scores["random"][50]


def test_the_page_of_label_orders_is_that_of_the_results():
    lines = labeling.read_lines(labeling.RESULTS)
    assert labeling.PAGE.read_text(encoding="utf-8") == f"{labeling.HEADING}\n{labeling.table(lines)}\n"


def test_gains_and_losses_by_unlabeled_texts_are_those_of_the_results():
    plain, wide = (Results(LINES / f"nearfar-{name}.jsonl").by_case() for name in ("plain", "unlabeled"))
    used = [case for case in wide if case in plain and "not used" not in wide[case]["unlabeled_note"]]
    changes = [wide[case]["accuracy"] - plain[case]["accuracy"] for case in used]
    said = (
        f"Of the {len(used)} draws in which unlabeled texts were used, {sum(change > 0 for change in changes)} gained"
    )
    page = page_text("why/unlabeled-texts.md")
    assert f"{said} and {sum(change < 0 for change in changes)} lost" in page


def test_names_of_other_classes_were_rejected_as_often_as_the_page_states():
    lines = Results(LINES / "nearfar-permuted.jsonl").lines()
    rejected = sum("not used" in line["names_note"] for line in lines)
    page = page_text("why/class-names.md")
    assert f"were rejected in {rejected} draws of {len(lines)}" in page


def test_figures_in_tables_of_pages_are_generated():
    """So they are those of a file of results; pages that quote recorded figures state that they are a record."""
    pages = {str(page.relative_to(quoted.DOCS)): page.read_text(encoding="utf-8") for page in quoted.DOCS.rglob("*.md")}
    assert {name for name, text in pages.items() if len(figures_outside(text)) > 1} == set(NOT_MEASURED)
    for name, text in pages.items():
        if name.startswith("why/") and "table of benchmarks/recorded/" in text:
            assert "record of experiments in" in text, name


def test_a_table_that_is_not_generated_is_noticed():
    table = "| Data | Score |\n|---|--:|\n| TREC | **+91.0** |\n| `0.5` | 68 % |\n| x | 1,390 MB |\n| 2 of 3 | 4-bit |"
    assert figures_outside(table) == ["**+91.0**", "68 %", "1,390 MB"]
    assert figures_outside(f"<!-- table of x -->\n{table}\n{quoted.END}") == []


@pytest.mark.parametrize("path", sorted(quoted.RECORDED.glob("*.json")), ids=lambda path: path.stem)
def test_a_file_of_recorded_figures_is_complete_and_quoted(path):
    file = json.loads(path.read_text(encoding="utf-8"))
    assert (
        {"date", "commit", "columns", "rows"}
        <= set(file)
        <= {"date", "commit", "columns", "rows", "processor", "command"}
    )
    assert {len(row) for row in file["rows"]} == {len(file["columns"])}
    assert f"recorded/{path.name}" in {quote.module for quote in quoted.QUOTES}


def test_what_the_page_of_scale_concludes_is_what_the_plan_computes():
    """The sentences below the table, and the rates above it."""
    page = page_text("why/scale.md")
    corpus, rates = scale.Corpus(), scale.Rates()
    ten, hundred = (scale.cost(scale.Corpus(texts=texts), rates) for texts in (1e10, 1e11))
    for sentence in (
        f"{rates.texts:.0f} texts per second and core",
        f"{corpus.text_bytes:.0f} bytes a text, {corpus.dim} numbers in fp16, {corpus.cores} cores",
        f"a store that takes {rates.disk / scale.GB} GB/s",
        f"{ten.hours:.0f} hours on {corpus.cores} cores are a matter of more cores",
        f"{ten.shards:,} tasks are few for Ray",
        f"the manifest, {hundred.manifest_mb:.0f} MB of JSON that the driver holds, and {hundred.shards / 1e6:.1f} million",
        f"A store must take {hundred.vectors_gb / 1000:.0f} TB. {hundred.assign_core_hours:,.0f} core hours go to",
    ):
        assert sentence in page, sentence


def test_the_scores_of_a_narrow_encoder_are_those_of_the_results():
    """The column of today's default; the one before it is a record of defaults that are no longer there."""
    lines = [json.loads(line) for line in (defaults.LINES / "bert-tiny.jsonl").read_text(encoding="utf-8").splitlines()]
    names = {
        "Banking77": "banking77",
        "STS-B": "stsb",
        "question duplicates": "duplicates",
        "MPQA": "mpqa",
        "MRPC": "mrpc",
    }
    page = (quoted.DOCS / "why" / "defaults.md").read_text(encoding="utf-8")
    section = page.partition("## Narrow encoders")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\w -]+) \| ([\w+-]+) \| \d\d\.\d \| (\d\d\.\d) \|$", section, re.MULTILINE)
    assert len(rows) == 8
    for data, objective, score in rows:
        cell = {"data": names[data], "rows": 1000, "objective": objective, "setting": "default", "draw": 0}
        [found] = [line["score"] for line in lines if cell.items() <= line.items()]
        assert score == f"{100 * found:.1f}", (data, objective)


def test_the_cost_of_more_classes_is_that_of_the_results():
    """The accuracy of old classes before and after, and after training on all classes at once; and of rejection."""
    lines = Results(confidence.RESULTS).lines()

    def mean(key, **wanted):
        return statistics.mean(100 * line[key] for line in lines if wanted.items() <= line.items())

    before, after = (mean(key, what="extension", how="extended, centers alone") for key in ("before", "old"))
    kept, whole = (mean("old", how=how) for how in ("extended, vectors kept", "trained again on all"))
    said = f"fell from {before:.1f} to {after:.1f}; after training on all 77 classes at once it was {whole:.1f}"
    assert said in page_text("how-to/extend.md")
    page = page_text("why/calibration.md")
    assert f"the accuracy of the 57 classes was {before:.1f} before" in page
    assert f"it was {kept:.1f} with the vectors of all texts and {after:.1f} with centers alone" in page
    assert f"and {whole:.1f} after training again on all 77" in page
    known, unknown = (mean(f"rejected_{scope}", score="typicality") for scope in ("in_scope", "out_of_scope"))
    assert f"rejected {known:.1f} % of the known texts and {unknown:.1f} % of the unknown ones" in page


def test_what_names_change_with_eight_texts_is_that_of_the_results():
    named, plain = (Results(LINES / f"{OURS}{part}.jsonl").by_case() for part in ("-names", ""))
    cases = [case for case in named if case in plain and case.n == 8]
    changes = [100 * (named[case]["accuracy"] - plain[case]["accuracy"]) for case in cases]
    page = page_text("how-to/few-shot.md")
    mean = f"{min(changes):+.1f} to {max(changes):+.1f} points, {statistics.mean(changes):+.1f} in the mean over {len(cases)}"
    assert f"the accuracy by {mean} draws of five data sets" in page


def test_where_setfit_is_ahead_is_what_the_results_say():
    """The cells that the page of few-shot defaults names, and that they are all."""
    theirs = Results(LINES / f"{THEIRS}.jsonl")
    page = page_text("why/few-shot-defaults.md")
    cells = dict(groups(pairs(Results(LINES / f"{OURS}.jsonl"), theirs)))
    points = {name: [100 * pair.difference for pair in inside] for name, inside in cells.items()}
    sst5, cr = points["sst5, 16"], points["cr, 64"]
    assert max(sst5) < 0
    assert sum(change < 0 for change in cr) == 4
    mean = f"by {-statistics.mean(sst5):.1f} points in the mean, and CR with 64, in four, by {-statistics.mean(cr):.1f}"
    assert f"SST-5 with 16 per class, in all of them, {mean}" in page
    now = dict(groups(pairs(Results(LINES / f"{OURS}-plain.jsonl"), theirs)))
    sst5, trec = ([100 * pair.difference for pair in now[name]] for name in ("sst5, 16", "trec, 8"))
    assert (
        f"SST-5 with 16 ({statistics.mean(sst5):+.1f} on five draws, from {max(sst5):+.1f} to {min(sst5):+.1f}) "
        f"and TREC with 8 ({statistics.mean(trec):+.1f}, because of {min(trec):+.1f} in one draw)" in page
    )


def recorded_rows(*names):
    return [row for name in names for row in json.loads((quoted.RECORDED / f"{name}.json").read_text("utf-8"))["rows"]]


def test_what_the_page_of_objectives_concludes_from_six_data_sets_is_what_is_recorded():
    page = page_text("how-to/choose-an-objective.md")
    assert "On six data sets of 1,000 texts, four seeds and five folds, `triple-entropy` and `cross-entropy`" in page
    assert "were within half a point of each other, and no difference was significant" in page
    rows = [(float(row[3]), float(row[5])) for row in recorded_rows("triple-entropy") if row[0] != "mean"]
    assert len(rows) == 6
    assert all(abs(difference) <= 0.5 and p > 0.05 for difference, p in rows)


def test_what_the_page_of_plain_texts_expects_is_what_is_recorded():
    rows = [row for row in recorded_rows("plain-texts", "plain-texts-others") if row[3] != "before"]

    def gains(encoders, column, corpora, contenders=("simcse", "mirror")):
        return [
            float(row[column].split()[0])
            for row in rows
            if row[0] in encoders and row[1] in corpora and row[3].startswith(contenders) and row[3] != "mirror-random"
        ]

    tagger, good, sts, simlex = ("tinybert-ner",), ("minilm", "paraphrase-minilm-l3"), 6, 8
    sentences, words = ("stsb_plain_10k", "wiki_plain"), ("en_words_10k",)
    everything = {row[1] for row in rows}
    page = page_text("how-to/plain-texts.md")

    def span(values):
        return f"{min(values):.0f} to {max(values):.0f}"

    said = f"gained {span(gains(tagger, sts, sentences))} points on STS from sentences, and"
    assert f"{said} {span(gains(tagger, simlex, everything))} on SimLex" in page
    assert max(map(abs, gains(good, sts, everything))) < 1
    assert f"and gained {span(gains(good, simlex, words))} on words from a list of words" in page
    assert f"{max(gains(tagger, sts, everything, ('whitening',))):.0f} points of STS for one encoder" in page
