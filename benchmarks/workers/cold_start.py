"""``nearfar predict MODEL FILE`` by new processes, of the installed package or of another source folder."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from benchmarks.workers.common import read_job, report


def main() -> None:
    job = read_job()
    environment = dict(os.environ)
    if "source" in job:
        environment["PYTHONPATH"] = job["source"]
    seconds = []
    for _ in range(1 + job["runs"]):  # the first fills the cache of the system
        began = time.perf_counter()
        command = [sys.executable, "-m", "nearfar", "predict", job["model"], job["file"]]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    timed = seconds[1:]
    report(
        texts=len(timed), seconds=sum(timed), milliseconds=1_000 * statistics.median(timed),
        slow_milliseconds=1_000 * max(timed),
    )  # fmt: skip


if __name__ == "__main__":
    main()
