"""The texts that each person labels next: proposed in batches, and never the same one to two people at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from nearfar.seeds import generator
from nearfar.workbench.embeddings import Embeddings
from nearfar.workbench.project import Project
from nearfar.workbench.proposal import Pool, probabilities, propose

BATCH = 10
"""Texts that are proposed together."""
LEASE = 180.0
"""Seconds for which a text is kept for the person who has it on the screen."""


class LabelQueue:
    """What is labeled next.

    Args:
        project: texts and labels.
        embeddings: their vectors; before the first are there, the order is random.
        seed: the seed of all random choices.
        clock: seconds; replaced in tests.
    """

    def __init__(
        self, project: Project, embeddings: Embeddings, *, seed: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.project, self.embeddings, self.seed, self.clock = project, embeddings, seed, clock
        self._lock = threading.Lock()
        self._leases: dict[int, tuple[str, float]] = {}
        self._waiting: list[int] = []
        self._revision = -1

    def take(self, user: str, count: int, *, having: Collection[int] = ()) -> list[int]:
        """Rows to label next, for one person who has some already; they are kept for them for a while."""
        with self._lock:
            now = self.clock()
            self._leases = {
                row: (who, until) for row, (who, until) in self._leases.items() if until > now and who != user
            }
            taken = [row for row in having if 0 <= row < len(self.project.texts)]
            chosen = self._proposals({*taken, *self._leases}, count)
            for row in [*taken, *chosen]:
                self._leases[row] = (user, now + LEASE)
            return chosen

    def _proposals(self, unavailable: set[int], count: int) -> list[int]:
        """Of the last batch what is still open, as long as it is fresh; then a new batch."""
        if abs(self.project.log.revision - self._revision) >= BATCH:
            self._waiting = []
        chosen = [row for row in self._waiting if row not in unavailable and self.project.is_open(row)][:count]
        if len(chosen) < count:
            self._revision = self.project.log.revision
            pool = self.pool(unavailable | set(chosen))
            batch = propose(pool, max(BATCH, count), seed=self.seed) if pool is not None else self._random(unavailable)
            self._waiting = [row for row in [int(row) for row in batch] if row not in chosen]
            chosen += self._waiting[: count - len(chosen)]
        if len(chosen) < count:
            skipped = [row for row in self.project.skipped() if row not in unavailable and row not in chosen]
            chosen += skipped[: count - len(chosen)]
        return chosen

    def pool(self, unavailable: Collection[int] = ()) -> Pool | None:
        """What is known about the texts now; None before there are vectors of open texts."""
        project, ready = self.project, self.embeddings.ready.copy()
        numbers = {name: number for number, name in enumerate(project.classes)}
        labels = np.array([numbers.get(label or "", -1) for label in project.labels()], dtype=np.int64)
        available = ready & project.open_rows()
        available[list(unavailable)] = False
        if not available.any():
            return None
        labels[~ready] = -1
        return Pool(self.embeddings.vectors, labels, available, max(2, len(numbers)))

    def guesses(self, rows: list[int]) -> list[tuple[str, float] | None]:
        """The most likely class of some texts and its probability, by the labels so far; None where unknown."""
        nothing: list[tuple[str, float] | None] = [None] * len(rows)
        pool = self.pool()
        if pool is None or not rows or not self.embeddings.ready[rows].all():
            return nothing
        present = np.unique(pool.labels[pool.known()])
        if len(present) < 2:
            return nothing
        chances: NDArray[np.float64] = probabilities(pool, np.array(rows, dtype=np.int64))
        names = self.project.classes
        return [(names[int(present[row.argmax()])], float(row.max())) for row in chances]

    def _random(self, unavailable: set[int]) -> list[int]:
        order = generator(self.seed, "order").permutation(len(self.project.texts)).tolist()
        chosen = (row for row in order if row not in unavailable and self.project.is_open(row))
        return [row for _, row in zip(range(BATCH), chosen, strict=False)]
