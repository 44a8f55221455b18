"""Indexes over shards: exact where they are flat, with the recall that was asked for where not, and resumable."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nearfar
from nearfar.encoding import load
from nearfar.errors import DataError, OutputError, SettingError
from nearfar.shards.executors import LocalExecutor
from nearfar.shards.index import ShardedIndex, is_sharded_index
from nearfar.shards.index_build import KINDS, Description, Settings, build_index
from tests.shards.conftest import contents, texts, write_corpus

ONE = LocalExecutor(1)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """1,200 vectors in 12 shards."""
    folder = tmp_path_factory.mktemp("vectors")
    nearfar.embed_files("toy", write_corpus(folder / "corpus", 3, 400), folder / "out", workers=1, rows_per_shard=100)
    return folder / "out"


def build(vectors, out, kind="auto", **settings):
    return build_index(str(vectors), out, Settings(kind, rows_per_part=500, **settings), ONE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_finds_what_exact_search_finds(vectors, tmp_path, kind):
    """The recall is that of the description, or better than what was asked for."""
    done = build(vectors, tmp_path / "index", kind, recall=0.9)
    assert done.recall is not None
    assert done.recall >= (0.5 if kind == "ivf-pq" else 0.9)
    assert [part.rows for part in done.parts] == [500, 500, 200]
    index = ShardedIndex.load(tmp_path / "index")
    model = nearfar.load("toy")
    asked = texts(40, 300)
    scores, rows = index.search(model.encode(asked), top=10)
    exact = model.index(texts(1200)).search(model.encode(asked), top=10)
    same = np.mean([len({*a} & {*b}) / 10 for a, b in zip(rows.tolist(), exact[1].tolist(), strict=True)])
    assert same >= (0.5 if kind == "ivf-pq" else 0.85)
    assert rows[:, 0].tolist() == list(range(300, 340)) or kind == "ivf-pq"
    if kind == "flat":
        assert np.array_equal(rows, exact[1]) or np.allclose(scores, exact[0], atol=1e-6)
        assert done.recall == 1.0
    assert index.document(305) == {"doc_id": "d305", "doc": texts(1, 305)[0]}
    hits = model.search(asked[:1], index, top=3)
    assert hits[0][0].text in texts(1200)


def test_an_interrupted_build_continues_with_the_parts_that_are_there(vectors, tmp_path):
    """And gives the same files."""
    build(vectors, tmp_path / "whole", "ivf")
    plan = Description.read(tmp_path / "whole" / "index.json")
    assert plan is not None
    build(vectors, tmp_path / "index", "ivf")
    before = contents(tmp_path / "index")
    assert {name for name in before if before[name] != contents(tmp_path / "whole")[name]} == set()
    with pytest.raises(OutputError, match=r"there is an index. Replace it with --overwrite"):
        build(vectors, tmp_path / "index", "ivf")
    # as a kill in the second part leaves it
    from nearfar.shards.index_build import BUILDING, _plan
    from nearfar.shards.vectors import VectorFolder

    (tmp_path / "index" / "index.json").unlink()
    (tmp_path / "index" / "part-00001.faiss").unlink()
    _plan(VectorFolder.open(str(vectors)), Settings("ivf", rows_per_part=500)).write(tmp_path / "index" / BUILDING)
    kept = (tmp_path / "index" / "part-00000.faiss").stat().st_mtime_ns
    assert is_sharded_index(tmp_path / "index")
    with pytest.raises(DataError, match="it is not finished"):
        ShardedIndex.load(tmp_path / "index")
    with pytest.raises(OutputError, match="cannot be continued, because the settings are others"):
        build(vectors, tmp_path / "index", "ivf-sq8")
    build(vectors, tmp_path / "index", "ivf")
    assert (tmp_path / "index" / "part-00000.faiss").stat().st_mtime_ns == kept
    assert contents(tmp_path / "index") == before


def test_another_model_is_refused(vectors, tmp_path):
    """Its vectors are not comparable."""
    build(vectors, tmp_path / "index")
    index = ShardedIndex.load(tmp_path / "index")
    index.check(load("toy"))
    other = nearfar.Encoder("toy", epochs=1).fit([("a red apple", "an apple"), ("a saw", "a tool"), ("rain", "wet")])
    with pytest.raises(DataError, match="this index was made with another model"):
        index.check(other.model_)


def test_damage_is_one_sentence(vectors, tmp_path):
    """A missing part, missing vectors, and folders that are something else."""
    build(vectors, tmp_path / "index")
    (tmp_path / "index" / "part-00001.faiss").unlink()
    with pytest.raises(DataError, match=r"part-00001.faiss is missing. Make it again"):
        ShardedIndex.load(tmp_path / "index")
    with pytest.raises(DataError, match=r"not a folder of vectors: it has no manifest.json"):
        build(tmp_path, tmp_path / "none")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest.json is damaged"):
        build(tmp_path / "other", tmp_path / "none")
    with pytest.raises(SettingError, match=r"--kind is one of auto, flat"):
        build(vectors, tmp_path / "none", "lsh")
    with pytest.raises(SettingError, match="--recall must be above 0"):
        build(vectors, tmp_path / "none", recall=2)


def test_the_commands(vectors, tmp_path, capsys):
    """index prints the recall, search answers as with an index of a corpus."""
    from nearfar.cli.app import app

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            app([str(each) for each in arguments])
        assert not ended.value.code
        return capsys.readouterr()

    said = run("index", vectors, "--out", tmp_path / "index", "--kind", "ivf", "--rows-per-part", 500).err
    assert "recall of the nearest 10 against exact search: " in said
    (tmp_path / "queries.txt").write_text("\n".join(texts(3, 7)))
    asked = "search", "toy", tmp_path / "index", tmp_path / "queries.txt", "--top", 2
    lines = run(*asked).out
    first = json.loads(lines.splitlines()[0])
    assert first["results"][0]["doc_id"] == "d7"
    assert first["results"][0]["doc"] == first["query"] == texts(1, 7)[0]
