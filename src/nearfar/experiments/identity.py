"""The names of trials: a hash of everything that determines their numbers, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from nearfar import __version__
from nearfar.data import RowType
from nearfar.experiments.records import DataSet
from nearfar.experiments.study_schema import Values
from nearfar.experiments.trial import Trial
from nearfar.recipe import Recipe
from nearfar.recipe.reader import ALIASES

LETTERS = 16
"""Hexadecimal digits of a name."""
VERSION = ".".join(__version__.split(".")[:2])
IRRELEVANT = ("trackers", "keep_checkpoints", "checkpoint_every")
"""Settings of the training that change no number."""
LATER: Mapping[str, object] = {
    "batches.memory": 4.0,
    "batches.neighbors": 5,
    "encoder.frozen": False,
    "head.keep_vectors": False,
    "training.bias_correction": True,
    "training.estimate": True,
    "training.keep": "auto",
    "training.keep_untrained": None,
    "objective.pair-triplet.negatives": "batch",
    "objective.proxy-nca.distance": "squared",
    "objective.supcon.views": "none",
    "objective.cross-entropy+supcon.views": "none",
    **{f"objective.{name}.class_weights": "none" for name in ("auto", "contrastive", "proxy-nca", "soft-triple")},
    **{f"objective.{name}.class_weights": "none" for name in ("supcon", "triplet")},
}
"""Keys of a recipe that came later, with the value that every trial before them had: at it they change no name.

A key of an objective has the name of the objective before it.
"""
STATED = {"warmup": (None, 0.06), "schedule": ("auto", "linear")}
"""Settings of the training that are unset now by default, and what they were before; mirror sets its own."""


def trial_id(trial: Trial, recipe: Recipe, data: DataSet) -> str:
    """The name of a trial.

    The metric is part of it only where something is chosen by it, settings or the weights that are kept.
    """
    chooses = trial.source.pairs is None and _has_dev(recipe, min(trial.limit or data.rows, data.rows))
    values = asdict(replace(recipe, seed=trial.seed))
    for key in IRRELEVANT:
        del values["training"][key]
    values["data"] = {key: values["data"][key] for key in ("dev", "limit", "per_class")}
    if recipe.data.positives_only:
        values["data"]["positives_only"] = True
    if isinstance(values["data"]["dev"], str) and values["data"]["dev"] != "auto":
        values["data"]["dev"] = _content(values["data"]["dev"])
    values = _with_contents(_without_later(former_names(values)))
    everything: Values = {
        "nearfar": VERSION,
        "recipe": values,
        "data": data.digest,
        "limit": trial.limit,
        "folds": trial.folds,
        "fold": trial.fold,
        "search": None if trial.search is None else asdict(trial.search),
        "metric": trial.metric if trial.search is not None or chooses else None,
    }
    if trial.untrained is not None:
        everything |= {"untrained": trial.untrained, "recipe": {"encoder": values["encoder"]}}
        tested = trial.source.pairs is not None or trial.source.test is not None
        if trial.untrained == "as-is" and tested and not RowType(trial.kind).has_binary_labels:
            # Neither training rows nor seeds have a part in it; where labels are binary, they choose the threshold.
            everything |= {"data": data.digest.partition(" ")[2], "limit": None}
        else:
            everything["seed"] = trial.seed
    if trial.random_letters:
        everything["random_letters"] = True
    if trial.mined is not None:
        everything["mined"] = _with_contents(asdict(trial.mined))
    return digest(everything)[:LETTERS]


def task_trial_id(values: Values, seed: int, digests: Mapping[str, str]) -> str:
    """The name of a trial of several tasks, by the digests of their rows, wherever these are stored."""
    plain = former_names(json.loads(json.dumps(values)))
    for part in (*plain["task"], *plain.get("stage", ())):
        part["data"] = {"limit": part["data"].get("limit")}
        if part.get("metric") in ("accuracy", "pearson"):  # which tasks were first measured by without saying so
            del part["metric"]
    return digest(VERSION, plain, seed, dict(digests), ascii_only=True)[:LETTERS]


def digest(*values: object, ascii_only: bool = False) -> str:
    """A hash of values as JSON has them."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=ascii_only)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def former_names(values: Any) -> Any:
    """The values of a recipe under the first names of its keys: a key that was renamed makes no other trial.

    >>> former_names({"batches": {"shingle_size": 2, "shuffle": "shingles"}})
    {'batches': {'words': 2, 'shuffle': 'words'}}
    """
    for alias in reversed(ALIASES):
        *tables, key = alias.key.split(".")
        new = (alias.now, key) if alias.value is None else (key, key)
        values = _renamed(values, tables, new, None if alias.value is None else (alias.now, alias.value))
    return values


def _renamed(values: Any, tables: Sequence[str], keys: tuple[str, str], texts: tuple[str, str] | None) -> Any:
    """The values with a key renamed, or a text of it, in the tables that some names lead to; ``*`` is every entry."""
    if tables and tables[0] == "*" and isinstance(values, list | tuple):
        return [_renamed(value, tables[1:], keys, texts) for value in values]
    if not isinstance(values, dict):
        return values
    if tables:
        inner = {name: _renamed(values[name], tables[1:], keys, texts) for name in tables[:1] if name in values}
        return {**values, **inner}
    return {
        keys[1] if name == keys[0] else name: texts[1] if texts and (name, value) == (keys[0], texts[0]) else value
        for name, value in values.items()
    }


def _without_later(values: Values) -> Values:
    """The values of a recipe without the keys that came later, where they change nothing."""
    objectives = [values["objective"], *(stage["objective"] for stage in values["stage"])]
    objectives += [part for objective in objectives for part in objective.get("parts", {}).values()]
    if not any(objective["name"] == "mirror" for objective in objectives):
        for name, (unset, former) in STATED.items():
            if values["training"][name] == unset:
                values["training"][name] = former
    for key, former in LATER.items():
        *tables, name = key.split(".")
        if len(tables) == 1:
            holders = [values[tables[0]]]
        else:
            holders = [objective for objective in objectives if objective["name"] == tables[1]]
        for holder in holders:
            if holder.get(name) == former:
                del holder[name]
    return values


def _has_dev(recipe: Recipe, rows: int) -> bool:
    """Whether dev rows may be set aside."""
    from nearfar.pipeline.data import AUTO_ROWS

    return rows >= AUTO_ROWS if recipe.data.dev == "auto" else bool(recipe.data.dev)


def _with_contents(values: Any) -> Any:
    """Folders of encoders by what is in them, wherever they are."""
    if isinstance(values, dict):
        return {key: _with_contents(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [_with_contents(value) for value in values]
    if isinstance(values, str) and values.startswith("/") and Path(values).is_dir():
        return _content(values)
    return values


@cache
def _content(name: str) -> str:
    """A digest of a file, or of all files of a folder."""
    path = Path(name.rpartition("#")[0] or name) if "#" in name and not Path(name).exists() else Path(name)
    if not path.exists():
        return name
    files = sorted(inner for inner in path.rglob("*") if inner.is_file()) if path.is_dir() else [path]
    content = hashlib.sha256(name.rpartition("#")[2].encode() if "#" in name else b"")
    for file in files:
        content.update(f"{file.relative_to(path) if path.is_dir() else ''}\0".encode())
        with file.open("rb") as stream:
            content.update(hashlib.file_digest(stream, "sha256").digest())
    return f"content:{content.hexdigest()}"
