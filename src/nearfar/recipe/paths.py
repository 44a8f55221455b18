"""Paths in a recipe count from the folder of the recipe."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from nearfar.errors import MEMORY
from nearfar.recipe.capabilities import Objective
from nearfar.recipe.keys import entries, fits
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
    """The objective with absolute folders for encoders that it names, and so the parts of a blend."""
    changes: dict[str, Any] = {}
    for name, entry in entries(type(objective)).items():
        value = getattr(objective, name)
        if entry.key.encoder and value is not None:
            changes[name] = _encoder(value, base)
        elif fits(entry.kind).values is not None and fits(fits(entry.kind).values).tables:
            changes[name] = {key: _objective(part, base) for key, part in value.items()}
    return replace(objective, **changes)


def _encoder(name: str, base: Path) -> str:
    folder = _join(name, base)
    return folder if os.path.isdir(folder) else name  # unlike that of a Path, False for whatever is no usable path


def _absolute(source: Source, base: Path) -> Source:
    if not isinstance(source, str) or source == "-" or source.startswith(ELSEWHERE):
        return source
    return _join(source, base)


def _join(name: str, base: Path) -> str:
    return str((base / (os.path.expanduser(name) if name.startswith("~/") else name)).absolute())
