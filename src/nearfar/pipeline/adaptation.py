"""Adaptation to a domain: the encoder is trained on unlabeled texts before it is trained on labeled ones.

The training is that of plain texts, simcse with its defaults. docs/why/unlabeled-texts.md has what it changes.
"""

from __future__ import annotations

from collections.abc import Mapping

from nearfar.data import Records
from nearfar.errors import MEMORY, DataError, SettingError
from nearfar.pipeline.data import from_here, remedied
from nearfar.pipeline.unlabeled import SAME_COLUMN, sample
from nearfar.recipe import Data, Encoder, Recipe, Training
from nearfar.recipe.pair_objectives import SimCSE
from nearfar.seeds import stream


def domain_of(recipe: Recipe, memory: Mapping[str, object]) -> Records | None:
    """The unlabeled texts that the encoder is adapted to; None where that is not asked for."""
    source = recipe.data.unlabeled
    if not recipe.data.adapt:
        return None
    if isinstance(source, bool):
        raise SettingError(
            "data.adapt (--adapt) trains the encoder on unlabeled texts before the labeled ones: name a file of them "
            "with data.unlabeled (--unlabeled), beside labeled texts."
        )
    try:
        texts, lines, _ = sample(recipe, source, memory)
    except DataError as error:
        raise remedied(error, SAME_COLUMN) from None
    return Records((texts,), None, None, lines, from_here(source))


def adaptation_recipe(recipe: Recipe, encoder: str) -> Recipe:
    """The recipe of the training on unlabeled texts: of the whole recipe, the encoder and the precision count."""
    return Recipe(
        data=Data(train=f"{MEMORY}train", dev=0.0),
        encoder=Encoder(
            name=encoder, pooling=recipe.encoder.pooling, max_length=recipe.encoder.max_length, fast=recipe.encoder.fast
        ),
        objective=SimCSE(),
        training=Training(precision=recipe.training.precision),
        seed=stream(recipe.seed, "adapt") % 2**31,
    )
