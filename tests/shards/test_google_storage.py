"""gs://: inputs and shards in Google Cloud Storage, by the interface of a local server."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.errors import DataError
from nearfar.shards.storage import Storage, _filesystem, expand
from tests.shards.conftest import write_corpus

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


def test_names_without_a_file_are_refused(bucket):
    """In one sentence."""
    with pytest.raises(DataError, match=r"gs://texts/none/\*.parquet: no file fits this pattern"):
        expand(["gs://texts/none/*.parquet"])
