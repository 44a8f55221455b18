"""Results as tables on the screen."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nearfar.evaluation import ClassReport, PairReport, RankingReport, Report, ScoreReport

SHOWN = 20
"""A confusion matrix with more classes than this is not drawn."""


def report_table(report: Report, title: str) -> RenderableType:
    """Whatever was measured, as a table."""
    if isinstance(report, ClassReport):
        return class_table(report, title)
    table = Table()
    table.add_column("score")
    table.add_column("value", justify="right")
    for name, value in report.scores.items():
        table.add_row(name, f"{value:.4f}")
    remark = _remark(report)
    parts: list[RenderableType] = [Text(title, style="italic"), table, *([] if remark is None else [Text(remark)])]
    return Group(*parts)  # a title of the table itself would be no wider than its two columns


def _remark(report: Report) -> str | None:
    if isinstance(report, PairReport):
        chosen = " (the best for these very rows, which flatters)" if report.chosen_here else ""
        return f"a cosine of at least {report.threshold:.4f} is a yes{chosen}; {report.positives:,} pairs are positive"
    if isinstance(report, RankingReport) and report.queries_without_positive:
        lost = f"{report.queries_without_positive:,} of {report.queries:,} queries"
        return f"{lost} have no relevant document and are left out"
    if isinstance(report, ScoreReport) and report.constant:
        return f"{' and '.join(report.constant)}: one value throughout, so there is no correlation"
    return None


def class_table(report: ClassReport, title: str) -> RenderableType:
    """Scores of all classes, each class, and the confusion."""
    scores = Table()
    scores.add_column("class")
    for column in ("precision", "recall", "F1", "texts"):
        scores.add_column(column, justify="right")
    for name, row in report.per_class.items():
        scores.add_row(escape(name), *(f"{row[key]:.4f}" for key in ("precision", "recall", "f1")), f"{row['texts']:,}")
    scores.add_section()
    for name, value in report.scores.items():
        scores.add_row(name, "", "", f"{value:.4f}", f"{report.rows:,}")
    parts: list[RenderableType] = [Text(title, style="italic"), scores]
    if len(report.classes) > SHOWN:
        return Group(*parts)
    confusion = Table()
    confusion.add_column("")
    for name in report.classes:
        confusion.add_column(escape(name), justify="right")
    for place, name in enumerate(report.classes):
        cells = [
            f"[bold]{count}[/bold]" if place == column else str(count)
            for column, count in enumerate(report.confusion[place])
        ]
        confusion.add_row(escape(name), *cells)
    parts += [Text("confusion: rows are the truth, columns the prediction", style="italic"), confusion]
    return Group(*parts)


def task_table(split: str, reports: Mapping[str, Report], metrics: Mapping[str, str]) -> Table:
    """The scores of several tasks, and their mean."""
    table = Table(title=f"{split}", title_justify="left")
    for column in ("task", "metric"):
        table.add_column(column)
    for column in ("value", "rows"):
        table.add_column(column, justify="right")
    values = []
    for name, report in reports.items():
        values.append(report.scores[metrics[name]])
        table.add_row(name, metrics[name], f"{values[-1]:.4f}", f"{report.rows:,}")
    if len(reports) == len(metrics) and len(values) > 1:
        table.add_section()
        table.add_row("mean", "", f"{sum(values) / len(values):.4f}", "")
    return table
