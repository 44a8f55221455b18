"""Training by the workers of a Ray cluster that the test starts: a worker is killed, then a node, and nothing changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.training.runs import digest, losses, write_texts

from nearfar.cli import main

pytest.importorskip("ray", reason="ray is not installed: pip install 'nearfar[ray]'")

CLUSTER = """
import json, os, signal, socket, subprocess, sys, time
from pathlib import Path
import psutil
from ray.cluster_utils import Cluster

folder, without = Path(sys.argv[1]), sys.argv[2]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(3)]


def start(name, *flags, **environment):
    words = ["train", "train.csv", "--encoder", "toy", "--epochs", "12", "--batch-size", "4", "--dev", "none",
             "--no-estimate", "--set", "training.checkpoint_every=5", "--precision", "fp32", "--out", name, *flags]
    return subprocess.Popen([sys.executable, "-m", "nearfar", *words], cwd=folder, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **environment})


def start_on_ray(name, *flags):
    return start(name, "--on", "ray", "--workers", "2", "--address", cluster.address, *flags)


def workers(node):
    raylet = next(one for one in node.all_processes["raylet"])
    try:
        below = psutil.Process(raylet.process.pid).children(recursive=True)
        return [one.pid for one in below if "RayTrainWorker" in " ".join(one.cmdline())]
    except psutil.Error:  # one of them has just ended
        return workers(node) if raylet.process.poll() is None else []


def steps(name):
    journal = folder / name / "journal.jsonl"
    return journal.read_bytes().count(b'"kind": "step"') if journal.exists() else 0


def wait_for(name, process, number):
    while steps(name) < number and process.poll() is None:
        time.sleep(0.02)


seen = {}
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
whole = [start("whole", **shared, RANK=str(rank), LOCAL_RANK=str(rank), OMP_NUM_THREADS="1") for rank in range(2)]
seen["whole"] = [process.communicate()[1] for process in whole]
process = start_on_ray("broken")
wait_for("broken", process, 12)
killed = [pid for node in nodes for pid in workers(node)]
seen["at"] = steps("broken")
os.kill(killed[-1], signal.SIGKILL)
while [pid for node in nodes for pid in workers(node) if pid in killed] and process.poll() is None:
    time.sleep(0.05)
wait_for("broken", process, max(steps("broken"), seen["at"]) + 8)
busy = [node for node in nodes if workers(node)]
seen["nodes"] = len(busy)
cluster.remove_node(busy[0], allow_graceful=False)
seen["broken"] = process.communicate()[1]
seen["codes"] = [process.returncode]
process = start_on_ray("wrong", "--objective", "cosine-mse")
seen["wrong"] = process.communicate()[1]
seen["codes"].append(process.returncode)
os.environ["PYTHONPATH"] = without + os.pathsep + os.environ.get("PYTHONPATH", "")
cluster.add_node(num_cpus=1, include_dashboard=False)
os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
process = start_on_ray("lacking")
seen["lacking"] = process.communicate()[1]
seen["codes"].append(process.returncode)
cluster.shutdown()
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """A run of two processes without Ray, one on Ray that loses a worker and a node, and two that are refused."""
    folder = tmp_path_factory.mktemp("ray")
    write_texts(folder / "train.csv", rows=60)
    without = folder / "without"
    without.mkdir()
    (without / "nearfar.py").write_text('raise ModuleNotFoundError("No module named \'nearfar\'", name="nearfar")\n')
    (folder / "cluster.py").write_text(CLUSTER)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(folder / "cluster.py"), str(folder), str(without)],
        capture_output=True, text=True, timeout=560, cwd=Path(__file__).parents[2],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "RAY_worker_niceness": "0"},  # else other tests starve them
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_lost_worker_and_a_lost_node_change_no_byte(runs):
    """The run goes on from its newest whole checkpoint, and ends with the weights and losses of two plain processes."""
    folder, seen = runs
    assert seen["codes"][0] == 0, seen["broken"]
    assert 12 <= seen["at"] < 180, "the worker was lost after the run"
    assert seen["nodes"], "the node was lost after the run"
    assert digest(folder / "broken") == digest(folder / "whole")
    assert losses(folder / "broken") == losses(folder / "whole")
    assert [step for step, _ in losses(folder / "whole")] == list(range(1, 181))
    assert seen["broken"].count("resuming after step") == 2, seen["broken"]
    assert "on cpu x 2" in seen["broken"]
    assert "saved to broken; try: nearfar predict broken FILE" in seen["broken"]


@pytest.mark.slow
def test_what_is_refused_is_refused_once_in_one_sentence(runs):
    """Not as often as workers are started again; and a node without the package, before anything starts."""
    folder, seen = runs
    assert seen["codes"][1:] == [1, 1], seen
    assert "this objective compares pairs of texts, and the file has single texts" in seen["wrong"]
    assert (
        "cannot import nearfar (No module named 'nearfar'): install nearfar[ray] in the same version" in seen["lacking"]
    )
    assert not any("Traceback" in seen[name] for name in ("wrong", "lacking"))
    assert not (folder / "wrong").exists()
    assert not (folder / "lacking").exists()


def test_impossible_places_are_refused(tmp_path, monkeypatch, capsys):
    write_texts(tmp_path / "train.csv")
    monkeypatch.chdir(tmp_path)
    for flags, message in (
        (["--on", "rya"], "--on is local or ray, got 'rya'. Did you mean 'ray'?"),
        (["--workers", "2"], "--workers 2 is for --on ray; on this machine start several processes with torchrun"),
        (["--on", "ray", "--address", "127.0.0.1:1"], "no Ray cluster answers at '127.0.0.1:1'"),
    ):
        monkeypatch.setattr(sys, "argv", ["nearfar", "train", "train.csv", "--encoder", "toy", *flags])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 1
        assert message in " ".join(capsys.readouterr().err.split())
