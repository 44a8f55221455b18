"""What the processor computes with: its name, and the units for bf16 that torch may use."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import torch

FLAGS = (("amx_bf16", "AMX"), ("avx512_bf16", "AVX512-BF16"), ("bf16", "Arm BF16"))
ISA = "ONEDNN_MAX_CPU_ISA"
"""The variable that keeps torch's matrix products from using the newest instructions."""
CPUINFO = Path("/proc/cpuinfo")
CACHES = {"LRU_CACHE_CAPACITY": "128", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "400"}
"""How many kernels torch and oneDNN keep, one for each shape of a matrix product; both keep 1,024 by default, torch in
each thread. A step of training needs about a hundred."""


def limit_kernel_caches() -> None:
    """Bound the memory of kernels, where the environment does not: unpadded batches have other shapes in every step.

    The variables are read when the first kernel is kept, so torch may have been imported before.
    """
    for name, number in CACHES.items():
        os.environ.setdefault(name, number)


def has_onednn() -> bool:
    """Whether torch was built with oneDNN."""
    return bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def may_use_bf16() -> bool:
    """Whether torch multiplies bf16 matrices with the units of a processor that has some."""
    limit = os.environ.get(ISA, "DEFAULT").upper()
    newest = limit in ("DEFAULT", "ALL") or (
        limit.startswith("AVX512_CORE_") and limit.endswith(("BF16", "FP16", "AMX"))
    )
    return newest and has_onednn()


def cpu_bf16_units(cpuinfo: Path = CPUINFO) -> str | None:
    """The instruction set by which this processor multiplies bf16 matrices, if it has one."""
    flags = set(_field(cpuinfo, ("flags", "Features")).split())
    return next((name for flag, name in FLAGS if flag in flags), None)


def describe_cpu(cpuinfo: Path = CPUINFO) -> str:
    """Name and kind of the processor, and what limits it: the same for all that compute alike."""
    name = _field(cpuinfo, ("model name",)) or platform.processor() or platform.machine()
    family, number = (_field(cpuinfo, (field,)) for field in ("cpu family", "model\t"))
    return f"{name} {family}/{number} {os.environ.get(ISA, '')}".strip()


def _field(cpuinfo: Path, names: tuple[str, ...]) -> str:
    """The first value of one of these fields; nothing where the system does not tell."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), "")


limit_kernel_caches()
