"""A sampler that groups rows with similar vectors, so that a batch has hard negatives.

It asks for vectors of the current model when an epoch begins, every epoch or every few. In the epochs between it
reorders the batches of the epoch before: these are passed in, so that a run that was resumed in between continues as if
it had not been interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from nearfar.batching.groupings import Grouping, NearestNeighbors, positive
from nearfar.batching.groups import GroupReport, Ids, Vectors, check_groups, mean_cosine, report
from nearfar.batching.nearest_neighbors import unit
from nearfar.batching.samplers import Rows, cut
from nearfar.errors import SettingError, ShapeError
from nearfar.seeds import generator


@dataclass(kw_only=True, eq=False)
class EmbeddingSampler:
    """Every row exactly once an epoch, rows with similar vectors adjacent.

    The vectors decide which rows are similar: those of the left or of the right texts of the pairs.

    Args:
        rows: of the data set.
        size: rows of a batch.
        seed: of groups and order.
        vectors: gives (rows, d) vectors of the current model, row by row; they are normalized in place.
        grouping: how groups are found: :class:`NearestNeighbors`, :class:`Clusters` or :class:`SharedNeighbors`.
        every: epochs from one encoding to the next.
        same: (rows,) ids; two rows of one id do not enter one group.
    """

    reads_model: ClassVar[bool] = True

    rows: int
    size: int
    seed: int
    vectors: Callable[[], Vectors]
    grouping: Grouping = field(default_factory=NearestNeighbors)
    every: int = 1
    same: Ids | None = None
    report: GroupReport | None = field(default=None, init=False)
    """Of the latest epoch; None when it reordered the batches of the epoch before."""

    def __post_init__(self) -> None:
        check_groups(rows=self.rows, size=self.size, group=self.grouping.group, same=self.same)
        positive(refresh=self.every)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:
        """The epoch's groups, one after the other, cut into batches; between two encodings, ``previous`` reordered."""
        source = generator(self.seed, self.grouping.stream, epoch)
        if epoch % self.every:
            self.report = None
            previous = self._checked(previous, epoch)
            return [previous[at] for at in source.permutation(len(self))]
        start = time.perf_counter()
        vectors = self.vectors()
        if vectors.ndim != 2 or len(vectors) != self.rows:
            raise ShapeError(f"vectors must be (rows, d) with {self.rows} rows, got shape {vectors.shape}")
        encoded = time.perf_counter()
        vectors = unit(vectors)
        groups = self.grouping.groups(vectors, source, self.same)
        batches = cut(groups.order, self.size)
        self.report = report(
            groups,
            batches=batches,
            similarity=lambda batch: mean_cosine(vectors[batch]),
            measure="cosine",
            seconds=time.perf_counter() - encoded,
            encoding_seconds=encoded - start,
            source=source,
        )
        return batches

    def _checked(self, previous: list[Rows] | None, epoch: int) -> list[Rows]:
        """The batches of the epoch before, if they hold each row once."""
        if previous is None:
            raise SettingError(
                f"epoch {epoch} takes the batches of the epoch before (batches.refresh is above 1), which were not "
                "given: pass them as previous, or set batches.refresh = 1."
            )
        counts = np.bincount(np.concatenate(previous), minlength=self.rows) if previous else np.zeros(0)
        if len(previous) != len(self) or len(counts) != self.rows or not (counts == 1).all():
            raise SettingError(
                f"previous must hold each of the {self.rows} rows once in {len(self)} batches; those given belong to "
                "other data or other settings."
            )
        return previous
