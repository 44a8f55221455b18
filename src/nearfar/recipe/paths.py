"""Paths in a recipe count from the folder of the recipe."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from nearfar.errors import MEMORY
from nearfar.recipe.objectives import Blend, LabelAware, Objective
from nearfar.recipe.schema import Recipe

ELSEWHERE = ("hub:", "sample:", MEMORY)
"""How a source of texts begins that is not a file."""

Source = TypeVar("Source", str, str | float, str | float | None)
AnyObjective = TypeVar("AnyObjective", bound=Objective)


def resolve_paths(recipe: Recipe, base: Path) -> Recipe:
    """The recipe with absolute data files, and absolute encoder folders where there are some.

    Shares, ``auto``, ``-``, ``hub:``, ``sample:`` and ``memory:`` stay as they are, and so does a ``#split`` behind
    a file.
    """
    data = replace(
        recipe.data,
        train=_absolute(recipe.data.train, base),
        dev=recipe.data.dev if recipe.data.dev == "auto" else _absolute(recipe.data.dev, base),
        test=_absolute(recipe.data.test, base),
    )
    return replace(
        recipe,
        data=data,
        encoder=replace(recipe.encoder, name=_encoder(recipe.encoder.name, base)),
        objective=_objective(recipe.objective, base),
        stage=tuple(replace(stage, objective=_objective(stage.objective, base)) for stage in recipe.stage),
    )


def _objective(objective: AnyObjective, base: Path) -> AnyObjective:
    """The objective with an absolute folder for its own encoder, and so the parts of a blend."""
    if isinstance(objective, LabelAware) and objective.weighting is not None:
        return replace(objective, weighting=_encoder(objective.weighting, base))
    if isinstance(objective, Blend):
        return replace(objective, parts={name: _objective(part, base) for name, part in objective.parts.items()})
    return objective


def _encoder(name: str, base: Path) -> str:
    folder = _join(name, base)
    return folder if os.path.isdir(folder) else name  # unlike that of a Path, False for whatever is no usable path


def _absolute(source: Source, base: Path) -> Source:
    if not isinstance(source, str) or source == "-" or source.startswith(ELSEWHERE):
        return source
    return _join(source, base)


def _join(name: str, base: Path) -> str:
    return str((base / (os.path.expanduser(name) if name.startswith("~/") else name)).absolute())
