"""Resident memory of nearfar's training, early and late, over batches of ever other lengths."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.workers.common import peak_rss_mb, read_job, report, rss_mb, threads
from nearfar.assembly import run
from nearfar.recipe import build_recipe


class Scale:
    """A listener that weighs the process at two steps."""

    def __init__(self, early: int, late: int) -> None:
        self.early, self.late = early, late
        self.memory: dict[int, float] = {}
        self.times: dict[int, float] = {}

    def step(self, entry: dict[str, Any]) -> None:
        if entry["step"] in (self.early, self.late):
            self.memory[entry["step"]] = rss_mb()
            self.times[entry["step"]] = time.perf_counter()

    def evaluation(self, entry: dict[str, Any]) -> None:
        """Without dev texts there is none."""

    def notice(self, text: str) -> None:
        """Nothing that weighs."""


def main() -> None:
    job = read_job()
    early, late = job["early"], job["late"]
    recipe = build_recipe(
        {
            "seed": job["seed"],
            "data": {"train": job["train"], "dev": 0},
            "encoder": {"name": job["encoder"], "max_length": job["max_length"]},
            "batches": {"size": job["batch"]},
            "training": {"epochs": 10**4, "max_steps": late, "checkpoint_every": 10**6, "keep_checkpoints": 1},
        },
        where="benchmark",
    )
    scale = Scale(early, late)
    run(recipe, Path(job["scratch"]) / "model", console=Console(quiet=True), listeners=(scale,))
    first, last = scale.memory[early], scale.memory[late]
    report(
        texts=(late - early) * job["batch"],
        seconds=scale.times[late] - scale.times[early],
        peak=peak_rss_mb(),
        details={
            f"MB after {early:,} steps": first,
            f"MB after {late:,} steps": last,
            "growth in percent": 100 * (last / first - 1),
        },
        threads=threads(),
    )


if __name__ == "__main__":
    main()
