"""Which number format to compute in, decided by what the processor has and does, and never by hope."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

logger = logging.getLogger(__name__)
Precision = Literal["fp32", "bf16"]
MARGIN = 1.2
"""How many times as fast bf16 must be in the probe: half of a step is no matrix product and gains nothing."""
HOPELESS = 20
"""So many times slower in the first round, and no other round is needed: bf16 is emulated."""
TOKENS, WIDTH, INNER = 128, 384, 1536
SETTLED, MOST = 4, 24
"""Rounds without a better time after which the best ones count, and rounds at most."""
BETTER = 0.95
"""The share of the best time that counts as a better one."""


def choose_precision(
    asked: Literal["auto", "fp32", "bf16"],
    *,
    units: Callable[[], str | None] | None = None,
    probe: Callable[[], tuple[float, float]] | None = None,
) -> tuple[Precision, str]:
    """The precision to use, and the reason in a few words.

    With "auto" on a processor that claims to have ``units`` for bf16, a ``probe`` measures the seconds of the same
    matrix products in fp32 and in bf16, and bf16 must win by ``MARGIN``. The first of several processes decides.
    """
    if asked != "auto":
        return asked, "as asked"
    if torch.cuda.is_available():
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bf16", "the GPU has bf16 units"
        return "fp32", "the GPU has no bf16 units"
    found = (units or cpu_bf16_units)()
    if found is None:
        return "fp32", "the processor has no bf16 units"
    single, half = _agreed(*(probe or measure_products)())
    logger.info("matrix products took %.1f ms in bf16, %.1f ms in fp32", 1e3 * half, 1e3 * single)
    if single >= MARGIN * half:
        return "bf16", f"the processor has {found}"
    return "fp32", f"the processor has {found}, but it is not {MARGIN:g} times as fast"


def cpu_bf16_units(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The instruction set by which this processor multiplies bf16 matrices, if it has one."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    flags = next((set(line.split()) for line in text.splitlines() if line.startswith(("flags", "Features"))), set())
    for flag, name in (("amx_bf16", "AMX"), ("avx512_bf16", "AVX512-BF16"), ("bf16", "Arm BF16")):
        if flag in flags:
            return name
    return None


def measure_products() -> tuple[float, float]:
    """Seconds of a small feed-forward layer's products, there and back, in fp32 and in bf16, casts of weights included.

    The two take turns, so that a busy moment meets both, and the best round of each counts, once it has not become
    better for some rounds: what is decided by it should not depend on who else computes. The first round is warm-up.
    """
    up, down = torch.ones(INNER, WIDTH), torch.ones(WIDTH, INNER)
    states = torch.ones(TOKENS, WIDTH)

    def measured() -> Iterator[tuple[float, float]]:
        while True:
            yield _seconds(states, up, down, torch.float32), _seconds(states, up, down, torch.bfloat16)

    with torch.inference_mode():
        return best_of(measured())


def best_of(rounds: Iterator[tuple[float, float]]) -> tuple[float, float]:
    """The least time of each side, of as many rounds as it takes until neither becomes much better."""
    first = next(rounds)
    if first[1] > HOPELESS * first[0]:
        return first
    best, still = (math.inf, math.inf), 0
    for single, half in islice(rounds, MOST):
        still = 0 if single < BETTER * best[0] or half < BETTER * best[1] else still + 1
        best = min(single, best[0]), min(half, best[1])
        if still == SETTLED:
            break
    return best


def _seconds(states: Tensor, up: Tensor, down: Tensor, kind: torch.dtype) -> float:
    began = time.perf_counter()
    _products(states.to(kind), up.to(kind), down.to(kind))
    return time.perf_counter() - began


def _products(states: Tensor, up: Tensor, down: Tensor) -> None:
    inner = states @ up.T
    out = inner @ down.T
    back = out @ down
    _ = out.T @ inner, back @ up, back.T @ states


def _agreed(single: float, half: float) -> tuple[float, float]:
    """What the first process measured."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return single, half
    times = torch.tensor([single, half], dtype=torch.float64)
    dist.broadcast(times, 0)
    return float(times[0]), float(times[1])
