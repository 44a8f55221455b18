"""From a recipe to a plan: all data read, everything chosen, whatever does not fit refused; nothing is written yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from accelerate import Accelerator

from nearfar.evaluation import Report
from nearfar.pipeline.prepared import Prepared
from nearfar.pipeline.results import Reports
from nearfar.recipe import Recipe, Training
from nearfar.recipe.tasks import TaskRecipe
from nearfar.training import LossModule
from nearfar.training.precision import Precision


class OpenRun(Protocol):
    """A run whose model is in memory."""

    @property
    def notes(self) -> list[str]:
        """What the user should know about model and data."""

    def opening(self, precision: str) -> str:
        """What is trained on what, in words."""

    def prepare(self, number: int) -> Prepared:
        """The training of a stage, counted from 0; the weights are those that the stage before it left."""

    def fit_head(self) -> None:
        """Fit the class head to the trained encoder, where it is not trained with it."""

    def evaluators(self) -> dict[str, Callable[[], dict[str, Report]]]:
        """For dev and test rows, where there are some, what measures the tasks."""

    def save(self, out: Path, module: LossModule, reports: Reports, metrics: dict[str, Any]) -> None:
        """Write the model folder."""


class RunPlan(Protocol):
    """A run with nothing left open."""

    @property
    def notes(self) -> list[str]:
        """What the user should know about the data and what was chosen."""

    @property
    def training(self) -> Training:
        """The training table of the last stage."""

    @property
    def metrics(self) -> dict[str, str]:
        """The score of each task that picks the model."""

    @property
    def stages(self) -> int:
        """How many trainings follow each other on the same data."""

    @property
    def earlier(self) -> Sequence[Callable[[str | None], Recipe]]:
        """Trainings of the encoder on other data, before: the encoder they begin with to their recipe."""

    @property
    def classifies(self) -> bool:
        """Whether the model predicts classes or scores; else it embeds texts."""

    def reads(self) -> list[object]:
        """The files and folders that the run reads, among other values."""

    def recipe_text(self) -> str:
        """The recipe as it is saved."""

    def config(self) -> dict[str, Any]:
        """The settings as trackers show them."""

    def journal(self, number: int) -> str:
        """The file of a stage's journal."""

    def open(self, accelerator: Accelerator, precision: Precision, encoder: str | None = None) -> OpenRun:
        """Open the model; ``encoder`` takes the place of the recipe's."""


def plan_recipe(recipe: Recipe | TaskRecipe, data: object = None) -> RunPlan:
    """The plan of a plain recipe or of one with tasks; ``data`` in memory takes the place of its files."""
    from nearfar.pipeline.encoder_run import plan_encoder_run
    from nearfar.pipeline.task_run import plan_task_run

    return plan_task_run(recipe, data) if isinstance(recipe, TaskRecipe) else plan_encoder_run(recipe, data)
