"""Rows on disk are what rows in memory are, column by column."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable
from dataclasses import fields
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar import files
from nearfar.data import Layout, Records, disk_columns, folds, holdout, limit, per_class, read, readers
from nearfar.data.disk_columns import CodedLabels, DiskTexts, TextWriter, ValueWriter, first_rows, joined
from nearfar.data.targets import contradictions
from nearfar.errors import DataError, OutputError

TEXTS = ["", "a", "Ärger", "x" * 300, "\ud800 half", "日本", *(f"text {n}" for n in range(40))]
KINDS = ["a", "b", "c"]


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches, and pages that are given back all the time."""
    monkeypatch.setattr(disk_columns, "BATCH_ROWS", 7)
    monkeypatch.setattr(disk_columns, "MAPPED", 1)


def stored(texts: list[str]) -> DiskTexts:
    writer = TextWriter()
    for text in texts:
        writer.append(text)
    return writer.finish()


def test_a_column_is_read_like_a_list() -> None:
    column = stored(TEXTS)
    assert len(column) == len(TEXTS)
    assert list(column) == TEXTS
    assert [column[place] for place in range(-len(TEXTS), len(TEXTS))] == TEXTS * 2
    assert column[5:30:3] == TEXTS[5:30:3]
    assert column[8:21] == TEXTS[8:21]
    assert column[50:] == []
    with pytest.raises(IndexError):
        column[len(TEXTS)]
    drawn = np.random.default_rng(1).permutation(len(TEXTS))
    assert column.gather(drawn) == [TEXTS[place] for place in drawn]
    some = column.pick(drawn).pick(np.array([3, 0, 3]))
    assert list(some) == [TEXTS[drawn[place]] for place in (3, 0, 3)]
    assert list(joined([column, some])) == [*TEXTS, *some]
    assert list(joined([some, column]).pick(np.array([2, 1, 5, 4]))) == [some[2], some[1], TEXTS[2], TEXTS[1]]
    assert list(stored([])) == []


def test_unchecked_values_come_back_as_they_were() -> None:
    values = ["1", 1, 1.5, True, None, ["a", "b"], float("inf"), 2**80, "o", date(2026, 1, 2), {"a": [1]}, b"x", ""]
    writer = ValueWriter()
    for value in values:
        writer.append(value)
    column = writer.finish()
    assert list(column) == values
    assert [type(value) for value in column] == list(map(type, values))
    assert column[9] == values[9]
    assert column[-2:] == values[-2:]


def test_first_rows_are_those_of_equal_keys() -> None:
    keys = [str(number) for number in np.random.default_rng(3).integers(0, 40, 300)]
    assert first_rows(keys).tolist() == [keys.index(key) for key in keys]
    assert first_rows([]).tolist() == []


