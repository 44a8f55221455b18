"""Nearest neighbors among the rows of a data set, and the groups they make: faiss, exact or approximate by size."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.batching.groups import Groups, Ids, Shingles, Vectors, shingle_groups
from nearfar.batching.samplers import Rows
from nearfar.errors import NotFiniteError, SettingError

BLOCK = 1024
"""Rows searched at once: enough for a fast matrix product, few enough to know who is used already."""
CHUNK = 16384
"""Rows normalized, added or compared at once."""
QUERIES = 200
"""Rows whose true neighbors are computed to measure the recall of an approximate search."""
POINTS, ROUNDS = 32, 6
"""Rows for each list that its center is computed from, and how often: more of either changes the recall little."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """How neighbors are searched.

    Up to ``exact_rows`` rows every row is compared with every row. Above, the rows are sorted into lists around
    centers, one byte a number, and a row is compared with those of the few lists nearest to it: work and memory grow
    with the rows and not with their square.
    """

    exact_rows: int = 50_000
    """Largest number of rows that is searched exactly."""
    list_rows: int = 1024
    """Rows of a list of the approximate search, on average."""
    probes: int = 8
    """Lists looked into for each row; more find more of the true neighbors and take longer."""
    candidates: int = 64
    """Rows the approximate search returns at most."""


DEFAULT = Search()


def unit(vectors: Vectors) -> Vectors:
    """Vectors of length 1, made in place where the array allows it; a zero vector stays zero.

    >>> unit(np.array([[3, 4], [0, 0]], dtype=np.float32)).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    vectors = np.require(vectors, np.float32, ["C", "W"])
    for start in range(0, len(vectors), CHUNK):
        chunk = vectors[start : start + CHUNK]
        lengths = np.sqrt(np.einsum("nd,nd->n", chunk, chunk))
        if not np.isfinite(lengths).all():
            row = start + int(np.flatnonzero(~np.isfinite(lengths))[0])
            raise NotFiniteError(
                f"the vector of row {row} is not finite, so its neighbors cannot be found; the encoder has probably "
                "diverged: lower the learning rate."
            )
        chunk /= np.where(lengths > 0, lengths, 1)[:, None]
    return vectors


def neighbor_groups(
    vectors: Vectors,
    *,
    group: int,
    source: np.random.Generator,
    candidates: int = 500,
    reverse: bool = True,
    same: Ids | None = None,
    search: Search = DEFAULT,
) -> Groups:
    """Example-based shuffling: Algorithm 1 of the paper.

    The rows are shuffled. Each row in turn that is in no group yet founds one: of its ``candidates`` nearest rows the
    first ``group - 1`` that are in no group join it. Those at the end find their neighbors taken and stay alone, so
    the order is reversed: easy batches first, as in a curriculum.

    Above ``search.exact_rows`` rows the search is approximate, and looks only among rows that are in no group yet
    (of the lists it looks into), so that few rows stay alone.

    Args:
        vectors: (n, d) of length 1.
        group: largest size of a group.
        source: draws the order in which rows may found groups, and the sample the recall is measured on.
        candidates: how many nearest rows may join, before those in use are left out.
        reverse: whether the last groups come first.
        same: (n,) ids; two rows of one id do not enter one group.
        search: when and how to approximate.
    """
    n = len(vectors)
    order = source.permutation(n)
    index: _Index
    recall = None
    if n <= search.exact_rows:
        index = _Exact(vectors, candidates)
    else:
        index = _Lists(vectors, search, min(candidates, search.candidates), source)
        recall = _recall(vectors, index, group - 1, source.permutation(n)[:QUERIES])
    groups = list(_found(order, index, group, same))
    if reverse:
        groups = [members[::-1] for members in reversed(groups)]
    bounds = np.concatenate([[0], np.cumsum([len(members) for members in groups])])
    return Groups(order=np.concatenate(groups), bounds=bounds, recall=recall, exact=n <= search.exact_rows)


