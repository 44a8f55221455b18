"""What all workers share: the job, the report, and memory. Only the standard library is imported at the top."""

from __future__ import annotations

import itertools
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from benchmarks.workers.clock import Clock

Rows = list[dict[str, Any]]


def read_job() -> dict[str, Any]:
    """What this process is to do."""
    return json.loads(sys.argv[1])


def report(*, texts: int = 0, clock: Clock | None = None, peak: float | None = None, **more: Any) -> None:
    """Print the one line that the driver reads; ``more`` holds quality and details."""
    line = {
        "texts_per_second": texts / clock.seconds if clock and clock.seconds and texts else None,
        "cpu_ms_per_text": 1_000 * clock.readings()["cpu_seconds"] / texts if clock and texts else None,
        **(clock.readings() if clock else {"seconds": 0.0}),
        "peak_rss_mb": peak_rss_mb() if peak is None else peak,
        "quality": {},
        **more,
    }
    print("\n" + json.dumps(line), flush=True)


def peak_rss_mb() -> float:
    """The most memory this process has held so far.

    ``ru_maxrss`` is the second choice: on Linux it counts what the parent held when it started this process.
    """
    status = _status("VmHWM")
    if status is not None:
        return status
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def rss_mb() -> float:
    """The memory this process holds now."""
    now = _status("VmRSS")
    return peak_rss_mb() if now is None else now


def _status(field: str) -> float | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), None)


def threads() -> int:
    """How many threads torch computes with here."""
    import torch

    return torch.get_num_threads()


def asked_threads() -> int | None:
    """The number the driver asked for; None leaves the choice to whoever computes."""
    return int(os.environ["OMP_NUM_THREADS"]) if "OMP_NUM_THREADS" in os.environ else None


def read_rows(path: str) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file that the driver wrote."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def first(path: str, count: int) -> Rows:
    """So many rows of a file, from the front again when there are too few."""
    return list(itertools.islice(itertools.cycle(read_rows(path)), count))


def training_rows(job: dict[str, Any]) -> tuple[Rows, Rows]:
    """The rows of the warm-up and the timed ones: from the end and from the front of the file.

    A job without a ``count`` has a file that holds both, those of the warm-up first.
    """
    cut, rows = job["warm"] * job["batch"], read_rows(job["train"])
    if "count" not in job:
        return rows[:cut], rows[cut:]
    return list(itertools.islice(itertools.cycle(reversed(rows)), cut)), first(job["train"], job["count"])


def scores(truth: list[str], found: list[str]) -> dict[str, float]:
    """F1 and accuracy, in the same way for everybody."""
    from sklearn.metrics import accuracy_score, f1_score

    return {"f1_macro": float(f1_score(truth, found, average="macro")), "accuracy": float(accuracy_score(truth, found))}
