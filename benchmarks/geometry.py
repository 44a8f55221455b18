"""The memory and time of a geometry report and a whitening on many vectors, which lie on the disk.

    python -m benchmarks.geometry --rows 1000000 --dim 384

Memory is what the process holds of its own at most, sampled while it works; pages of the file that the system keeps
because nobody else wants the room are told apart.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

BLOCK = 50_000


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=384)
    settings = parser.parse_args(arguments)

    from nearfar.evaluation import Whitening, geometry_report

    with tempfile.TemporaryDirectory() as folder:
        vectors = drawn(Path(folder) / "vectors.npy", settings.rows, settings.dim)
        for name, work in {
            "geometry report": lambda: geometry_report(vectors),
            "whitening": lambda: Whitening.fit(vectors),
        }.items():
            print(json.dumps({"what": name, "rows": settings.rows, "dim": settings.dim, **watched(work)}), flush=True)


def drawn(path: Path, rows: int, dim: int) -> Any:
    """Random vectors around a common direction, as those of encoders are."""
    source = np.random.default_rng(0)
    vectors = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, dim))
    for start in range(0, rows, BLOCK):
        stop = min(start + BLOCK, rows)
        vectors[start:stop] = source.standard_normal((stop - start, dim), dtype=np.float32) + 0.5
    vectors.flush()
    del vectors
    return np.load(path, mmap_mode="r")


def watched(work: Callable[[], object]) -> dict[str, float]:
    """Seconds of the clock and of the processor, and the most memory above that of the start, in MB."""
    start, peak, done = own_memory(), 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, own_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    clock, processor = time.perf_counter(), time.process_time()
    try:
        work()
    finally:
        seconds, cpu = time.perf_counter() - clock, time.process_time() - processor
        done.set()
        watcher.join()
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "own_mb": round(max(peak - start, 0.0), 1)}


def own_memory() -> float:
    """MB of the process that stand for no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this needs Linux's /proc")


if __name__ == "__main__":
    main()
