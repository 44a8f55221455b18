"""The clock for the Trainer of transformers and its children: from before the first batch to the last step's end."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback


class TrainerClock(TrainerCallback):
    """Notes when the loop began and when the last step ended."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0

    @property
    def seconds(self) -> float:
        """The time of all steps."""
        return self.ended - self.began

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ended = time.perf_counter()
