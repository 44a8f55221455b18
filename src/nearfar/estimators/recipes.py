"""``nearfar.train``: any recipe on data in memory or in files, to a fitted estimator."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.data import Layout, named_splits
from nearfar.errors import MEMORY, SettingError
from nearfar.estimators.folder import ModelFolder
from nearfar.estimators.rows import is_table, target_type
from nearfar.estimators.saved_model import open_estimator
from nearfar.estimators.trainer import shown, train_folder, warn_if_interrupted
from nearfar.recipe import Override, Recipe, build_recipe, read_recipe, resolve_paths
from nearfar.recipe.tasks import TaskRecipe, build_task_recipe, has_tasks, read_task_recipe

if TYPE_CHECKING:
    from nearfar.estimators.classifier import Classifier
    from nearfar.estimators.encoder import Encoder
    from nearfar.estimators.multitask import MultiTask
    from nearfar.training import Callback

Source = str | os.PathLike[str] | Mapping[str, Any] | Recipe | TaskRecipe


def train(
    recipe: Source,
    data: Any = None,
    *,
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    verbose: bool = False,
    resume: bool = False,
    overwrite: bool = False,
) -> Classifier | Encoder | MultiTask:
    """Train what a recipe describes: any objective, stages, several tasks. What ``nearfar train RECIPE`` does.

    Args:
        recipe: a recipe file, its tables as a dictionary, or a `nearfar.Recipe`.
        data: rows in memory in place of the recipe's files: the training rows, or a dictionary with ``train``, ``dev``
            and ``test``; with several tasks, one of these for each task by its name.
        out: the folder of the model; None for a temporary one, which ``save`` copies.
        settings: recipe keys that replace those of the recipe, such as ``{"training.epochs": 3}``.
        callbacks: objects that follow the training: `nearfar.Callback`.
        verbose: show the progress.
        resume: continue the run in ``out``.
        overwrite: replace what is in ``out``.

    Returns:
        A fitted `nearfar.Classifier`, a `nearfar.Encoder`, or a model of several tasks.

    >>> import nearfar
    >>> rows = {"text": ["an apple", "a plum", "a saw", "a drill"], "label": ["fruit", "fruit", "tool", "tool"]}
    >>> model = nearfar.train({"encoder": {"name": "toy"}, "objective": {"name": "supcon"}}, data=rows)
    >>> model.classes_.tolist()
    ['fruit', 'tool']
    """
    built = recipe_from(recipe, settings or {}, in_memory=data is not None)
    if out is None:
        if resume or overwrite:
            raise SettingError("resume and overwrite are for the run in a folder; name it with out.")
        folder, _ = train_folder(built, data, callbacks, verbose=verbose)
        _write_labels(folder, built, data)
        model = open_estimator(folder.path)
        model._folder = folder  # which keeps the files
        return model
    from nearfar import pipeline

    target = Path(out)
    followers = shown(callbacks, verbose=verbose)
    summary = pipeline.train(
        built, target, data=data, resume=resume, overwrite=overwrite, callbacks=followers, on_interrupt="finish"
    )
    warn_if_interrupted(summary)
    _write_labels(ModelFolder(target, temporary=False), built, data)
    return open_estimator(target)


def recipe_from(source: Source, settings: Mapping[str, Any], *, in_memory: bool) -> Recipe | TaskRecipe:
    """The recipe of a file, of tables or as it is, with settings on top; data in memory needs no ``data.train``."""
    overrides = [
        Override(tuple(key.split(".")), value, f"settings={{{key!r}: {value!r}}}") for key, value in settings.items()
    ]
    if isinstance(source, Recipe | TaskRecipe):
        if settings:
            raise SettingError("settings change the keys of a recipe file or of a dictionary; this is a Recipe.")
        return source
    if isinstance(source, Mapping):
        values = dict(source)
        if "task" in values:
            values["task"] = [_with_data(task, in_memory=in_memory) for task in values["task"]]
            return build_task_recipe(values, overrides, where="nearfar.train")
        values = _with_data(values, in_memory=in_memory)
        return resolve_paths(build_recipe(values, overrides, where="nearfar.train"), Path.cwd())
    path = Path(source)
    if has_tasks(path):
        if in_memory:
            return _task_file(path, overrides)
        return read_task_recipe(path, overrides)
    if in_memory:
        overrides.insert(0, Override(("data", "train"), f"{MEMORY}train", "data"))
    return resolve_paths(read_recipe(path, overrides), path.absolute().parent)


def _with_data(values: Mapping[str, Any], *, in_memory: bool) -> dict[str, Any]:
    """The tables with a place for data in memory."""
    table = dict(values)
    if in_memory and isinstance(table.get("data", {}), Mapping):
        table["data"] = {"train": f"{MEMORY}train", **table.get("data", {})}
    return table


def _task_file(path: Path, overrides: list[Override]) -> TaskRecipe:
    """A recipe of several tasks whose data is in memory, so that the file need not name it."""
    tasks = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("task", [])
    missing = [
        Override(("task", str(place), "data", "train"), f"{MEMORY}train", "data")
        for place, task in enumerate(tasks)
        if isinstance(task, Mapping) and "train" not in task.get("data", {})
    ]
    return read_task_recipe(path, [*missing, *overrides])


def _write_labels(folder: ModelFolder, recipe: Recipe | TaskRecipe, data: Any) -> None:
    """Keep the type of the labels of a table, so that predictions have it."""
    if data is None or isinstance(recipe, TaskRecipe):
        return
    rows = named_splits(data).get(f"{MEMORY}train")
    if is_table(rows):
        layout = Layout(text=recipe.data.text, pair=recipe.data.pair, label=recipe.data.label, score=recipe.data.score)
        folder.write_settings({"label_type": target_type(rows, layout)})
