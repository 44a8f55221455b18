"""From rows to batches of tensors: the tokenized data set, its labels, and the sampler that walks through it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.batching import Rows, Sampler
from nearfar.encoding import TextModel, TokenTable
from nearfar.training.learner import Batch


@dataclass(frozen=True)
class Feed:
    """A data set ready to train on."""

    tokens: TokenTable
    labels: NDArray[np.int64]
    sampler: Sampler
    lines: tuple[int, ...]
    """Line of each row in its file, for messages."""
    source: str

    def __len__(self) -> int:
        return len(self.tokens)

    def batch(self, model: TextModel, rows: Rows, *, rank: int = 0, world: int = 1) -> Batch:
        """This process's share of a batch, as the model reads it: consecutive rows, as even as can be."""
        share = np.array_split(rows, world)[rank]
        seen = share if len(share) else rows[:1]  # an empty share still goes through the model, and counts nothing
        return Batch(model.inputs(self.tokens, seen), torch.from_numpy(self.labels[seen]), share)

    def place(self, rows: Rows, shown: int = 8) -> str:
        """Where the rows stand, as a message names them."""
        lines = [str(self.lines[row]) for row in rows[:shown]]
        return f"{self.source} lines {', '.join(lines)}" + (
            f" and {len(rows) - shown} more" if len(rows) > shown else ""
        )
