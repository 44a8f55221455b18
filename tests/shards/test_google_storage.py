"""gs://: inputs and shards in Google Cloud Storage, by the interface of a local server."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.cli.app import app
from nearfar.errors import DataError
from nearfar.shards.executors import LocalExecutor
from nearfar.shards.index import ShardedIndex
from nearfar.shards.index_build import Settings, build_index
from nearfar.shards.mirror import RunMirror
from nearfar.shards.storage import Storage, _filesystem, expand
from tests.shards.conftest import texts, write_corpus

pytest.importorskip(
    "gcp_storage_emulator", reason="gcp-storage-emulator is not installed: pip install gcp-storage-emulator"
)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A bucket with 150 texts in three files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("google_server.py")
    server = subprocess.Popen([sys.executable, str(script), str(port), "texts"], stderr=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
        _filesystem.cache_clear()
        folder = write_corpus(tmp_path_factory.mktemp("corpus"))
        while True:  # until the server listens
            assert server.poll() is None
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        for path in folder.iterdir():
            Storage(f"gs://texts/corpus/{path.name}").write(path.read_bytes())
        yield folder
    _filesystem.cache_clear()
    server.kill()
    server.wait()


def test_files_of_a_bucket_become_shards_of_a_bucket(bucket, tmp_path):
    """The same vectors as on a disk; the same call computes what is missing only."""
    call = {"workers": 1, "rows_per_shard": 20}
    local = nearfar.embed_files("toy", bucket, tmp_path / "out", **call)
    folder = nearfar.embed_files("toy", "gs://texts/corpus/*.parquet", "gs://texts/out", **call)
    assert np.array_equal(np.concatenate(list(folder)), np.concatenate(list(local)))
    assert [each.files for each in folder.manifest.results] == [each.files for each in local.manifest.results]
    lost, kept = (Storage(f"gs://texts/out/shard-00000{number}.parquet") for number in (1, 2))
    before = kept.entry()
    lost.delete()
    again = nearfar.embed_files("toy", "gs://texts/corpus/*.parquet", "gs://texts/out", **call)
    assert [each.files for each in again.manifest.results] == [each.files for each in local.manifest.results]
    assert lost.entry() is not None
    assert kept.entry() == before


def test_vectors_of_a_bucket_are_indexed_on_a_disk(bucket, tmp_path):
    """As those of a folder are; the texts of the results come from the bucket."""
    place = "gs://texts/indexed"
    nearfar.embed_files("toy", "gs://texts/corpus/*.parquet", place, workers=1, rows_per_shard=40)
    build_index(place, tmp_path / "index", Settings(rows_per_part=80), LocalExecutor(1))
    (hits,) = nearfar.load("toy").search(texts(1, 42), ShardedIndex.load(tmp_path / "index"), top=1)
    assert hits[0].text == texts(1, 42)[0]


def test_a_training_run_has_a_copy_in_a_bucket(bucket, tmp_path):
    """Which comes back as it was, without what has been removed."""
    place, folder = "gs://texts/run", tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "MANIFEST.json").write_text("{}")
    (folder / "recipe.toml").write_text("a")
    mirror = RunMirror(folder, place, "one")
    mirror.push()
    assert mirror.begun()
    (folder / "checkpoints" / "MANIFEST.json").unlink()
    (folder / "recipe.toml").write_text("changed")
    mirror.push()
    assert sorted(Storage(place).listing(recursive=True)) == ["recipe.toml", "run.json"]
    RunMirror(tmp_path / "again", place, "two").pull()
    assert [path.name for path in (tmp_path / "again").iterdir()] == ["recipe.toml"]
    assert (tmp_path / "again" / "recipe.toml").read_text() == "changed"


def test_negatives_are_mined_with_vectors_in_a_bucket(bucket, tmp_path, capsys):
    """The same as without; a second call computes no vectors."""
    rows = zip(texts(40), texts(40, 40), strict=True)
    lines = [json.dumps({"text_a": one, "text_b": other}) + "\n" for one, other in rows]
    (tmp_path / "pairs.jsonl").write_text("".join(lines))

    def mine(out, *flags):
        with pytest.raises(SystemExit) as ended:
            app(["mine", "toy", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / out), *flags])
        assert not ended.value.code
        return capsys.readouterr().err

    flags = "--shards", "gs://texts/mined", "--workers", "1", "--rows-per-shard", "30"
    mine("here.jsonl")
    assert "continuing" not in mine("there.jsonl", *flags)
    assert "continuing: 80 of 80 rows are done" in mine("again.jsonl", *flags)
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()


def test_names_without_a_file_are_refused(bucket):
    """In one sentence."""
    with pytest.raises(DataError, match=r"gs://texts/none/\*.parquet: no file fits this pattern"):
        expand(["gs://texts/none/*.parquet"])
