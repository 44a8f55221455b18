"""Training on Ray into a bucket of a local server: a worker is killed, then the driver, and nothing changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.training.runs import digest, losses, write_texts

from nearfar.shards.mirror import RunMirror
from nearfar.shards.storage import Storage, _filesystem

pytest.importorskip("ray", reason="ray is not installed: pip install 'nearfar[ray]'")
moto = pytest.importorskip("moto.server", reason="moto is not installed: pip install 'moto[s3,server]'")

CLUSTER = """
import json, os, signal, socket, subprocess, sys, time
from pathlib import Path
import psutil
from ray.cluster_utils import Cluster
from nearfar.shards.storage import Storage

folder, place = Path(sys.argv[1]), "s3://runs/broken"
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(2)]


def start(name, *flags, **environment):
    words = ["train", "train.csv", "--encoder", "toy", "--epochs", "12", "--batch-size", "4", "--dev", "0.2",
             "--no-estimate", "--set", "training.checkpoint_every=5", "--precision", "fp32", "--out", name, *flags]
    return subprocess.Popen([sys.executable, "-m", "nearfar", *words], cwd=folder, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **environment})


def start_on_ray(*flags):
    return start(place, "--on", "ray", "--workers", "2", "--address", cluster.address, *flags)


def workers():
    found = []
    for node in nodes:
        for one in psutil.Process(node.all_processes["raylet"][0].process.pid).children(recursive=True):
            try:
                found += [one.pid] if "RayTrainWorker" in " ".join(one.cmdline()) else []
            except psutil.Error:
                pass
    return found


def newest():
    names = Storage(place).listing(recursive=True)
    whole = [name for name in names if "step-" in name and name.endswith("MANIFEST.json")]
    return max((int(name.split("step-")[1][:8]) for name in whole), default=0)


def wait_for(process, step):
    while newest() < step and process.poll() is None:
        time.sleep(0.05)


seen = {}
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
whole = [start("whole", **shared, RANK=str(rank), LOCAL_RANK=str(rank), OMP_NUM_THREADS="1") for rank in range(2)]
seen["whole"] = [process.communicate()[1] for process in whole]
process = start_on_ray()
wait_for(process, 10)
seen["worker"] = newest()
os.kill(workers()[-1], signal.SIGKILL)
wait_for(process, seen["worker"] + 20)
seen["driver"] = newest()
process.kill()
process.communicate()
seen["refused"] = start_on_ray().communicate()[1]
while workers():
    time.sleep(0.1)
Storage(place + "/running.json").delete()  # else the next run would have to wait for its end
process = start_on_ray("--resume")
seen["broken"] = process.communicate()[1]
seen["code"] = process.returncode
seen["again"] = start_on_ray("--resume").communicate()[1]
cluster.shutdown()
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def bucket():
    """A server with an empty bucket."""
    from pyarrow import fs

    server = moto.ThreadedMotoServer(port=0, verbose=False)
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
        store.create_dir("runs")
        yield "s3://runs"
    _filesystem.cache_clear()
    server.stop()


@pytest.mark.filterwarnings("ignore")
def test_a_copy_has_what_the_folder_has(bucket, tmp_path):
    """Only what changed is sent, what is gone goes, another run's files go first, and pull brings all back."""
    folder, place = tmp_path / "run", f"{bucket}/copy"
    manifest = folder / "checkpoints" / "step-1" / "MANIFEST.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    (folder / "recipe.toml").write_text("a")
    (folder / ".half").write_text("no")
    Storage(f"{place}/old.txt").write(b"of another run")
    mirror = RunMirror(folder, place, "one")
    assert not mirror.begun()
    mirror.push()
    assert mirror.begun()
    names = ["checkpoints/step-1/MANIFEST.json", "recipe.toml", "run.json"]
    assert sorted(Storage(place).listing(recursive=True)) == names
    sent = Storage(f"{place}/recipe.toml").entry()
    manifest.unlink()
    (folder / "journal.jsonl").write_text("{}")
    mirror.push()
    assert sorted(Storage(place).listing(recursive=True)) == ["journal.jsonl", "recipe.toml", "run.json"]
    assert Storage(f"{place}/recipe.toml").entry() == sent
    again = RunMirror(tmp_path / "again", place, "two")
    assert not again.begun()
    again.pull()
    assert (tmp_path / "again" / "recipe.toml").read_text() == "a"
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == ["journal.jsonl", "recipe.toml"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_lost_worker_and_a_lost_driver_change_no_byte(bucket, tmp_path):
    """The run goes on from the newest whole checkpoint of the bucket; its model is that of two plain processes."""
    write_texts(tmp_path / "train.csv", rows=60)
    (tmp_path / "cluster.py").write_text(CLUSTER)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "cluster.py"), str(tmp_path)],
        capture_output=True, text=True, timeout=560, cwd=Path(__file__).parents[2],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "RAY_worker_niceness": "0"},  # else other tests starve them
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["code"] == 0, seen
    assert 10 <= seen["worker"] < seen["driver"] < 140, seen
    assert "another run is filling this folder" in seen["refused"] or "there is a model or a run" in seen["refused"]
    assert "resuming after step" in seen["broken"], seen["broken"]
    assert "saved to s3://runs/broken; copy it to a disk to use it" in seen["broken"]
    assert "s3://runs/broken: this run has finished" in seen["again"]
    RunMirror(tmp_path / "copy", f"{bucket}/broken", "").pull()
    assert not (tmp_path / "copy" / "checkpoints").exists()
    assert digest(tmp_path / "copy") == digest(tmp_path / "whole")
    assert losses(tmp_path / "copy") == losses(tmp_path / "whole")
