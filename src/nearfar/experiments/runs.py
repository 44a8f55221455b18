"""One training of a contender on given rows: what a trial is made of, and every point of its search."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearfar.data import Records
from nearfar.experiments.study import with_key

if TYPE_CHECKING:
    from nearfar.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the rows of a trial come from."""

    name: str
    file: str
    """Where it is."""
    given: str
    """As the study file has it, which is what a record says."""
    test: str | None = None
    layout: dict[str, Any] = field(default_factory=dict)
    invalid: str = "refuse"
    pairs: dict[str, str] | None = None
    """Files of scored pairs to test on, by the names of their sets, in place of ``test``."""
    pairs_limit: int | None = None
    """How many pairs of each file; None for all."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """All that a trial needs, as JSON has it."""

    id: str
    source: Source
    limit: int | None
    contender: str
    values: dict[str, Any]
    """The recipe without data and seed."""
    seed: int
    fold: int
    folds: int
    metric: str
    kind: str
    digest: str
    """Of the rows, which must be those that the study was planned with."""
    search: dict[str, Any] | None = None
    keeps_map: bool = False
    untrained: str | None = None
    """What is tested in place of a training; None trains."""
    random_letters: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Trial:
        """The trial that ``dataclasses.asdict`` took apart."""
        return cls(**{**values, "source": Source(**values["source"])})


def train(
    trial: Trial,
    settings: Mapping[str, Any],
    records: Records,
    out: Path,
    *,
    dev: Records | None = None,
    test: Records | None = None,
    listeners: tuple[Any, ...] = (),
) -> dict[str, dict[str, float]]:
    """Train the contender at a point of its search on these rows; returns the scores on dev and test rows, if any."""
    from nearfar.pipeline import train as train_recipe

    data: dict[str, Any] = {**trial.values.get("data", {}), "invalid": trial.source.invalid}
    if trial.source.pairs is None:  # where a dev file of scored pairs has columns of other names
        data |= {key: name for key, (name, _) in columns_of(records).items()}
    recipe = recipe_of(trial, settings, {**data, "train": "memory:train"})
    rows = {"train": records, "dev": dev, "test": test}
    summary = train_recipe(recipe, out, data=rows, callbacks=listeners)
    return {split: dict(summary.report(split).scores) for split in summary.reports}


def recipe_of(trial: Trial, settings: Mapping[str, Any], data: Mapping[str, Any]) -> Recipe:
    """The recipe of a run. What ``auto`` would decide by the clock is decided here: numbers must not depend on it."""
    import torch

    from nearfar.recipe import build_recipe

    values: dict[str, Any] = {**trial.values, "seed": trial.seed}
    for key, value in settings.items():
        values = with_key(values, key, value)
    training: dict[str, Any] = {"keep_checkpoints": 1, **values.get("training", {})}
    if training.get("precision", "auto") == "auto" and not torch.cuda.is_available():
        training["precision"] = "fp32"
    if trial.source.pairs is None and training.get("metric", "auto") == "auto":
        training["metric"] = trial.metric
    return build_recipe({**values, "data": dict(data), "training": training}, where=f"contender {trial.contender}")


def columns_of(records: Records) -> dict[str, tuple[str, Sequence[object]]]:
    """The columns that rows are written in, by the keys of a recipe that name them: the name and the values."""
    names = {1: ("text",), 2: ("text_a", "text_b"), 3: ("anchor", "positive", "negative")}[len(records.texts)]
    texts = zip(names, records.texts, strict=True)
    columns: dict[str, tuple[str, Sequence[object]]] = dict(zip(("text", "pair", "negative"), texts, strict=False))
    for key, values in (
        ("label", records.labels),
        ("score", records.scores),
        ("query_id", records.queries),
        ("doc_id", records.documents),
    ):
        if values is not None:
            columns[key] = (key, values)
    return columns


def write_rows(records: Records, path: Path) -> dict[str, str]:
    """Write rows as a file that is read back to the same rows; returns which column is which."""
    columns = columns_of(records)
    names = {key: name for key, (name, _) in columns.items()}
    with path.open("w", encoding="utf-8") as file:
        for row in zip(*(values for _, values in columns.values()), strict=True):
            file.write(json.dumps(dict(zip(names.values(), row, strict=True))) + "\n")
    return names
