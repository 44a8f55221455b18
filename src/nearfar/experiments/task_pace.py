"""How long a trial of several tasks takes, by its first steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from nearfar.errors import NearfarError
from nearfar.experiments.search import SEPARATE, task_recipe_of
from nearfar.experiments.study_schema import Values
from nearfar.experiments.trial import Trial
from nearfar.recipe import Recipe
from nearfar.recipe.tasks import TaskRecipe
from nearfar.training import Callback

STEPS = 4
"""Of each training."""


def task_seconds(trial: Trial) -> float:
    """What the trainings of a trial take, the stages before the tasks included; scores on dev rows are not counted."""
    return sum(_seconds(recipe, trial.contender) for recipe in _trainings(trial))


def _trainings(trial: Trial) -> Iterator[Recipe | TaskRecipe]:
    """Each training of a trial as a recipe of its own, without dev and test rows."""
    from nearfar.pipeline.task_run import stage_recipe

    values = dict(trial.values)
    separate, stages = values.pop(SEPARATE, False), values.pop("stage", [])
    values["training"] = {
        **{key: value for key, value in values.get("training", {}).items() if key != "evaluate_every"}, "keep": "last",
    }  # fmt: skip
    where, tasks = f"contender {trial.contender}", [_training_rows(task) for task in values["task"]]
    for group in [[task] for task in tasks] if separate else [tasks]:
        whole = task_recipe_of({**values, "stage": stages, "task": group}, trial.seed, where)
        for number, stage in enumerate(whole.stage, 1):
            yield stage_recipe(whole, stage, whole.encoder.name, number)
        yield task_recipe_of({**values, "task": group}, trial.seed, where)


def _training_rows(task: Values) -> Values:
    data = {key: value for key, value in task["data"].items() if key != "test"}
    return {**task, "data": {**data, "dev": 0}}


def _seconds(recipe: Recipe | TaskRecipe, contender: str) -> float:
    """Of a whole training: all of its steps at the pace of the first, and what came before them."""
    from nearfar import pipeline

    first = _FirstSteps()
    with tempfile.TemporaryDirectory() as place:
        try:
            pipeline.train(recipe, Path(place) / "model", callbacks=(first,))
        except _EnoughError:
            pass
        except NearfarError as error:
            raise NearfarError(f"contender {contender!r} would fail: {error}") from error
    return first.opening + first.steps * first.pace


class _EnoughError(Exception):
    """The first steps are over."""


class _FirstSteps(Callback):
    """The times of the first steps, after which it ends the training."""

    def __init__(self) -> None:
        self.began, self.opening, self.steps = time.perf_counter(), 0.0, 0
        self.times: list[float] = []

    def begin(self, steps: int) -> None:
        self.opening, self.steps = time.perf_counter() - self.began, steps
        self.times = [time.perf_counter()]

    def step(self, entry: object) -> None:  # noqa: ARG002 - the time alone counts
        self.times.append(time.perf_counter())
        if len(self.times) > STEPS:
            raise _EnoughError

    @property
    def pace(self) -> float:
        """The median seconds of a step."""
        return median(after - before for before, after in pairwise(self.times)) if self.times[1:] else 0.0
