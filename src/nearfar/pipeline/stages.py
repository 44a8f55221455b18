"""Trainings in a row: a recipe with stages is a list of recipes that share data, encoder and output."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nearfar.pipeline.data import RunData
from nearfar.pipeline.defaults import choose
from nearfar.recipe import Encoder, Recipe
from nearfar.recipe import Stage as StageTable
from nearfar.recipe.objectives import Auto
from nearfar.seeds import stream


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
    encoder = _shared_encoder(chosen)
    chosen = [replace(one, encoder=encoder) for one in chosen]
    return [Stage(number, len(chosen), one) for number, one in enumerate(chosen, 1)], notes


def written(stages: list[Stage]) -> Recipe:
    """One recipe that says what all stages were, with nothing left open but what was chosen for each in its own way."""
    last = stages[-1].recipe
    if len(stages) == 1:
        return last
    head, training = last.head, last.training
    if any(stage.recipe.head != head for stage in stages):
        head = replace(head, kind="auto")
    if any(stage.recipe.training.evaluate_every != training.evaluate_every for stage in stages):
        training = replace(training, evaluate_every="auto")
    if any(stage.recipe.training.head_learning_rate != training.head_learning_rate for stage in stages):
        training = replace(training, head_learning_rate=None)
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
    return replace(last, head=head, training=training, stage=tables)


def unstored(recipe: Recipe) -> Recipe:
    """The recipe but for where and how often things are stored, which changes nothing in a run."""
    return replace(recipe, training=replace(recipe.training, trackers=(), keep_checkpoints=1, checkpoint_every="epoch"))


def _shared_encoder(chosen: list[Recipe]) -> Encoder:
    """That of the last stage. Where some heads are trained and others fitted, both read one pooled vector."""
    encoder = chosen[-1].encoder
    trained = [one.objective.does.trains_head for one in chosen]
    fitted = [one.head.kind not in ("trained", "auto") for one in chosen]
    if encoder.pooling is None and any(trained) and any(fitted):
        asked = [one.encoder.pooling for one in chosen if one.encoder.pooling is not None]
        return replace(encoder, pooling=asked[-1] if asked else "mean")
    return encoder


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
