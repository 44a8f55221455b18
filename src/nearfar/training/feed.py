"""From rows to batches of tensors: the tokenized data set, its labels, and the sampler that walks through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.batching import Rows, Sampler, cut
from nearfar.encoding import TextModel, TokenTable
from nearfar.training.loss_module import Batch

Augment = Callable[[Rows, int], TokenTable]
"""Places of texts in the table and a seed to a table of these texts, changed."""


@dataclass(frozen=True)
class Feed:
    """A data set ready to train on: a table of texts, and rows that point into it."""

    tokens: TokenTable
    labels: NDArray[np.int64]
    """(n,) class of each row; zeros where rows have none."""
    sampler: Sampler
    lines: tuple[int, ...]
    """Line of each row in its file, for messages."""
    source: str
    columns: tuple[NDArray[np.int64], ...] = ()
    """For each column of texts (n,) where in the table the text of a row is; none means row i is text i."""
    targets: NDArray[np.float32] | None = None
    """(n,) graded or binary target of each pair."""
    groups: tuple[NDArray[np.int64], ...] | None = None
    """For each column (n,) ids; texts of one id belong together and are never each other's negatives."""
    augment: Augment | None = None
    """What happens to the texts of the last column before the encoder reads them."""

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, model: TextModel, rows: Rows, chunk: int | None, *, rank: int = 0, world: int = 1) -> list[Batch]:
        """This process's share of a batch, in chunks of at most so many rows (None: in one piece)."""
        share = np.array_split(rows, world)[rank]
        if chunk is None or len(share) <= chunk:
            seen = share if len(share) else rows[:1]  # an empty share still goes through the model, and counts nothing
            return [self._batch(model, seen, share)]
        return [self._batch(model, piece, piece) for piece in cut(share, chunk)]

    def _batch(self, model: TextModel, seen: Rows, counted: Rows) -> Batch:
        texts = [column[seen] for column in self.columns] or [seen]
        if self.augment is None:
            inputs = model.inputs(self.tokens, np.concatenate(texts))
        else:
            plain = self.tokens.take(np.concatenate(texts[:-1])) if len(texts) > 1 else None
            changed = self.augment(texts[-1], int(torch.randint(2**62, (1,))))
            table = changed if plain is None else plain.join(changed)
            inputs = model.inputs(table, np.arange(len(table)))
        return Batch(
            inputs=inputs,
            labels=torch.from_numpy(self.labels[seen]),
            rows=counted,
            columns=len(texts),
            targets=None if self.targets is None else torch.from_numpy(self.targets[seen]),
            groups=None if self.groups is None else torch.from_numpy(np.stack([ids[seen] for ids in self.groups])),
        )

    def place(self, rows: Rows, shown: int = 8) -> str:
        """Where the rows stand, as a message names them."""
        lines = [str(self.lines[row]) for row in rows[:shown]]
        return f"{self.source} lines {', '.join(lines)}" + (
            f" and {len(rows) - shown} more" if len(rows) > shown else ""
        )
