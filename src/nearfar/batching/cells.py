"""Nearest neighbors among vectors on disk: cells of near vectors first, then all queries of a cell against its vectors.

The vectors are sorted into cells around centers (k-means, as the lists of an inverted file), one cell after the other
in a second file. A block of queries at a time, as many as the memory takes, is compared cell by cell: the queries that
are near a center are multiplied with the vectors of its cell (faiss), and the best are merged. Every vector is compared
with those of as many cells as it takes to find the share of the true neighbors that is asked for, on a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.batching.centers import Centers, best_of_lists
from nearfar.batching.groups import Ids, Vectors
from nearfar.batching.nearest_neighbors import BLOCK, QUERIES, Search
from nearfar.batching.samplers import Rows
from nearfar.batching.vector_file import IdFile, VectorFile

LEAST = 4_096
"""Queries of a block, at least."""


@dataclass(frozen=True)
class Neighbors:
    """The nearest vectors of some queries."""

    rows: Ids
    """(b,) the numbers of the queries."""
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
        self.search, self.width = search, vectors.width
        self.centers = Centers(vectors, max(1, len(vectors) // search.list_rows), search.memory // 2, source)
        self.cells = len(self.centers)
        self.rows, self.bounds, self.file = self._arranged(vectors)
        self.probes = min(max(1, search.probes // 2), self.cells)
        self.recall = 1.0

    def _arranged(self, vectors: VectorFile) -> tuple[NDArray[np.int32], Ids, VectorFile]:
        """Vectors cell by cell: (n,) their rows, (cells + 1,) where each cell begins, and the file."""
        numbers = np.empty(len(vectors), dtype=np.int32)
        for start, block in vectors.blocks():
            numbers[start : start + len(block)] = self.centers.nearest(block, 1)[:, 0]
        bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=self.cells))])
        rows: NDArray[np.int32] = np.argsort(numbers, kind="stable").astype(np.int32)
        return rows, bounds, self._sorted(vectors, numbers, bounds)

    def _sorted(self, vectors: VectorFile, numbers: NDArray[np.int32], bounds: Ids) -> VectorFile:
        """The vectors cell by cell, in one pass over those given."""
        file, next_row = VectorFile(self.width), bounds[:-1].copy()
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
        self, queries: VectorFile | None, number: int, progress: Callable[[float], None] | None = None
    ) -> Iterator[Neighbors]:
        """The nearest vectors of all queries, a block of them at a time; without queries, the vectors themselves are.

        Several blocks go from cell to cell, so that each is compared with few of them: queries come in another order.
        """
        asking = self.file if queries is None else queries
        number = min(number, len(self.file))
        each = 4 * self.width + 24 * number + 24 * self.probes
        size = max(LEAST, int(self.search.memory / 2 / each))
        blocks = -(-len(asking) // size)
        size = -(-len(asking) // max(1, blocks))
        rows = self.rows if queries is None else np.arange(len(asking), dtype=np.int32)
        if queries is not None and blocks > 1:
            rows, _, asking = self._arranged(queries)
        for start in range(0, len(asking), max(1, size)):
            stop = min(start + size, len(asking))
            scores, ids = self._block(asking.read(start, stop), number)
            yield Neighbors(rows[start:stop].astype(np.int64), scores, ids)
            if progress is not None:
                progress(stop / len(asking))

    def _block(self, queries: Vectors, number: int) -> tuple[Vectors, Ids]:
        """(b, d) queries -> (b, number) the best cosines, falling, and the rows they belong to."""
        return best_of_lists(queries, self.centers.nearest(queries, self.probes), self.cells, number, self._cell)

    def _cell(self, cell: int) -> tuple[Vectors, NDArray[np.int32]]:
        first, last = int(self.bounds[cell]), int(self.bounds[cell + 1])
        return self.file.read(first, last), self.rows[first:last]


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
        for found in cells.nearest(None, self.candidates + 1):
            self._ids.write(found.rows, found.ids)

    def nearest(self, rows: Rows, used: NDArray[np.bool_]) -> Ids:  # noqa: ARG002 - the nearest of all, then the unused
        """(len(rows), candidates + 1) row numbers, nearest first; itself is among them, -1 is no row."""
        return self._ids.gather(rows)

    def block(self, unused: int) -> int:  # noqa: ARG002 - each row is read by itself
        """How many rows to read at once."""
        return BLOCK
