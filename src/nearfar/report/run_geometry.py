"""The embedding geometry of a single run on plain texts or pairs, before and after training. Loads torch."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearfar.data import Layout, Records, read
from nearfar.encoding import load
from nearfar.errors import DataError, NearfarError
from nearfar.experiments.diagnostics import POSITIVES, pretrained, space_of
from nearfar.pipeline.geometry import Positives, positive_pairs
from nearfar.report.sources import RUN, Source

SPLITS = ("test", "dev", "train")
"""The files of a run that are tried, in this order."""
COLUMNS = ("text", "pair", "label", "score", "negative", "query_id", "doc_id")


def add_geometry(source: Source, records: Records | None, *, batch_size: int = 64) -> tuple[Source, list[str]]:
    """Add a data set with the geometry of its texts before and after training; the notes say what could not be done.

    Args:
        source: a single run of an encoder.
        records: texts, pairs or triplets; None takes the test, dev or training file of the run, if it still exists.
        batch_size: texts encoded at once.
    """
    assert source.home is not None
    try:
        recipe = tomllib.loads((source.home / "recipe.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        recipe = {}
    notes: list[str] = []
    if records is None:
        records, notes = _run_rows(recipe.get("data") or {})
    if records is None:
        return source, [*notes, "no geometry: no file of the run exists any more; --data FILE takes other texts"]
    texts = list(dict.fromkeys(text for column in records.texts for text in column))
    positives = _positives(records)
    model = load(source.home)
    geometry, space = {}, {}
    geometry["after"], space["after"] = space_of(model, texts, positives, batch_size=batch_size)
    try:
        before = pretrained(recipe["encoder"]["name"], model.card)
        geometry["before"], space["before"] = space_of(before, texts, positives, batch_size=batch_size)
    except (KeyError, NearfarError) as cause:
        notes.append(f"no geometry before training: the encoder the run started from cannot be opened ({cause})")
    name = f"texts of {Path(records.source).name}"
    record = replace(RUN, id="space", data=name, contender=source.plan.baseline, metric=source.plan.metric)
    record = replace(record, kind="plain", geometry=geometry, space=space, test=len(records))
    return source.with_data(record, records), notes


def _run_rows(data: Mapping[str, Any]) -> tuple[Records | None, list[str]]:
    """The rows of the first file of the run that can be read, and a note on each that cannot."""
    columns = {key: data[key] for key in COLUMNS if key in data}
    if "columns" in data:
        columns["columns"] = tuple(data["columns"])
    notes: list[str] = []
    for split in SPLITS:
        name = data.get(split)
        if not isinstance(name, str) or name in ("auto", "-") or name.startswith("hub:"):
            continue
        try:
            return read(name, Layout(**columns), invalid="drop"), notes
        except DataError as error:
            notes.append(f"the geometry is not that of the {split} rows: {error.problems[0]}")
    return None, notes


def _positives(records: Records) -> Positives | None:
    """A sample of the positive pairs, where the rows say which these are."""
    if records.shape == "texts":
        return None
    try:
        return positive_pairs(records).sample(POSITIVES)
    except DataError:
        return None
