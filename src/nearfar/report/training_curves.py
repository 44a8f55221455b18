"""Sections about how training went: learning curves, and tasks that were in each other's way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nearfar.experiments.records import cell_name
from nearfar.report import svg
from nearfar.report.analysis import mean_curve, thinned
from nearfar.report.markup import (
    Column,
    Section,
    legend,
    missing,
    note,
    panel,
    said,
    section,
    side_by_side,
    table,
    tabs,
)
from nearfar.report.sources import Source, scale_of, written

Curve = list[tuple[float, float]]
WIDTH, HEIGHT = 470, 290
THIN_LINES = 20
"""Single runs drawn behind the mean of a contender; more would be a blot."""


def learning_curves(source: Source) -> Section:
    """Loss and dev score along the steps: every run thin, their mean thick."""
    parts = []
    if source.tasks:
        return _task_curves(source)
    for cell in source.cells[:1] if source.single else source.cells:
        journals = [source.journals(cell, name) for name in source.contenders]
        pictures = list(_pictures(source, journals))
        if pictures:
            parts.append((cell_name(*cell), side_by_side(pictures)))
    if not parts:
        return missing("curves", "Learning curves", "No run left a journal with steps (journal.jsonl).")
    if source.single:
        return section("curves", "Learning curves", parts[0][1], note("The loss is the mean of neighboring steps."))
    remark = (
        "Thin lines are single runs, thick ones their mean; the loss is the mean of neighboring steps. Losses of "
        "different objectives are not comparable with each other, scores are."
    )
    return section("curves", "Learning curves", legend(source.contenders), tabs(parts), note(remark))


def _task_curves(source: Source) -> Section:
    """The curves of a run on several tasks: one line for each task."""
    [journal] = source.journals(source.cells[0], source.plan.baseline)
    names = list(source.tasks)
    loss = [
        [thinned(_curve((step, entry["tasks"].get(name, {}).get("loss")) for step, entry in _counted(journal)
                        if isinstance(entry.get("tasks"), dict)))]
        for name in names
    ]  # fmt: skip
    dev = [
        [[(x, scale_of(metric) * y) for x, y in dev_scores(journal, f"{name}/{metric}")]]
        for name, metric in source.tasks.items()
    ]
    pictures = []
    if any(curve for runs in loss for curve in runs):
        pictures.append(panel("Training loss", _chart(loss, y_title="loss")))
    if any(curve for runs in dev for curve in runs):
        pictures.append(panel("Dev score", _chart(dev, y_title="score of the task × 100", dots=True)))
    if not pictures:
        return missing("curves", "Learning curves", "The run left no journal with steps (journal.jsonl).")
    told = ", ".join(f"{name}: {written(metric)}" for name, metric in source.tasks.items())
    remark = f"One line for each task; the loss is the mean of neighboring steps of the task. Scores: {told}."
    return section("curves", "Learning curves", legend(names), side_by_side(pictures), note(remark))


def conflicts(source: Source) -> Section:
    """How often the gradients of two tasks pointed against each other, where gradient surgery wrote it down."""
    title = "Conflicts between tasks"
    parts = []
    for cell in source.cells[:1] if source.single else source.cells:
        for name in source.contenders:
            journals = source.journals(cell, name)
            met = meetings(entry for journal in journals for entry in journal)
            if any(steps for steps, _, _ in met.values()):
                rows = [
                    [said(pair), f"{steps:,}", f"{against:,}", f"{100 * against / steps:.1f}", _share(against / steps),
                     "–" if cosine is None else f"{cosine:+.3f}".replace("-", "−")]
                    for pair, (steps, against, cosine) in met.items()
                    if steps
                ]  # fmt: skip
                pairs = [pair for pair, (steps, _, _) in met.items() if steps]
                told = ", ".join(source.tasks) if source.tasks else f"{cell_name(*cell)}, {name}"
                parts.append((told, _conflict_table(rows) + legend(pairs) + _conflict_charts(journals, pairs)))
    if not parts:
        why = 'No journal has conflicts: only runs of several tasks with training.gradient_surgery = "pcgrad" do.'
        return missing("conflicts", title, why)
    remark = (
        "A conflict is a step in which the gradients of two tasks have a negative dot product. The lines are means of "
        "neighboring steps."
    )
    return section("conflicts", title, tabs(parts), note(remark))


def meetings(entries: Iterable[dict[str, Any]]) -> dict[str, tuple[int, int, float | None]]:
    """Pairs of tasks to steps, conflicts and mean cosine, added up over all entries of journals that have them."""
    steps: dict[str, int] = {}
    against: dict[str, int] = {}
    cosines: dict[str, float] = {}
    for entry in entries:
        for pair, meeting in (entry.get("surgery") or {}).items():
            count = int(meeting.get("steps") or 0)
            steps[pair] = steps.get(pair, 0) + count
            against[pair] = against.get(pair, 0) + int(meeting.get("conflicts") or 0)
            cosines[pair] = cosines.get(pair, 0.0) + count * float(meeting.get("cosine") or 0.0)
    return {pair: (count, against[pair], cosines[pair] / count if count else None) for pair, count in steps.items()}


def encounters(journal: Sequence[dict[str, Any]], pair: str) -> tuple[Curve, Curve]:
    """Along the steps in which two tasks met: the share of conflicts in percent, and the cosine of their gradients.

    Of a long run, each point is the mean of ten steps or more: a single step is in conflict or is not.
    """
    met = [
        (step, meeting)
        for step, entry in _counted(journal)
        if (meeting := (entry.get("surgery") or {}).get(pair)) and meeting.get("steps")
    ]
    points = max(4, min(40, len(met) // 10))
    against = _curve((step, 100 * int(meeting["conflicts"]) / int(meeting["steps"])) for step, meeting in met)
    return thinned(against, points), thinned(_curve((step, meeting["cosine"]) for step, meeting in met), points)


def losses(journal: Sequence[dict[str, Any]]) -> Curve:
    """Steps and losses of a run; the steps of a stage follow those of the one before."""
    return _curve((step, entry.get("loss")) for step, entry in _counted(journal) if entry.get("kind") == "step")


def dev_scores(journal: Sequence[dict[str, Any]], metric: str) -> Curve:
    """Steps and dev scores of a run, by the metric asked for or by the one that decided."""
    evaluations = [(step, entry) for step, entry in _counted(journal) if entry.get("kind") == "evaluation"]
    return _curve(
        (step, (entry.get("scores") or {}).get(metric, (entry.get("scores") or {}).get(entry.get("metric"))))
        for step, entry in evaluations
    )


def _counted(journal: Sequence[dict[str, Any]]) -> Iterable[tuple[float | None, dict[str, Any]]]:
    """Every entry with its step, counted over stages, in each of which steps begin anew."""
    stage, before, last = None, 0, 0
    for entry in journal:
        if entry.get("stage") != stage:
            stage, before = entry.get("stage"), last
        step = entry.get("step")
        if isinstance(step, int):
            last = before + step
            yield last, entry
        else:
            yield None, entry


def _pictures(source: Source, journals: Sequence[Sequence[list[dict[str, Any]]]]) -> Iterable[str]:
    loss = [[thinned(losses(journal)) for journal in runs] for runs in journals]
    if any(curve for runs in loss for curve in runs):
        yield panel("Training loss", _chart(loss, y_title="loss"))
    scale = source.scale
    dev = [
        [[(x, scale * y) for x, y in dev_scores(journal, source.plan.metric)] for journal in runs] for runs in journals
    ]
    if any(curve for runs in dev for curve in runs):
        yield panel("Dev score", _chart(dev, y_title=source.unit, dots=True))
    elif any(curve for runs in loss for curve in runs):
        yield '<p class="missing">No dev score along the way: these runs had no dev rows.</p>'


def _conflict_charts(journals: Sequence[Sequence[dict[str, Any]]], pairs: Sequence[str]) -> str:
    found = [[encounters(journal, pair) for journal in journals] for pair in pairs]
    shares, cosines = ([[curves[place] for curves in runs] for runs in found] for place in (0, 1))
    return side_by_side(
        [
            panel("Steps in conflict", _chart(shares, y_title="% of the steps together", dots=True)),
            panel("Cosine of the gradients", _chart(cosines, y_title="mean cosine", dots=True)),
        ]
    )


def _chart(series: Sequence[Sequence[Curve]], *, y_title: str, dots: bool = False) -> str:
    points = [point for runs in series for curve in runs for point in curve]
    x = svg.Scale(min(0, *(p[0] for p in points)), max(p[0] for p in points) or 1, 56, WIDTH - 14)
    low, high = svg.padded((p[1] for p in points), 0.05, least=0.02 * max(1e-6, *(abs(p[1]) for p in points)))
    if min(p[1] for p in points) >= 0:
        low = max(0.0, low)
    y = svg.Scale(low, high, HEIGHT - 46, 34)
    parts = [svg.axes(x, y, x_title="optimizer steps", y_title=y_title)]
    if low < 0 < high:
        parts.append(svg.line(x.start, y(0), x.end, y(0), "zero"))
    for place, runs in enumerate(series):
        there = [curve for curve in runs if curve]
        many = len(there) > 1
        parts += [_line(curve, x, y, f"run {svg.color(place)}") for curve in (there[:THIN_LINES] if many else [])]
    for place, runs in enumerate(series):
        middle = mean_curve([curve for curve in runs if curve])
        if middle:
            parts.append(_line(middle, x, y, f"line {svg.color(place)}"))
            if (dots and len(middle) <= 20) or len(middle) == 1:
                parts += [svg.mark(x(a), y(b), place, size=3.2, title=f"step {a:,.0f}: {b:.2f}") for a, b in middle]
    return svg.figure(WIDTH, HEIGHT, "".join(parts), label=f"{y_title} along the steps")


def _line(curve: Curve, x: svg.Scale, y: svg.Scale, class_: str) -> str:
    return svg.path([(x(a), y(b)) for a, b in curve], class_)


def _curve(pairs: Iterable[tuple[Any, Any]]) -> Curve:
    return [(float(x), float(y)) for x, y in pairs if isinstance(x, int | float) and isinstance(y, int | float)]


def _conflict_table(rows: list[list[str]]) -> str:
    columns = [Column("Tasks"), Column("Steps together", "num"), Column("Conflicts", "num"), Column("%", "num"),
               Column("", "plot"), Column("Mean cosine", "num")]  # fmt: skip
    return table(columns, rows)


def _share(share: float) -> str:
    bar = svg.tag("rect", x=0, y=7, width=max(1.0, 160 * share), height=10, class_="fill s1")
    frame = svg.tag("rect", x=0, y=7, width=160, height=10, class_="track")
    return svg.figure(160, 24, frame + bar, label=f"{100 * share:.1f} % of the steps", class_="mini")
