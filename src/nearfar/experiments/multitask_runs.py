"""One training of several tasks at once: what a trial of a table of several tasks is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from nearfar.errors import NearfarError
from nearfar.experiments.records import JOURNAL
from nearfar.experiments.runs import Trial

if TYPE_CHECKING:
    from nearfar.recipe.tasks import TaskRecipe

TASKS = "tasks"
"""The kind of a trial that trains several tasks."""
MEAN = "mean"
"""The score that chooses the weights, beside that of each task under its name."""


def task_recipe_of(values: Mapping[str, Any], seed: int, where: str) -> TaskRecipe:
    """The recipe of a run. What ``auto`` would decide by the clock is decided here: numbers must not depend on it."""
    import torch

    from nearfar.recipe.tasks import build_task_recipe

    training: dict[str, Any] = {"keep_checkpoints": 1, **values.get("training", {})}
    if training.get("precision", "auto") == "auto" and not torch.cuda.is_available():
        training["precision"] = "fp32"
    return build_task_recipe({**values, "seed": seed, "training": training}, where=where)


def perform_tasks(trial: Trial, scratch: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Train all tasks in an empty folder: what a record has of it, and its journal.

    Args:
        trial: its values are those of a recipe with tasks.
        scratch: a folder for the model, which is of no use afterwards.
    """
    from nearfar.pipeline import train

    out = scratch / "model"
    recipe = task_recipe_of(trial.values, trial.seed, f"contender {trial.contender}")
    summary = train(recipe, out)
    reports = summary.reports["dev"]
    scores = {name: float(report.scores[summary.metrics[name]]) for name, report in reports.items()}
    wrong = [name for name, score in scores.items() if not math.isfinite(score)]
    if wrong:
        raise NearfarError(f"the {summary.metrics[wrong[0]]} of {wrong[0]} is {scores[wrong[0]]}; it is no number.")
    found = {
        "scores": {**scores, MEAN: fmean(scores.values())},
        "test": sum(report.rows for report in reports.values()),
        "recipe": dict(trial.values),
    }
    return found, {JOURNAL: (out / "journal.jsonl").read_bytes()}
