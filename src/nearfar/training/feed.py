"""From rows to batches of tensors: the tokenized data set, its labels, and the sampler that walks through it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.batching import Rows, Sampler, cut
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

    def batches(self, model: TextModel, rows: Rows, chunk: int | None, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """This process's share of a batch, in chunks of at most so many rows (None: in one piece)."""
        share = np.array_split(rows, world)[rank]
        if chunk is None or len(share) <= chunk:
            seen = share if len(share) else rows[:1]  # an empty share still goes through the model, and counts nothing
            return [self._batch(model, seen, share)]
        return [self._batch(model, piece, piece) for piece in cut(share, chunk)]

    def _batch(self, model: TextModel, seen: Rows, counted: Rows) -> Batch:
        return Batch(model.inputs(self.tokens, seen), torch.from_numpy(self.labels[seen]), counted)

    def place(self, rows: Rows, shown: int = 8) -> str:
        """Where the rows stand, as a message names them."""
        lines = [str(self.lines[row]) for row in rows[:shown]]
        return f"{self.source} lines {', '.join(lines)}" + (
            f" and {len(rows) - shown} more" if len(rows) > shown else ""
        )
