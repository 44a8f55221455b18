"""Passes of SoftTriple, forward and backward, by one of the ways of :mod:`benchmarks.soft_triple`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from benchmarks.soft_triple import CENTERS, WAYS, batch, status, step, warm_up
from benchmarks.workers.clock import Clock
from benchmarks.workers.common import read_job, report, threads


def main() -> None:
    job = read_job()
    with torch.autocast("cpu", torch.bfloat16, enabled=job["bf16"]):
        _run(job)


def _run(job: dict[str, Any]) -> None:
    warm_up(job["way"])
    loss, (embeddings, labels) = WAYS[job["way"]](CENTERS), batch(job["embeddings"])
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again from here
    before = status("VmRSS")
    step(loss, embeddings, labels)
    clock = Clock()
    for _ in range(job["passes"]):
        step(loss, embeddings, labels)
    clock.stop()
    report(
        texts=job["passes"] * len(embeddings), clock=clock, peak=status("VmHWM") - before, threads=threads()
    )  # fmt: skip


if __name__ == "__main__":
    main()
