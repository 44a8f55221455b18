"""Parquet files, folders saved by ``datasets``, and data sets on the Hugging Face hub.

These formats have no lines; rows are numbered from 1. ``pyarrow`` and ``datasets`` are imported inside the functions,
since importing them takes longer than reading most files. Any exception of these libraries on damaged input becomes a
problem: they do not document which ones they raise.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nearfar.data.limits import Limits, TooLargeError
from nearfar.data.sources import split_remedy
from nearfar.data.text_files import Row, distinct_names, report_empty, report_unreadable
from nearfar.data.values import Issues

_BATCH = 100
_HELD = 2**25
"""Bytes of rows that are converted at a time."""
_DAMAGED = "Write or download it again; this copy is damaged."


def parquet_rows(path: Path, issues: Issues, limits: Limits) -> Iterator[Row]:
    """The rows of a Parquet file, with class names instead of numbers if ``datasets`` has stored them."""
    import pyarrow.parquet as pq

    try:
        size = path.stat().st_size
        with path.open("rb") as stream, pq.ParquetFile(stream) as file:
            schema = file.schema_arrow
            groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
            limits.check_expansion(size, sum(group.total_byte_size for group in groups))
            if distinct_names(schema.names, issues):
                names = _class_names(schema.metadata)
                yield from _numbered(_lists(file.iter_batches(_BATCH), size, limits), names, issues)
    except TooLargeError as error:
        issues.add(*error.problem)
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            report_unreadable(error, issues)
        else:
            issues.add(f"not a Parquet file that can be read ({_first_line(error)})", _DAMAGED)


def _lists(batches: Iterable[Any], size: int, limits: Limits) -> Iterator[list[dict[str, object]]]:
    """The rows of Arrow batches, few of them at a time where they are large."""
    content = 0
    for batch in batches:
        content += batch.nbytes
        limits.check_expansion(size, content)
        step = max(1, min(batch.num_rows, _HELD * batch.num_rows // max(1, batch.nbytes)))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step).to_pylist()


def folder_rows(path: Path, split: str | None, issues: Issues) -> Iterator[Row]:
    """The rows of a folder saved by ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk``."""
    import datasets

    try:
        listing = path / "dataset_dict.json"
        if listing.is_file():
            chosen = _chosen_split(split, list(map(str, json.loads(listing.read_text("utf-8"))["splits"])), issues)
            if chosen is None:
                return
            path = path / chosen
        elif split is not None:
            message = f"this folder holds one data set without splits, so no {split!r}"
            issues.add(message, "Remove '#' and what follows.")
            return
        dataset = datasets.load_from_disk(str(path))
    except Exception as error:
        issues.add(f"not a folder that datasets can open ({_first_line(error)})", _DAMAGED)
        return
    yield from dataset_rows(dataset, issues)


def hub_rows(name: str, split: str | None, issues: Issues) -> Iterator[Row]:
    """The rows of a data set on the hub: ``NAME``, ``OWNER/NAME``, or ``NAME/CONFIG``."""
    import datasets

    attempts: list[tuple[str, ...]] = [(name,)]
    outer, slash, inner = name.strip("/").rpartition("/")
    if slash and not name.startswith(("/", ".")):
        attempts.append((outer, inner))
    errors: list[Exception] = []
    for attempt in attempts:
        try:
            splits = datasets.load_dataset(*attempt)
            break
        except Exception as error:
            errors.append(error)
    else:
        _report_unavailable(name, errors, issues)
        return
    chosen = _chosen_split(split, list(splits), issues)
    if chosen is not None:
        yield from dataset_rows(splits[chosen], issues)


def dataset_rows(dataset: Any, issues: Issues) -> Iterator[Row]:
    """The rows of a ``datasets.Dataset``, with class names instead of numbers if it has them."""
    names = _names_in(dataset.features.to_dict())
    try:
        tables = dataset.with_format("arrow").iter(_BATCH)
        yield from _numbered(_lists(tables, 0, Limits(large=True)), names, issues)
    except Exception as error:
        issues.add(f"the data set cannot be read ({_first_line(error)})", _DAMAGED)


def _numbered(batches: Iterator[list[dict[str, object]]], names: dict[str, list[str]], issues: Issues) -> Iterator[Row]:
    number = 0
    for batch in batches:
        for values in batch:
            number += 1
            for column, classes in names.items():
                index = values.get(column)
                if isinstance(index, int):  # datasets writes -1 for a missing label
                    values[column] = classes[index] if 0 <= index < len(classes) else None
                elif isinstance(index, list):
                    values[column] = [
                        classes[one] if isinstance(one, int) and 0 <= one < len(classes) else one for one in index
                    ]
            yield number, values
    if number == 0:
        report_empty(issues, "there are no rows")


def _class_names(metadata: dict[bytes, bytes] | None) -> dict[str, list[str]]:
    """The class names of each ClassLabel column, from the metadata of an Arrow schema."""
    try:
        return _names_in(json.loads((metadata or {})[b"huggingface"])["info"]["features"])
    except (KeyError, TypeError, ValueError):
        return {}


def _names_in(features: Any) -> dict[str, list[str]]:
    """The class names of columns that hold a ClassLabel, or a list of them."""
    inner = {column: _listed_feature(feature) for column, feature in features.items()}
    return {
        column: list(feature["names"])
        for column, feature in inner.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }


def _listed_feature(feature: Any) -> Any:
    """The feature of the entries of a list, by whatever name datasets has for lists; any other feature itself."""
    if isinstance(feature, list) and len(feature) == 1:
        return feature[0]
    is_sequence = isinstance(feature, dict) and feature.get("_type") in ("Sequence", "List", "LargeList")
    return feature.get("feature") if is_sequence else feature


def _chosen_split(split: str | None, known: Sequence[str], issues: Issues) -> str | None:
    wanted = split or "train"
    if wanted in known:
        return wanted
    issues.add(f"there is no split {wanted!r}", split_remedy(wanted, known))
    return None


def _report_unavailable(name: str, errors: Sequence[Exception], issues: Issues) -> None:
    offline = next((error for error in errors if isinstance(error, ConnectionError)), None)
    if offline is not None:
        message = f"the hub cannot be reached for {name!r} ({_first_line(offline)})"
        remedy = "Connect to the network and unset HF_HUB_OFFLINE, or name a file or a folder saved by datasets."
    else:
        reasons = "; ".join(dict.fromkeys(_first_line(error) for error in errors))
        message = f"the hub has no data set {name!r} ({reasons})"
        remedy = "Check the name on huggingface.co/datasets; write hub:NAME, hub:OWNER/NAME or hub:NAME/CONFIG."
    issues.add(message, remedy)


def _first_line(error: Exception) -> str:
    """The first line of an error message, without its full stop."""
    lines = str(error).strip().splitlines()
    return (lines[0][:200] if lines else type(error).__name__).rstrip(".")
