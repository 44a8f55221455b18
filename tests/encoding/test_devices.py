"""Devices and threads: what was asked for is used, and what is not there is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import nearfar
from nearfar.encoding import devices, load
from nearfar.errors import SettingError

TEXTS = ["a short text", "another one, somewhat longer", "three words more"]


def test_a_model_opens_on_the_device_that_is_asked_for() -> None:
    model = load("toy", device="cpu")
    assert {weight.device.type for weight in model.model.parameters()} == {"cpu"}
    assert np.array_equal(nearfar.load("toy", device="cpu").embed(TEXTS), model.embed(TEXTS))


@pytest.mark.parametrize("name", ["cuda:99", "tpu", "gpu", ""])
def test_a_device_that_is_not_there_is_refused_by_name(name: str) -> None:
    if not name:
        assert devices.choose_device(name).type in ("cpu", "cuda", "mps")
        return
    with pytest.raises(SettingError, match=f"the device is '{name}', and torch has: cpu"):
        nearfar.load("toy", device=name)


def test_a_gpu_is_the_default_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_chosen", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices.available_devices()[:4] == ["cpu", "cuda", "cuda:0", "cuda:1"]
    assert str(devices.choose_device()) == "cuda"
    assert str(devices.choose_device("cuda:1")) == "cuda:1"
    assert str(devices.choose_device("cpu")) == "cpu"


def test_what_a_command_chose_holds_for_whatever_it_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_chosen", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    devices.use_device("cpu")
    assert str(devices.choose_device()) == "cpu"


THREADS = """
import sys, numpy, torch, nearfar
from nearfar.encoding import cpu_parallel
vectors = nearfar.load("toy").embed([f"text number {n} with some words" for n in range(64)])
numpy.save(sys.argv[1], vectors)
print(torch.get_num_threads(), cpu_parallel.threads())
"""


def test_the_number_of_threads_follows_the_environment(tmp_path: Path) -> None:
    vectors = []
    for threads in ("1", "2"):
        out = tmp_path / f"{threads}.npy"
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", THREADS, out], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [threads, threads]
        vectors.append(np.load(out))
    assert np.allclose(*vectors, atol=1e-5)
