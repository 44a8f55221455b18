"""The space of a single run on plain texts or pairs: measured before and after, on rows of its own. Loads torch."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearfar.data import Layout, Records, read
from nearfar.encoding import load
from nearfar.errors import DataError, NearfarError
from nearfar.experiments.diagnostics import POSITIVES, as_it_was, space_of
from nearfar.experiments.records import DataSet, Record
from nearfar.pipeline.geometry import Positives, positive_pairs
from nearfar.report.sources import Source
from nearfar.seeds import generator

ROLES = ("test", "dev", "train")
"""Whose files are looked for, in this order."""
COLUMNS = ("text", "pair", "label", "score", "negative", "query_id", "doc_id")


def survey(source: Source, records: Records | None, *, batch_size: int = 64) -> tuple[Source, list[str]]:
    """The run with one more data set: the geometry of its texts before and after. Notes say what could not be done.

    Args:
        source: a single run of an encoder.
        records: texts, pairs or triplets; None takes the test, dev or training file of the run, if it is still there.
        batch_size: texts computed at once.
    """
    assert source.home is not None
    try:
        recipe = tomllib.loads((source.home / "recipe.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        recipe = {}
    notes: list[str] = []
    if records is None:
        records, notes = _own_rows(recipe.get("data") or {})
    if records is None:
        return source, [*notes, "no geometry: no file of the run is there any more; --data FILE names other texts"]
    texts = list(dict.fromkeys(text for column in records.texts for text in column))
    positives = _positives(records)
    model = load(source.home)
    geometry, space = {}, {}
    geometry["after"], space["after"] = space_of(model, texts, positives, batch_size=batch_size)
    try:
        before = as_it_was(recipe["encoder"]["name"], model.card)
        geometry["before"], space["before"] = space_of(before, texts, positives, batch_size=batch_size)
    except (KeyError, NearfarError) as cause:
        notes.append(f"no geometry from before: the encoder the run started from cannot be opened ({cause})")
    name = f"texts of {Path(records.source).name}"
    record = Record(
        id="space", data=name, limit=None, contender=source.plan.baseline, seed=0, fold=0, status="done",
        metric=source.plan.metric, kind="plain", geometry=geometry, space=space, test=len(records),
    )  # fmt: skip
    added = DataSet(name=name, file=records.source, limits=(None,), digest=records.fingerprint(), rows=len(records),
                    kind="plain")  # fmt: skip
    plan = replace(source.plan, data=(*source.plan.data, added))
    return replace(source, plan=plan, records=(*source.records, record)), notes


def _own_rows(data: Mapping[str, Any]) -> tuple[Records | None, list[str]]:
    """The rows of a file of the run; what came of those that are not there."""
    columns = {key: data[key] for key in COLUMNS if key in data}
    if "columns" in data:
        columns["columns"] = tuple(data["columns"])
    notes: list[str] = []
    for role in ROLES:
        name = data.get(role)
        if not isinstance(name, str) or name in ("auto", "-") or name.startswith("hub:"):
            continue
        try:
            return read(name, Layout(**columns), invalid="drop"), notes
        except DataError as error:
            notes.append(f"the geometry is not that of the {role} rows: {error.problems[0]}")
    return None, notes


def _positives(records: Records) -> Positives | None:
    """Like pairs, where the rows say which are like."""
    if records.shape == "texts":
        return None
    try:
        found = positive_pairs(records)
    except DataError:
        return None
    chosen = sorted(generator(0, "like pairs").permutation(len(found))[:POSITIVES].tolist())
    left, right = ([side[place] for place in chosen] for side in (found.left, found.right))
    return Positives(left, right, found.words)
