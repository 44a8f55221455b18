"""Training on rows on disk ends with the bytes of training on rows in memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.training.runs import StopAt, digest, losses, recipe_for, write_pairs, write_texts

from nearfar.data import disk_columns
from nearfar.encoding import token_file
from nearfar.errors import Interrupted
from nearfar.pipeline import data as run_data
from nearfar.pipeline import read_data, train
from nearfar.pipeline.loaders import distinct
from nearfar.recipe import build_recipe


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches, and pages that are given back all the time."""
    monkeypatch.setattr(disk_columns, "BATCH_ROWS", 7)
    monkeypatch.setattr(disk_columns, "MAPPED", 1)
    monkeypatch.setattr(token_file, "TEXTS", 5)


def write_plain(path: Path) -> Path:
    rows = [{"text_a": f"a text of {n % 30}", "text_b": f"another one of {n % 45}"} for n in range(60)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


CASES = {
    "cross-entropy": write_texts, "cross-entropy+supcon": write_texts, "batch-softmax": write_plain,
    "cosine-mse": write_pairs,
}  # fmt: skip


@pytest.mark.parametrize("objective", CASES)
def test_the_same_bytes_from_disk_and_from_memory(tmp_path: Path, objective: str) -> None:
    """With dev rows set aside, and after an interruption that changes from one to the other."""
    file = CASES[objective](tmp_path / ("a.csv" if CASES[objective] is write_texts else "a.jsonl"))
    memory = recipe_for(file, objective=objective, data={"disk": False}, training={"epochs": 2, "estimate": False})
    disk = recipe_for(file, objective=objective, data={"disk": True}, training={"epochs": 2, "estimate": False})
    train(memory, tmp_path / "memory")
    with pytest.raises(Interrupted):
        train(disk, tmp_path / "disk", callbacks=[StopAt(3)])
    train(disk, tmp_path / "disk", resume=True)
    assert digest(tmp_path / "disk") == digest(tmp_path / "memory")
    assert losses(tmp_path / "disk") == losses(tmp_path / "memory")
    with pytest.raises(Interrupted):
        train(disk, tmp_path / "changed", callbacks=[StopAt(3)])
    train(memory, tmp_path / "changed", resume=True)  # where rows are is not part of what a run is
    assert digest(tmp_path / "changed") == digest(tmp_path / "memory")


def test_distinct_texts_come_in_the_same_order(tmp_path: Path) -> None:
    file = write_plain(tmp_path / "a.jsonl")
    values = {"data": {"train": str(file), "dev": 0}, "objective": {"name": "batch-softmax"}}
    memory, disk = (
        read_data(build_recipe({**values, "data": {**values["data"], "disk": on}}, where="test")).train.texts
        for on in (False, True)
    )
    (texts, columns), (others, places) = distinct(memory), distinct(disk)
    assert list(others) == texts
    assert all(np.array_equal(one, other) for one, other in zip(columns, places, strict=True))


def test_large_data_set_few_dev_rows_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth, but no more than tell models apart."""
    monkeypatch.setattr(run_data, "AUTO_ROWS", 10)
    monkeypatch.setattr(run_data, "AUTO_MOST", 4)
    file = write_texts(tmp_path / "a.csv")
    data = read_data(build_recipe({"data": {"train": str(file)}}, where="test"))
    assert data.dev is not None
    assert (len(data.train), len(data.dev)) == (56, 4)
