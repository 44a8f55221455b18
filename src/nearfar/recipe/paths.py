"""Paths in a recipe count from the folder of the recipe."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from nearfar.recipe.schema import Recipe

ELSEWHERE = ("hub:", "sample:")
"""How a source of texts begins that is not a file."""

Source = TypeVar("Source", str, str | float, str | float | None)


def resolve_paths(recipe: Recipe, base: Path) -> Recipe:
    """The recipe with absolute data files, and an absolute encoder folder where there is one.

    Shares, ``auto``, ``-``, ``hub:`` and ``sample:`` stay as they are, and so does a ``#split`` behind a file.
    """
    data = replace(
        recipe.data,
        train=_absolute(recipe.data.train, base),
        dev=recipe.data.dev if recipe.data.dev == "auto" else _absolute(recipe.data.dev, base),
        test=_absolute(recipe.data.test, base),
    )
    folder = _join(recipe.encoder.name, base)
    encoder = replace(recipe.encoder, name=folder) if Path(folder).is_dir() else recipe.encoder
    return replace(recipe, data=data, encoder=encoder)


def _absolute(source: Source, base: Path) -> Source:
    if not isinstance(source, str) or source == "-" or source.startswith(ELSEWHERE):
        return source
    return _join(source, base)


def _join(name: str, base: Path) -> str:
    return str((base / (os.path.expanduser(name) if name.startswith("~/") else name)).absolute())
