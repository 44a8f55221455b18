"""What the numbers were measured on, and whether it is idle enough to measure anything."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FLAGS = ("amx_tile", "amx_bf16", "avx512_bf16", "avx512f", "avx2", "bf16")
BF16 = {"amx_bf16", "avx512_bf16", "bf16"}
ISA = "ONEDNN_MAX_CPU_ISA"
LIMITS = {"AVX2": ("avx2",), "AVX512_CORE": ("avx512f", "avx2"), "AVX512_CORE_VNNI": ("avx512f", "avx2")}
"""The flags that count under these values of the variable, which keeps torch's matrix products from newer ones."""
LIMITED = "limited to"
"""What a processor's name says then."""
PACKAGES = ("torch", "transformers", "sentence-transformers", "accelerate")
IDLE = 0.3
"""The largest load average a core at which a measurement starts."""
OTHERS, STEAL = 0.05, 0.02
"""The largest shares of the cores' time that others may use, and that the host may keep for itself, during a turn."""
GLANCE, PATIENCE = 2.0, 120.0
"""Seconds of one look at the activity of the machine, and of waiting for it to become quiet."""


def cores() -> int:
    """How many cores this process may use."""
    return len(own_cores())


def own_cores() -> set[int]:
    """Their numbers."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class Activity:
    """What the cores of this process have done so far, in seconds; None where the system does not say."""

    at: float
    busy: float | None
    """By all processes together."""
    steal: float | None
    """Taken by the host for other machines."""

    @classmethod
    def now(cls) -> Activity:
        """Of this moment."""
        busy, steal = parse_stat(_text("/proc/stat"), own_cores())
        return cls(time.perf_counter(), busy, steal)


def parse_stat(text: str, numbers: Collection[int]) -> tuple[float | None, float | None]:
    """Busy and stolen seconds of some cores since the start, from the text of ``/proc/stat``."""
    wanted, found = {f"cpu{number}" for number in numbers}, []
    for line in text.splitlines():
        name, *fields = line.split()
        if name in wanted:
            user, nice, system, _idle, _wait, irq, softirq, steal, *_ = map(int, fields)
            found.append((user + nice + system + irq + softirq, steal))
    if not found:
        return None, None
    tick = os.sysconf("SC_CLK_TCK")
    return sum(busy for busy, _ in found) / tick, sum(steal for _, steal in found) / tick


def shares(before: Activity, after: Activity, own: float, cores: int) -> tuple[float | None, float | None]:
    """Of the time of all cores between two moments, what others used and what the host kept; ``own`` is not others'."""
    whole = max(after.at - before.at, 1e-9) * cores
    if before.busy is None or after.busy is None or before.steal is None or after.steal is None:
        return None, None
    return max(0.0, after.busy - before.busy - own) / whole, (after.steal - before.steal) / whole


def disturbance(others: float | None, steal: float | None, *, planned: float = 0.0) -> str:
    """What disturbed a turn, in words, or nothing; ``planned`` is the share that others were meant to use."""
    found = []
    if others is not None and others > planned + OTHERS:
        found.append(f"others used {others:.0%} of the cores")
    if steal is not None and steal > STEAL:
        found.append(f"the host kept {steal:.0%}")
    return " and ".join(found)


def watch(seconds: float = GLANCE) -> tuple[float | None, float | None]:
    """The shares of others and of the host while this process waits."""
    before = Activity.now()
    time.sleep(seconds)
    return shares(before, Activity.now(), 0.0, cores())


def wait_until_quiet(
    *, planned: float = 0.0, patience: float = PATIENCE, look: Callable[[], tuple[float | None, float | None]] = watch
) -> str:
    """Looks until nothing disturbs, at most so long; what disturbs in the end, or nothing."""
    began = time.perf_counter()
    while (found := disturbance(*look(), planned=planned)) and time.perf_counter() - began < patience:
        pass
    return found


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
    """Name and flags of this machine's processor, as far as ``ONEDNN_MAX_CPU_ISA`` lets torch use them."""
    name, flags = parse_cpuinfo(_text("/proc/cpuinfo"))
    limit = os.environ.get(ISA, "").upper()
    if limit not in LIMITS:
        return name, flags
    return f"{name} {LIMITED} {limit}", [flag for flag in flags if flag in LIMITS[limit]]


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


def facts() -> dict[str, Any]:
    """What the result of a turn says about the machine and the versions."""
    name, flags = cpu()
    return {
        "processor": f"{name}, {cores()} cores; {', '.join(flags) or 'none of the flags of interest'}",
        "memory_gb": round(memory_gb() or 0) or None,
        "versions": {package: _version(package) for package in PACKAGES},
        "commit": _commit(),
    }


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
