"""Texts that a saved model was trained on, where their file is still at hand."""

from __future__ import annotations

from pathlib import Path

from nearfar.data import Layout, Stream
from nearfar.errors import NearfarError
from nearfar.recipe.reader import read_recipe
from nearfar.recipe.tasks import has_tasks

WINDOW = 2_048
"""Rows at the beginning of the file that texts are taken from."""


def training_source(folder: Path) -> str | None:
    """The rows that a model was trained on; None where they are not at hand, or belong to several tasks."""
    recipe = folder / "recipe.toml"
    if not recipe.is_file() or has_tasks(recipe):
        return None
    named = read_recipe(recipe).data.train
    return named if named.startswith("sample:") or Path(named).exists() else None


def training_texts(folder: Path, most: int) -> tuple[list[str], ...]:
    """At most so many rows of the training file, as columns of texts; nothing where it cannot be read."""
    try:
        source = training_source(folder)
        if source is None:
            return ()
        data = read_recipe(folder / "recipe.toml").data
        layout = Layout(
            data.text, data.pair, columns=data.columns, negative=data.negative, encoding=data.encoding, large=data.large
        )
        window = next(iter(Stream(source, layout, size=WINDOW)), None)
    except (NearfarError, OSError):
        return ()
    if window is None:
        return ()
    step = -(-len(window.lines) // most) or 1
    return tuple(list(column[::step]) for column in window.texts)
