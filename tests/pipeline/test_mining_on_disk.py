"""Negatives from vectors on disk are those from vectors in memory; batches of neighbors are trained and resumed."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.training.runs import StopAt, digest, losses, recipe_for

from nearfar.cli.app import app
from nearfar.data import Records, disk_columns, readers
from nearfar.data.corpora import read_corpus
from nearfar.data.disk_columns import on_disk
from nearfar.errors import Interrupted, SettingError
from nearfar.pipeline import mined, mining, train
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


CORPUS = [*(f"answer {n}" for n in range(0, 90, 3)), "Answer  4", *(f"text {n}" for n in range(200)), "text 7"]


@pytest.mark.parametrize("memory", [4.0, 1e-9], ids=["vectors in memory", "vectors on disk"])
@pytest.mark.parametrize("corpus", [None, CORPUS], ids=["right texts", "corpus"])
@pytest.mark.parametrize("window", [(1, 5), (2, 30), None])
def test_texts_on_disk_give_the_same_rows(monkeypatch, memory, corpus, window):
    """Texts, ids and counts, whether vectors are in memory or on disk, too."""
    monkeypatch.setattr(mined, "LISTS", 7)
    monkeypatch.setattr(mining, "LISTS", 9)
    monkeypatch.setattr(mining, "ENCODED", 64)
    labels = ["0" if n % 11 == 0 else "1" for n in range(len(PAIRS))]
    right = [f"answer {n % 130}" for n in range(len(PAIRS))]
    plain = replace(PAIRS, texts=(PAIRS.texts[0], right), labels=labels)
    stored = replace(plain, texts=tuple(map(on_disk, plain.texts)))
    settings = Mining(window=window, memory=memory, max_score=0.7)
    one, other = (mine(rows, embed, settings, corpus=corpus) for rows in (plain, stored))
    assert one.count > 50
    assert list(one.triplets()) == list(other.triplets())
    assert list(one.pairs(oversample=True)) == list(other.pairs(oversample=True))
    counts = [name for name in vars(one) if name not in ("positives", "negatives", "similarity")]
    assert [getattr(one, name) for name in counts] == [getattr(other, name) for name in counts]
    assert one.counts.tolist() == other.counts.tolist()
    assert dict(one.negatives) == {anchor: other.negatives[anchor] for anchor in other.positives}
    cosines = [embed(texts) @ embed([anchor])[0] for anchor, texts in one.negatives.items() if texts]
    assert one.similarity == pytest.approx(np.concatenate(cosines).mean(), abs=1e-3)
    assert other.similarity == pytest.approx(one.similarity, abs=1e-6)


def test_a_corpus_on_disk_has_each_document_once(tmp_path):
    rows = [{"doc_id": f"d{n % 40}", "doc": f"document {n % 20}"} for n in range(300)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    memory, disk = (read_corpus(str(tmp_path / "a.jsonl"), disk=on) for on in (False, True))
    assert list(disk.texts) == memory.texts
    assert list(disk.ids) == list(memory.ids)
    (tmp_path / "b.txt").write_text("".join(f"document {n % 50}\n" for n in range(300)))
    memory, disk = (read_corpus(str(tmp_path / "b.txt"), disk=on) for on in (False, True))
    assert list(disk.texts) == memory.texts


def test_texts_on_disk_are_not_in_memory(monkeypatch):
    """The most memory that Python takes is far below that of the texts."""
    monkeypatch.setattr(mined, "LISTS", 64)
    monkeypatch.setattr(mining, "LISTS", 64)
    monkeypatch.setattr(mining, "ENCODED", 128)
    monkeypatch.setattr(disk_columns, "BATCH_ROWS", 128)
    size, filler = 6000, "x" * 4000
    columns = tuple(on_disk(f"{side} {n} {filler}" for n in range(size)) for side in ("question", "answer"))
    records = Records(columns, None, None, range(1, size + 1), "memory")
    tracemalloc.start()
    try:
        found = mine(records, embed, Mining(window=(1, 3), memory=1e-9))
        written = sum(len(row) for row in found.triplets())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written == 3 * 3 * size
    assert peak < size * len(filler), "half of the texts; the search itself takes 15 MB"


def test_the_command_keeps_large_files_on_disk(tmp_path, monkeypatch, capsys):
    """And writes the same file as for small ones; says how good the search is."""
    lines = (json.dumps({"text_a": f"where is parcel {n}", "text_b": f"track order {n * 7}"}) for n in range(80))
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    (tmp_path / "corpus.txt").write_text("\n".join(f"a document of {n}" for n in range(200)))

    def run(name, *flags):
        with pytest.raises(SystemExit) as ended:
            app(["mine", "toy", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / name), *flags])
        assert not ended.value.code
        return capsys.readouterr().err

    seen = []
    monkeypatch.setattr(mining, "on_disk", lambda texts: seen.append(type(texts).__name__) or on_disk(texts))
    for flags in ([], ["--corpus", str(tmp_path / "corpus.txt")]):
        run("memory.jsonl", *flags, "--overwrite")
        assert not seen
        with monkeypatch.context() as large:
            large.setattr(readers, "ON_DISK", 0)
            run("disk.jsonl", *flags, "--overwrite")
            said = run("file.jsonl", *flags, "--overwrite", "--memory", "1e-9")
        assert set(seen) <= {"_Stored", "_Picked"}
        assert len(seen) == 2 * (2 + bool(flags))
        seen.clear()
        assert (tmp_path / "memory.jsonl").read_bytes() == (tmp_path / "disk.jsonl").read_bytes()
        assert "approximate search in vectors on disk: recall 1.00, mean cosine of negatives with their" in said


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
