"""Which texts to label next: typical and diverse ones first, then uncertain, diverse and class-balanced ones.

Labels are few, so their order matters. A text teaches most if many others are like it: the texts are clustered, with
one cluster for each label so far and to come, and of the clusters without a label the most typical text is proposed,
the largest cluster first (TypiClust: Hacohen et al. 2022, "Active Learning on a Budget"). With some hundred labels,
texts that the model is unsure about teach more: of the most uncertain ones, those of different clusters are proposed
(cluster-margin: Citovsky et al. 2021, "Batch Active Learning at Scale"), classes with few labels first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

from nearfar.seeds import generator, stream

POOL = 3_000
"""Most unlabeled texts that are compared at once; of more, a sample."""
MOST_CLUSTERS = 200
TYPICAL = 20
"""Neighbors whose mean distance says how typical a text is."""
WARM = 200
"""Labels from which on uncertainty decides; docs/how-to/label.md has the figures."""
WIDE = 6
"""Of the most uncertain texts, so many times as many as are proposed are clustered."""

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Pool:
    """Texts, and what is known about them."""

    vectors: Vectors
    """(n, d) directions: vectors of length 1."""
    labels: Rows
    """(n,) the number of the class of each text; -1 without one."""
    open: NDArray[np.bool_]
    """(n,) which texts can be proposed."""
    classes: int
    """How many classes there are, with those that have no label yet."""

    def known(self) -> Rows:
        """The rows with a label."""
        return np.flatnonzero(self.labels >= 0)

    def candidates(self, seed: int) -> Rows:
        """The rows that can be proposed; of very many, a sample."""
        rows = np.flatnonzero(self.open)
        if len(rows) > POOL:
            draw = generator(seed, "pool", len(self.known()))
            rows = np.sort(draw.choice(rows, POOL, replace=False))
        return rows


def propose(pool: Pool, count: int, *, seed: int = 0) -> Rows:
    """(k,) the rows to label next, the most useful first; fewer than ``count`` only where fewer are left.

    >>> vectors = np.eye(4, dtype=np.float32)
    >>> pool = Pool(vectors, np.full(4, -1), np.ones(4, dtype=np.bool_), classes=2)
    >>> sorted(propose(pool, 4).tolist())
    [0, 1, 2, 3]
    """
    rows = pool.candidates(seed)
    count = min(count, len(rows))
    if count == 0:
        return rows[:0]
    labeled = pool.labels[pool.known()]
    if len(labeled) < WARM or len(np.unique(labeled)) < 2:
        return typical(pool, rows, count, seed=seed)
    return uncertain(pool, rows, count, seed=seed)


def typical(pool: Pool, rows: Rows, count: int, *, seed: int) -> Rows:
    """The most typical texts of clusters without a label, the largest cluster first."""
    known = pool.known()
    if len(known) > POOL:
        known = known[-POOL:]
    every = np.concatenate([known, rows])
    clusters = _clusters(pool.vectors[every], min(len(known) + count, MOST_CLUSTERS), seed=seed)
    covered = np.bincount(clusters[: len(known)], minlength=clusters.max() + 1)
    sizes = np.bincount(clusters, minlength=clusters.max() + 1)
    typicality = _typicality(pool.vectors[rows], clusters[len(known) :])
    chosen: list[int] = []
    left = np.ones(len(rows), dtype=np.bool_)
    while len(chosen) < count:
        counts = np.bincount(clusters[len(known) :][left], minlength=len(sizes))
        order = np.lexsort((-sizes, covered, counts == 0))
        cluster = int(order[0])
        members = np.flatnonzero(left & (clusters[len(known) :] == cluster))
        best = members[int(typicality[members].argmax())]
        chosen.append(int(best))
        left[best] = False
        covered[cluster] += 1
    return rows[np.array(chosen, dtype=np.int64)]


def uncertain(pool: Pool, rows: Rows, count: int, *, seed: int) -> Rows:
    """Uncertain texts of different clusters, those that seem to be of a class with few labels first."""
    chances = probabilities(pool, rows)
    margins = _margins(chances)
    known = pool.labels[pool.known()]
    per_class = np.bincount(known, minlength=pool.classes).astype(np.float64)
    scarce = per_class[np.unique(known)[chances.argmax(axis=1)]]
    wide = np.argsort(margins + 0.1 * scarce / max(scarce.max(), 1.0), kind="stable")[: WIDE * count]
    clusters = _clusters(pool.vectors[rows[wide]], count, seed=seed)
    _, first = np.unique(clusters, return_index=True)  # of each cluster the most uncertain
    chosen = [*np.sort(first).tolist()]
    chosen += [place for place in range(len(wide)) if place not in set(chosen)][: count - len(chosen)]
    return rows[wide[np.array(chosen, dtype=np.int64)]]


def probabilities(pool: Pool, rows: Rows) -> NDArray[np.float64]:
    """(k, c) how likely each class that has labels is for some texts, by a head that is fitted to the labels now."""
    known = pool.known()
    head = LogisticRegression(C=10.0, max_iter=200, class_weight="balanced")
    chances: NDArray[np.float64] = head.fit(pool.vectors[known], pool.labels[known]).predict_proba(pool.vectors[rows])
    return chances


def _margins(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """(k,) the most likely class against the second: 0 is most uncertain."""
    ordered = np.sort(chances, axis=1)
    margins: NDArray[np.float64] = ordered[:, -1] - ordered[:, -2]
    return margins


def _clusters(vectors: Vectors, count: int, *, seed: int) -> Rows:
    count = max(1, min(count, len(np.unique(vectors, axis=0))))
    found = KMeans(count, n_init=1, random_state=stream(seed, "clusters", count) % 2**32).fit_predict(vectors)
    clusters: Rows = found.astype(np.int64)
    return clusters


def _typicality(vectors: Vectors, clusters: Rows) -> NDArray[np.float64]:
    """(k,) the inverse of the mean distance to the nearest texts of the same cluster."""
    result = np.zeros(len(vectors))
    for cluster in np.unique(clusters):
        rows = np.flatnonzero(clusters == cluster)
        cosines = vectors[rows] @ vectors[rows].T
        many = min(TYPICAL + 1, len(rows))
        nearest = -np.partition(-cosines, many - 1, axis=1)[:, :many]
        distances = np.sqrt(np.maximum(2 - 2 * nearest, 0)).sum(axis=1) / max(many - 1, 1)
        result[rows] = 1 / (distances + 1e-6) if len(rows) > 1 else 0.0
    return result
