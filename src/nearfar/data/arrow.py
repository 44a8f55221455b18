"""Parquet files, folders saved by ``datasets``, and data sets on the Hugging Face hub.

These formats have no lines; rows are numbered from 1. ``pyarrow`` and ``datasets`` are imported
where they are used, since importing them takes longer than reading most files. Whatever those
libraries raise on damaged input becomes a problem: the set of their exceptions is open.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nearfar.data.delimited import Row
from nearfar.data.issues import Ledger
from nearfar.data.lines import cannot_open, nothing
from nearfar.data.sources import splits_there_are

_BATCH = 1_000
_AGAIN = "Write or download it again; this copy is damaged."


def parquet_rows(path: Path, ledger: Ledger) -> Iterator[Row]:
    """The rows of a Parquet file, class numbers as names where ``datasets`` left the names in it."""
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as stream, pq.ParquetFile(stream) as file:
            schema = file.schema_arrow
            if not distinct(schema.names, ledger):
                return
            names = _class_names(schema.metadata)
            yield from _numbered((batch.to_pylist() for batch in file.iter_batches(_BATCH)), names, ledger)
    except OSError as error:
        if error.errno is not None:
            cannot_open(error, ledger)
        else:
            ledger.problem(f"not a Parquet file that can be read ({_brief(error)})", _AGAIN)
    except Exception as error:
        ledger.problem(f"not a Parquet file that can be read ({_brief(error)})", _AGAIN)


def folder_rows(path: Path, split: str | None, ledger: Ledger) -> Iterator[Row]:
    """The rows of a folder saved by ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk``."""
    import datasets

    try:
        known = _saved_splits(path)
        if known is None and split is not None:
            ledger.problem(
                f"this folder holds one data set without splits, so no {split!r}", "Take '#' and the rest off."
            )
            return
        if known is not None:
            chosen = _chosen(split, known, ledger)
            if chosen is None:
                return
            path = path / chosen
        dataset = datasets.load_from_disk(str(path))
    except Exception as error:
        ledger.problem(f"not a folder that datasets can open ({_brief(error)})", _AGAIN)
        return
    yield from dataset_rows(dataset, ledger)


def hub_rows(name: str, split: str | None, ledger: Ledger) -> Iterator[Row]:
    """The rows of a data set on the hub: ``NAME``, ``OWNER/NAME``, or ``NAME/CONFIG``."""
    import datasets

    attempts: list[tuple[str, ...]] = [(name,)]
    outer, slash, inner = name.strip("/").rpartition("/")
    if slash and not name.startswith(("/", ".")):
        attempts.append((outer, inner))
    refusals: list[Exception] = []
    for attempt in attempts:
        try:
            found = datasets.load_dataset(*attempt)
            break
        except Exception as error:
            refusals.append(error)
    else:
        _unavailable(name, refusals, ledger)
        return
    chosen = _chosen(split, list(found), ledger)
    if chosen is not None:
        yield from dataset_rows(found[chosen], ledger)


def dataset_rows(dataset: Any, ledger: Ledger) -> Iterator[Row]:
    """The rows of a ``datasets.Dataset``, class numbers as names where it has them."""
    names = _names_in(dataset.features.to_dict())
    try:
        tables = dataset.with_format("arrow").iter(_BATCH)
        yield from _numbered((table.to_pylist() for table in tables), names, ledger)
    except Exception as error:
        ledger.problem(f"the data set cannot be read ({_brief(error)})", _AGAIN)


def _numbered(batches: Iterator[list[dict[str, object]]], names: dict[str, list[str]], ledger: Ledger) -> Iterator[Row]:
    number = 0
    for batch in batches:
        for values in batch:
            number += 1
            for column, classes in names.items():
                position = values.get(column)
                if isinstance(position, int):  # -1 is how datasets writes that there is no label
                    values[column] = classes[position] if 0 <= position < len(classes) else None
            yield number, values
    if number == 0:
        nothing(ledger, "there are no rows")


def _class_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """The names of the classes of each ClassLabel column, from the metadata of an Arrow schema."""
    try:
        return _names_in(json.loads((metadata or {})[b"huggingface"])["info"]["features"])
    except (KeyError, TypeError, ValueError):
        return {}


def _names_in(features: Any) -> dict[str, list[str]]:
    return {
        column: list(feature["names"])
        for column, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }


def _saved_splits(path: Path) -> list[str] | None:
    listing = path / "dataset_dict.json"
    return [str(each) for each in json.loads(listing.read_text("utf-8"))["splits"]] if listing.is_file() else None


def _chosen(split: str | None, known: Sequence[str], ledger: Ledger) -> str | None:
    wanted = split or "train"
    if wanted in known:
        return wanted
    ledger.problem(f"there is no split {wanted!r}", splits_there_are(wanted, list(known)))
    return None


def distinct(names: Sequence[str], ledger: Ledger) -> bool:
    """Whether every column has a name of its own; enters the problem where not."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        ledger.problem(
            f"the columns {', '.join(map(repr, repeated))} occur more than once", "Give every column a name of its own."
        )
    return not repeated


def _unavailable(name: str, refusals: Sequence[Exception], ledger: Ledger) -> None:
    offline = next((error for error in refusals if isinstance(error, ConnectionError)), None)
    if offline is not None:
        ledger.problem(
            f"the hub cannot be reached for {name!r} ({_brief(offline)})",
            "Connect to the network and unset HF_HUB_OFFLINE, or name a file or a folder saved by datasets.",
        )
        return
    reasons = "; ".join(dict.fromkeys(_brief(error) for error in refusals))
    ledger.problem(
        f"the hub gives no data set {name!r} ({reasons})",
        "Look at the name on huggingface.co/datasets; write hub:NAME, hub:OWNER/NAME or hub:NAME/CONFIG.",
    )


def _brief(error: Exception) -> str:
    """The first line of an error, without its full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0][:200] if lines else type(error).__name__).rstrip(".")
