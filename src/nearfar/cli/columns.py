"""Columns of a file where none are named: those that the model was trained on, if the file has them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from nearfar.data import Layout, columns_of
from nearfar.errors import NearfarError
from nearfar.recipe import read_recipe
from nearfar.recipe.tasks import has_tasks, read_task_recipe

NAMED = ("text", "pair", "label", "score", "negative", "query_id", "doc_id")


def remembered(
    model: str, source: str, layout: Layout, *, task: str | None = None, columns: Collection[str] | None = None
) -> Layout:
    """The layout with the columns of the model's recipe, where none is named and the file has all of them.

    ``columns`` are those of the file, where they are known.
    """
    recipe = Path(model) / "recipe.toml"
    if not recipe.is_file():
        return layout
    try:
        data = _data_of(recipe, task)
        if layout.label_separator is None and layout.score is None:
            layout = replace(layout, label_separator=getattr(data, "label_separator", None))
        if source == "-" or any(getattr(layout, name) is not None for name in NAMED):
            return layout
        names = {name: value for name in NAMED if (value := getattr(data, name, None)) is not None}
    except NearfarError:  # reported where the recipe is needed
        return layout
    known = columns_of(source, layout) if columns is None else set(columns)
    indicators = getattr(data, "label_columns", None)
    if indicators and known.issuperset(indicators):
        return replace(layout, **{**names, "label_columns": indicators})
    return replace(layout, **names) if names and known.issuperset(names.values()) else layout


def _data_of(recipe: Path, task: str | None) -> object:
    """The data table of a saved recipe; of several tasks that of the one that is named, or of the only one."""
    if has_tasks(recipe):
        tasks = read_task_recipe(recipe).task
        return (
            next((each.data for each in tasks if task in (each.name, None)), None) if task or len(tasks) == 1 else None
        )
    return read_recipe(recipe).data
