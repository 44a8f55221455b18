"""Two processes on the same global batch do what one does, and agree with each other to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from nearfar.training import read_journal

from .runs import write_pairs, write_texts
from .task_runs import write_all
from .two_ranks import CASE, run_case

TOLERANCE = 2e-5
"""Largest relative difference of losses: sums are taken in another order."""
OBJECTIVES: dict[str, dict[str, int]] = {
    "cross-entropy": {},
    "triple-entropy": {"accumulate": 2},
    "cross-entropy+supcon": {"chunk": 3},
    "label-aware": {},
    "batch-softmax": {"chunk": 3},
    "pearson": {},
    "simcse": {"chunk": 3},
}
"""Objectives, each with the batches accumulated in a step and the rows that two processes encode at once."""
TEXTS = [
    "a cat sat",
    "the cat sat on a mat",
    "dogs bark",
    "a dog barks at the cat",
    "rain",
    "it will rain all day tomorrow",
    "sun",
    "the sun is out and so are we",
    "one more text",
    "and the last of them",
]

pytestmark = pytest.mark.slow


def torchrun(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.run([*launcher, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def one_objective(folder: Path, objective: str, accumulate: int = 1, chunk: int | None = None) -> dict[str, Any]:
    # the last batch of each epoch has 3 rows: an uneven share
    pairs = objective in ("batch-softmax", "pearson")
    texts = write_pairs(folder / "train.jsonl", rows=43) if pairs else write_texts(folder / "train.csv", rows=43)
    return {
        "seed": 3,
        "data": {"train": str(texts), "dev": 0},
        "encoder": {"name": "toy", "max_length": 24, "dropout": 0.0},  # dropout is drawn anew in each process
        "objective": {"name": objective},
        "batches": {"size": 8} if chunk is None else {"size": 8, "chunk": chunk},
        "training": {"epochs": 2, "learning_rate": 1e-3, "accumulate": accumulate, "precision": "fp32"},
    }


def three_tasks(folder: Path) -> dict[str, Any]:
    """Three tasks with PCGrad, in steps of three batches, some of them uneven shares, after a stage on pairs."""
    write_all(folder)
    training = {"epochs": 2, "learning_rate": 1e-3, "gradient_surgery": "pcgrad", "accumulate": 3, "clip": 0.5}
    scores = {"train": str(folder / "scores.jsonl"), "dev": 0}
    files = {"kind": "texts.csv", "same": "labels.jsonl", "close": "scores.jsonl"}
    return {
        "seed": 3,
        "encoder": {"name": "toy", "max_length": 24, "dropout": 0.0},
        "shared_layer": True,
        "batches": {"size": 7},
        "training": {**training, "precision": "fp32"},
        "stage": [{"data": scores, "objective": {"name": "cosine-mse"}, "batch_size": 8}],
        "task": [
            {"name": name, "data": {"train": str(folder / file), "dev": 0}, "head": {"dropout": 0.0}}
            for name, file in files.items()
        ],
    }


def mixed_tasks(folder: Path) -> dict[str, Any]:
    """Batches with rows of three tasks, some of them a single row, which one process has and the other has not."""
    case = three_tasks(folder)
    training = {"epochs": 2, "learning_rate": 1e-3, "precision": "fp32"}
    return {**case, "schedule": {"kind": "mixed"}, "training": training, "stage": []}


def resumed_command(folder: Path) -> dict[str, Any]:
    """A run on dev data, and the same command again with ``--resume``."""
    words = ["train", str(write_texts(folder / "train.csv", rows=43)), "--encoder", "toy", "--dev", "0.2", "--epochs"]
    words += ["1", "--batch-size", "8", "--out", "model"]
    return {"commands": [words, [*words, "--resume"]]}


def write_cases(root: Path, *, chunked: bool) -> list[Path]:
    """A folder for each case; only in ``chunked`` ones a batch is encoded in parts."""
    folders = []
    for name in (*OBJECTIVES, "tasks", "mixed", "command", "texts"):
        folder = root / name
        folder.mkdir()
        if name in OBJECTIVES:
            case = one_objective(folder, name, **OBJECTIVES[name])
            if not chunked:
                case["batches"].pop("chunk", None)
        elif name == "texts":
            case = {"texts": TEXTS}
        else:
            case = {"tasks": three_tasks, "mixed": mixed_tasks, "command": resumed_command}[name](folder)
        (folder / CASE).write_text(json.dumps(case))
        folders.append(folder)
    return folders


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each case, all run in this process, on whole batches."""
    root = tmp_path_factory.mktemp("one")
    for folder in write_cases(root, chunked=False):
        run_case(folder)
    return root


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same cases in one pair of processes.

    A case that fails ends the processes; it keeps what they printed, and the cases after it get a new pair.
    """
    root = tmp_path_factory.mktemp("two")
    waiting = write_cases(root, chunked=True)
    while waiting:
        done = torchrun(str(Path(__file__).with_name("two_ranks.py")), *map(str, waiting), cwd=root)
        waiting = [folder for folder in waiting if not all((folder / f"done-{rank}").exists() for rank in (0, 1))]
        if waiting:
            (waiting.pop(0) / "failed.txt").write_text(done.stderr[-3000:])
    return root


def result(root: Path, name: str) -> Path:
    """The folder of a case that came to its end."""
    failed = root / name / "failed.txt"
    assert not failed.exists(), failed.read_text()
    return root / name


def steps(folder: Path) -> list[dict[str, Any]]:
    return [entry for entry in read_journal(folder / "model" / "journal.jsonl") if entry["kind"] == "step"]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_two_processes_follow_the_loss_curve_of_one(alone, both, objective):
    """Same losses within the tolerance; weights of both ranks identical, objective's weights included."""
    one, two = result(alone, objective), result(both, objective)

    curves = [[entry["loss"] for entry in steps(folder)] for folder in (one, two)]
    assert len(curves[0]) == len(curves[1]) >= 6
    assert curves[1] == pytest.approx(curves[0], rel=TOLERANCE, abs=1e-6)  # 1 - a correlation near 1 keeps few digits
    first, second = (load_file(two / f"rank-{rank}.safetensors") for rank in (0, 1))
    assert set(first) == set(second)
    assert all(first[name].equal(second[name]) for name in first)
    if objective == "triple-entropy":
        assert "objectives.soft_triple.centers" in first
    if objective == "simcse":
        assert any(name.startswith("projection.") for name in first)
    weights = load_file(one / "rank-0.safetensors")
    assert all((first[name] - weights[name]).abs().max() < 1e-3 for name in first)


