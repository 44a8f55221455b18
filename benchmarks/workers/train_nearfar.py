"""Training with nearfar, through a recipe and ``nearfar.pipeline.run``: any objective, texts or pairs.

The warm-up rows come first and the timed rows after them. The clock runs from the end of the last warm-up step to the
end of the last step, so that reading, tokenizing, loading and saving are outside; without warm-up it starts before the
first step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.texts import write
from benchmarks.workers.clock import Clock
from benchmarks.workers.common import peak_rss_mb, read_job, read_rows, report, rss_mb, scores, threads, training_rows
from benchmarks.workers.similarity import spearman
from nearfar.encoding import load
from nearfar.pipeline import train
from nearfar.recipe import build_recipe
from nearfar.training import Callback

RATE = 5e-5
"""The default of the Trainer and its children."""


class Watch(Callback):
    """A listener that runs the clock, and notes how much memory the process held after some steps."""

    def __init__(self, marks: list[int], warm: int) -> None:
        self.marks, self.warm, self.clock = marks, warm, Clock()
        self.losses: list[float] = []
        self.memory: dict[int, float] = {}
        self.peak = 0.0

    def step(self, entry: dict[str, Any]) -> None:
        if entry["step"] == self.warm:
            self.clock.start()
        else:
            self.clock.stop()
        self.losses.append(entry["loss"])
        if entry["step"] in self.marks:
            self.memory[entry["step"]] = rss_mb()
        if entry["step"] == entry["steps"]:
            self.peak = peak_rss_mb()  # before the model is saved, which the peers do not do here

    def evaluation(self, entry: dict[str, Any]) -> None:
        """Without dev texts there is none."""

    def message(self, text: str) -> None:
        """Nothing that concerns the clock."""

    def begin(self, steps: int) -> None:  # noqa: ARG002
        self.clock.start()

    def end(self) -> None:
        """Nothing is left to do."""

    def growth(self) -> dict[str, float]:
        """The memory at each mark, and by how much it grew between the first and the last."""
        found = {f"MB after {step:,} steps": memory for step, memory in self.memory.items()}
        if len(self.memory) > 1:
            first, *_, last = self.memory.values()
            found["growth in percent"] = 100 * (last / first - 1)
        return found


def recipe_of(job: dict[str, Any]) -> dict[str, Any]:
    """The tables of the recipe; what a job does not say is nearfar's default, but nothing is left to the data."""
    batches = {"size": job["batch"], "shuffle": job.get("shuffle", "file-order")}
    if "chunk" in job:
        batches["chunk"] = job["chunk"]
    training = {
        "epochs": 1, "learning_rate": RATE, "precision": job.get("precision", "auto"), "checkpoint_every": 10**6,
        "keep_checkpoints": 1,
    }  # fmt: skip
    if "steps" in job:
        training |= {"epochs": 10**4, "max_steps": job["steps"]}
    return {
        "seed": job["seed"],
        "data": {"train": job["train"], "dev": 0},
        "encoder": {"name": job["encoder"], "max_length": job["max_length"]},
        "objective": job.get("objective", {"name": "cross-entropy"}),
        "batches": batches,
        "training": training,
    }


def main() -> None:
    job = read_job()
    out, warm = Path(job["scratch"]) / "model", job["warm"]
    watch = Watch(job.get("marks", []), warm)
    if "count" in job:
        rows = [row for part in training_rows(job) for row in part]
        job["train"] = str(write(Path(job["scratch"]) / "train.jsonl", rows))
    recipe = build_recipe(recipe_of(job), where="benchmark")
    train(recipe, out, callbacks=(watch,))
    timed = watch.losses[warm:]
    quality = {"loss": sum(timed) / len(timed)}
    if "dev" in job:
        rows = read_rows(job["dev"])
        model = load(out)
        if "score" in rows[0]:
            quality["spearman"] = spearman(rows, model.embed)
        else:
            found = model.predict([row["text"] for row in rows])
            quality |= scores([str(row["label"]) for row in rows], [prediction.label for prediction in found])
    report(
        texts=len(timed) * job["batch"] * job.get("texts_a_row", 1), clock=watch.clock, peak=watch.peak,
        quality=quality, details=watch.growth(), threads=threads(),
    )  # fmt: skip


if __name__ == "__main__":
    main()
