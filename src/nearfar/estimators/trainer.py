"""From settings of an estimator to a recipe, and from a recipe and data in memory to a trained model folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearfar.data import Layout
from nearfar.data.values import label_of
from nearfar.errors import SettingError, did_you_mean
from nearfar.estimators.folder import ModelFolder
from nearfar.recipe import Override, Recipe, build_recipe, resolve_paths
from nearfar.recipe.tasks import TaskRecipe

if TYPE_CHECKING:
    from nearfar.pipeline import Summary
    from nearfar.training import Callback

KEYS = {
    "encoder": "encoder.name",
    "max_length": "encoder.max_length",
    "pooling": "encoder.pooling",
    "head": "head.kind",
    "epochs": "training.epochs",
    "max_steps": "training.max_steps",
    "batch_size": "batches.size",
    "learning_rate": "training.learning_rate",
    "precision": "training.precision",
    "estimate": "training.estimate",
    "invalid": "data.invalid",
}
"""Settings of estimators and the recipe keys that they are."""


def recipe_of(name: str, settings: Mapping[str, Any], more: Mapping[str, object]) -> Recipe:
    """The recipe of an estimator.

    Args:
        name: of the estimator, for messages.
        settings: its parameters; those that are None are left to the recipe.
        more: further recipe keys, which have been decided for it.
    """
    values: dict[str, Any] = {"seed": seed_of(settings["random_state"]), "data": {"train": "memory:train"}}
    overrides = [
        Override(tuple(key.split(".")), _plain(settings[parameter]), f"{parameter}={settings[parameter]!r}")
        for parameter, key in KEYS.items()
        if settings.get(parameter) is not None
    ]
    objective = settings["objective"]
    if isinstance(objective, Mapping):
        values["objective"] = dict(objective)
    else:
        overrides.append(Override(("objective", "name"), objective, f"objective={objective!r}"))
    if settings.get("class_weight") is not None:
        weights = settings["class_weight"]
        overrides.append(Override(("objective", "class_weight"), _weights(weights), f"class_weight={weights!r}"))
    if "label_names" in settings and settings["label_names"] != "auto":
        names = settings["label_names"]
        overrides.append(Override(("data", "names"), _names(names), f"label_names={names!r}"))
    overrides += [Override(tuple(key.split(".")), value, f"{key}={value!r}") for key, value in more.items()]
    for key, value in (settings.get("settings") or {}).items():
        overrides.append(Override(tuple(key.split(".")), _plain(value), f"settings={{{key!r}: {value!r}}}"))
    return resolve_paths(build_recipe(values, overrides, where=name), Path.cwd())


def layout_of(columns: Mapping[str, Any] | None) -> Layout:
    """The columns that an estimator names."""
    known = [column.name for column in fields(Layout) if column.name != "columns"]
    for name in columns or {}:
        if name not in known:
            raise SettingError(
                f"columns names {name!r}, which is none of {', '.join(known)}.{did_you_mean(name, known)}"
            )
    named: dict[str, Any] = dict(columns or {})
    return Layout(**named)


def column_keys(layout: Layout) -> dict[str, object]:
    """The recipe keys of the columns that are read."""
    names = {column.name: getattr(layout, column.name) for column in fields(Layout)}
    return {f"data.{name}": value for name, value in names.items() if value is not None}


def _plain(value: Any) -> object:
    """A setting as a recipe has it: paths as strings, NumPy's numbers as Python's."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.item() if hasattr(value, "item") else value


def _weights(weights: Any) -> object:
    """Class weights by the names of the classes."""
    return (
        {label_of(_plain(label)): weight for label, weight in weights.items()}
        if hasattr(weights, "items")
        else (weights)
    )


def _names(names: Any) -> object:
    """Class names as a recipe has them: "none" for None, labels as strings, a path as it is."""
    if names is None:
        return "none"
    if not isinstance(names, Mapping):
        return _plain(names)
    return {label_of(_plain(label)): text if isinstance(text, str) else tuple(text) for label, text in names.items()}


def seed_of(random_state: Any) -> int:
    """The seed of a run: a number as it is, one that is drawn from a generator, or a new one each time for None."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        for method in ("integers", "randint"):  # of a Generator, of a RandomState
            if hasattr(random_state, method):
                return int(getattr(random_state, method)(2**31 - 1))
        raise SettingError(f"random_state is a whole number, a NumPy generator or None, got {random_state!r}.")
    return int(random_state)


def train_folder(
    recipe: Recipe | TaskRecipe, data: object, callbacks: Sequence[Callback], *, verbose: bool
) -> tuple[ModelFolder, Summary]:
    """Train in a temporary folder. Ctrl-C ends the training with the best weights so far, and a warning."""
    from nearfar.pipeline import train

    folder = ModelFolder.make()
    summary = train(recipe, folder.path, data=data, callbacks=shown(callbacks, verbose=verbose), on_interrupt="finish")
    warn_if_interrupted(summary)
    return folder, summary


def shown(callbacks: Sequence[Callback], *, verbose: bool) -> list[Callback]:
    """The callbacks, and a progress bar where one is wanted."""
    if not verbose:
        return list(callbacks)
    from nearfar.estimators.progress import ProgressBar

    return [*callbacks, ProgressBar()]


def warn_if_interrupted(summary: Summary) -> None:
    """Warn that a training has not come to its end."""
    if summary.progress is not None and summary.progress.interrupted:
        message = f"training was interrupted after step {summary.progress.step}; the model has the best weights so far"
        warnings.warn(message, stacklevel=4)