@pytest.mark.parametrize("bits", [64, 1])
def test_first_rows_are_found_in_blocks_and_with_equal_higher_bits(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """However many rows are looked at together, and if only the lower bits of digests differ."""
    keys = [str(number) for number in np.random.default_rng(3).integers(0, 40, 200)]
    digests = disk_columns._digests

    def fewer(each: Iterable[str]) -> tuple[Any, Any]:
        high, low = digests(each)
        return high % np.uint64(2) if bits == 1 else high, low

    monkeypatch.setattr(disk_columns, "_digests", fewer)
    for size in (1, 7, 199, 200, 1000):
        monkeypatch.setattr(disk_columns, "SORTED", size)
        assert first_rows(keys).tolist() == [keys.index(key) for key in keys]


def write(path: Path, rows: list[dict[str, object]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


SHAPES: dict[str, list[dict[str, object]]] = {
    "labeled texts": [{"text": f"one {n % 31}", "label": KINDS[n % 3]} for n in range(60)],
    "scored texts": [{"text": f"one {n}", "score": n / 7} for n in range(60)],
    "label sets": [{"text": f"one {n}", "label": KINDS[: n % 3]} for n in range(60)],
    "positive pairs": [{"text_a": f"left {n % 25}", "text_b": f"right {n}"} for n in range(60)],
    "binary pairs": [{"text_a": f"left {n % 25}", "text_b": f"right {n}", "label": n % 2} for n in range(60)],
    "either": [{"text_a": f"left {n}", "text_b": f"right {n}", "label": n / 4} for n in range(60)],
    "scored pairs": [{"text_a": f"left {n}", "text_b": f"right {n}", "score": str(n % 6)} for n in range(60)],
    "triplets": [{"anchor": f"left {n}", "positive": f"right {n}", "negative": f"bad {n}"} for n in range(60)],
    "ranking": [{"query": f"q {n // 4}", "doc": f"d {n}", "relevance": n % 4 // 3} for n in range(60)],
}


def both(source: str, **layout: object) -> tuple[Records, Records]:
    return read(source, Layout(**layout), invalid="drop"), read(source, Layout(**layout, disk=True), invalid="drop")


def plain(records: Records) -> dict[str, object]:
    """All that records have, in lists."""
    values = {field.name: getattr(records, field.name) for field in fields(records)}
    values["texts"] = [list(column) for column in records.texts]
    listed = ("labels", "scores", "lines", "queries", "documents", "label_sets", "weights")
    return values | {name: None if values[name] is None else list(values[name]) for name in listed}


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_on_disk_equal_rows_in_memory(tmp_path: Path, shape: str) -> None:
    """Read, drawn from, split, and by their fingerprint."""
    memory, disk = both(write(tmp_path / "a.jsonl", SHAPES[shape]))
    assert isinstance(disk.texts[0], DiskTexts)
    assert plain(disk) == plain(memory)
    assert disk.fingerprint() == memory.fingerprint()
    assert disk.split_keys() == memory.split_keys()
    assert disk.classes() == memory.classes()
    assert holdout(disk, 0.2, seed=5) == holdout(memory, 0.2, seed=5)
    assert limit(disk, 17, seed=5) == limit(memory, 17, seed=5)
    assert folds(disk, 3, seed=5, every_class=False) == folds(memory, 3, seed=5, every_class=False)
    if disk.is_labeled:
        assert per_class(disk, 2, seed=5) == per_class(memory, 2, seed=5)
    rows = [5, 2, 40]
    assert plain(disk.take(rows)) == plain(memory.take(rows))
    assert plain(disk.take(rows).take([2, 0])) == plain(memory.take([40, 5]))


def test_invalid_rows_are_dropped_from_both_with_the_same_notes(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [*SHAPES["labeled texts"], {"text": "", "label": "a"}, {"text": "x", "label": None}]
    rows[3:3] = [{"text": 5, "label": "b"}]
    memory, disk = both(write(tmp_path / "a.jsonl", rows))
    assert plain(disk) == plain(memory)
    assert len(disk) == 60
    assert len(disk.notes) == 3
    with pytest.raises(DataError) as one:
        read(str(tmp_path / "a.jsonl"))
    with pytest.raises(DataError) as other:
        read(str(tmp_path / "a.jsonl"), Layout(disk=True))
    assert str(one.value) == str(other.value)


def test_weights_are_kept_and_classes_are_numbers(tmp_path: Path) -> None:
    rows = [{**row, "w": place % 4} for place, row in enumerate(SHAPES["labeled texts"])]
    memory, disk = both(write(tmp_path / "a.jsonl", rows), weight="w")
    assert plain(disk) == plain(memory)
    assert isinstance(disk.labels, CodedLabels)
    assert disk.labels[3:6] == KINDS


def test_contradictions_are_found_by_digests(tmp_path: Path) -> None:
    rows = [{"text_a": f"left {n % 7}", "text_b": f"Right {n % 3}", "label": n % 2} for n in range(60)]
    memory, disk = (read(write(tmp_path / "a.jsonl", rows), Layout(disk=where)) for where in (False, True))
    keys = memory.split_keys()
    assert contradictions(disk) == contradictions(memory)
    assert [[keys[row] for row in same] for same in contradictions(disk)] == [
        [key] * keys.count(key) for key in dict.fromkeys(keys)
    ]


def test_large_files_are_read_to_disk_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressed file counts threefold."""
    source = write(tmp_path / "a.jsonl", SHAPES["labeled texts"])
    packed = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(SHAPES["labeled texts"]), packed)
    size = (tmp_path / "a.jsonl").stat().st_size
    monkeypatch.setattr(readers, "ON_DISK", size)
    assert isinstance(read(source, Layout(disk="auto")).texts[0], DiskTexts)
    assert isinstance(read(source, Layout(disk=False)).texts[0], list)
    monkeypatch.setattr(readers, "ON_DISK", size + 1)
    assert isinstance(read(source, Layout(disk="auto")).texts[0], list)
    monkeypatch.setattr(readers, "ON_DISK", 3 * packed.stat().st_size)
    assert isinstance(read(str(packed), Layout(disk="auto")).texts[0], DiskTexts)
    assert plain(read(str(packed), Layout(disk="auto"))) | {"source": ""} == plain(read(source)) | {"source": ""}


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do; and a folder that takes no files, too."""
    source = write(tmp_path / "a.jsonl", SHAPES["labeled texts"])
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(TextWriter, "_put", full)
    with pytest.raises(OutputError, match=r"the training rows could not be written: there is no room left\..*TMPDIR"):
        read(source, Layout(disk=True))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    with pytest.raises(OutputError, match="none: no file can be made there: No such file or directory"):
        read(source, Layout(disk=True))
    assert files.scratch_folder() == str(tmp_path / "none")
