"""Precision "auto": by the device and the width of the encoder, and never by a clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nearfar.batching import FileOrder
from nearfar.encoding import build, tokenize
from nearfar.errors import CheckpointError, SettingError
from nearfar.objectives import CrossEntropy
from nearfar.recipe import Training
from nearfar.training import CheckpointStore, Journal, Loader, Term, choose_precision, loop, precision
from nearfar.training.checkpoints import STATE
from nearfar.training.precision import ISA, WIDE, bf16_units, cpu_bf16_units
from tests.training.modules import QuietCallback, fit_with, loss_module

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU its own flags decide")


@pytest.mark.parametrize("asked", ["fp32", "bf16"])
@pytest.mark.parametrize("width", [64, 768])
def test_what_is_asked_for_is_done(asked, width):
    assert choose_precision(asked, width, units=lambda: "AMX") == (asked, "as asked")


def test_bf16_without_units_is_done_with_a_word_on_its_speed():
    chosen, reason = choose_precision("bf16", 768, units=lambda: None)

    assert chosen == "bf16"
    assert "slower" in reason


def test_bf16_on_a_gpu_without_it_is_refused(monkeypatch):
    """torch would fail in the first step."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    with pytest.raises(SettingError, match="the GPU has no bf16 units"):
        choose_precision("bf16", 768, units=lambda: None)


@pytest.mark.parametrize(
    ("units", "width", "expected"),
    [
        (None, 768, "fp32"), ("AVX512-BF16", 768, "bf16"), ("AMX", WIDE, "bf16"), ("AMX", WIDE - 1, "fp32"),
        ("Arm BF16", 384, "bf16"), ("bf16 units", 64, "fp32"),
    ],
)  # fmt: skip
def test_units_and_width_decide(units, width, expected):
    """The same for the same machine and encoder; nothing is measured."""
    chosen, reason = choose_precision("auto", width, units=lambda: units)

    assert chosen == expected
    assert ("no bf16 units" in reason) == (units is None)


@pytest.mark.parametrize(
    ("limit", "used"),
    [("AVX2", False), ("avx512_core", False), ("AVX512_CORE_BF16", True), ("AVX512_CORE_AMX", True), ("DEFAULT", True)],
)
def test_units_that_torch_may_not_use_do_not_count(monkeypatch, limit, used):
    monkeypatch.setattr(precision, "cpu_bf16_units", lambda: "AMX")
    monkeypatch.setenv(ISA, limit)

    assert (bf16_units() is not None) == used


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile", "AMX"),
        ("flags\t\t: fpu avx512f avx512_bf16", "AVX512-BF16"),
        ("Features\t: fp asimd bf16 i8mm", "Arm BF16"),
        ("flags\t\t: fpu avx2 avx512f", None),
        ("model name\t: amx_bf16", None),
    ],
)
def test_flags_are_read_as_the_kernel_writes_them(tmp_path: Path, line, expected):
    """The best unit is named; words elsewhere in the file do not count."""
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\n\nprocessor\t: 1\n{line}\n", encoding="utf-8")

    assert cpu_bf16_units(tmp_path / "cpuinfo") == expected


def test_without_such_a_file_there_are_no_units(tmp_path: Path):
    """Other systems: fp32."""
    assert cpu_bf16_units(tmp_path / "none") is None


@pytest.fixture
def train(tmp_path: Path):
    """A run of one step in a precision, or its continuation."""
    settings: Any = {"rates": {"encoder": 1e-3, "head": 1e-3, "objective": 1e-3}, "seed": 1,
                     "store": CheckpointStore(tmp_path / "c"),
                     "journal": Journal(tmp_path / "j")}  # fmt: skip
    built = build("toy", classes=("a", "b"), seed=1)
    table = tokenize(built.tokenizer, [["one", "two"]], max_length=8)
    feed = Loader(table, np.array([0, 1]), FileOrder(rows=2, size=2), (2, 3), "t.csv")

    def run(kind: Any, *, resume: bool, **more: Any) -> str:
        learner = loss_module(built.model, [Term("cross_entropy", 1.0, CrossEntropy(), "logits")], precision=kind)
        fit_with(learner, feed, Training(epochs=1, checkpoint_every=1), **settings, resume=resume, **more)
        return learner.precision

    return run


def test_a_resumed_run_keeps_its_precision(train, monkeypatch):
    """Also where it is slow here, as it was where it began."""
    monkeypatch.setattr(loop, "bf16_units", lambda: None)
    assert train("bf16", resume=False) == "bf16"
    assert train("fp32", resume=True) == "bf16"


def test_a_run_with_units_is_not_resumed_without(train, monkeypatch):
    monkeypatch.setattr(loop, "bf16_units", lambda: "AVX512-BF16")
    train("bf16", resume=False)
    monkeypatch.setattr(loop, "bf16_units", lambda: None)

    with pytest.raises(CheckpointError, match="computes in bf16 with AVX512-BF16, and this machine has no bf16 units"):
        train("bf16", resume=True)
    monkeypatch.setattr(loop, "bf16_units", lambda: "AMX")
    assert train("bf16", resume=True) == "bf16"


def test_another_number_of_threads_is_told(train, tmp_path: Path, monkeypatch):
    """They may round differently; the same number is not worth a word."""
    train("fp32", resume=False)
    (state,) = (tmp_path / "c").glob(f"step-*/{STATE}")
    assert json.loads(state.read_text(encoding="utf-8"))["threads"] == torch.get_num_threads()
    lines: list[str] = []

    class Listener(QuietCallback):
        def message(self, text: str) -> None:
            lines.append(text)

    train("fp32", resume=True, callbacks=[Listener()])
    assert not any("threads" in line for line in lines)
    monkeypatch.setattr("torch.get_num_threads", lambda: 77)
    train("fp32", resume=True, callbacks=[Listener()])
    assert any("goes on with 77" in line for line in lines)
