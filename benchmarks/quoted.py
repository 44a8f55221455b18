"""Tables of the documentation that quote results, from the files of results.

    python -m benchmarks.quoted            # writes them into the pages

A table is between the comments ``<!-- table of benchmarks/NAME.py -->`` and ``<!-- end of table -->``. Figures of runs
whose lines are not kept are in ``benchmarks/recorded/NAME.json``: columns, rows, and what is known of the run (command,
date, processor, and the commit that wrote the figures down). Any page that has the comment
``<!-- table of benchmarks/recorded/NAME.json -->`` gets that table. The test tests/benchmarks/test_quoted.py fails if a
page has other figures than the files.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import confidence, encoder_choice, labeling, scale
from benchmarks.few_labels import OURS, THEIRS, Case, Results, pairs, report
from benchmarks.papers.page import PAPERS, tables
from benchmarks.papers.page import markdown as aligned
from benchmarks.readme import LINES, NAMES
from benchmarks.tables import paired

DOCS = Path(__file__).parents[1] / "docs"
END = "<!-- end of table -->"
STUDIES = "../benchmarks/STUDIES.md"
RECORDED = Path(__file__).with_name("recorded")
_RECORDED = re.compile(r"<!-- table of benchmarks/(recorded/[\w-]+\.json) -->")
UNTUNED_NAMES = {
    "imdb": "IMDb",
    "trec_fine": "TREC, fine classes",
    "goemotions": "GoEmotions",
    "empathetic_dialogues": "EmpatheticDialogues",
}
MORE_NAMES = {"mr": "MR", "mpqa": "MPQA", **UNTUNED_NAMES}


@dataclass(frozen=True)
class Quote:
    """A page, the module (or the file) whose results it quotes and which part of them, and the table."""

    page: str
    module: str
    table: Callable[[], str]

    @property
    def path(self) -> Path:
        return DOCS / self.page

    @property
    def begin(self) -> str:
        module, *part = self.module.split()
        file = module if "." in module else f"{module}.py"
        return f"<!-- table of benchmarks/{file}{''.join(f', {name}' for name in part)} -->"

    def inserted(self, text: str) -> str:
        """The text of the page with the table of today."""
        if text.count(self.begin) != 1:
            raise SystemExit(f"{self.page}: there is no place for the table; it begins at {self.begin}.")
        before, rest = text.split(self.begin)
        _, end, after = rest.partition(END)
        if not end:
            raise SystemExit(f"{self.page}: the table does not end; write {END} below it.")
        return f"{before}{self.begin}\n\n{self.table()}\n\n{END}{after}"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table without padding: the first column is text, the others are numbers."""
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("| --- |", "|---|").replace(" --: |", "--:|") for line in lines)


def recorded(name: str) -> str:
    """The table of a file of benchmarks/recorded and what is known of its run; columns of words are to the left."""
    file = json.loads((DOCS.parent / "benchmarks" / name).read_text(encoding="utf-8"))
    columns = enumerate(zip(*file["rows"], strict=True))
    text = tuple(
        place for place, cells in columns if not place or any(re.match(r"\W*[A-Za-z]", cell) for cell in cells)
    )
    known = [file["date"], file.get("processor"), f"`{file['command']}`" if "command" in file else None]
    return f"{aligned(file['columns'], file['rows'], text=text)}\n\n*Recorded {', '.join(filter(None, known))}.*"


