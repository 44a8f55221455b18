"""One training of a contender on given rows, of one task or of several: what a trial and its search are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.data import Records
from nearfar.experiments.rows import columns_of
from nearfar.experiments.study_schema import Values, with_key
from nearfar.experiments.trial import Trial

if TYPE_CHECKING:
    from nearfar.recipe import Recipe
    from nearfar.recipe.tasks import TaskRecipe
    from nearfar.training import Callback


def train(
    trial: Trial,
    settings: Mapping[str, Any],
    records: Records,
    out: Path,
    *,
    dev: Records | None = None,
    test: Records | None = None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, dict[str, float]]:
    """Train the contender at a point of its search on these rows; returns the scores on dev and test rows, if any."""
    from nearfar import pipeline

    data: Values = {**trial.values.get("data", {}), "invalid": trial.source.invalid}
    if trial.source.pairs is None:  # where a dev file of scored pairs has columns of other names
        data |= {key: name for key, (name, _) in columns_of(records).items()}
    recipe = recipe_of(trial, settings, {**data, "train": "memory:train"})
    rows = {"train": records, "dev": dev, "test": test}
    summary = pipeline.train(recipe, out, data=rows, callbacks=callbacks)
    return {name: dict(summary.report(name).scores) for name in summary.reports}


def train_tasks(trial: Trial, out: Path) -> tuple[dict[str, float], int]:
    """Train all tasks of a contender; returns the score of each on its dev rows, and how many these are."""
    from nearfar import pipeline

    recipe = task_recipe_of(trial.values, trial.seed, f"contender {trial.contender}")
    summary = pipeline.train(recipe, out)
    reports = summary.reports["dev"]
    scores = {name: float(report.scores[summary.metrics[name]]) for name, report in reports.items()}
    return scores, sum(report.rows for report in reports.values())


def recipe_of(trial: Trial, settings: Mapping[str, Any], data: Mapping[str, Any]) -> Recipe:
    """The recipe of a trial at a point of its search, on this data."""
    from nearfar.recipe import build_recipe

    values: Values = {**trial.values, "seed": trial.seed, "data": dict(data)}
    for key, value in settings.items():
        values = with_key(values, key, value)
    training = _decided(values.get("training", {}))
    if trial.source.pairs is None and training.get("metric", "auto") == "auto":
        training["metric"] = trial.metric
    return build_recipe({**values, "training": training}, where=f"contender {trial.contender}")


def task_recipe_of(values: Values, seed: int, where: str) -> TaskRecipe:
    """The recipe of a trial of several tasks."""
    from nearfar.recipe.tasks import build_task_recipe

    training = _decided(values.get("training", {}))
    return build_task_recipe({**values, "seed": seed, "training": training}, where=where)


def _decided(training: Values) -> Values:
    """Settings of a training with what ``auto`` would decide by the clock: numbers must not depend on it."""
    import torch

    settings: Values = {"keep_checkpoints": 1, **training}
    if settings.get("precision", "auto") == "auto" and not torch.cuda.is_available():
        settings["precision"] = "fp32"
    return settings
