"""Figures that pages quote are those of the files of results."""

from __future__ import annotations

import json
import re
import statistics

import pytest
from benchmarks.few_labels import OURS, THEIRS, Results, groups, pairs
from benchmarks.readme import LINES

from benchmarks import confidence, defaults, labeling, quoted, scale

STUDIES = (quoted.DOCS.parent / "benchmarks" / "STUDIES.md").read_text(encoding="utf-8")


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
    page = " ".join((quoted.DOCS / "how-to" / "label.md").read_text(encoding="utf-8").split())
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
    page = " ".join((quoted.DOCS / "why" / "unlabeled-texts.md").read_text(encoding="utf-8").split())
    assert f"{said} and {sum(change < 0 for change in changes)} lost" in page


def test_names_of_other_classes_were_rejected_as_often_as_the_page_states():
    lines = Results(LINES / "nearfar-permuted.jsonl").lines()
    rejected = sum("not used" in line["names_note"] for line in lines)
    page = " ".join((quoted.DOCS / "why" / "class-names.md").read_text(encoding="utf-8").split())
    assert f"were rejected in {rejected} draws of {len(lines)}" in page


def test_few_label_accuracies_of_the_studies_are_those_of_the_results():
    """Each row of the summary: draws, mean and standard deviation of both tools, won, tied and lost."""
    found = pairs(Results(LINES / f"{OURS}.jsonl"), Results(LINES / f"{THEIRS}.jsonl"))
    rows = 0
    for name, inside in groups(found):
        cells = [str(len(inside))]
        for side in ("ours", "theirs"):
            values = [100 * getattr(pair, side)["accuracy"] for pair in inside]
            cells.append(f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}")
        signs = [(pair.difference > 0) - (pair.difference < 0) for pair in inside]
        record = " / ".join(str(signs.count(sign)) for sign in (1, 0, -1))
        pattern = rf"^\| {name} \| {re.escape(' | '.join(cells))} \| [^|]+ \| {record} \|"
        assert re.search(pattern, STUDIES, re.MULTILINE), f"{name}: {cells} {record}"
        rows += 1
    assert rows >= 19


@pytest.mark.parametrize("page", sorted((quoted.DOCS / "why").glob("*.md")), ids=lambda page: page.name)
def test_pages_with_tables_that_are_not_generated_state_that_they_are_records(page):
    text = page.read_text(encoding="utf-8")
    others = re.sub(r"<!-- table of .*?<!-- end of table -->", "", text, flags=re.DOTALL)
    figures = re.findall(r"^\|.*(?:\d\.\d|\| [\d,]+(?: [GM]B)? \|$).*$", others, re.MULTILINE)
    assert len(figures) < 2 or "record of experiments in" in text


def test_what_the_page_of_scale_concludes_is_what_the_plan_computes():
    """The sentences below the table, and the rates above it."""
    page = " ".join((quoted.DOCS / "why" / "scale.md").read_text(encoding="utf-8").split())
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
    """The accuracy of old classes before and after, and after training on all classes at once."""
    lines = [line for line in Results(confidence.RESULTS).lines() if line["what"] == "extension"]
    before, after, whole = (
        statistics.mean(100 * line[key] for line in lines if line["how"] == how)
        for key, how in (
            ("before", "extended, centers alone"),
            ("old", "extended, centers alone"),
            ("old", "trained again on all"),
        )
    )
    page = " ".join((quoted.DOCS / "how-to" / "extend.md").read_text(encoding="utf-8").split())
    assert f"fell from {before:.1f} to {after:.1f}; after training on all 77 classes at once it was {whole:.1f}" in page


def test_what_names_change_with_eight_texts_is_that_of_the_results():
    named, plain = (Results(LINES / f"{OURS}{part}.jsonl").by_case() for part in ("-names", ""))
    cases = [case for case in named if case in plain and case.n == 8]
    changes = [100 * (named[case]["accuracy"] - plain[case]["accuracy"]) for case in cases]
    page = " ".join((quoted.DOCS / "how-to" / "few-shot.md").read_text(encoding="utf-8").split())
    mean = f"{min(changes):+.1f} to {max(changes):+.1f} points, {statistics.mean(changes):+.1f} in the mean over {len(cases)}"
    assert f"the accuracy by {mean} draws of five data sets" in page
