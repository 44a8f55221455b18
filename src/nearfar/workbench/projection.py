"""Texts in the plane: principal components at once, then t-SNE where openTSNE is installed."""

from __future__ import annotations

import importlib.util

import numpy as np
from numpy.typing import NDArray

from nearfar.seeds import generator, stream

Vectors = NDArray[np.float32]
Neighbors = tuple[NDArray[np.int64], NDArray[np.float32]]
"""(n, k) rows of the nearest texts, the nearest first, and (n, k) their cosines."""

EXACT = 20_000
"""Largest number of texts that are all compared with each other."""
BLOCK = 1_024
SHARPNESS = 30.0
"""Perplexity of t-SNE: about how many neighbors a text is placed beside."""


def principal_components(vectors: Vectors) -> Vectors:
    """(n, 2) texts on the two directions of largest variance, in the square from -1 to 1."""
    centered = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(centered.T @ centered)
    return fitted(centered @ directions[:, : -3 if directions.shape[1] > 2 else None : -1][:, :2])


def fitted(plane: NDArray[np.floating]) -> Vectors:
    """Coordinates moved and scaled into the square from -1 to 1; the same scale in both directions.

    >>> fitted(np.array([[0.0, 0.0], [4.0, 2.0]])).tolist()
    [[-1.0, -0.5], [1.0, 0.5]]
    """
    plane = np.nan_to_num(np.asarray(plane, dtype=np.float64))
    if plane.shape[1] < 2:
        plane = np.concatenate([plane, np.zeros((len(plane), 2 - plane.shape[1]))], axis=1)
    low, high = plane.min(axis=0), plane.max(axis=0)
    half = max(float((high - low).max()) / 2, 1e-12)
    moved: Vectors = ((plane - (low + high) / 2) / half).astype(np.float32)
    return moved


def has_tsne() -> bool:
    """Whether openTSNE is installed."""
    return importlib.util.find_spec("openTSNE") is not None


def tsne(vectors: Vectors, neighbors: Neighbors, start: Vectors, *, seed: int = 0) -> Vectors:
    """(n, 2) t-SNE of the texts, from the neighbors that are known and the coordinates of another map."""
    from openTSNE import TSNEEmbedding
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    rows, cosines = neighbors
    distances = np.sqrt(np.maximum(2 - 2 * cosines.astype(np.float64), 0))
    perplexity = max(1.0, min(SHARPNESS, (rows.shape[1]) / 3))
    known = PrecomputedNeighbors(rows, distances)
    affinities = PerplexityBasedNN(perplexity=perplexity, knn_index=known, n_jobs=-1)
    scaled = start.astype(np.float64) / max(float(start[:, 0].std()), 1e-12) * 1e-4
    embedding = TSNEEmbedding(
        scaled, affinities, negative_gradient_method="fft" if len(vectors) > 3_000 else "bh", n_jobs=-1,
        random_state=stream(seed, "tsne") % 2**31,
    )  # fmt: skip
    embedding = embedding.optimize(n_iter=150, exaggeration=12, momentum=0.5)
    embedding = embedding.optimize(n_iter=350, momentum=0.8)
    return fitted(np.asarray(embedding))


def nearest(vectors: Vectors, count: int, *, seed: int = 0) -> Neighbors:
    """The nearest other texts of each text by cosine; of very many texts approximately, where faiss is installed.

    >>> nearest(np.array([[1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32), 1)[0].tolist()
    [[1], [0], [1]]
    """
    n = len(vectors)
    count = min(count, n - 1)
    index = None
    if n > EXACT and importlib.util.find_spec("faiss") is not None:
        from nearfar.batching.nearest_neighbors import Search, make_index

        search = Search(exact_rows=EXACT, candidates=count)
        index, _ = make_index(
            vectors, search, exact=count, approximate=count, nearest=10, source=generator(seed, "neighbors")
        )
    rows, cosines = np.zeros((n, count), dtype=np.int64), np.zeros((n, count), dtype=np.float32)
    for start in range(0, n, BLOCK):
        block = np.arange(start, min(start + BLOCK, n))
        if index is None:
            every = vectors[block] @ vectors.T
            every[np.arange(len(block)), block] = -np.inf
            ids = np.argpartition(-every, max(count - 1, 0), axis=1)[:, :count]
            near = np.take_along_axis(every, ids, axis=1)
        else:
            ids = index.nearest(block, np.append(np.zeros(n, dtype=np.bool_), True))
            near = np.einsum("bd,bkd->bk", vectors[block], vectors[ids])
            near[(ids < 0) | (ids == block[:, None])] = -2.0
        order = np.argsort(-near, axis=1, kind="stable")[:, :count]
        rows[block] = np.take_along_axis(ids, order, axis=1)
        cosines[block] = np.maximum(np.take_along_axis(near, order, axis=1), -1.0)
    np.maximum(rows, 0, out=rows)
    return rows, cosines