def recorded_quotes() -> Iterable[Quote]:
    """The tables of recorded figures in all pages."""
    pages = [*sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")), STUDIES]
    for page in pages:
        for name in _RECORDED.findall((DOCS / page).read_text(encoding="utf-8")):
            yield Quote(page, name, partial(recorded, name))


def few_labels() -> str:
    """Accuracies and times of both tools, and where SetFit did not have its defaults."""
    return report(pairs(Results(LINES / f"{OURS}.jsonl"), Results(LINES / f"{THEIRS}.jsonl")))


def label_orders(lines: Sequence[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Mean accuracies on frozen vectors, in percent, by order and number of labels."""
    found: dict[str, dict[int, list[float]]] = {}
    for line in lines:
        if line["kind"] == "frozen":
            found.setdefault(line["order"], {}).setdefault(line["labels"], []).append(100 * line["accuracy"])
    return {order: {n: statistics.mean(found[order][n]) for n in sorted(found[order])} for order in found}


def labels_saved() -> str:
    """The proposed order, random order, and that strategy of small-text which is best over all numbers of labels."""
    scores = label_orders(labeling.read_lines(labeling.RESULTS))
    best = max(labeling.SMALL_TEXT, key=lambda order: statistics.mean(scores[order].values()))
    names = {"proposed": "this order", "random": "random order", best: f"best strategy of small-text ({best})"}
    rows = [[name, *(f"{score:.1f}" for score in scores[order].values())] for order, name in names.items()]
    return markdown(["Labels", *map(str, scores["proposed"])], rows)


def embedding_runs() -> str:
    """Processor time, memory and output of ``nearfar embed`` by number of rows."""
    runs = json.loads(scale.RATES.read_text(encoding="utf-8"))
    rows = [
        [
            f"{run['rows']:,}",
            f"{run['core_seconds']:.0f} s",
            f"{run['peak_mb']:.0f} MB",
            f"{run['bytes_written'] / 1e6:.0f} MB",
        ]
        for run in runs
    ]
    return markdown(["Rows", "Processor time", "Largest process", "Written"], rows)


def amount(value: float, unit: str) -> str:
    """A size in the unit below a thousand of which it is, to two digits where it is small.

    >>> amount(1544.0, "GB"), amount(9.68, "TB"), amount(97, "GB"), amount(0.4578, "MB")
    ('1.5 TB', '9.7 TB', '97 GB', '0.5 MB')
    """
    if value >= 999.5:
        value, unit = value / 1000, {"GB": "TB", "MB": "GB", "ms": "s"}[unit]
    return f"{value:.0f} {unit}" if value >= 9.95 or value == round(value) else f"{value:.1f} {unit}"


def scale_plan() -> str:
    """What ``python -m benchmarks.scale plan`` computes, for corpora of several sizes."""
    sizes = {"100 million": 1e8, "1 billion": 1e9, "10 billion": 1e10, "100 billion": 1e11}
    corpora = [scale.Corpus(texts=texts) for texts in sizes.values()]
    costs = [scale.cost(corpus, scale.Rates()) for corpus in corpora]
    kinds = list(costs[0].index_gb)
    cores = f"Hours on {corpora[0].cores} cores"
    cells: dict[str, Callable[[scale.Cost], str]] = {
        f"Shards of {corpora[0].rows_per_shard:,} rows": lambda one: f"{one.shards:,}",
        "Core hours to embed": lambda one: f"{one.core_hours:,.0f}",
        cores: lambda one: f"{one.hours:.0f}" if one.hours >= 9.95 else f"{one.hours:.1f}",
        "Texts that are read": lambda one: amount(one.read_gb, "GB"),
        "Vectors and texts that are written": lambda one: amount(one.vectors_gb, "GB"),
        "Memory of a worker beside the model": lambda one: amount(one.worker_mb, "MB"),
        "Lost with a worker, at most": lambda one: f"{one.lost_minutes:.1f} min",
        "Manifest": lambda one: amount(one.manifest_mb, "MB"),
        "Lists, and hours of one core to train them": lambda one: f"{one.lists:,}: {one.training_hours:.1f}",
        "Core hours to assign vectors to lists": lambda one: f"{one.assign_core_hours:,.0f}",
        f"Index: {', '.join(kinds)}": lambda one: ", ".join(amount(one.index_gb[kind], "GB") for kind in kinds),
        "A query that searches 32 lists, one core": lambda one: amount(one.query_ms, "ms"),
    }
    return markdown(["", *sizes], [[name, *(cell(one) for one in costs)] for name, cell in cells.items()])


def untuned() -> str:
    """Accuracy with and without class names on data sets that no default was chosen on, with both where a draw has."""
    plain, named = (Results(LINES / f"nearfar-{name}.jsonl").by_case() for name in ("plain", "names"))

    def row(name: str, inside: Sequence[Case]) -> list[str]:
        before = [100 * plain[case]["accuracy"] for case in inside]
        both = [case for case in inside if case in named]
        cells = [
            name,
            str(len(inside)),
            f"{statistics.mean(before):.1f}",
            ", ".join(f"{score:.1f}" for score in before),
        ]
        if not both:
            return [*cells, "", "", ""]
        after = [100 * named[case]["accuracy"] for case in both]
        changes = [new - 100 * plain[case]["accuracy"] for new, case in zip(after, both, strict=True)]
        used = sum("not used" not in (named[case]["names_note"] or "not used") for case in both)
        change = f"{statistics.mean(changes):+.1f}, {min(changes):+.1f}"
        return [*cells, f"{used} of {len(both)}", f"{statistics.mean(after):.1f}", change]

    groups = sorted(
        {case[:2] for case in plain if case.data in UNTUNED_NAMES},
        key=lambda group: (list(UNTUNED_NAMES).index(group[0]), group[1]),
    )
    rows = [
        row(f"{UNTUNED_NAMES[data]}, {n}", sorted(case for case in plain if case[:2] == (data, n)))
        for data, n in groups
    ]
    header = ["Data, texts per class", "Draws", "No names", "Each", "Names used in", "With names", "Change, worst draw"]
    return markdown(header, rows)


def unlabeled_texts() -> str:
    """Accuracy with and without unlabeled texts on the same draws, and the change with its standard error."""
    plain, wide = (Results(LINES / f"nearfar-{name}.jsonl").by_case() for name in ("plain", "unlabeled"))
    both = [case for case in wide if case in plain]

    def row(name: str, inside: Sequence[Case]) -> list[str]:
        before, after = ([100 * side[case]["accuracy"] for case in inside] for side in (plain, wide))
        changes = [new - old for old, new in zip(before, after, strict=True)]
        used = sum("not used" not in wide[case]["unlabeled_note"] for case in inside)
        mean, error = paired(after, before)
        means = [f"{statistics.mean(before):.1f}", f"{statistics.mean(after):.1f}", f"{mean:+.1f} ± {error:.1f}"]
        return [name, str(len(inside)), str(used), *means, f"{min(changes):+.1f}"]

    rows = [
        row(f"{name}, {n}", [case for case in both if case[:2] == (data, n)])
        for data, name in NAMES.items()
        for n in sorted({case.n for case in both if case.data == data})
    ]
    rows.append(row("all", both))
    return markdown(["Data, texts per class", "Draws", "Used in", "Without", "With", "Change", "Worst draw"], rows)


def no_labels() -> str:
    """Accuracy of names and unlabeled texts alone, for each draw, beside SetFit on texts made of the same names."""
    found, theirs = (Results(LINES / f"{tool}-zero.jsonl").by_case() for tool in (OURS, THEIRS))
    rows = []
    for data, name in NAMES.items():
        scores = [100 * found[case]["accuracy"] for case in sorted(found) if case.data == data]
        if scores:
            peer = theirs.get(Case(data, 0, 0))
            setfit = "" if peer is None else f"{100 * peer['accuracy']:.1f}"
            draws = ", ".join(f"{score:.1f}" for score in scores)
            rows.append([name, f"{statistics.mean(scores):.1f}", draws, setfit])
    return markdown(["Data", "Mean", "Draws", "SetFit"], rows)


def both_named() -> str:
    """Both tools with the names of the classes, and without, on the draws that SetFit has finished with names."""
    files = {"names": ("nearfar-names", "setfit-names"), "none": ("nearfar-plain", "setfit")}
    tables = {key: [Results(LINES / f"{name}.jsonl").by_case() for name in names] for key, names in files.items()}
    rows = []
    for data, name in NAMES.items():
        cases = [case for case in tables["names"][1] if case.data == data]
        cells = [
            statistics.mean(100 * lines[case]["accuracy"] for case in cases)
            for ours_or_theirs in (0, 1)
            for key in ("none", "names")
            for lines in [tables[key][ours_or_theirs]]
            if cases
        ]
        if cells:
            rows.append([name, str(len(cases)), *(f"{cell:.1f}" for cell in cells)])
    return markdown(["Data", "Draws", "nearfar, no names", "With names", "SetFit, no names", "With names"], rows)


WRONG = {
    "permuted": "each one the next class's",
    "letters": "A, B, C ...",
    "foreign": "in German",
    "one-wrong": "two of them wrong",
}


def wrong_names() -> str:
    """How often wrong names are used, and what it costs against no names."""
    plain = Results(LINES / "nearfar-plain.jsonl").by_case()
    rows = []
    for variant, name in WRONG.items():
        found = Results(LINES / f"nearfar-{variant}.jsonl").by_case()
        changes = {case: 100 * (line["accuracy"] - plain[case]["accuracy"]) for case, line in found.items()}
        used = [changes[case] for case, line in found.items() if "not used" not in line["names_note"]]
        mean = f"{statistics.mean(changes.values()):+.1f}"
        where_used = f"{statistics.mean(used):+.1f}" if used else ""
        rows.append([name, str(len(found)), str(len(used)), mean, where_used, f"{min(changes.values()):+.1f}"])
    return markdown(["Names", "Draws", "Used in", "Change", "Change where used", "Worst draw"], rows)


def encoders_chosen() -> str:
    """Accuracy of several encoders, and which of them is chosen by the labeled texts of each draw."""
    rows = []
    for line in Results(encoder_choice.RESULTS).lines():
        scores = [f"{100 * score:.1f}" for score in line["accuracy"].values()]
        rows.append([f"{NAMES[line['data']]}, {line['n']}, draw {line['seed']}", *scores, line["chosen"]])
    names = Results(encoder_choice.RESULTS).lines()[0]["accuracy"]
    return markdown(["Data, texts per class", *names, "Chosen"], rows)


def calibrated() -> str:
    """Calibration of a model of each data set, with its temperature and without."""
    lines = [line for line in Results(confidence.RESULTS).lines() if line["what"] == "calibration"]
    keys = ("accuracy", "temperature", "ece_before", "ece_after", "log_loss_before", "log_loss_after")
    values = {line["data"]: [line[key] for key in keys] for line in lines}
    values["mean"] = [statistics.mean(column) for column in zip(*values.values(), strict=True)]
    rows = [
        [NAMES.get(name, MORE_NAMES.get(name, name)), f"{100 * right:.1f}", f"{heat:.2f}",
         *(f"{100 * error:.1f}" for error in errors[:2]), *(f"{loss:.3f}" for loss in errors[2:])]
        for name, (right, heat, *errors) in values.items()
    ]  # fmt: skip
    header = ["Data", "Accuracy", "Temperature", "ECE before", "After", "Log-loss before", "After"]
    return markdown(header, rows)


def rejected() -> str:
    """AUROC and false positive rate of each score, by draw and on average."""
    lines = [line for line in Results(confidence.RESULTS).lines() if line["what"] == "scope"]
    rows = []
    for score in dict.fromkeys(line["score"] for line in lines):
        pairs = [(100 * line["auroc"], 100 * line["fpr_95"]) for line in lines if line["score"] == score]
        pairs.append((statistics.mean(one for one, _ in pairs), statistics.mean(other for _, other in pairs)))
        rows.append([score, *(f"{auroc:.1f}, {rate:.1f}" for auroc, rate in pairs)])
    return markdown(["Score", *(f"Draw {seed}" for seed in range(len(rows[0]) - 2)), "Mean"], rows)


QUOTES = (
    Quote("how-to/label.md", "labeling", labels_saved),
    Quote("how-to/scale.md", "scale", embedding_runs),
    Quote("why/scale.md", "scale plan", scale_plan),
    Quote("why/unlabeled-texts.md", "few_labels", unlabeled_texts),
    Quote("why/class-names.md", "few_labels", no_labels),
    Quote("why/class-names.md", "few_label_names", wrong_names),
    Quote("why/class-names.md", "few_labels_peers", both_named),
    Quote("why/class-names.md", "few_labels untuned", untuned),
    Quote("why/few-shot-defaults.md", "encoder_choice", encoders_chosen),
    Quote("why/calibration.md", "confidence calibration", calibrated),
    Quote("why/calibration.md", "confidence scope", rejected),
    Quote(STUDIES, "few_labels", few_labels),
    *(Quote(f"papers/{paper}.md", f"papers/page {paper}", partial(tables, paper)) for paper in PAPERS),
    *recorded_quotes(),
)


def main() -> int:
    for quote in QUOTES:
        quote.path.write_text(quote.inserted(quote.path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
