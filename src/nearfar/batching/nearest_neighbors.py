"""Nearest neighbors and clusters among the rows of a data set with faiss: exact, or approximate above a size."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.batching.groups import Ids, Shingles, Vectors
from nearfar.batching.samplers import Rows
from nearfar.errors import NotFiniteError, SettingError

BLOCK = 1024
"""Rows searched at once: enough for a fast matrix product, few enough to know which rows are used already."""
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
    """Lists searched for each row; more find more of the true neighbors and take longer."""
    candidates: int = 64
    """Rows the approximate search returns at most."""
    memory: int = 4 * 10**9
    """Bytes that a search in vectors on disk may take, beside about 50 for each row."""
    recall: float = 0.9
    """Share of the true neighbors that a search in vectors on disk finds: it compares with more lists until it does."""


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


def make_index(
    vectors: Vectors, search: Search, *, exact: int, approximate: int, nearest: int, source: np.random.Generator
) -> tuple[Index, float | None]:
    """An index over (n, d) vectors of length 1, and the recall of its ``nearest`` rows where it is approximate.

    ``exact`` and ``approximate`` are the candidates that each kind of search returns for a row.
    """
    if len(vectors) <= search.exact_rows:
        return _Exact(vectors, exact), None
    index = _Lists(vectors, search, approximate, source)
    return index, _recall(vectors, index, nearest, source.permutation(len(vectors))[:QUERIES])


def cluster_numbers(vectors: Vectors, clusters: int, source: np.random.Generator) -> Shingles:
    """(n, d) vectors of length 1 -> (n,) the k-means cluster of each, on the unit sphere."""
    seed = draw_seed(source)
    means = load_faiss().Kmeans(
        vectors.shape[1], clusters, niter=20, seed=seed, spherical=True, min_points_per_centroid=1
    )
    means.train(vectors)
    numbers = [means.index.search(chunk, 1)[1][:, 0] for chunk in _chunks(vectors)]
    return np.concatenate(numbers).astype(np.uint64)


class Index(Protocol):
    """Answers which rows are near; ``used`` is (n + 1,), with True at the end for the number -1, which is no row."""

    candidates: int

    def nearest(self, rows: Rows, used: NDArray[np.bool_]) -> Ids:
        """(len(rows), candidates + 1) row numbers, nearest first; itself may be among them, -1 is no row."""

    def block(self, unused: int) -> int:
        """How many rows to search at once while so many are unused."""


class _Exact:
    """Every row against every row."""

    def __init__(self, vectors: Vectors, candidates: int) -> None:
        self.faiss, self.vectors, self.candidates = load_faiss(), vectors, candidates

    def nearest(self, rows: Rows, used: NDArray[np.bool_]) -> Ids:  # noqa: ARG002 - n nearest of all, then the unused
        number = min(self.candidates + 1, len(self.vectors))
        _, ids = self.faiss.knn(self.vectors[rows], self.vectors, number, metric=self.faiss.METRIC_INNER_PRODUCT)
        return np.asarray(ids, dtype=np.int64)

    def block(self, unused: int) -> int:  # noqa: ARG002 - fewer rows take as long
        return BLOCK


class _Lists:
    """Rows sorted into lists around centers (inverted file), one byte a number; used rows are passed over."""

    def __init__(self, vectors: Vectors, search: Search, candidates: int, source: np.random.Generator) -> None:
        self.faiss, self.vectors, self.candidates = load_faiss(), vectors, candidates
        n, d = vectors.shape
        lists = max(1, n // search.list_rows)
        self.centers = self.faiss.IndexFlatIP(d)  # kept: the index only points at it
        kind, product = self.faiss.ScalarQuantizer.QT_8bit, self.faiss.METRIC_INNER_PRODUCT
        self.index = self.faiss.IndexIVFScalarQuantizer(self.centers, d, lists, kind, product)
        self.index.by_residual = False  # scanned faster, and unit vectors lose nothing
        means = self.index.cp
        means.niter, means.seed, means.spherical = ROUNDS, draw_seed(source), True
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
        return min(BLOCK, max(64, unused // 64))  # the fewer are left, the more often two rows have the same neighbor


def _recall(vectors: Vectors, index: Index, nearest: int, queries: Rows) -> float:
    """Share of the ``nearest`` truly nearest rows found; rows exactly as near as the last of them count too."""
    nearest = min(nearest, len(vectors) - 1)
    if nearest == 0:
        return 1.0
    query = vectors[queries]
    best = np.full((len(queries), nearest), -np.inf, dtype=np.float32)
    for number, chunk in enumerate(_chunks(vectors)):
        near = query @ chunk.T
        inside = np.flatnonzero((queries >= number * CHUNK) & (queries < number * CHUNK + len(chunk)))
        near[inside, queries[inside] - number * CHUNK] = -np.inf  # no row is its own neighbor
        best = np.partition(np.concatenate([best, near], axis=1), -nearest, axis=1)[:, -nearest:]
    used = np.zeros(len(vectors) + 1, dtype=bool)
    ids = index.nearest(queries, used)
    similarities = np.einsum("qd,qkd->qk", query, vectors[ids])
    similarities[(ids < 0) | (ids == queries[:, None])] = -np.inf
    hits = (similarities >= best.min(axis=1, keepdims=True) - 1e-6).sum(axis=1)
    return float(np.minimum(hits, nearest).mean() / nearest)


def _chunks(vectors: Vectors) -> Iterator[Vectors]:
    for start in range(0, len(vectors), CHUNK):
        yield vectors[start : start + CHUNK]


def draw_seed(source: np.random.Generator) -> int:
    """A seed for faiss."""
    return int(source.integers(2**31 - 1))


def load_faiss() -> Any:  # it has no types
    """The package, or a message that it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of its generated wrappers, at import
            import faiss
    except ImportError as error:
        raise SettingError(
            "grouping rows by their vectors needs faiss, which is not installed. Install it with: pip install faiss-cpu"
        ) from error
    return faiss
