"""Trainings in a row: a recipe with stages is a list of recipes that share data, encoder and output."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nearfar.assembly.choosing import choose
from nearfar.assembly.data import RunData
from nearfar.recipe import Recipe
from nearfar.recipe import Stage as StageTable
from nearfar.recipe.objectives import Auto
from nearfar.seeding import stream


@dataclass(frozen=True)
class Stage:
    """One training, with nothing left open."""

    number: int
    """From 1."""
    of: int
    recipe: Recipe

    @property
    def seed(self) -> int:
        """The first stage has the recipe's seed, so that one stage is the same as none."""
        return self.recipe.seed if self.number == 1 else stream(self.recipe.seed, "stage", self.number)

    def stream(self, name: str) -> int:
        """A number for one kind of randomness in this stage."""
        return stream(self.seed, name)

    @property
    def title(self) -> str:
        """How it is announced."""
        return f"stage {self.number} of {self.of}: " if self.of > 1 else ""

    @property
    def folder(self) -> str:
        """Where its checkpoints are, below the folder for all of them."""
        return f"stage-{self.number}" if self.of > 1 else "."

    def journal(self, name: str) -> str:
        """The file of its journal."""
        return name.replace(".", f"-{self.number}.", 1) if self.of > 1 else name


def plan_stages(recipe: Recipe, data: RunData) -> tuple[list[Stage], list[str]]:
    """The stages of a recipe, one if it names none, and what the user should know about them."""
    plain = [_of_stage(recipe, table) for table in recipe.stage] or [recipe]
    notes: list[str] = []
    if recipe.stage and not isinstance(recipe.objective, Auto) and recipe.objective != recipe.stage[-1].objective:
        notes.append(
            f"objective.name {recipe.objective.name!r} is not used: every [[stage]] has an objective of its own"
        )
    chosen: list[Recipe] = []
    for one in plain:
        found, told = choose(one, data)
        chosen.append(found)
        notes.extend(note for note in told if note not in notes)
    return [Stage(number, len(chosen), one) for number, one in enumerate(chosen, 1)], notes


def written(stages: list[Stage]) -> Recipe:
    """One recipe that says what all stages were, with nothing left open."""
    last = stages[-1].recipe
    if len(stages) == 1:
        return last
    tables = tuple(
        StageTable(
            objective=stage.recipe.objective,
            epochs=stage.recipe.training.epochs,
            learning_rate=stage.recipe.training.learning_rate,
            batch_size=stage.recipe.batches.size,
            shuffle=stage.recipe.batches.shuffle,
        )
        for stage in stages
    )
    return replace(last, stage=tables)


def _of_stage(recipe: Recipe, table: StageTable) -> Recipe:
    training, batches = recipe.training, recipe.batches
    return replace(
        recipe,
        stage=(),
        objective=table.objective,
        training=replace(
            training,
            epochs=table.epochs or training.epochs,
            learning_rate=table.learning_rate or training.learning_rate,
        ),
        batches=replace(batches, size=table.batch_size or batches.size, shuffle=table.shuffle or batches.shuffle),
    )
