"""The clock for the Trainer of transformers and its children: from before the first batch to the last step's end."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from benchmarks.workers.clock import Clock


class TrainerClock(TrainerCallback):
    """Starts when the loop begins and stops after each step."""

    def __init__(self) -> None:
        self.clock = Clock()

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.clock.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.clock.stop()
