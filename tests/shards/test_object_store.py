"""Object stores: inputs and shards in S3, by the interface of a local server."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

import nearfar
from nearfar.errors import DataError, OutputError
from nearfar.shards.storage import Storage, expand
from nearfar.shards.vectors import VectorFolder
from tests.shards.conftest import texts, write_corpus

server_module = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[s3,server]'")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A bucket with 150 texts in three files."""
    from pyarrow import fs

    from nearfar.shards.storage import _filesystem

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        _filesystem.cache_clear()
        store = fs.S3FileSystem(
            endpoint_override=f"http://{host}:{port}", region="us-east-1", allow_bucket_creation=True
        )
        store.create_dir("texts")
        folder = write_corpus(tmp_path_factory.mktemp("corpus"))
        for path in folder.iterdir():
            Storage(f"s3://texts/corpus/{path.name}").write(path.read_bytes())
        Storage("s3://texts/lines/a.jsonl").write(
            b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts(30))
        )
        yield folder
    _filesystem.cache_clear()
    server.stop()


@pytest.mark.filterwarnings("ignore")
def test_files_of_a_bucket_become_shards_of_a_bucket(bucket, tmp_path):
    """The same vectors as on a disk; the same call computes what is missing only."""
    local = nearfar.embed_files("toy", bucket, tmp_path / "out", workers=1, rows_per_shard=20)
    call = {"workers": 1, "rows_per_shard": 20}
    folder = nearfar.embed_files("toy", "s3://texts/corpus/*.parquet", "s3://texts/out", **call)
    assert np.array_equal(np.concatenate(list(folder)), np.concatenate(list(local)))
    assert [each.files for each in folder.manifest.results] == [each.files for each in local.manifest.results]
    names = Storage("s3://texts/out").listing(recursive=True)
    assert sorted(names) == ["manifest.json", *(f"shard-{number:06}.parquet" for number in range(9))]
    Storage("s3://texts/out/shard-000004.parquet").delete()
    with pytest.raises(DataError, match=r"shard-000004.parquet is missing"):
        folder.vectors(4)
    again = nearfar.embed_files("toy", "s3://texts/corpus/*.parquet", "s3://texts/out", **call)
    assert again.manifest == folder.manifest
    assert len(again.vectors(4)) == 20
    assert folder.document(149) == {"doc_id": "d149", "doc": texts(1, 149)[0]}


@pytest.mark.filterwarnings("ignore")
def test_lines_of_a_bucket_are_read_in_parts(bucket, tmp_path):
    """By byte ranges, into a folder on a disk."""
    folder = nearfar.embed_files("toy", "s3://texts/lines/a.jsonl", tmp_path / "out", workers=1, rows_per_shard=8)
    assert [len(vectors) for vectors in folder] == [8, 8, 8, 6]
    assert folder.document(29)["doc"] == texts(1, 29)[0]


@pytest.mark.filterwarnings("ignore")
def test_two_runs_and_missing_files_are_refused(bucket, tmp_path):
    """In one sentence each."""
    Storage("s3://texts/busy/running.json").write(b"{}")
    with pytest.raises(OutputError, match=r"another run is filling this folder.* try again in \d+ s"):
        nearfar.embed_files("toy", "s3://texts/corpus", "s3://texts/busy", workers=1)
    with pytest.raises(DataError, match="no file fits this pattern"):
        expand(["s3://texts/corpus/*.csv"])
    with pytest.raises(DataError, match=r"there is no such file|cannot be read"):
        expand(["s3://no-such-bucket/a.csv"])
    with pytest.raises(DataError, match="not a folder of vectors"):
        VectorFolder.open("s3://texts/corpus")
