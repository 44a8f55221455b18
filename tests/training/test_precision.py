"""Precision "auto": by flags, then by a measurement, and what was measured is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nearfar.batching import FileOrder
from nearfar.encoding import build, tokenize
from nearfar.objectives import CrossEntropy
from nearfar.recipe import Training
from nearfar.training import CheckpointStore, Journal, Loader, Term, choose_precision
from nearfar.training.precision import HOPELESS, MARGIN, MOST, SETTLED, best_of, cpu_bf16_units, measure_products
from tests.training.modules import fit_with, loss_module

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU its own flags decide")


def no_probe() -> tuple[float, float]:
    raise AssertionError("nothing is to be measured")


@pytest.mark.parametrize("asked", ["fp32", "bf16"])
def test_what_is_asked_for_is_done(asked):
    """Without a look at the processor."""
    assert choose_precision(asked, units=lambda: "AMX", probe=no_probe) == (asked, "as asked")


def test_without_units_nothing_is_measured():
    """bf16 would be emulated; no measurement could make it right."""
    chosen, reason = choose_precision("auto", units=lambda: None, probe=no_probe)

    assert chosen == "fp32"
    assert "no bf16 units" in reason


@pytest.mark.parametrize(
    ("single", "half", "expected"),
    [(0.040, 0.010, "bf16"), (0.010, 0.040, "fp32"), (0.010, 0.010, "fp32"), (0.0119, 0.010, "fp32"), (0.0121, 0.010, "bf16")],
)  # fmt: skip
def test_units_must_also_be_faster_by_a_margin(single, half, expected):
    """Flags promise, the measurement decides, and both times are told."""
    chosen, reason = choose_precision("auto", units=lambda: "AVX512-BF16", probe=lambda: (single, half))

    assert MARGIN == 1.2
    assert chosen == expected
    assert "AVX512-BF16" in reason


def test_the_probe_measures_on_this_machine():
    """Both times are real."""
    single, half = measure_products()

    assert 1e-5 < single < 10
    assert 1e-5 < half < 60  # emulated, on a busy machine


def test_a_busy_moment_is_waited_out():
    """Slow rounds at first, of either side, do not decide; the warm-up never does."""
    quiet, busy_half, busy_single = (0.010, 0.005), (0.010, 0.015), (0.030, 0.005)

    for slow in (busy_half, busy_single):
        taken = iter([(0.001, 0.001), *[slow] * SETTLED, *[quiet] * 50])
        assert best_of(taken) == quiet
    left = iter([(1.0, 1.0), *[quiet] * 50])
    assert best_of(left) == quiet
    assert len(list(left)) == 50 - 1 - SETTLED  # a quiet machine needs no more


def test_the_probe_ends_where_times_never_settle_or_are_hopeless():
    falling = iter([(1.0, 1.0), *((0.9**n, 0.9**n) for n in range(100))])
    assert best_of(falling) == (0.9 ** (MOST - 1), 0.9 ** (MOST - 1))
    assert best_of(iter([(1.0, HOPELESS + 1.0)])) == (1.0, HOPELESS + 1.0)


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


def test_a_resumed_run_keeps_its_precision(tmp_path: Path):
    """A second measurement may come out otherwise; the run goes on as it began."""
    settings: Any = {"rates": {"encoder": 1e-3, "head": 1e-3, "objective": 1e-3}, "seed": 1,
                     "store": CheckpointStore(tmp_path / "c"),
                     "journal": Journal(tmp_path / "j")}  # fmt: skip
    built = build("toy", classes=("a", "b"), seed=1)
    table = tokenize(built.tokenizer, [["one", "two"]], max_length=8)
    feed = Loader(table, np.array([0, 1]), FileOrder(rows=2, size=2), (2, 3), "t.csv")
    for precision, resume in (("bf16", False), ("fp32", True)):
        learner = loss_module(built.model, [Term("cross_entropy", 1.0, CrossEntropy(), "logits")], precision=precision)  # type: ignore[arg-type]
        fit_with(learner, feed, Training(epochs=1, checkpoint_every=1), **settings, resume=resume)
        assert learner.precision == "bf16"
