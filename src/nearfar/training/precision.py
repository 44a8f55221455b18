"""Which number format to compute in, decided by what the processor has and never by hope."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

Precision = Literal["fp32", "bf16"]


def choose_precision(asked: Literal["auto", "fp32", "bf16"]) -> tuple[Precision, str]:
    """The precision to use, and the reason in a few words."""
    if asked != "auto":
        return asked, "as asked"
    if torch.cuda.is_available():
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bf16", "the GPU has bf16 units"
        return "fp32", "the GPU has no bf16 units"
    units = cpu_bf16_units()
    return ("bf16", f"the processor has {units}") if units else ("fp32", "the processor has no bf16 units")


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
