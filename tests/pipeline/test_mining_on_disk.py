"""Negatives from vectors on disk are those from vectors in memory; batches of neighbors are trained and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.training.runs import StopAt, digest, losses, recipe_for

from nearfar.data import Records
from nearfar.errors import Interrupted, SettingError
from nearfar.pipeline import mining, train
from nearfar.pipeline.mining import Mining, mine

PAIRS = Records(
    ([f"question {n % 120}" for n in range(150)], [f"answer {n}" for n in range(150)]),
    None,
    None,
    [*range(150)],
    "memory",
)


def embed(texts):
    """Vectors that two bytes a number hold exactly: the order of cosines is the same on disk."""
    sources = (np.random.default_rng(sum(text.encode()) + 31 * len(text) + int(text.split()[1])) for text in texts)
    signs = np.stack([source.choice([-1.0, 1.0], 16) for source in sources]).astype(np.float32)
    return signs * 0.25


@pytest.mark.parametrize("settings", [Mining(window=(1, 5)), Mining(window=(3, 12), margin=0.05, max_score=0.5)])
def test_the_same_negatives_from_disk_and_from_memory(settings, monkeypatch):
    """Of equal cosines, of which these vectors have many, others may be chosen."""
    monkeypatch.setattr(mining, "ENCODED", 40)
    seen: list[float] = []
    memory = mine(PAIRS, embed, settings)
    disk = mine(PAIRS, embed, Mining(**{**vars(settings), "memory": 1e-9}), progress=seen.append)
    assert (memory.recall, disk.recall) == (None, 1.0)
    assert seen[-1] == 1.0
    counts = ("positives", "documents", "beyond", "without_positive", "allowed")
    assert [getattr(disk, name) for name in counts] == [getattr(memory, name) for name in counts]
    for anchor, negatives in memory.negatives.items():
        (one,) = embed([anchor])
        if settings.window == (1, 5):
            expected, found = (np.sort(embed(some) @ one) for some in (negatives, disk.negatives[anchor]))
            np.testing.assert_allclose(found, expected, atol=1e-6)
        assert set(disk.negatives[anchor]).isdisjoint(memory.positives[anchor])


def test_deep_rankings_need_memory(monkeypatch):
    monkeypatch.setattr(mining, "ENCODED", 1000)
    many = Records(
        ([f"question {n}" for n in range(1200)], [f"answer {n}" for n in range(1200)]), None, None, [*range(1200)], "m"
    )
    with pytest.raises(SettingError, match="are to be ranked, and the vectors do not fit into the memory"):
        mine(many, embed, Mining(window=None, memory=1e-9))
    with pytest.raises(SettingError, match="memory must be a number of GB above 0, got 0"):
        Mining(memory=0)


@pytest.mark.parametrize("shuffle", ["neighbors", "neighbor-ids"])
def test_batches_of_neighbors_from_disk_train_and_resume(tmp_path: Path, shuffle: str) -> None:
    """To the same bytes; with left texts that several pairs have."""
    rows = [{"text_a": f"a text of {n % 30}", "text_b": f"another one of {n}"} for n in range(60)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = recipe_for(
        tmp_path / "a.jsonl", objective="batch-softmax", data={"dev": 0}, training={"epochs": 2},
        batches={"shuffle": shuffle, "memory": 1e-9, "group": 4},
    )  # fmt: skip
    train(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(recipe, tmp_path / "stopped", callbacks=[StopAt(11)])
    train(recipe, tmp_path / "stopped", resume=True)
    assert digest(tmp_path / "stopped") == digest(tmp_path / "whole")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")
    journal = [json.loads(line) for line in (tmp_path / "whole" / "journal.jsonl").read_text().splitlines()]
    (first, second) = (entry for entry in journal if entry["kind"] == "batches")
    assert first["recall"] == second["recall"] == 1.0
    assert first["exact"] is False
