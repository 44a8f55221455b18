"""How several tasks do: each on its dev and test rows, their mean, and how they got on with each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.data import Records, read
from nearfar.encoding import Built
from nearfar.encoding.task_model import TaskCard, TaskModel, TaskNetwork
from nearfar.errors import DataError, SettingError
from nearfar.evaluation import PairReport, Report
from nearfar.pipeline.data import layout_of
from nearfar.pipeline.output import RECIPE
from nearfar.pipeline.tasks import Ready, judge, read_task, task_evaluator, truth_of
from nearfar.recipe.tasks import Task, TaskRecipe, read_task_recipe
from nearfar.training import LossModule, Progress
from nearfar.training.pcgrad import Conflicts, PairConflicts

MEAN: Any = "mean"
"""The score that picks the model."""


def mean_scores(reports: dict[str, Report], metrics: dict[str, str]) -> dict[str, float]:
    """The score of each task, and their mean, which picks the model."""
    own = {f"{name}/{metrics[name]}": report.scores[metrics[name]] for name, report in reports.items()}
    return {**own, MEAN: float(np.mean(list(own.values())))}


def evaluators_of(tasks: list[Ready], built: Built, network: TaskNetwork) -> dict[str, Callable[[], dict[str, Report]]]:
    """What measures all tasks that have such rows; the thresholds of the test rows are those of the dev rows."""
    thresholds: dict[str, dict[str, float]] = {}
    found: dict[str, Callable[[], dict[str, Report]]] = {}
    for split in ("dev", "test"):
        rows = {ready.name: getattr(ready.data, split) for ready in tasks}
        parts = {
            ready.name: task_evaluator(ready, built, network, rows[ready.name])
            for ready in tasks
            if rows[ready.name] is not None and len(rows[ready.name])
        }
        if not parts:
            continue

        def evaluate(parts: dict[str, Callable[..., Report]] = parts, split: str = split) -> dict[str, Report]:
            reports = {
                name: measure(thresholds.get(name) if split == "test" else None) for name, measure in parts.items()
            }
            for name, report in reports.items():
                if split == "dev" and isinstance(report, PairReport):
                    thresholds[name] = report.thresholds
            return reports

        found[split] = evaluate
    return found


def finished(ready: Ready, reports: dict[str, dict[str, Report]]) -> TaskCard:
    """The card of a task, with the thresholds that its dev rows chose."""
    report = reports.get("dev", {}).get(ready.name)
    if not isinstance(report, PairReport):
        return ready.card
    return replace(ready.card, threshold=report.threshold, accuracy_threshold=report.accuracy_threshold)


def metrics_of(
    tasks: list[Ready], progress: Progress, reports: dict[str, dict[str, Report]], journal: list[dict[str, Any]],
    module: LossModule,
) -> dict[str, Any]:  # fmt: skip
    """What ``metrics.json`` says of a run."""
    metrics = {ready.name: ready.card.metric for ready in tasks}
    found: dict[str, Any] = {}
    for split, own in reports.items():
        found[split] = {name: report.to_dict() for name, report in own.items()}
        if len(own) == len(tasks):
            found[split][MEAN] = mean_scores(own, metrics)[MEAN]
    found["metrics"] = metrics
    found["training"] = {
        "steps": progress.step,
        "best_step": progress.best["step"] if progress.best else progress.step,
        "evaluations": progress.evaluations,
        "texts_per_second": progress.texts / progress.seconds if progress.seconds else None,
        "seconds": progress.seconds,
    }
    met = met_in(journal)
    if met is not None:
        found["surgery"] = met.entry()
    if learned := module.learned_weights():
        found["task_weights"] = learned
    return found


def met_in(journal: list[dict[str, Any]]) -> Conflicts | None:
    """How the tasks got on with each other in all steps of a journal; None where no step had surgery."""
    total: Conflicts | None = None
    for entry in journal:
        if "surgery" not in entry:
            continue
        pairs = {}
        for pair, own in entry["surgery"].items():
            one, _, other = pair.partition(" / ")
            cosine = own["cosine"] if own["cosine"] is not None else 0.0
            pairs[one, other] = PairConflicts(
                steps=own["steps"], conflicts=own["conflicts"], cosines=cosine * own["steps"]
            )
        names = tuple(dict.fromkeys(name for pair in pairs for name in pair))
        step = Conflicts(tasks=names, pairs=pairs)
        total = step if total is None else total + step
    return total


def evaluate_saved(
    folder: Path, model: TaskModel, task: str | None = None, *, batch_size: int = 64
) -> tuple[dict[str, dict[str, Report]], list[str]]:
    """All tasks of a saved model, or one, on the dev and test rows that its own recipe names; and what to know."""
    recipe = read_task_recipe(folder / RECIPE)
    notes: list[str] = []
    found: dict[str, dict[str, Report]] = {}
    for table in recipe.task:
        if task not in (None, table.name):
            continue
        card = model.card(table.name)
        rows, told = _measured_rows(recipe, table)
        notes += told
        own = {"threshold": card.threshold, "accuracy_threshold": card.accuracy_threshold}
        thresholds = (
            None if card.threshold is None else {name: value for name, value in own.items() if value is not None}
        )
        for split, records in rows.items():
            outputs = model.outputs(card.name, records.texts, batch_size=batch_size)
            report = judge(card, outputs, truth_of(card, records), thresholds)
            found.setdefault(split, {})[card.name] = report
    if not found:
        raise SettingError(
            f"{folder}: its recipe names no dev or test rows; give --task and FILE to measure a task on others."
        )
    return found, notes


def _measured_rows(recipe: TaskRecipe, task: Task) -> tuple[dict[str, Records], list[str]]:
    """The dev and test rows of a task, and what to know. Files suffice; a share is drawn from the training rows."""
    named = {"dev": task.data.dev, "test": task.data.test}
    try:
        ready = read_task(recipe, task)
    except DataError as error:
        if any(part == "auto" or (isinstance(part, int | float) and part > 0) for part in named.values()):
            elsewhere = f"Other rows: --task {task.name} FILE."
            raise DataError(
                [
                    replace(problem, message=f"task {task.name!r}: {problem.message}",
                            remedy=f"{problem.remedy} {elsewhere}")
                    for problem in error.problems
                ]
            ) from None  # fmt: skip
        layout = layout_of(recipe.plain(task))
        files = {split: read(str(part), layout, invalid=task.data.invalid) for split, part in named.items() if part}
        return files, [f"task {task.name}: its training rows cannot be read: {error.problems[0]}"]
    parts = {"dev": ready.data.dev, "test": ready.data.test}
    return {split: part for split, part in parts.items() if part is not None and len(part)}, list(ready.notes)
