"""Centers of cells by k-means: few are compared one by one, many by groups of near ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearfar.batching.groups import Ids, Vectors
from nearfar.batching.nearest_neighbors import CHUNK, POINTS, ROUNDS, draw_seed, load_faiss
from nearfar.batching.vector_file import VectorFile

FLAT = 2_048
"""Centers that a vector is compared with one by one, at most."""
GROUPS = 8
"""Groups of centers that a vector is compared with, at least."""


class Centers:
    """Centers of cells, found from a sample of vectors.

    More than ``FLAT`` are found in two levels: the sample is divided around some centers, and then each part of it
    around others. So the work for a vector grows with the root of their number.

    Args:
        vectors: all of them.
        number: how many centers, about.
        memory: bytes for the sample.
        source: draws it.
    """

    def __init__(self, vectors: VectorFile, number: int, memory: int, source: np.random.Generator) -> None:
        self.faiss, width = load_faiss(), vectors.width
        most = max(number, min(POINTS * number, memory // (4 * width)))
        sample = vectors.gather(np.sort(source.choice(len(vectors), min(len(vectors), most), replace=False)))
        parts = [self._means(sample, number, source)] if number <= FLAT else self._in_groups(sample, number, source)
        self.vectors: Vectors = np.concatenate(parts)
        """(c, d), those of a group one after the other."""
        self._bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        self._tops = self.faiss.IndexFlatIP(width)  # of the groups, or of all where there is one group
        self._tops.add(self.vectors if len(parts) == 1 else self._middles)

    def __len__(self) -> int:
        return len(self.vectors)

    def _in_groups(self, sample: Vectors, number: int, source: np.random.Generator) -> list[Vectors]:
        """The centers of each group, as many as its share of the sample."""
        self._middles = self._means(sample, math.isqrt(number), source)
        index = self.faiss.IndexFlatIP(sample.shape[1])
        index.add(self._middles)
        own = index.search(sample, 1)[1][:, 0]
        parts = []
        for group in range(len(self._middles)):
            some = sample[own == group]
            share = min(len(some), max(1, round(number * len(some) / len(sample))))
            parts.append(self._means(some, share, source) if share else self._middles[group : group + 1])
        return parts

    def _means(self, sample: Vectors, number: int, source: np.random.Generator) -> Vectors:
        means = self.faiss.Kmeans(
            sample.shape[1], number, niter=ROUNDS, seed=draw_seed(source), spherical=True, min_points_per_centroid=1,
            max_points_per_centroid=POINTS,
        )  # fmt: skip
        means.train(sample)
        return np.asarray(means.centroids, dtype=np.float32)

    def nearest(self, queries: Vectors, number: int) -> NDArray[np.int32]:
        """(b, d) queries -> (b, number) the nearest centers; -1 where too few are in the groups that are looked at."""
        found = np.empty((len(queries), number), dtype=np.int32)
        for start in range(0, len(queries), CHUNK):
            some = queries[start : start + CHUNK]
            flat = len(self._bounds) == 2
            found[start : start + CHUNK] = self._tops.search(some, number)[1] if flat else self._by_groups(some, number)
        return found

    def _by_groups(self, queries: Vectors, number: int) -> Ids:
        groups = len(self._bounds) - 1
        enough = min(groups, max(GROUPS, -(-2 * number * groups // len(self))))

        def centers(group: int) -> tuple[Vectors, NDArray[np.integer]]:
            first, last = self._bounds[group], self._bounds[group + 1]
            return self.vectors[first:last], np.arange(first, last)

        lists = self._tops.search(queries, enough)[1].astype(np.int32)
        return best_of_lists(queries, lists, groups, number, centers)[1]


def best_of_lists(
    queries: Vectors,
    lists: NDArray[np.int32],
    count: int,
    number: int,
    read: Callable[[int], tuple[Vectors, NDArray[np.integer]]],
) -> tuple[Vectors, Ids]:
    """The best of the vectors in some lists, list by list: all queries of a list are multiplied with its vectors.

    Args:
        queries: (b, d).
        lists: (b, p) the lists that each query looks at; -1 is none.
        count: how many lists there are.
        number: how many vectors are returned for each query.
        read: gives the (v, d) vectors of a list and their ids.

    Returns:
        (b, number) cosines, falling, and the ids they belong to; -1 where there are no more.
    """
    faiss = load_faiss()
    heap = faiss.ResultHeap(len(queries), number, keep_max=True)
    order = np.argsort(lists, axis=None, kind="stable")
    edges = np.searchsorted(lists.reshape(-1)[order], np.arange(count + 1))
    for each in np.flatnonzero(np.diff(edges)).tolist():
        vectors, ids = read(each)
        if not len(vectors):
            continue
        asking = order[edges[each] : edges[each + 1]] // lists.shape[1]
        for some in np.split(asking, range(CHUNK, len(asking), CHUNK)):
            k = min(number, len(vectors))
            scores, places = faiss.knn(queries[some], vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
            heap.add_result_subset(some, scores, ids[places].astype(np.int64))
    heap.finalize()
    return np.asarray(heap.D), np.asarray(heap.I)
