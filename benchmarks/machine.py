"""What the numbers were measured on, and whether it is idle enough to measure anything."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

FLAGS = ("amx_tile", "amx_bf16", "avx512_bf16", "avx512f", "avx2", "bf16")
BF16 = {"amx_bf16", "avx512_bf16", "bf16"}
PACKAGES = ("torch", "transformers", "sentence-transformers", "accelerate")
IDLE = 0.3
"""The largest load average a core at which a measurement starts."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load() -> float:
    """The load average of the last minute."""
    return os.getloadavg()[0]


def busy(load: float, cores: int) -> bool:
    """Whether others compute here, so that timings would say little."""
    return load > IDLE * cores


def parse_cpuinfo(text: str) -> tuple[str, list[str]]:
    """The processor's name, and those of its flags that decide how fast matrix products are."""
    name, flags = platform.machine(), set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
    return name, [flag for flag in FLAGS if flag in flags]


def cpu() -> tuple[str, list[str]]:
    """Name and flags of this machine's processor."""
    return parse_cpuinfo(_text("/proc/cpuinfo"))


def bf16_units(flags: list[str]) -> bool:
    """Whether the processor multiplies bf16 matrices itself."""
    return bool(BF16 & set(flags))


def memory_gb() -> float | None:
    """The machine's memory."""
    line = next((line for line in _text("/proc/meminfo").splitlines() if line.startswith("MemTotal:")), None)
    return int(line.split()[1]) / 2**20 if line else None


def describe(*, threads: int | None, load: float) -> list[tuple[str, str]]:
    """The lines above a table."""
    name, flags = cpu()
    memory = memory_gb()
    return [
        ("date", datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")),
        ("processor", f"{name}, {cores()} cores; {', '.join(flags) or 'none of the flags of interest'}"),
        ("bf16 units", "yes" if bf16_units(flags) else "no"),
        ("memory", f"{memory:.0f} GB" if memory else "unknown"),
        ("threads", f"{threads} for everybody" if threads else "everybody's own default"),
        ("load average at start", f"{load:.2f}"),
        ("versions", ", ".join(f"{package} {_version(package)}" for package in PACKAGES)),
        ("nearfar", f"{_version('nearfar')}, commit {_commit()}"),
    ]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    root = Path(__file__).parents[1]
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True)
        state = subprocess.run(
            ["git", "status", "--porcelain", "--", "src"], cwd=root, capture_output=True, text=True
        )  # fmt: skip
    except OSError:
        return "unknown"
    return (head.stdout.strip() or "unknown") + (" with changes on top" if state.stdout.strip() else "")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