def cluster_groups(
    vectors: Vectors, *, group: int, source: np.random.Generator, clusters: int = 300, same: Ids | None = None
) -> Groups:
    """Algorithm 2 with the number of a row's cluster as its shingle: k-means on the unit sphere.

    Args:
        vectors: (n, d) of length 1.
        group: largest size of a group.
        source: draws the first centers, who meets, and the order.
        clusters: how many; fewer where the rows would not fill a group for each.
        same: (n,) ids; two rows of one id do not enter one group.
    """
    faiss = _faiss()
    clusters = min(clusters, max(1, len(vectors) // group))
    means = faiss.Kmeans(
        vectors.shape[1], clusters, niter=20, seed=_seed(source), spherical=True, min_points_per_centroid=1
    )
    means.train(vectors)
    numbers = [means.index.search(chunk, 1)[1][:, 0] for chunk in _chunks(vectors)]
    return shingle_groups(np.concatenate(numbers).astype(np.uint64), group=group, source=source, same=same)


def neighbor_id_groups(
    vectors: Vectors,
    *,
    group: int,
    source: np.random.Generator,
    neighbors: int = 5,
    shingle: int = 1,
    same: Ids | None = None,
    search: Search = DEFAULT,
) -> Groups:
    """Algorithm 2 with the row numbers of the nearest neighbors as words; a row is the nearest to itself.

    Args:
        vectors: (n, d) of length 1.
        group: largest size of a group.
        source: draws the shingles, who meets, and the order.
        neighbors: how many nearest rows are a row's words, itself included.
        shingle: how many of them rows of a group share.
        same: (n,) ids; two rows of one id do not enter one group.
        search: when and how to approximate.
    """
    n = len(vectors)
    neighbors = min(neighbors, n)
    if not 1 <= shingle <= neighbors:
        raise SettingError(
            f"batches.words must be between 1 and the number of neighbors ({neighbors}), got {shingle}; try 1."
        )
    index: _Index
    recall = None
    if n <= search.exact_rows:
        index = _Exact(vectors, max(neighbors - 1, 1))
    else:
        index = _Lists(vectors, search, neighbors, source)
        recall = _recall(vectors, index, max(neighbors - 1, 1), source.permutation(n)[:QUERIES])
    everybody = np.zeros(n + 1, dtype=bool)
    shingles = np.empty(n, dtype=np.uint64)
    for rows in np.split(np.arange(n), range(BLOCK, n, BLOCK)):
        found = index.nearest(rows, everybody)
        ids = np.empty((len(rows), neighbors), dtype=np.int64)
        for at, (row, near) in enumerate(zip(rows, found, strict=True)):
            others = near[(near != row) & (near >= 0)][: neighbors - 1]
            ids[at] = row
            ids[at, 1 : 1 + len(others)] = others
        drawn = source.random(ids.shape).argpartition(shingle - 1, axis=1)[:, :shingle]
        shingles[rows] = _mixed(np.sort(np.take_along_axis(ids, drawn, axis=1), axis=1))
    groups = shingle_groups(shingles, group=group, source=source, same=same)
    return Groups(order=groups.order, bounds=groups.bounds, recall=recall, exact=n <= search.exact_rows)


def _mixed(ids: Ids) -> Shingles:
    """(n, t) ids to one number each: splitmix64, one id after the other."""
    state = np.zeros(len(ids), dtype=np.uint64)
    for column in ids.T:
        state = (state ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


class _Index(Protocol):
    """Answers which rows are near; ``used`` is (n + 1,), with True at the end for the number -1, which is nobody."""

    candidates: int

    def nearest(self, rows: Rows, used: NDArray[np.bool_]) -> Ids:
        """(len(rows), candidates + 1) row numbers, nearest first; itself may be among them, -1 is nobody."""

    def block(self, unused: int) -> int:
        """How many rows to search at once while so many are unused."""


class _Exact:
    """Every row against every row."""

    def __init__(self, vectors: Vectors, candidates: int) -> None:
        self.faiss, self.vectors, self.candidates = _faiss(), vectors, candidates

    def nearest(self, rows: Rows, used: NDArray[np.bool_]) -> Ids:  # noqa: ARG002 - n nearest of all, then the unused
        asked = min(self.candidates + 1, len(self.vectors))
        _, ids = self.faiss.knn(self.vectors[rows], self.vectors, asked, metric=self.faiss.METRIC_INNER_PRODUCT)
        return np.asarray(ids, dtype=np.int64)

    def block(self, unused: int) -> int:  # noqa: ARG002 - fewer rows take as long
        return BLOCK


class _Lists:
    """Rows sorted into lists around centers (inverted file), one byte a number; used rows are passed over."""

    def __init__(self, vectors: Vectors, search: Search, candidates: int, source: np.random.Generator) -> None:
        self.faiss, self.vectors, self.candidates = _faiss(), vectors, candidates
        n, d = vectors.shape
        lists = max(1, n // search.list_rows)
        self.centers = self.faiss.IndexFlatIP(d)  # kept: the index only points at it
        kind, product = self.faiss.ScalarQuantizer.QT_8bit, self.faiss.METRIC_INNER_PRODUCT
        self.index = self.faiss.IndexIVFScalarQuantizer(self.centers, d, lists, kind, product)
        self.index.by_residual = False  # scanned faster, and unit vectors lose nothing
        means = self.index.cp
        means.niter, means.seed, means.spherical = ROUNDS, _seed(source), True
        means.min_points_per_centroid, means.max_points_per_centroid = 1, POINTS
        self.index.train(vectors[np.sort(source.choice(n, min(n, POINTS * lists), replace=False))])
        for chunk in _chunks(vectors):
            self.index.add(chunk)
        self.probes = min(search.probes, lists)
        self.unused = np.zeros(-(-n // 8), dtype=np.uint8)  # a bit for each row, read by faiss in place

    def nearest(self, rows: Rows, used: NDArray[np.bool_]) -> Ids:
        self.unused[:] = np.packbits(~used[:-1], bitorder="little")
        selector = self.faiss.IDSelectorBitmap(self.unused)
        parameters = self.faiss.SearchParametersIVF(nprobe=self.probes, sel=selector)
        _, ids = self.index.search(self.vectors[rows], self.candidates + 1, params=parameters)
        return np.asarray(ids, dtype=np.int64)

    def block(self, unused: int) -> int:
        return min(BLOCK, max(64, unused // 64))  # the fewer are left, the more often two want the same


def _found(order: Rows, index: _Index, group: int, same: Ids | None) -> Iterator[Rows]:
    """Groups in the order they are founded, the founder first."""
    n = len(order)
    used = np.zeros(n + 1, dtype=bool)
    used[n] = True  # -1, which is nobody
    at, unused = 0, n
    while unused:
        block = index.block(unused)
        window = order[at : at + 8 * block]
        founders = np.flatnonzero(~used[window])[:block]
        at += int(founders[-1]) + 1 if len(founders) == block else len(window)
        if not len(founders):
            continue
        rows = window[founders]
        for founder, near in zip(rows.tolist(), index.nearest(rows, used), strict=True):
            if used[founder]:
                continue
            used[founder] = True
            members = _joining(founder, near[near != founder][: index.candidates], used, group - 1, same)
            used[members] = True
            unused -= 1 + len(members)
            yield np.append(founder, members)


def _joining(founder: int, near: Ids, used: NDArray[np.bool_], most: int, same: Ids | None) -> Rows:
    """The nearest unused rows; with ``same``, of each id only the first, and none of the founder's."""
    free = near[~used[near]]
    if same is None or not len(free):
        return free[:most]
    free = free[same[free] != same[founder]]
    firsts = np.sort(np.unique(same[free], return_index=True)[1])
    chosen: Rows = free[firsts[:most]]
    return chosen


def _recall(vectors: Vectors, index: _Index, nearest: int, queries: Rows) -> float:
    """Share of the ``nearest`` truly nearest rows found; rows exactly as near as the last of them count too."""
    nearest = min(nearest, len(vectors) - 1)
    if nearest == 0:
        return 1.0
    mine = vectors[queries]
    best = np.full((len(queries), nearest), -np.inf, dtype=np.float32)
    for number, chunk in enumerate(_chunks(vectors)):
        near = mine @ chunk.T
        inside = np.flatnonzero((queries >= number * CHUNK) & (queries < number * CHUNK + len(chunk)))
        near[inside, queries[inside] - number * CHUNK] = -np.inf  # nobody is a neighbor of itself
        best = np.partition(np.concatenate([best, near], axis=1), -nearest, axis=1)[:, -nearest:]
    used = np.zeros(len(vectors) + 1, dtype=bool)
    found = index.nearest(queries, used)
    similarities = np.einsum("qd,qkd->qk", mine, vectors[found])
    similarities[(found < 0) | (found == queries[:, None])] = -np.inf
    hits = (similarities >= best.min(axis=1, keepdims=True) - 1e-6).sum(axis=1)
    return float(np.minimum(hits, nearest).mean() / nearest)


def _chunks(vectors: Vectors) -> Iterator[Vectors]:
    for start in range(0, len(vectors), CHUNK):
        yield vectors[start : start + CHUNK]


def _seed(source: np.random.Generator) -> int:
    return int(source.integers(2**31 - 1))


def _faiss() -> Any:  # it has no types
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of its generated wrappers, at import
            import faiss
    except ImportError as error:
        raise SettingError(
            "grouping rows by their vectors needs faiss, which is not installed. "
            "Install it with: pip install 'nearfar[pairs]'"
        ) from error
    return faiss
