"""Groupings: which rows with similar vectors become a group, and the sampler that makes batches of hard negatives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.batching.cells import DiskIndex
from nearfar.batching.groups import (
    GroupReport,
    Groups,
    Ids,
    Shingles,
    Vectors,
    check_groups,
    mean_cosine,
    report,
    shingle_groups,
)
from nearfar.batching.nearest_neighbors import BLOCK, DEFAULT, Index, Search, cluster_numbers, make_index, unit
from nearfar.batching.samplers import Rows, cut
from nearfar.batching.vector_file import VectorFile
from nearfar.errors import SettingError, ShapeError
from nearfar.seeds import generator


class Grouping(Protocol):
    """Finds groups of rows whose vectors are similar."""

    @property
    def stream(self) -> str:
        """Names the randomness of an epoch."""

    @property
    def group(self) -> int:
        """Largest size of a group."""

    def groups(self, vectors: Vectors | VectorFile, source: np.random.Generator, same: Ids | None = None) -> Groups:
        """(n, d) vectors of length 1 -> groups; two rows of one id of ``same`` do not enter one group."""


@dataclass(frozen=True, kw_only=True)
class NearestNeighbors:
    """Example-based shuffling: Algorithm 1 of the batch-softmax paper.

    The rows are shuffled. Each row in turn that is in no group yet starts one: of its ``candidates`` nearest rows the
    first ``group - 1`` that are in no group join it. The neighbors of the last rows are all taken, so these rows have
    groups of their own, and the order is reversed: easy batches first, as in a curriculum.

    Above ``search.exact_rows`` rows the search is approximate, and considers only rows that are in no group yet (of
    the lists it searches), so that few rows have no group.

    Args:
        group: largest size of a group; the paper takes 4 to 8.
        candidates: how many nearest rows may join, before those in use are left out.
        reverse: whether the last groups come first.
        search: when and how to approximate.
    """

    stream: ClassVar[str] = "neighbors"

    group: int = 8
    candidates: int = 500
    reverse: bool = True
    search: Search = DEFAULT

    def __post_init__(self) -> None:
        positive(candidates=self.candidates)

    def groups(self, vectors: Vectors | VectorFile, source: np.random.Generator, same: Ids | None = None) -> Groups:
        """(n, d) vectors of length 1 -> groups; two rows of one id of ``same`` do not enter one group."""
        order = source.permutation(len(vectors))
        candidates = min(self.candidates, self.search.candidates)
        index, recall = _index(
            vectors, self.search, exact=self.candidates, approximate=candidates, nearest=self.group - 1, source=source
        )
        groups = list(_grown(order, index, self.group, same))
        if self.reverse:
            groups = [members[::-1] for members in reversed(groups)]
        bounds = np.concatenate([[0], np.cumsum([len(members) for members in groups])])
        return Groups(order=np.concatenate(groups), bounds=bounds, recall=recall, exact=recall is None)


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Algorithm 2 with the number of a row's k-means cluster as its shingle.

    Faster than :class:`NearestNeighbors` and less thorough.

    Args:
        group: largest size of a group.
        clusters: how many; fewer where the rows would not fill a group for each.
    """

    stream: ClassVar[str] = "clusters"

    group: int = 8
    clusters: int = 300

    def __post_init__(self) -> None:
        positive(clusters=self.clusters)

    def groups(self, vectors: Vectors | VectorFile, source: np.random.Generator, same: Ids | None = None) -> Groups:
        """(n, d) vectors of length 1 -> groups; two rows of one id of ``same`` do not enter one group."""
        if isinstance(vectors, VectorFile):
            raise SettingError(
                f'batches.shuffle = "clusters" keeps the vectors of all {len(vectors):,} rows in memory: raise '
                'batches.memory, or set batches.shuffle = "neighbors".'
            )
        clusters = min(self.clusters, max(1, len(vectors) // self.group))
        return shingle_groups(cluster_numbers(vectors, clusters, source), group=self.group, source=source, same=same)


@dataclass(frozen=True, kw_only=True)
class SharedNeighbors:
    """Algorithm 2 with the row numbers of the nearest neighbors as words; a row is the nearest to itself.

    Args:
        group: largest size of a group.
        neighbors: how many nearest rows are a row's words, itself included.
        shingle: how many of them the rows of a group share.
        search: when and how to approximate.
    """

    stream: ClassVar[str] = "neighbor-ids"

    group: int = 8
    neighbors: int = 5
    shingle: int = 1
    search: Search = DEFAULT

    def __post_init__(self) -> None:
        positive(neighbors=self.neighbors, shingle_size=self.shingle)
        if self.shingle > self.neighbors:
            raise SettingError(
                f"batches.shingle_size is {self.shingle}, but a row has only {self.neighbors} neighbors to share; "
                "set more batches.neighbors, or batches.shingle_size = 1."
            )

    def groups(self, vectors: Vectors | VectorFile, source: np.random.Generator, same: Ids | None = None) -> Groups:
        """(n, d) vectors of length 1 -> groups; two rows of one id of ``same`` do not enter one group."""
        n = len(vectors)
        neighbors = min(self.neighbors, n)
        if self.shingle > neighbors:
            raise SettingError(
                f"batches.shingle_size must be from 1 to the number of rows ({neighbors}), got {self.shingle}; try 1."
            )
        others = max(neighbors - 1, 1)
        index, recall = _index(vectors, self.search, exact=others, approximate=neighbors, nearest=others, source=source)
        nothing_used = np.zeros(n + 1, dtype=bool)
        shingles = np.empty(n, dtype=np.uint64)
        for rows in np.split(np.arange(n), range(BLOCK, n, BLOCK)):
            ids = np.repeat(rows[:, None], neighbors, axis=1)  # (b, neighbors)
            for at, (row, near) in enumerate(zip(rows, index.nearest(rows, nothing_used), strict=True)):
                known = near[(near != row) & (near >= 0)][: neighbors - 1]
                ids[at, 1 : 1 + len(known)] = known
            drawn = source.random(ids.shape).argpartition(self.shingle - 1, axis=1)[:, : self.shingle]
            shingles[rows] = _mixed(np.sort(np.take_along_axis(ids, drawn, axis=1), axis=1))
        groups = shingle_groups(shingles, group=self.group, source=source, same=same)
        return replace(groups, recall=recall, exact=recall is None)


def _index(
    vectors: Vectors | VectorFile, search: Search, *, exact: int, approximate: int, nearest: int,
    source: np.random.Generator,
) -> tuple[Index, float | None]:  # fmt: skip
    """An index over vectors in memory or on disk, and the recall of its ``nearest`` rows where it is approximate."""
    if isinstance(vectors, VectorFile):
        index = DiskIndex(vectors, search, candidates=approximate, nearest=nearest, source=source)
        return index, index.recall
    return make_index(vectors, search, exact=exact, approximate=approximate, nearest=nearest, source=source)


def _mixed(ids: Ids) -> Shingles:
    """(n, t) ids to one number each: splitmix64, one id after the other."""
    state = np.zeros(len(ids), dtype=np.uint64)
    for column in ids.T:
        state = (state ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


def _grown(order: Rows, index: Index, group: int, same: Ids | None) -> Iterator[Rows]:
    """Groups in the order they are started, each with the row that started it first."""
    n = len(order)
    used = np.zeros(n + 1, dtype=bool)
    used[n] = True  # for -1, which is no row
    at, unused = 0, n
    while unused:
        block = index.block(unused)
        window = order[at : at + 8 * block]
        starters = np.flatnonzero(~used[window])[:block]
        at += int(starters[-1]) + 1 if len(starters) == block else len(window)
        if not len(starters):
            continue
        rows = window[starters]
        for row, near in zip(rows.tolist(), index.nearest(rows, used), strict=True):
            if used[row]:
                continue
            used[row] = True
            members = _joining(row, near[near != row][: index.candidates], used, group - 1, same)
            used[members] = True
            unused -= 1 + len(members)
            yield np.append(row, members)


def _joining(row: int, near: Ids, used: NDArray[np.bool_], most: int, same: Ids | None) -> Rows:
    """The nearest unused rows; with ``same``, of each id only the first, and none of the row's own."""
    free = near[~used[near]]
    if same is not None and len(free):
        free = free[same[free] != same[row]]
        free = free[np.sort(np.unique(same[free], return_index=True)[1])]
    return free[:most]


def _taken(vectors: Vectors | VectorFile, rows: Rows) -> Vectors:
    return vectors.gather(rows) if isinstance(vectors, VectorFile) else vectors[rows]


def positive(**settings: int) -> None:
    """Refuse settings below 1, by their names in a recipe."""
    for name, value in settings.items():
        if value < 1:
            raise SettingError(f"batches.{name} must be 1 or more, got {value}.")


@dataclass(kw_only=True, eq=False)
class EmbeddingSampler:
    """Every row exactly once an epoch, rows with similar vectors adjacent.

    The vectors decide which rows are similar: those of the left or of the right texts of the pairs.

    Args:
        rows: of the data set.
        size: rows of a batch.
        seed: of groups and order.
        vectors: gives (rows, d) vectors of the current model, row by row, in memory, where they are normalized in
            place, or on disk.
        grouping: how groups are found: :class:`NearestNeighbors`, :class:`Clusters` or :class:`SharedNeighbors`.
        every: epochs from one encoding to the next.
        same: (rows,) ids; two rows of one id do not enter one group.
    """

    reads_model: ClassVar[bool] = True

    rows: int
    size: int
    seed: int
    vectors: Callable[[], Vectors | VectorFile]
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
        vectors = vectors if isinstance(vectors, VectorFile) else unit(vectors)
        groups = self.grouping.groups(vectors, source, self.same)
        batches = cut(groups.order, self.size)
        self.report = report(
            groups,
            batches=batches,
            similarity=lambda batch: mean_cosine(_taken(vectors, batch)),
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
