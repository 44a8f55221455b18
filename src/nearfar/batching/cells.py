"""Nearest neighbors among vectors on disk: cells of near vectors first, then all queries of a cell against its vectors.

The vectors are sorted into cells around centers (k-means, as the lists of an inverted file), one cell after the other
in a second file. A block of queries at a time, as many as the memory takes, is compared cell by cell: the queries that
are near a center are multiplied with the vectors of its cell (faiss), and the best are merged. Every vector is compared
with those of as many cells as it takes to find the share of the true neighbors that is asked for, on a sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.batching.groups import Ids, Vectors
from nearfar.batching.nearest_neighbors import BLOCK, CHUNK, POINTS, QUERIES, ROUNDS, Search, draw_seed, load_faiss
from nearfar.batching.samplers import Rows
from nearfar.batching.vector_file import IdFile, VectorFile

LEAST = 4_096
"""Queries of a block, at least."""


@dataclass(frozen=True)
class Neighbors:
    """The nearest vectors of some queries."""

    start: int
    """The number of the first query."""
    scores: Vectors
    """(b, k) cosines, falling."""
    ids: Ids
    """(b, k) the rows of the vectors; -1 where there are no more."""


class Cells:
    """Vectors on disk, sorted into cells.

    Args:
        vectors: all of them.
        search: rows of a cell, the first number of cells to compare with, the share of neighbors to find, and memory.
        source: draws the vectors that centers are computed from, and the sample.
    """

    def __init__(self, vectors: VectorFile, search: Search, source: np.random.Generator) -> None:
        self.faiss, self.search = load_faiss(), search
        n, self.width = vectors.shape
        self.cells = max(1, n // max(search.list_rows, math.isqrt(n)))  # or finding the cells would take longest
        self.centers = self._centers(vectors, source)
        self.index = self.faiss.IndexFlatIP(self.width)
        self.index.add(self.centers)
        numbers = np.empty(n, dtype=np.int32)
        for start, block in vectors.blocks():
            numbers[start : start + len(block)] = self.index.search(block, 1)[1][:, 0]
        self.bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=self.cells))])
        self.rows: NDArray[np.int32] = np.argsort(numbers, kind="stable").astype(np.int32)
        self.file = self._sorted(vectors, numbers)
        self.probes = min(max(1, search.probes // 2), self.cells)
        self.recall = 1.0

    def _centers(self, vectors: VectorFile, source: np.random.Generator) -> Vectors:
        chosen = np.sort(source.choice(len(vectors), min(len(vectors), POINTS * self.cells), replace=False))
        means = self.faiss.Kmeans(
            self.width, self.cells, niter=ROUNDS, seed=draw_seed(source), spherical=True, min_points_per_centroid=1,
            max_points_per_centroid=POINTS,
        )  # fmt: skip
        means.train(vectors.gather(chosen))
        return np.asarray(means.centroids, dtype=np.float32)

    def _sorted(self, vectors: VectorFile, numbers: NDArray[np.int32]) -> VectorFile:
        """The vectors cell by cell, in one pass over those given."""
        file, next_row = VectorFile(self.width), self.bounds[:-1].copy()
        waiting: list[tuple[NDArray[np.int32], Vectors]] = []
        held = 0
        for start, block in vectors.blocks():
            waiting.append((numbers[start : start + len(block)], block))
            held += len(block)
            if held * self.width * 12 >= self.search.memory // 2 or start + len(block) == len(vectors):
                cells = np.concatenate([one for one, _ in waiting])
                some = np.concatenate([one for _, one in waiting])
                waiting, held = [], 0
                order = np.argsort(cells, kind="stable")
                for part in np.split(order, np.flatnonzero(np.diff(cells[order])) + 1):
                    cell = cells[part[0]]
                    file.write(int(next_row[cell]), some[part])
                    next_row[cell] += len(part)
        return file

    def tune(
        self, vectors: VectorFile, nearest: int, source: np.random.Generator, queries: VectorFile | None = None
    ) -> float:
        """Compare with more cells until the share of the ``nearest`` true neighbors that is asked for is found.

        Returns that share, on a sample of the queries that are compared with all vectors; the vectors themselves are
        the queries if there are no others, and then none is its own neighbor.
        """
        own = int(queries is None)
        asking = vectors if queries is None else queries
        nearest = min(nearest, len(vectors) - own)
        if nearest < 1 or not len(asking):
            return 1.0
        sample = asking.gather(np.sort(source.permutation(len(asking))[:QUERIES]))
        best = np.full((len(sample), nearest + own), -np.inf, dtype=np.float32)  # a vector is the nearest to itself
        for _, block in vectors.blocks():
            both = np.concatenate([best, sample @ block.T], axis=1)
            best = -np.partition(-both, nearest + own - 1, axis=1)[:, : nearest + own]
        least = best.min(axis=1, keepdims=True) - 1e-6
        while True:
            scores, _ = self._block(sample, nearest + own)
            self.recall = float(np.minimum((scores >= least).sum(axis=1) - own, nearest).mean() / nearest)
            if self.recall >= self.search.recall or self.probes >= self.cells:
                return self.recall
            self.probes = min(-(-3 * self.probes // 2), self.cells)

    def nearest(
        self, queries: VectorFile, number: int, progress: Callable[[float], None] | None = None
    ) -> Iterator[Neighbors]:
        """The nearest vectors of all queries, a block of them at a time."""
        number = min(number, len(self.file))
        each = 4 * self.width + 24 * number + 24 * self.probes
        size = max(LEAST, int(self.search.memory / 2 / each))
        blocks = -(-len(queries) // size)
        size = -(-len(queries) // max(1, blocks))
        for start in range(0, len(queries), max(1, size)):
            stop = min(start + size, len(queries))
            scores, ids = self._block(queries.read(start, stop), number)
            yield Neighbors(start, scores, ids)
            if progress is not None:
                progress(stop / len(queries))

    def _block(self, queries: Vectors, number: int) -> tuple[Vectors, Ids]:
        """(b, d) queries -> (b, number) the best cosines, falling, and the rows they belong to."""
        heap = self.faiss.ResultHeap(len(queries), number, keep_max=True)
        cells = np.empty((len(queries), self.probes), dtype=np.int32)
        for start in range(0, len(queries), CHUNK):
            cells[start : start + CHUNK] = self.index.search(queries[start : start + CHUNK], self.probes)[1]
        order = np.argsort(cells, axis=None, kind="stable")
        edges = np.searchsorted(cells.reshape(-1)[order], np.arange(self.cells + 1))
        for cell in np.flatnonzero(np.diff(edges)).tolist():
            first, last = self.bounds[cell], self.bounds[cell + 1]
            if first == last:
                continue
            vectors = self.file.read(int(first), int(last))
            asking = order[edges[cell] : edges[cell + 1]] // self.probes
            for some in np.split(asking, range(CHUNK, len(asking), CHUNK)):
                k = min(number, len(vectors))
                scores, places = self.faiss.knn(queries[some], vectors, k, metric=self.faiss.METRIC_INNER_PRODUCT)
                heap.add_result_subset(some, scores, self.rows[first + places].astype(np.int64))
        heap.finalize()
        return np.asarray(heap.D), np.asarray(heap.I)


KEPT = 32
"""Neighbors of a row that are kept on disk, at most."""


class DiskIndex:
    """Answers which rows are near from the neighbors of all rows, which were found before and are on disk.

    Args:
        vectors: of all rows.
        search: how to find them.
        candidates: how many of a row.
        nearest: of how many the recall is measured.
        source: of the cells and of the sample.
    """

    def __init__(
        self, vectors: VectorFile, search: Search, *, candidates: int, nearest: int, source: np.random.Generator
    ) -> None:
        self.candidates = min(candidates, KEPT, max(1, len(vectors) - 1))
        cells = Cells(vectors, search, source)
        self.recall = cells.tune(vectors, nearest, source)
        self._ids = IdFile(min(self.candidates + 1, len(vectors)))
        for found in cells.nearest(vectors, self.candidates + 1):
            self._ids.append(found.ids)

    def nearest(self, rows: Rows, used: NDArray[np.bool_]) -> Ids:  # noqa: ARG002 - the nearest of all, then the unused
        """(len(rows), candidates + 1) row numbers, nearest first; itself is among them, -1 is no row."""
        return self._ids.gather(rows)

    def block(self, unused: int) -> int:  # noqa: ARG002 - each row is read by itself
        """How many rows to read at once."""
        return BLOCK
