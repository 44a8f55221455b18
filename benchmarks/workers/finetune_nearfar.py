"""Fine-tuning with nearfar, through a recipe and ``nearfar.assembly.run``.

The file holds the warm-up texts first and the timed texts after them, in that order; the clock runs from the end of the
last warm-up step to the end of the last step, so that reading, tokenizing, loading and saving are outside.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.workers.common import peak_rss_mb, read_job, read_rows, report, scores, threads
from nearfar import load
from nearfar.assembly import run
from nearfar.recipe import build_recipe


class Clock:
    """A listener that notes when each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []
        self.losses: list[float] = []
        self.peak = 0.0

    def step(self, entry: dict[str, Any]) -> None:
        self.ends.append(time.perf_counter())
        self.losses.append(entry["loss"])
        if entry["step"] == entry["steps"]:
            self.peak = peak_rss_mb()  # before the model is saved, which the peers do not do here

    def evaluation(self, entry: dict[str, Any]) -> None:
        """Without dev texts there is none."""

    def notice(self, text: str) -> None:
        """Nothing that concerns the clock."""


def main() -> None:
    job = read_job()
    recipe = build_recipe(
        {
            "seed": job["seed"],
            "data": {"train": job["train"], "dev": 0},
            "encoder": {"name": job["encoder"], "max_length": job["max_length"]},
            "batches": {"size": job["batch"], "shuffle": job.get("shuffle", "file-order")},
            "training": {
                "epochs": 1,
                "precision": job.get("precision", "auto"),
                "checkpoint_every": 10**6,
                "keep_checkpoints": 1,
            },
        },
        where="benchmark",
    )
    clock, out = Clock(), Path(job["scratch"]) / "model"
    run(recipe, out, console=Console(quiet=True), listeners=(clock,))
    warm = job["warm"]
    seconds = clock.ends[-1] - clock.ends[warm - 1] if warm else 0.0  # without warm-up only quality is asked for
    texts = (len(clock.ends) - warm) * job["batch"]
    timed = clock.losses[warm:]
    quality = {"loss": sum(timed) / len(timed)}
    if "dev" in job:
        rows = read_rows(job["dev"])
        found = load(out).predict([row["text"] for row in rows])
        quality |= scores([str(row["label"]) for row in rows], [prediction.label for prediction in found])
    report(texts=texts, seconds=seconds, peak=clock.peak, quality=quality, threads=threads())


if __name__ == "__main__":
    main()
