"""Shufflers that look at vectors: hard negatives come into a batch because like rows sit together.

All of them ask for vectors of the current model when an epoch begins, every epoch or every few. In the epochs between
they take the batches of the epoch before in a newly drawn order: these must be handed to them, so that a run that was
resumed in between goes on as if it had not been interrupted.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from nearfar.batching.groups import Grouping, Groups, Ids, Vectors, check_groups, mean_cosine, report
from nearfar.batching.nearest_neighbors import (
    DEFAULT,
    Search,
    cluster_groups,
    neighbor_groups,
    neighbor_id_groups,
    unit,
)
from nearfar.batching.samplers import Rows, cut
from nearfar.errors import SettingError, ShapeError
from nearfar.seeds import generator


@dataclass(kw_only=True, eq=False)
class _Encoded(ABC):
    """What all of them have: fresh groups in some epochs, the batches of the epoch before in the others."""

    reads_model: ClassVar[bool] = True
    stream: ClassVar[str]
    """Names the randomness of an epoch."""

    rows: int
    size: int
    seed: int
    vectors: Callable[[], Vectors]
    group: int = 8
    every: int = 1
    same: Ids | None = None
    report: Grouping | None = field(default=None, init=False)
    """Of the epoch last asked for; None when it took the batches of the epoch before."""

    def __post_init__(self) -> None:
        check_groups(rows=self.rows, size=self.size, group=self.group, same=self.same)
        _positive(refresh=self.every)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:
        """The epoch's groups, one after the other, cut into batches; between two encodings, ``previous`` reordered."""
        source = generator(self.seed, self.stream, epoch)
        if epoch % self.every:
            batches, self.report = _again(previous, self.rows, len(self), source, epoch), None
        else:
            grouped = partial(self._groups, source=source)
            batches, self.report = _anew(self.vectors, self.rows, self.size, grouped, source)
        return batches

    @abstractmethod
    def _groups(self, vectors: Vectors, source: np.random.Generator) -> Groups:
        """Groups of rows whose vectors are alike."""


@dataclass(kw_only=True, eq=False)
class Neighbors(_Encoded):
    """Every row exactly once an epoch, nearest neighbors side by side: Algorithm 1 of the batch-softmax paper.

    See :func:`nearfar.batching.nearest_neighbors.neighbor_groups` for the algorithm. The vectors decide what "near" is:
    those of the left or of the right texts of the pairs.

    Args:
        rows: how many there are.
        size: rows of a batch.
        seed: of the order.
        vectors: gives (rows, d) vectors of the current model, row by row; they are normalized in place.
        group: largest size of a group; the paper takes 4 to 8.
        candidates: nearest rows that may join a group, before those in use are left out.
        reverse: whether the easy leftovers come first, as in a curriculum.
        every: epochs from one encoding to the next.
        same: (rows,) ids; two rows of one id do not enter one group.
        search: from how many rows on neighbors are approximate, and how closely.
    """

    stream = "neighbors"

    candidates: int = 500
    reverse: bool = True
    search: Search = DEFAULT

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(candidates=self.candidates)

    def _groups(self, vectors: Vectors, source: np.random.Generator) -> Groups:
        return neighbor_groups(
            vectors, group=self.group, source=source, candidates=self.candidates, reverse=self.reverse,
            same=self.same, search=self.search,
        )  # fmt: skip


@dataclass(kw_only=True, eq=False)
class Clusters(_Encoded):
    """Every row exactly once an epoch, rows of a k-means cluster side by side: Algorithm 2 with clusters as shingles.

    Faster than :class:`Neighbors` and less thorough.

    Args:
        rows: how many there are.
        size: rows of a batch.
        seed: of the clusters and the order.
        vectors: gives (rows, d) vectors of the current model, row by row; they are normalized in place.
        group: largest size of a group.
        clusters: how many; fewer where the rows would not fill a group for each.
        every: epochs from one encoding to the next.
        same: (rows,) ids; two rows of one id do not enter one group.
    """

    stream = "clusters"

    clusters: int = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(clusters=self.clusters)

    def _groups(self, vectors: Vectors, source: np.random.Generator) -> Groups:
        return cluster_groups(vectors, group=self.group, source=source, clusters=self.clusters, same=self.same)


@dataclass(kw_only=True, eq=False)
class NeighborIds(_Encoded):
    """Every row exactly once an epoch, rows with a neighbor in common side by side: Algorithm 2 over neighbors.

    Args:
        rows: how many there are.
        size: rows of a batch.
        seed: of shingles and order.
        vectors: gives (rows, d) vectors of the current model, row by row; they are normalized in place.
        group: largest size of a group.
        neighbors: how many nearest rows a row draws from, itself included.
        shingle: how many neighbors the rows of a group share.
        every: epochs from one encoding to the next.
        same: (rows,) ids; two rows of one id do not enter one group.
        search: from how many rows on neighbors are approximate, and how closely.
    """

    stream = "neighbor-ids"

    neighbors: int = 5
    shingle: int = 1
    search: Search = DEFAULT

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive(neighbors=self.neighbors, shingle_size=self.shingle)
        if self.shingle > self.neighbors:
            raise SettingError(
                f"batches.shingle_size is {self.shingle}, but only {self.neighbors} neighbors are looked at; "
                "try batches.shingle_size = 1."
            )

    def _groups(self, vectors: Vectors, source: np.random.Generator) -> Groups:
        return neighbor_id_groups(
            vectors, group=self.group, source=source, neighbors=self.neighbors, shingle=self.shingle,
            same=self.same, search=self.search,
        )  # fmt: skip


def _anew(
    vectors: Callable[[], Vectors], rows: int, size: int, groups: Callable[[Vectors], Groups],
    source: np.random.Generator,
) -> tuple[list[Rows], Grouping]:  # fmt: skip
    """Batches of fresh groups, and how hard they are."""
    start = time.perf_counter()
    fresh = vectors()
    if fresh.ndim != 2 or len(fresh) != rows:
        raise ShapeError(f"vectors must be (rows, d) with {rows} rows, got shape {fresh.shape}")
    encoded = time.perf_counter()
    fresh = unit(fresh)
    made = groups(fresh)
    batches = cut(made.order, size)
    seconds = time.perf_counter() - encoded
    grouping = report(
        made, batches=batches, similarity=lambda batch: mean_cosine(fresh[batch]), measure="cosine", source=source,
        seconds=seconds, encoding_seconds=encoded - start,
    )  # fmt: skip
    return batches, grouping


def _again(previous: list[Rows] | None, rows: int, number: int, source: np.random.Generator, epoch: int) -> list[Rows]:
    """The batches of the epoch before, in a newly drawn order."""
    if previous is None:
        raise SettingError(
            f"epoch {epoch} takes the batches of the epoch before (batches.refresh is above 1), which were not given: "
            "pass them as previous, or set batches.refresh = 1."
        )
    counts = np.bincount(np.concatenate(previous), minlength=rows) if previous else np.zeros(0)
    if len(previous) != number or len(counts) != rows or not (counts == 1).all():
        raise SettingError(
            f"previous must hold each of the {rows} rows once in {number} batches; those given belong to other data "
            "or other settings."
        )
    return [previous[at] for at in source.permutation(number)]


def _positive(**settings: int) -> None:
    for name, value in settings.items():
        if value < 1:
            raise SettingError(f"batches.{name} must be 1 or more, got {value}.")
