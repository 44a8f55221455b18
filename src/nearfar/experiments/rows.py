"""The rows of trials: read, drawn, divided into training and test rows, written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from nearfar.data import Layout, Records, folds, limit, read
from nearfar.data.corpora import Corpus, read_corpus
from nearfar.experiments.suites import merged, plain_rows, require_scored
from nearfar.experiments.trial import Invalid, Rows, Source, Trial


@dataclass(frozen=True)
class Split:
    """The rows of a trial, and the numbers of the test rows in their file."""

    train: Records
    test: Records
    rows: Sequence[int]


def layout_of(values: Mapping[str, Any]) -> Layout:
    """Columns, as JSON has them."""
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return Layout(**plain)


def rows_of(source: Source) -> Rows:
    """All rows of a data set, and those of its official test set or its scored pairs, if it has some."""
    layout = layout_of(source.layout)
    records = _read(source.file, layout, source.invalid, _state(source.file))
    if source.pairs is not None:
        sets = {
            name: require_scored(_read(file, Layout(), source.invalid, _state(file)))
            for name, file in source.pairs.items()
        }
        return plain_rows(records), merged(sets, source.pairs_limit)
    return records, None if source.test is None else _read(source.test, layout, source.invalid, _state(source.test))


def corpus_of(source: Source) -> Corpus | None:
    """The texts that are searched, where a data set has some."""
    if source.corpus is None:
        return None
    return _corpus(source.corpus, source.invalid, _state(source.corpus), large="large" in source.layout)


@lru_cache(maxsize=2)
def _corpus(source: str, invalid: Invalid, _state: tuple[int, int] | None, *, large: bool) -> Corpus:
    return read_corpus(source, invalid=invalid, large=large)


@lru_cache(maxsize=16)
def _read(source: str, layout: Layout, invalid: Invalid, _state: tuple[int, int] | None) -> Records:
    """The rows of a file; trials in a row on the same file, in the same state, read it once."""
    return read(source, layout, invalid=invalid)


def _state(source: str) -> tuple[int, int] | None:
    """When a file was changed, and its size; None for what is no file."""
    path = Path(source)
    if not path.is_file():
        return None
    state = path.stat()
    return state.st_mtime_ns, state.st_size


def digest_of(records: Records, test: Records | None, corpus: Corpus | None = None) -> str:
    """What rows, and the texts that are searched, are called after."""
    return " ".join(part.fingerprint() for part in (records, test, corpus) if part is not None)


def split(rows: Rows, trial: Trial) -> Split:
    """The rows that a trial draws, and which of them its fold tests on."""
    records, test = rows
    chosen = range(len(records)) if trial.limit is None else limit(records, trial.limit, seed=trial.seed)
    drawn = records.take(chosen)
    if test is not None:
        return Split(drawn, test, range(len(test)))
    inside, outside = folds(drawn, trial.folds, seed=trial.seed)[trial.fold]
    return Split(drawn.take(inside), drawn.take(outside), [chosen[place] for place in outside])


def columns_of(records: Records) -> dict[str, tuple[str, Sequence[object]]]:
    """The columns that rows are written in, by the keys of a recipe that name them: the name and the values."""
    names = {1: ("text",), 2: ("text_a", "text_b"), 3: ("anchor", "positive", "negative")}[len(records.texts)]
    texts = zip(names, records.texts, strict=True)
    columns: dict[str, tuple[str, Sequence[object]]] = dict(zip(("text", "pair", "negative"), texts, strict=False))
    for key, values in (
        ("label", records.labels if records.label_sets is None else [list(labels) for labels in records.label_sets]),
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
