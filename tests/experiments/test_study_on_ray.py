"""Studies on a Ray cluster that the test starts: one head and two nodes, one of which is killed during the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.experiments.records import read_records
from tests.experiments.studies import contents, events, nearfar, small_study

pytest.importorskip("ray", reason="ray is not installed: pip install 'nearfar[ray]'")

CLUSTER = """
import logging, os, subprocess, sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster

file, out = sys.argv[1:]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(2)]
command = [sys.executable, "-m", "nearfar", "study", "run", file, "--out", out, "--on", "ray", "--address", cluster.address]
driver = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
log = Path(out) / "log.jsonl"
while driver.poll() is None and not (log.exists() and log.read_text().count("finished") >= 1):
    time.sleep(0.05)
at = log.read_text().count("finished")
cluster.remove_node(nodes[1], allow_graceful=False)
told = driver.communicate()[1]
cluster.shutdown()
print(at)
sys.stderr.write(told)
sys.exit(driver.returncode)
"""


@pytest.mark.slow
def test_a_study_on_two_nodes_survives_the_loss_of_one(tmp_path):
    """All records are there, the same as those of this machine alone, each written once."""
    file = small_study(tmp_path, ("[2, 16]", "[2]"))
    (tmp_path / "cluster.py").write_text(CLUSTER)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "cluster.py"), str(file), str(tmp_path / "ray")],
        capture_output=True, text=True, timeout=280, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert 1 <= int(done.stdout.split()[-1]) < 6, "the node was lost before or after the run"
    records = read_records(tmp_path / "ray")
    assert [record.reason for record in records] == [None] * 6
    names = [str(entry["id"]) for entry in events(tmp_path / "ray") if entry["event"] == "finished"]
    assert sorted(names) == sorted({record.id for record in records})
    alone = nearfar("run", file, "--workers", "1")
    assert alone.returncode == 0, alone.stderr
    assert contents(tmp_path / "ray") == contents(tmp_path / "study")


def test_no_cluster_is_a_clear_message(tmp_path):
    """With what to start."""
    done = nearfar("run", small_study(tmp_path), "--on", "ray", "--address", "127.0.0.1:1")
    assert done.returncode == 1
    assert "no Ray cluster answers at '127.0.0.1:1'" in done.stderr
