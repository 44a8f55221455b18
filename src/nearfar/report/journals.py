"""The journal of a run, and the curves in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict

from nearfar.errors import OutputError
from nearfar.experiments.records import journals
from nearfar.report.analysis import Curve, thinned


class Conflicts(TypedDict):
    """The gradients of two tasks in some steps: steps they share, negative dot products, and the mean cosine."""

    steps: int
    conflicts: int
    cosine: float | None


class TaskLoss(TypedDict):
    """The loss of one task in a step."""

    loss: float | None


class Entry(TypedDict, total=False):
    """One line of a journal, as far as a report shows it."""

    kind: str
    stage: int
    step: int
    loss: float | None
    scores: dict[str, float]
    metric: str
    """The metric that decides which weights are kept."""
    tasks: dict[str, TaskLoss]
    surgery: dict[str, Conflicts]
    """Pairs of tasks, under PCGrad."""


Journal = list[Entry]


def read_run_journal(folder: Path) -> Journal:
    """The journal of a single run; those of several stages one after the other."""
    paths = journals(folder)
    entries: Journal = []
    for stage, path in enumerate(paths, 1):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
            except ValueError as cause:
                raise OutputError(f"{path}:{number}: this is no entry ({cause}). Remove the line.") from cause
            if len(paths) > 1:
                entry.setdefault("stage", stage)
            entries.append(entry)
    return entries


def losses(journal: Journal) -> Curve:
    """Steps and training losses."""
    return _curve((step, entry.get("loss")) for step, entry in _by_step(journal) if entry.get("kind") == "step")


def task_losses(journal: Journal, task: str) -> Curve:
    """Steps and training losses of one task."""
    entries = [(step, entry.get("tasks")) for step, entry in _by_step(journal)]
    return _curve((step, tasks[task]["loss"]) for step, tasks in entries if isinstance(tasks, dict) and task in tasks)


def dev_scores(journal: Journal, metric: str) -> Curve:
    """Steps and dev scores by a metric, or by the one that decides where that is not measured."""
    entries = [(step, entry) for step, entry in _by_step(journal) if entry.get("kind") == "evaluation"]
    scores = [(step, entry.get("scores") or {}, entry.get("metric", "")) for step, entry in entries]
    return _curve((step, known.get(metric, known.get(decides))) for step, known, decides in scores)


def total_conflicts(entries: Iterable[Entry]) -> dict[str, Conflicts]:
    """Pairs of tasks to their conflicts over all entries."""
    met: dict[str, list[Conflicts]] = {}
    for entry in entries:
        for pair, one in (entry.get("surgery") or {}).items():
            met.setdefault(pair, []).append(one)
    totals: dict[str, Conflicts] = {}
    for pair, group in met.items():
        steps, conflicts = (sum(one[key] for one in group) for key in ("steps", "conflicts"))
        cosine = sum(one["steps"] * (one["cosine"] or 0.0) for one in group) / steps if steps else None
        totals[pair] = {"steps": steps, "conflicts": conflicts, "cosine": cosine}
    return totals


def conflict_curves(journal: Journal, pair: str) -> tuple[Curve, Curve]:
    """Along the steps of two tasks: the percentage of conflicts, and the cosine of their gradients.

    In a long run each point is the mean of ten steps or more, because a single step is in conflict or is not.
    """
    entries = [(step, (entry.get("surgery") or {}).get(pair)) for step, entry in _by_step(journal)]
    met = [(step, one) for step, one in entries if one and one["steps"]]
    points = max(4, min(40, len(met) // 10))
    shares = _curve((step, 100 * one["conflicts"] / one["steps"]) for step, one in met)
    return thinned(shares, points), thinned(_curve((step, one["cosine"]) for step, one in met), points)


def _by_step(journal: Journal) -> Iterator[tuple[int, Entry]]:
    """The entries with a step, which is counted over all stages."""
    stage, before, last = None, 0, 0
    for entry in journal:
        if entry.get("stage") != stage:
            stage, before = entry.get("stage"), last
        step = entry.get("step")
        if isinstance(step, int):
            last = before + step
            yield last, entry


def _curve(points: Iterable[tuple[int, float | None]]) -> Curve:
    return [(float(x), float(y)) for x, y in points if isinstance(y, int | float)]
