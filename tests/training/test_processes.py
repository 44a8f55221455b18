"""Two processes on the same global batch do what one does, and agree with each other to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from nearfar.training import read_journal

from .runs import write_pairs, write_texts
from .task_runs import write_all

TOLERANCE = 2e-5
"""Largest relative difference of losses: sums are taken in another order."""

pytestmark = pytest.mark.xdist_group("processes")


def torchrun(processes: int, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.run([*launcher, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def train(folder: Path, processes: int, objective: str, accumulate: int = 1, chunk: int | None = None) -> Path:
    folder.mkdir()
    # the last batch of each epoch has 3 rows: an uneven share
    pairs = objective in ("batch-softmax", "pearson")
    texts = write_pairs(folder / "train.jsonl", rows=43) if pairs else write_texts(folder / "train.csv", rows=43)
    values = {
        "seed": 3,
        "data": {"train": str(texts), "dev": 0},
        "encoder": {"name": "toy", "max_length": 24, "dropout": 0.0},  # dropout is drawn anew in each process
        "objective": {"name": objective},
        "batches": {"size": 8} if chunk is None else {"size": 8, "chunk": chunk},
        "training": {"epochs": 2, "learning_rate": 1e-3, "accumulate": accumulate, "precision": "fp32"},
    }
    script = str(Path(__file__).with_name("two_ranks.py"))
    done = torchrun(processes, script, json.dumps(values), str(folder / "model"), cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "accumulate", "chunk"),
    [
        ("cross-entropy", 1, None),
        ("triple-entropy", 2, None),
        ("cross-entropy+supcon", 1, 3),
        ("label-aware", 1, None),
        ("batch-softmax", 1, 3),
        ("pearson", 1, None),
        ("simcse", 1, 3),
    ],
)
def test_two_processes_follow_the_loss_curve_of_one(tmp_path, objective, accumulate, chunk):
    """Same losses within the tolerance; weights of both ranks identical, objective's weights included."""
    one = train(tmp_path / "one", 1, objective, accumulate)
    two = train(tmp_path / "two", 2, objective, accumulate, chunk)

    curves = [
        [entry["loss"] for entry in read_journal(folder / "model" / "journal.jsonl") if entry["kind"] == "step"]
        for folder in (one, two)
    ]
    assert len(curves[0]) == len(curves[1]) >= 6
    assert curves[1] == pytest.approx(curves[0], rel=TOLERANCE, abs=1e-6)  # 1 - a correlation near 1 keeps few digits
    first, second = (load_file(two / f"rank-{rank}.safetensors") for rank in (0, 1))
    assert set(first) == set(second)
    assert all(first[name].equal(second[name]) for name in first)
    if objective == "triple-entropy":
        assert "objectives.soft_triple.centers" in first
    if objective == "simcse":
        assert any(name.startswith("projection.") for name in first)
    alone = load_file(one / "rank-0.safetensors")
    assert all((first[name] - alone[name]).abs().max() < 1e-3 for name in first)


def train_tasks(folder: Path, processes: int) -> Path:
    """Three tasks with surgery, in steps of three batches, some of them uneven shares, after a stage on pairs."""
    folder.mkdir()
    write_all(folder)
    head = {"dropout": 0.0}
    values = {
        "seed": 3,
        "encoder": {"name": "toy", "max_length": 24, "dropout": 0.0},
        "shared_layer": True,
        "batches": {"size": 7},
        "training": {"epochs": 2, "learning_rate": 1e-3, "gradient_surgery": "pcgrad", "accumulate": 3, "clip": 0.5,
                     "precision": "fp32"},
        "stage": [{"data": {"train": str(folder / "scores.jsonl"), "dev": 0}, "objective": {"name": "cosine-mse"},
                   "batch_size": 8}],
        "task": [{"name": name, "data": {"train": str(folder / file), "dev": 0}, "head": head}
                 for name, file in (("kind", "texts.csv"), ("same", "labels.jsonl"), ("close", "scores.jsonl"))],
    }  # fmt: skip
    script = str(Path(__file__).with_name("two_ranks.py"))
    done = torchrun(processes, script, json.dumps(values), str(folder / "model"), cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_surgery_in_two_processes_is_that_of_one_on_the_whole_batch(tmp_path):
    """Losses, cosines and conflicts of every step, and the weights; a stage before does not part the processes."""
    one, two = (train_tasks(tmp_path / name, number) for name, number in (("one", 1), ("two", 2)))

    alone, both = (
        [entry for entry in read_journal(folder / "model" / "journal.jsonl") if entry["kind"] == "step"]
        for folder in (one, two)
    )
    assert len(alone) == len(both) >= 8
    assert [entry["loss"] for entry in both] == pytest.approx([entry["loss"] for entry in alone], rel=1e-4)
    met = 0
    for mine, theirs in zip(alone, both, strict=True):
        for pair, own in mine.get("surgery", {}).items():
            other = theirs["surgery"][pair]
            assert other["cosine"] == pytest.approx(own["cosine"], abs=1e-3)
            if abs(own["cosine"]) > 1e-3:
                assert other["conflicts"] == own["conflicts"]
            met += own["conflicts"]
    assert met > 0, "no two tasks were ever in conflict, so this test says nothing"
    first, second = (load_file(two / f"rank-{rank}.safetensors") for rank in (0, 1))
    assert all(first[name].equal(second[name]) for name in first)
    weights = load_file(one / "rank-0.safetensors")
    assert all((first[name] - weights[name]).abs().max() < 1e-3 for name in first)


@pytest.mark.slow
def test_the_command_runs_under_torchrun_without_change(tmp_path):
    """Two processes, dev data, one model folder; only the first process speaks."""
    texts = write_texts(tmp_path / "train.csv", rows=43)
    arguments = ["train", str(texts), "--encoder", "toy", "--dev", "0.2", "--epochs", "1", "--batch-size", "8"]
    done = torchrun(2, "-m", "nearfar", *arguments, "--out", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("saved to model") == 1
    assert "on cpu x 2" in done.stderr
    assert (tmp_path / "model" / "nearfar.json").is_file()
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["training"]["steps"] == 5
    again = torchrun(2, "-m", "nearfar", *arguments, "--out", "model", "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stderr.count("has finished") == 1


@pytest.mark.slow
def test_the_command_runs_under_accelerate_without_change(tmp_path):
    """accelerate starts several processes on GPUs, or on CPUs through MPI; here it starts one."""
    texts = write_texts(tmp_path / "train.csv", rows=43)
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1",
                "--mixed_precision", "no", "--dynamo_backend", "no"]  # fmt: skip
    command = [*launcher, "-m", "nearfar", "train", str(texts), "--encoder", "toy", "--epochs", "1", "--out", "model"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "model" / "nearfar.json").is_file()
