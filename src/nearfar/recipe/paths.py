"""Paths in a recipe are relative to its folder."""

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
"""Prefixes of data sources that are not files."""

Source = TypeVar("Source", str, str | float, str | float | None)
AnyObjective = TypeVar("AnyObjective", bound=Objective)


def resolve_paths(recipe: Recipe, base: Path) -> Recipe:
    """The recipe with absolute paths of data files and encoder folders.

    Shares, ``auto``, ``-``, ``hub:``, ``sample:`` and ``memory:`` are unchanged, and so is a ``#split`` after a file.
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
    """The objective, or the parts of a blend, with absolute encoder folders."""
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
    return folder if os.path.isdir(folder) else name  # unlike Path.is_dir, False for an unusable path


def _absolute(source: Source, base: Path) -> Source:
    if not isinstance(source, str) or source == "-" or source.startswith(ELSEWHERE):
        return source
    return _join(source, base)


def _join(name: str, base: Path) -> str:
    return str((base / (os.path.expanduser(name) if name.startswith("~/") else name)).absolute())
