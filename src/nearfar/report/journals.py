"""The journal of a run, typed, and the curves in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.errors import OutputError
from nearfar.experiments.records import journals
from nearfar.report.analysis import Curve, thinned


@dataclass(frozen=True)
class Conflicts:
    """The gradients of two tasks in some steps."""

    steps: int
    """Steps in which both tasks had a gradient."""
    conflicts: int
    """Steps in which the dot product was negative."""
    cosine: float | None
    """The mean cosine; None without such a step."""


@dataclass(frozen=True)
class Entry:
    """One line of a journal, as far as a report shows it."""

    step: int | None
    """Counted over all stages."""
    loss: float | None
    """The training loss of a step."""
    scores: Mapping[str, float]
    """The dev scores of an evaluation."""
    metric: str
    """The metric of an evaluation that decides which weights are kept."""
    task_losses: Mapping[str, float]
    conflicts: Mapping[str, Conflicts]
    """Pairs of tasks, under PCGrad."""


Journal = list[Entry]


def read_run_journal(folder: Path) -> Journal:
    """The journal of a single run; those of several stages one after the other."""
    paths = journals(folder)
    lines: list[dict[str, Any]] = []
    for stage, path in enumerate(paths, 1):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
            except ValueError as cause:
                raise OutputError(f"{path}:{number}: this is no entry ({cause}). Remove the line.") from cause
            lines.append({"stage": stage, **entry} if len(paths) > 1 else entry)
    return parse(lines)


def parse(lines: Iterable[Mapping[str, Any]]) -> Journal:
    """Typed entries; the steps of a stage continue those of the stage before."""
    stage, before, last = None, 0, 0
    entries = []
    for line in lines:
        if line.get("stage") != stage:
            stage, before = line.get("stage"), last
        step = line.get("step")
        if isinstance(step, int):
            last = step = before + step
        evaluation = line if line.get("kind") == "evaluation" else {}
        loss = line.get("loss") if line.get("kind") == "step" else None
        tasks = line["tasks"] if isinstance(line.get("tasks"), dict) else {}
        conflicts = {
            pair: Conflicts(int(one.get("steps") or 0), int(one.get("conflicts") or 0), one.get("cosine"))
            for pair, one in (line.get("surgery") or {}).items()
        }
        entry = Entry(
            step if isinstance(step, int) else None,
            loss if isinstance(loss, int | float) else None,
            _numbers(evaluation.get("scores") or {}),
            str(evaluation.get("metric") or ""),
            _numbers({name: one.get("loss") for name, one in tasks.items()}),
            conflicts,
        )
        entries.append(entry)
    return entries


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def losses(journal: Journal) -> Curve:
    """Steps and training losses."""
    return _curve((entry.step, entry.loss) for entry in journal)


def task_losses(journal: Journal, task: str) -> Curve:
    """Steps and training losses of one task."""
    return _curve((entry.step, entry.task_losses.get(task)) for entry in journal)


def dev_scores(journal: Journal, metric: str) -> Curve:
    """Steps and dev scores by a metric, or by the one that decides where that is not measured."""
    return _curve((entry.step, entry.scores.get(metric, entry.scores.get(entry.metric))) for entry in journal)


def total_conflicts(entries: Iterable[Entry]) -> dict[str, Conflicts]:
    """Pairs of tasks to their conflicts over all entries."""
    met: dict[str, list[Conflicts]] = {}
    for entry in entries:
        for pair, one in entry.conflicts.items():
            met.setdefault(pair, []).append(one)
    totals = {}
    for pair, group in met.items():
        steps = sum(one.steps for one in group)
        cosine = sum(one.steps * (one.cosine or 0.0) for one in group) / steps if steps else None
        totals[pair] = Conflicts(steps, sum(one.conflicts for one in group), cosine)
    return totals


def conflict_curves(journal: Journal, pair: str) -> tuple[Curve, Curve]:
    """Along the steps of two tasks: the percentage of conflicts, and the cosine of their gradients.

    In a long run each point is the mean of ten steps or more, because a single step is in conflict or is not.
    """
    met = [(entry.step, one) for entry in journal if (one := entry.conflicts.get(pair)) and one.steps]
    points = max(4, min(40, len(met) // 10))
    shares = _curve((step, 100 * one.conflicts / one.steps) for step, one in met)
    return thinned(shares, points), thinned(_curve((step, one.cosine) for step, one in met), points)


def _curve(points: Iterable[tuple[int | None, float | None]]) -> Curve:
    return [(float(x), float(y)) for x, y in points if x is not None and y is not None]
