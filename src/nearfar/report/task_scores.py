"""The section about studies of several tasks in one model: the score of each task, contender by contender."""

from __future__ import annotations

from nearfar.experiments.statistics import Summary, summarize
from nearfar.experiments.trial import MEAN, TASKS
from nearfar.report import svg
from nearfar.report.elements import Content, Markup, Missing, details, join, note, numbers, strings, table, tag
from nearfar.report.sources import Source

Scores = dict[str, dict[str, Summary]]
"""Contender and score to mean and deviation."""


def by_task(source: Source) -> Markup | Missing:
    """Results per task across all contenders, as in figure 3 of the multi-task paper."""
    scores = _scores(source)
    if not scores:
        return Missing("Needs a study of several tasks in one model, as 'nearfar reproduce multi-task' runs.")
    known = dict.fromkeys(score for own in scores.values() for score in own)
    dev = [score for score in known if " " not in score]
    others = [score for score in known if " " in score]
    tasks = [score for score in dev if score != MEAN]
    remark = "Means over the seeds, on dev rows, each task by its own metric; the best of a column is bold."
    body = svg.legend(tasks) + _chart(scores, tasks) + _table(scores, dev) + note(remark)
    return body + details("Training and test rows", _table(scores, others)) if others else body


def _scores(source: Source) -> Scores:
    runs = [record for record in source.done if record.kind == TASKS]
    scores: Scores = {}
    for name in source.contenders:
        own = [record.scores for record in runs if record.contender == name]
        measured = dict.fromkeys(score for each in own for score in each)
        if own:
            scores[name] = {score: summarize([each[score] for each in own if score in each]) for score in measured}
    return scores


def _chart(scores: Scores, tasks: list[str]) -> Markup:
    """A line for each task over the contenders."""
    y_range = svg.padded((own[task].mean for own in scores.values() for task in tasks if task in own), 0.08, least=0.01)
    chart = svg.Chart(svg.Scale(-0.5, len(scores) - 0.5, 62, 930), svg.Scale(*y_range, 300, 34))
    chart.axes("", "score", [])
    for series, task in enumerate(tasks):
        dots = [(float(place), own[task].mean, name) for place, (name, own) in enumerate(scores.items()) if task in own]
        chart.line([(x, y) for x, y, _ in dots], f"thin {svg.color(series)}")
        for x, y, name in dots:
            chart.mark((x, y), series, title=f"{task}, {name}: {y:.3f}")
    for place, name in enumerate(scores):
        across = chart.x(place)
        chart.content.append(svg.line(across, 300, across, 304, "axis"))
        turn = f"translate({across + 4:.1f} 316) rotate(-40)"
        chart.content.append(svg.text(0, 0, name, class_="tick", text_anchor="end", transform=turn))
    return chart.figure(960, 450, "score of each task by contender")


def _table(scores: Scores, columns: list[str]) -> Markup:
    best = {score: max(own[score].mean for own in scores.values() if score in own) for score in columns}
    rows: list[list[Content]] = [
        [name, *(_cell(own.get(score), best[score]) for score in columns)] for name, own in scores.items()
    ]
    return table(strings("Contender") + numbers(*columns), rows)


def _cell(score: Summary | None, best: float) -> Content:
    if score is None:
        return "–"
    mean: Content = f"{score.mean:.3f}"
    deviation = [tag("span", f"± {score.sd:.3f}", class_="sd")] if score.n > 1 else []
    return join(tag("b", mean) if score.mean == best else mean, *deviation)
