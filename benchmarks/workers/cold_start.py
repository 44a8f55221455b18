"""A whole command by new processes, one after the other: from its start to its end."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time

from benchmarks.workers.clock import Clock
from benchmarks.workers.common import read_job, report


def main() -> None:
    job = read_job()
    environment = dict(os.environ)
    if "source" in job:
        environment["PYTHONPATH"] = job["source"]
    seconds: list[float] = []
    clock = Clock()
    for run in range(1 + job["runs"]):  # the first fills the cache of the system
        if run == 1:
            clock.start()
        words = [word.format(folder=f"{job['scratch']}/{run}") for word in job["words"]]
        began = time.perf_counter()
        subprocess.run([sys.executable, *words], env=environment, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    clock.stop()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    report(
        texts=job["runs"], clock=clock, peak=peak / 2**20 if sys.platform == "darwin" else peak / 2**10,
        milliseconds=1_000 * statistics.median(seconds[1:]), slow_milliseconds=1_000 * max(seconds[1:]),
    )  # fmt: skip


if __name__ == "__main__":
    main()
