"""Shards on a real Ray cluster of several nodes: workers, a node and the driver are killed, and no byte changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nearfar
from nearfar.errors import SettingError
from nearfar.shards.executors import LocalExecutor
from nearfar.shards.index import ShardedIndex
from nearfar.shards.index_build import Settings, build_index
from tests.shards.conftest import contents, texts, write_corpus

pytest.importorskip("ray", reason="ray is not installed: pip install 'nearfar[ray]'")

CLUSTER = """
import json, os, signal, subprocess, sys, time
from pathlib import Path
import psutil
from ray.cluster_utils import Cluster

corpus, folder = sys.argv[1], Path(sys.argv[2])
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1, include_dashboard=False) for _ in range(2)]
said = {}

def start(verb, *arguments):
    command = [sys.executable, "-m", "nearfar", verb, *arguments, "--on", "ray", "--address", cluster.address]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def embed(out):
    return start("embed", "toy", corpus, "--out", f"{folder / out}/", "--rows-per-shard", "200")

def mine(out):
    words = ["--out", f"{folder / out}.jsonl", "--shards", f"{folder / out}", "--rows-per-shard", "200"]
    return start("mine", "toy", f"{folder / 'pairs.jsonl'}", *words)

def kill_a_worker():
    every = psutil.process_iter(["cmdline"])
    next(each for each in every if "ray::compute" in " ".join(each.info["cmdline"] or [])).kill()

def wait_for(out, shards, process):
    while process.poll() is None:
        done = len(list((folder / out / "done").glob("shard-*.json")))
        if done >= shards:
            return done
        time.sleep(0.02)
    raise SystemExit(f"{out} ended too early: {process.communicate()}")

def finish(name, process):
    out, err = process.communicate()
    said[name] = [process.returncode, out, err]

# a worker, then a node, during one run
driver = embed("lost")
wait_for("lost", 3, driver)
kill_a_worker()
at = wait_for("lost", len(list((folder / "lost" / "done").glob("*"))) + 5, driver)
cluster.remove_node(nodes[1], allow_graceful=False)
finish("lost", driver)
cluster.add_node(num_cpus=1, include_dashboard=False)

# the driver
driver = embed("killed")
done = wait_for("killed", 5, driver)
driver.send_signal(signal.SIGKILL)
driver.communicate()
time.sleep(1)
kept = {path.name: path.stat().st_mtime_ns for path in (folder / "killed").glob("shard-*")}
searching = start("search", "toy", f"{folder / 'index'}", "parcel letter 3", "--top", "3")
finish("killed", embed("killed"))
finish("search", searching)
finish("index", start("index", f"{folder / 'killed'}", "--out", f"{folder / 'index-on-ray'}", "--rows-per-part", "6000"))
same = sum((folder / "killed" / name).stat().st_mtime_ns == at for name, at in kept.items())

# a worker, a node and the driver while the texts of nearfar mine are embedded
driver = mine("mined")
wait_for("mined/vectors", 3, driver)
kill_a_worker()
wait_for("mined/vectors", len(list((folder / "mined/vectors/done").glob("*"))) + 5, driver)
cluster.remove_node(nodes[0], allow_graceful=False)
cluster.add_node(num_cpus=1, include_dashboard=False)
mined = wait_for("mined/vectors", len(list((folder / "mined/vectors/done").glob("*"))) + 5, driver)
driver.send_signal(signal.SIGKILL)
driver.communicate()
time.sleep(1)
kept = {path.name: path.stat().st_mtime_ns for path in (folder / "mined/vectors").glob("shard-*")}
finish("mined", mine("mined"))
again = sum((folder / "mined/vectors" / name).stat().st_mtime_ns == at for name, at in kept.items())

# nodes without the package
for node in list(cluster.worker_nodes):
    cluster.remove_node(node, allow_graceful=False)
os.environ["PYTHONPATH"] = f"{folder / 'without'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
os.environ["NEARFAR_IS_MISSING"] = "1"
cluster.add_node(num_cpus=1, include_dashboard=False)
del os.environ["NEARFAR_IS_MISSING"]
finish("without", embed("none"))
cluster.shutdown()
print(json.dumps({"said": said, "same": same, "done": done, "again": again, "mined": mined}))
"""
WITHOUT = """
import os, sys
if os.environ.get("NEARFAR_IS_MISSING"):
    class Missing:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name.partition(".")[0] == "nearfar":
                raise ModuleNotFoundError("No module named 'nearfar'", name="nearfar")
    sys.meta_path.insert(0, Missing)
"""


@pytest.mark.slow
def test_lost_workers_nodes_and_drivers_change_no_byte(tmp_path):
    """Nor does anything that was done happen again; nodes without the package are one sentence."""
    corpus = write_corpus(tmp_path / "corpus", 3, 4000)
    nearfar.embed_files("toy", corpus, tmp_path / "alone", workers=1, rows_per_shard=200)
    build_index(str(tmp_path / "alone"), tmp_path / "index", Settings(rows_per_part=6000), LocalExecutor(1))
    pairs = zip(texts(6000), texts(6000, 6000), strict=True)
    lines = (json.dumps({"text_a": one, "text_b": other}) + "\n" for one, other in pairs)
    (tmp_path / "pairs.jsonl").write_text("".join(lines))
    words = ["mine", "toy", str(tmp_path / "pairs.jsonl"), "--out", str(tmp_path / "mined-alone.jsonl")]
    words += ["--shards", str(tmp_path / "mined-alone"), "--rows-per-shard", "200", "--workers", "1"]
    subprocess.run([sys.executable, "-m", "nearfar", *words], check=True, capture_output=True)
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(WITHOUT)
    (tmp_path / "cluster.py").write_text(CLUSTER)
    source = str(Path(nearfar.__file__).parents[1])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "cluster.py"), str(corpus), str(tmp_path)],
        capture_output=True, text=True, timeout=900, cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": path, "RAY_worker_niceness": "0"},  # Ray would give all others precedence,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout.splitlines()[-1])
    said = report["said"]
    for name in ("lost", "killed", "search", "index", "mined"):
        assert said[name][0] == 0, said[name]
    alone = contents(tmp_path / "alone")
    assert contents(tmp_path / "lost") == alone
    assert contents(tmp_path / "killed") == alone
    assert "continuing: " in said["killed"][2]
    assert report["same"] >= report["done"]
    assert (tmp_path / "mined.jsonl").read_bytes() == (tmp_path / "mined-alone.jsonl").read_bytes()
    one, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "vectors").glob("shard-*")}
        for name in ("mined", "mined-alone")
    )
    assert one == other
    assert "continuing: " in said["mined"][2]
    assert report["again"] >= report["mined"]
    for path in (tmp_path / "index").glob("part-*"):
        assert (tmp_path / "index-on-ray" / path.name).read_bytes() == path.read_bytes()
    model = nearfar.load("toy")
    hits = model.search("parcel letter 3", ShardedIndex.load(tmp_path / "index"), top=3)[0]
    assert [result["doc"] for result in json.loads(said["search"][1])["results"]] == [hit.text for hit in hits]
    code, _, errors = said["without"]
    (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert code == 1
    assert line == (
        "error: a node of the cluster does not have nearfar: install the same version on all nodes, pip install nearfar."
    )


def test_no_cluster_is_a_clear_message(corpus, tmp_path):
    """With what to start."""
    with pytest.raises(SettingError, match=r"no Ray cluster answers at '127.0.0.1:1': start one"):
        nearfar.embed_files("toy", corpus, tmp_path / "out", ray="127.0.0.1:1")
