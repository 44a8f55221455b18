"""Sections about training: learning curves, and gradient conflicts between tasks."""

from __future__ import annotations

from collections.abc import Sequence

from nearfar.report import svg
from nearfar.report.analysis import Curve, mean_curve, thinned
from nearfar.report.elements import (
    Column,
    Content,
    Markup,
    Missing,
    note,
    numbers,
    panel,
    panels,
    strings,
    tabbed,
    table,
    tabs,
    tag,
)
from nearfar.report.metrics import Metric, signed
from nearfar.report.sources import Journal, Source, conflict_curves, dev_scores, losses, task_losses, total_conflicts

WIDTH, HEIGHT = 470, 290
THIN_LINES = 20
"""Most single runs that are drawn behind the mean of a contender."""


def learning_curves(source: Source) -> Markup | Missing:
    """Training loss and dev score over the steps: single runs thin, their mean thick."""
    if source.tasks:
        return _task_curves(source)
    parts = []
    for cell in source.cells[:1] if source.single else source.cells:
        runs = [source.journals(cell, name) for name in source.contenders]
        loss = [[thinned(losses(journal)) for journal in group] for group in runs]
        dev = [
            [_scaled(dev_scores(journal, source.plan.metric), source.metric.scale) for journal in group]
            for group in runs
        ]
        pictures = _pictures(loss, dev, source.metric.unit)
        if len(pictures) == 1 and _any(loss):
            pictures.append(tag("p", "No dev scores: these runs had no dev rows.", class_="missing"))
        if pictures:
            parts.append((cell.name, panels(pictures)))
    if not parts:
        return Missing("No run left a journal with steps (journal.jsonl).")
    if source.single:
        return parts[0][1] + note("The loss is the mean of neighboring steps.")
    remark = (
        "Thin lines are single runs, thick lines their mean; the loss is the mean of neighboring steps. Losses of "
        "different objectives are not comparable with each other, scores are."
    )
    return svg.legend(source.contenders) + tabs(parts) + note(remark)


def _task_curves(source: Source) -> Markup | Missing:
    """The curves of a multi-task run: one line for each task."""
    [journal] = source.journals(source.cells[0], source.plan.baseline)
    loss = [[thinned(task_losses(journal, name))] for name in source.tasks]
    dev = [
        [_scaled(dev_scores(journal, f"{name}/{metric}"), Metric(metric).scale)]
        for name, metric in source.tasks.items()
    ]
    pictures = _pictures(loss, dev, "score of the task × 100")
    if not pictures:
        return Missing("The run left no journal with steps (journal.jsonl).")
    metrics = ", ".join(f"{name}: {Metric(metric).title}" for name, metric in source.tasks.items())
    remark = f"One line for each task; the loss is the mean of neighboring steps of the task. Scores: {metrics}."
    return svg.legend(list(source.tasks)) + panels(pictures) + note(remark)


def conflicts(source: Source) -> Markup | Missing:
    """How often the gradients of two tasks conflicted, where PCGrad recorded it."""
    parts = []
    for cell in source.cells[:1] if source.single else source.cells:
        for name in source.contenders:
            title = ", ".join(source.tasks) if source.tasks else f"{cell.name}, {name}"
            if body := _conflicts(source.journals(cell, name)):
                parts.append((title, body))
    missing = 'No journal has conflicts: only multi-task runs with training.gradient_surgery = "pcgrad" record them.'
    remark = (
        "A conflict is a step in which the gradients of two tasks have a negative dot product. The lines are means of "
        "neighboring steps."
    )
    return tabbed(parts, Missing(missing), remark)


def _conflicts(journals: Sequence[Journal]) -> Markup | None:
    """A table and two charts for the pairs of tasks that share steps; None without any."""
    totals = total_conflicts(entry for journal in journals for entry in journal)
    pairs = [pair for pair, one in totals.items() if one["steps"]]
    if not pairs:
        return None
    rows: list[list[Content]] = []
    for pair in pairs:
        one = totals[pair]
        share = one["conflicts"] / one["steps"]
        counts = [f"{one['steps']:,}", f"{one['conflicts']:,}", f"{100 * share:.1f}"]
        rows.append([pair, *counts, _bar(share), signed(one["cosine"], "+")])
    columns = strings("Tasks") + numbers("Shared steps", "Conflicts", "%")
    body = table([*columns, Column("", "plot"), *numbers("Mean cosine")], rows) + svg.legend(pairs)
    curves = [[conflict_curves(journal, pair) for journal in journals] for pair in pairs]
    shares, cosines = ([[both[index] for both in runs] for runs in curves] for index in (0, 1))
    steps = panel(_chart(shares, "% of the shared steps", dots=True), "Steps in conflict")
    return body + panels([steps, panel(_chart(cosines, "mean cosine", dots=True), "Cosine of the gradients")])


def _pictures(loss: list[list[Curve]], dev: list[list[Curve]], unit: str) -> list[Markup]:
    pictures = []
    if _any(loss):
        pictures.append(panel(_chart(loss, "loss"), "Training loss"))
    if _any(dev):
        pictures.append(panel(_chart(dev, unit, dots=True), "Dev score"))
    return pictures


def _any(series: list[list[Curve]]) -> bool:
    return any(curve for runs in series for curve in runs)


def _scaled(curve: Curve, scale: float) -> Curve:
    return [(x, scale * y) for x, y in curve]


def _chart(series: Sequence[Sequence[Curve]], y_title: str, *, dots: bool = False) -> Markup:
    """The curves of each series thin, and their mean thick."""
    steps = [x for runs in series for curve in runs for x, _ in curve]
    values = [y for runs in series for curve in runs for _, y in curve]
    low, high = svg.padded(values, 0.05, least=0.02 * max(1e-6, *map(abs, values)))
    if min(values) >= 0:
        low = max(0.0, low)
    x = svg.Scale(min(0, *steps), max(steps) or 1, 56, WIDTH - 14)
    chart = svg.Chart(x, svg.Scale(low, high, HEIGHT - 46, 34))
    chart.axes("optimizer steps", y_title)
    if low < 0 < high:
        chart.zero()
    known = [[curve for curve in runs if curve] for runs in series]
    for index, runs in enumerate(known):
        for curve in runs[:THIN_LINES] if len(runs) > 1 else []:
            chart.line(curve, f"run {svg.color(index)}")
    for index, runs in enumerate(known):
        mean = mean_curve(runs)
        if mean:
            chart.line(mean, f"line {svg.color(index)}")
        if (dots and len(mean) <= 20) or len(mean) == 1:
            for step, value in mean:
                chart.mark((step, value), index, size=3.2, title=f"step {step:,.0f}: {value:.2f}")
    return chart.figure(WIDTH, HEIGHT, f"{y_title} along the steps")


def _bar(share: float) -> Markup:
    frame = tag("rect", x=0, y=7, width=160, height=10, class_="track")
    bar = tag("rect", x=0, y=7, width=max(1.0, 160 * share), height=10, class_="fill s1")
    return svg.figure(160, 24, frame, bar, label=f"{100 * share:.1f} % of the steps", class_="mini")
