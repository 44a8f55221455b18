"""The precision is part of a run: the same whatever the load, written into the folder, kept when it is resumed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.modules import QuietCallback

from nearfar.errors import CheckpointError
from nearfar.pipeline import train
from nearfar.recipe import build_recipe
from nearfar.training import precision

ROWS = [("the parcel is late", "delivery"), ("where is my parcel", "delivery"), ("charged twice", "payment"),
        ("the invoice is wrong", "payment")] * 3  # fmt: skip


def recipe(**training: Any) -> Any:
    values = {
        "encoder": {"name": "toy"},
        "data": {"train": "memory:train", "dev": 0},
        "objective": {"name": "cross-entropy"},
    }
    return build_recipe(
        {**values, "training": {"max_steps": 3, "checkpoint_every": 1, "estimate": False, **training}}, where="test"
    )


@pytest.fixture(autouse=True)
def chosen_units(monkeypatch):
    """Units that the tests choose, and a toy encoder that is wide enough for them."""
    monkeypatch.setattr(precision, "WIDE", 64)
    units: dict[str, str | None] = {"here": "AVX512-BF16"}
    monkeypatch.setattr(precision, "cpu_bf16_units", lambda: units["here"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return units


class Stop(QuietCallback):
    """Ends the run from outside after a step."""

    def __init__(self, number: int) -> None:
        self.number = number

    def step(self, entry: Any) -> None:
        if entry["step"] == self.number:
            raise KeyboardInterrupt


def stopped(out: Path, step: int = 2) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(recipe(), out, data=ROWS, callbacks=[Stop(step)])


def test_a_busy_machine_gives_the_same_bits(tmp_path: Path):
    """Nothing is decided by a clock."""
    train(recipe(), tmp_path / "quiet", data=ROWS)
    number = 2 * (os.cpu_count() or 1)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        train(recipe(), tmp_path / "busy", data=ROWS)
    finally:
        for process in busy:
            process.kill()
            process.wait()

    for name in ("model.safetensors", "recipe.toml", "nearfar.json"):
        assert (tmp_path / "quiet" / name).read_bytes() == (tmp_path / "busy" / name).read_bytes()


def test_the_decision_is_in_recipe_and_card(tmp_path: Path, chosen_units):
    train(recipe(), tmp_path / "bf16", data=ROWS)
    chosen_units["here"] = None
    train(recipe(), tmp_path / "fp32", data=ROWS)

    for name in ("bf16", "fp32"):
        written = tomllib.loads((tmp_path / name / "recipe.toml").read_text(encoding="utf-8"))
        assert written["training"]["precision"] == name
        assert json.loads((tmp_path / name / "nearfar.json").read_text(encoding="utf-8"))["precision"] == name
        assert f'precision = "{name}"' in (tmp_path / name / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("step", [1, 2])
def test_a_resumed_run_keeps_what_was_decided(tmp_path: Path, chosen_units, step):
    """A run that began in fp32 stays so where there are units, before its first checkpoint and after."""
    train(recipe(precision="fp32"), tmp_path / "whole", data=ROWS)
    chosen_units["here"] = None
    stopped(tmp_path / "m", step)
    chosen_units["here"] = "AMX"
    train(recipe(), tmp_path / "m", data=ROWS, resume=True)

    whole, resumed = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "m"))
    assert whole == resumed


def test_another_precision_is_refused_with_the_reason(tmp_path: Path, chosen_units):
    stopped(tmp_path / "m")

    with pytest.raises(CheckpointError, match=r'computes in bf16, and training\.precision is "fp32" now'):
        train(recipe(precision="fp32"), tmp_path / "m", data=ROWS, resume=True)
    chosen_units["here"] = None
    with pytest.raises(CheckpointError, match="this machine has no bf16 units"):
        train(recipe(), tmp_path / "m", data=ROWS, resume=True)
