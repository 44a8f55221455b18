"""One of two processes is killed: the other ends within seconds, says why, and the run can be resumed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from nearfar.training import read_journal

from .runs import write_texts

pytestmark = pytest.mark.slow
SECONDS = 20
"""How long the other process may take to notice, on a busy machine."""


def start(folder: Path, *flags: str) -> list[subprocess.Popen[str]]:
    """Two processes of one run, as a launcher starts them; nobody watches over them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["train", "train.csv", "--encoder", "toy", "--epochs", "6", "--batch-size", "4", "--out", "model", *flags]
    words += ["--set", "training.checkpoint_every=5", "--dev", "none", "--precision", "fp32"]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "nearfar", *words], cwd=folder, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in (0, 1)
    ]  # fmt: skip


def steps(folder: Path) -> int:
    journal = folder / "model" / "journal.jsonl"
    return len(read_journal(journal)) if journal.exists() else 0


@pytest.mark.parametrize("killed", [0, 1])
def test_the_other_process_ends_and_the_run_goes_on_to_the_same_bits(tmp_path, killed):
    write_texts(tmp_path / "train.csv", rows=60)
    processes = start(tmp_path)
    while steps(tmp_path) < 8:
        assert all(process.poll() is None for process in processes), processes[0].communicate()
        time.sleep(0.02)
    processes[killed].send_signal(signal.SIGKILL)
    began = time.monotonic()
    _, errors = processes[1 - killed].communicate(timeout=SECONDS)
    assert time.monotonic() - began < SECONDS
    assert processes[1 - killed].returncode == 1, errors
    assert "error: model: another process of this run has ended" in errors
    assert "--resume" in errors
    assert "Traceback" not in errors
    processes[killed].communicate()
    assert list((tmp_path / "model" / "checkpoints").glob("step-*"))
    for process in start(tmp_path, "--resume"):
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    (tmp_path / "model").rename(tmp_path / "resumed")
    if killed:
        return  # one run without an interruption is enough to compare with
    for process in start(tmp_path):
        process.communicate(timeout=300)
    weights, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("resumed", "model"))
    assert all(weights[name].equal(expected[name]) for name in expected)
