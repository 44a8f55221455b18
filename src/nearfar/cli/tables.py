"""Evaluation results as tables."""

from __future__ import annotations

from collections.abc import Mapping

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from nearfar.evaluation import (
    ClassReport,
    ClusterReport,
    MultiLabelReport,
    PairReport,
    RankingReport,
    Report,
    ScoreReport,
)
from nearfar.evaluation.out_of_scope import ScopeReport

SHOWN = 20
"""The most classes whose scores are printed after a training."""
WIDEST = 80
"""The most characters in a line of a confusion matrix that is printed: names of classes are not cut."""
CONFUSIONS = 15
"""The most confusions that are listed."""


def report_table(
    report: Report | ClusterReport | ScopeReport,
    title: str,
    *,
    before: Mapping[str, float] | None = None,
    most: int | None = None,
) -> RenderableType:
    """The scores of an evaluation as a table, ``before`` with those of the untrained encoder.

    Of more than ``most`` classes, those with the lowest F1 are shown.
    """
    if isinstance(report, ClassReport | MultiLabelReport):
        return class_table(report, title, most=most)
    names = ["value"] if before is None else ["trained", "untrained"]
    table = Table("score", *(Column(name, justify="right") for name in names))
    for name, value in report.scores.items():
        values = [value] if before is None else [value, before[name]]
        table.add_row(name, *(f"{value:.4f}" for value in values))
    remark = _remark(report)
    # not a title of the table, which would be no wider than its two columns
    return Group(Text(title, style="italic"), table, *([] if remark is None else [Text(remark)]))


def _remark(report: Report | ClusterReport | ScopeReport) -> str | None:
    if isinstance(report, PairReport):
        chosen = " (the best for these rows, which is optimistic)" if report.chosen_here else ""
        return f"decision threshold of the cosine {report.threshold:.4f}{chosen}; {report.positives:,} positive pairs"
    if isinstance(report, RankingReport) and report.queries_without_positive:
        number = f"{report.queries_without_positive:,} of {report.queries:,} queries"
        return f"{number} have no relevant document and are left out"
    if isinstance(report, ScopeReport):
        return (
            f"rejected below the typicality {report.level:g}; {report.in_scope:,} texts of the classes, "
            f"{report.out_of_scope:,} of none"
        )
    if isinstance(report, ClusterReport):
        return f"k-means with {report.clusters} clusters, as many as there are classes"
    if isinstance(report, ScoreReport) and report.constant:
        return f"{' and '.join(report.constant)}: all values are equal, so there is no correlation"
    return None


def _thresholds(report: MultiLabelReport) -> str:
    low, high = min(report.thresholds.values()), max(report.thresholds.values())
    value = f"{low:.4f}" if low == high else f"{low:.4f} to {high:.4f}"
    chosen = " (the best for these rows, which is optimistic)" if report.chosen_here else ""
    return f"a label applies from the probability {value} on{chosen}"


def class_table(report: ClassReport | MultiLabelReport, title: str, *, most: int | None = None) -> RenderableType:
    """Scores of all classes, of each class, and the confusion matrix; of many classes the most frequent confusions."""
    numbers = (Column(name, justify="right") for name in ("precision", "recall", "F1", "texts"))
    scores = Table(Column("class", overflow="fold"), *numbers)
    classes = list(report.per_class.items())
    if most is not None and len(classes) > most:
        tested = [entry for entry in classes if entry[1]["texts"]]
        classes = sorted(tested, key=lambda entry: entry[1]["f1"])[:most]
        title += f"; the {len(classes)} of {len(report.per_class)} classes with the lowest F1"
    for name, row in classes:
        figures = [f"{row[key]:.4f}" if row["texts"] else "-" for key in ("precision", "recall", "f1")]
        scores.add_row(Text(name), *figures, f"{row['texts']:,}")
    scores.add_section()
    for name, value in report.scores.items():
        scores.add_row(name, "", "", f"{value:.4f}", f"{report.rows:,}")
    heading = Text(title, style="italic")
    if isinstance(report, MultiLabelReport):
        return Group(heading, scores, Text(_thresholds(report)))
    if _matrix_width(report) > WIDEST:
        return Group(heading, scores, *_confusions(report))
    confusion = Table("", *(Column(Text(name), justify="right") for name in report.classes))
    for place, name in enumerate(report.classes):
        counts = enumerate(report.confusion[place])
        cells = (Text(str(count), style="bold" if place == column else "") for column, count in counts)
        confusion.add_row(Text(name), *cells)
    legend = Text("confusion matrix: rows are true classes, columns predictions", style="italic")
    return Group(heading, scores, legend, confusion)


def _matrix_width(report: ClassReport) -> int:
    """The characters in a line of the confusion matrix: each column has the width of its name, and a frame of three."""
    names = [
        max(cell_len(name), len(str(max(column))))
        for name, column in zip(report.classes, zip(*report.confusion, strict=True), strict=True)
    ]
    return 1 + sum(width + 3 for width in (max(map(cell_len, report.classes)), *names))


def _confusions(report: ClassReport) -> list[RenderableType]:
    """The most frequent confusions, in place of a matrix that is too wide to read."""
    errors = sorted(
        (-count, true, predicted)
        for true, row in enumerate(report.confusion)
        for predicted, count in enumerate(row)
        if count and true != predicted
    )
    if not errors:
        return []
    names = (Column(name, overflow="fold") for name in ("true class", "predicted"))
    table = Table(*names, Column("texts", justify="right"))
    for count, true, predicted in errors[:CONFUSIONS]:
        table.add_row(Text(report.classes[true]), Text(report.classes[predicted]), f"{-count:,}")
    more = f"; {len(errors) - CONFUSIONS:,} more are not shown" if len(errors) > CONFUSIONS else ""
    return [Text(f"most frequent confusions{more}", style="italic"), table]


def task_table(split: str, reports: Mapping[str, Report], metrics: Mapping[str, str]) -> Table:
    """The scores of several tasks, and their mean."""
    numbers = (Column(name, justify="right") for name in ("value", "rows"))
    table = Table("task", "metric", *numbers, title=split, title_justify="left")
    values = []
    for name, report in reports.items():
        values.append(report.scores[metrics[name]])
        table.add_row(name, metrics[name], f"{values[-1]:.4f}", f"{report.rows:,}")
    if len(reports) == len(metrics) and len(values) > 1:
        table.add_section()
        table.add_row("mean", "", f"{sum(values) / len(values):.4f}", "")
    return table