def test_surgery_in_two_processes_is_that_of_one_on_the_whole_batch(alone, both):
    """Losses, cosines and conflicts of every step, and the weights; a stage before does not part the processes."""
    one, two = result(alone, "tasks"), result(both, "tasks")

    expected, entries = steps(one), steps(two)
    assert len(expected) == len(entries) >= 8
    assert [entry["loss"] for entry in entries] == pytest.approx([entry["loss"] for entry in expected], rel=1e-4)
    conflicts = 0
    for entry, whole in zip(entries, expected, strict=True):
        for pair, statistics in whole.get("surgery", {}).items():
            other = entry["surgery"][pair]
            assert other["cosine"] == pytest.approx(statistics["cosine"], abs=1e-3)
            if abs(statistics["cosine"]) > 1e-3:
                assert other["conflicts"] == statistics["conflicts"]
            conflicts += statistics["conflicts"]
    assert conflicts > 0, "no two tasks were ever in conflict, so this test says nothing"
    first, second = (load_file(two / f"rank-{rank}.safetensors") for rank in (0, 1))
    assert all(first[name].equal(second[name]) for name in first)
    weights = load_file(one / "rank-0.safetensors")
    assert all((first[name] - weights[name]).abs().max() < 1e-3 for name in first)


def test_mixed_batches_in_two_processes_are_those_of_one(alone, both):
    one, two = result(alone, "mixed"), result(both, "mixed")
    expected, entries = steps(one), steps(two)
    assert len(expected) == len(entries) >= 8
    assert any(task["rows"] == 1 for entry in entries for task in entry["tasks"].values())
    assert [entry["loss"] for entry in entries] == pytest.approx([entry["loss"] for entry in expected], rel=1e-4)
    first, second = (load_file(two / f"rank-{rank}.safetensors") for rank in (0, 1))
    assert all(first[name].equal(second[name]) for name in first)
    weights = load_file(one / "rank-0.safetensors")
    assert all((first[name] - weights[name]).abs().max() < 1e-3 for name in first)


def test_two_processes_have_the_same_vectors_and_reports_as_one(alone, both):
    """Each encodes its share; both have all to the bit, and what one process has to rounding."""
    one, two = result(alone, "texts"), result(both, "texts")
    vectors = [np.load(two / f"rank-{rank}.npy") for rank in (0, 1)]
    reports = [json.loads((two / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    expected = json.loads((one / "rank-0.json").read_text())
    assert len(vectors[0]) == len(TEXTS)
    assert vectors[0].tobytes() == vectors[1].tobytes()
    np.testing.assert_allclose(vectors[0], np.load(one / "rank-0.npy"), rtol=1e-5, atol=1e-6)
    assert reports[0] == reports[1]
    assert reports[0]["scores"] == pytest.approx(expected["scores"], abs=1e-6)
    assert reports[0]["threshold"] == pytest.approx(expected["threshold"], abs=1e-6)


def test_a_finished_run_is_not_resumed_and_only_the_first_process_says_so(both):
    folder = result(both, "command")
    (trained, resumed), (silent, also_silent) = (
        json.loads((folder / f"commands-{rank}.json").read_text()) for rank in (0, 1)
    )
    assert [entry["status"] for entry in (trained, resumed, silent, also_silent)] == [0] * 4
    assert trained["stderr"].count("saved to model") == 1
    assert resumed["stderr"].count("has finished") == 1
    assert "saved to" not in silent["stderr"]
    assert "has finished" not in also_silent["stderr"]


def test_the_command_runs_under_torchrun_without_change(tmp_path):
    """Two processes, dev data, one model folder; only the first process speaks."""
    texts = write_texts(tmp_path / "train.csv", rows=43)
    arguments = ["train", str(texts), "--encoder", "toy", "--dev", "0.2", "--epochs", "1", "--batch-size", "8"]
    done = torchrun("-m", "nearfar", *arguments, "--out", "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("saved to model") == 1
    assert "on cpu x 2" in done.stderr
    assert (tmp_path / "model" / "nearfar.json").is_file()
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["training"]["steps"] == 5


def test_the_command_runs_under_accelerate_without_change(tmp_path):
    """accelerate starts several processes on GPUs, or on CPUs through MPI; here it starts one."""
    texts = write_texts(tmp_path / "train.csv", rows=43)
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1"]
    launcher += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command = [*launcher, "-m", "nearfar", "train", str(texts), "--encoder", "toy", "--epochs", "1", "--out", "model"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "model" / "nearfar.json").is_file()
