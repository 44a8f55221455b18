"""Which texts to label next: typical and diverse ones first, then uncertain, diverse and class-balanced ones.

Labels are few, so their order matters. At first a text teaches most if many others are like it: the texts are
clustered, with one cluster for each label so far and to come, and of the clusters without a label the most typical text
is proposed, the largest cluster first (TypiClust: Hacohen et al. 2022, "Active Learning on a Budget"). Clusters are
those of the first principal components: in all dimensions, few clusters follow what is particular to single texts.

With some labels, a text teaches most if it makes a linear model sure about many others that it is unsure about. That is
an optimal design, of which the texts are chosen one after the other (Yu et al. 2006, "Active Learning via Transductive
Experimental Design"); each text counts by how unsure the head is about it, and more if its class has few labels.
"""

from __future__ import annotations

import warnings
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
COMPONENTS = 16
"""Principal components that are clustered at least; half as many as there are clusters."""
WARM, WARM_OF_CLASS = 30, 3
"""Labels, and labels of a class on average, from which on uncertainty decides; docs/how-to/label.md has the figures."""
NOISE = 0.1
"""The variance of a label in the design, where texts have length 1."""

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
    present = len(np.unique(labeled))
    if len(labeled) < max(WARM, WARM_OF_CLASS * present) or present < 2:
        return typical(pool, rows, count, seed=seed)
    return uncertain(pool, rows, count)


def typical(pool: Pool, rows: Rows, count: int, *, seed: int) -> Rows:
    """The most typical texts of clusters without a label, the largest cluster first."""
    known = pool.known()
    if len(known) > POOL:
        known = known[-POOL:]
    many = min(len(known) + count, MOST_CLUSTERS)
    places = _components(pool.vectors[np.concatenate([known, rows])], max(COMPONENTS, many // 2))
    clusters = _clusters(places, many, seed=seed)
    covered = np.bincount(clusters[: len(known)], minlength=clusters.max() + 1)
    sizes = np.bincount(clusters, minlength=clusters.max() + 1)
    typicality = _typicality(places[len(known) :], clusters[len(known) :])
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


def uncertain(pool: Pool, rows: Rows, count: int) -> Rows:
    """The texts that make a linear model surer about uncertain texts, those of classes with few labels above all."""
    known = pool.known()
    if len(known) > POOL:
        known = known[-POOL:]
    every = np.concatenate([known, rows])
    chances = probabilities(pool, every)
    per_class = np.bincount(pool.labels[pool.known()]).astype(np.float64)
    per_class = per_class[per_class > 0]
    weights = (1 - _margins(chances)) * (chances @ np.sqrt(per_class.mean() / per_class))
    vectors = pool.vectors[every].astype(np.float64)
    chosen = _design(vectors - vectors.mean(axis=0), weights, len(known), count)
    return every[chosen]


def _design(vectors: NDArray[np.float64], weights: NDArray[np.float64], known: int, count: int) -> Rows:
    """(k,) rows after the first ``known``, each of which lowers the weighted variance of all predictions most.

    With A the precision of a ridge regression on the rows chosen so far and S the weighted sum of x xᵀ, the variance is
    tr(A⁻¹ S), and x lowers it by xᵀ A⁻¹ S A⁻¹ x / (1 + xᵀ A⁻¹ x). Both forms are kept for all rows and updated.
    """
    labeled = vectors[:known]
    inverse = np.linalg.inv(NOISE * np.eye(vectors.shape[1]) + labeled.T @ labeled)
    both = inverse @ ((vectors * weights[:, None]).T @ vectors) @ inverse
    gain = np.einsum("nd,nd->n", vectors @ both, vectors)
    variance = np.einsum("nd,nd->n", vectors @ inverse, vectors)
    left = np.arange(len(vectors)) >= known
    chosen = np.zeros(count, dtype=np.int64)
    for place in range(count):
        best = int(np.where(left, weights * gain / (1 + variance), -1.0).argmax())
        chosen[place], left[best] = best, False
        first, second, scale = inverse @ vectors[best], both @ vectors[best], 1 + variance[best]
        factor = gain[best] / scale**2
        one, other = vectors @ first, vectors @ second
        inverse = inverse - np.outer(first, first) / scale
        both = both - (np.outer(first, second) + np.outer(second, first)) / scale + np.outer(first, first) * factor
        gain = gain - 2 * one * other / scale + one**2 * factor
        variance = variance - one**2 / scale
    return chosen


def probabilities(pool: Pool, rows: Rows) -> NDArray[np.float64]:
    """(k, c) how likely each class that has labels is for some texts, by a head that is fitted to the labels now."""
    known = pool.known()
    head = LogisticRegression(C=10.0, max_iter=200, class_weight="balanced")
    with warnings.catch_warnings():  # many classes of few texts are usual here
        warnings.filterwarnings("ignore", message="The number of unique classes", category=UserWarning)
        head.fit(pool.vectors[known], pool.labels[known])
    chances: NDArray[np.float64] = head.predict_proba(pool.vectors[rows])
    return chances


def _margins(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """(k,) the most likely class against the second: 0 is most uncertain."""
    ordered = np.sort(chances, axis=1)
    margins: NDArray[np.float64] = ordered[:, -1] - ordered[:, -2]
    return margins


def _components(vectors: Vectors, count: int) -> Vectors:
    """(n, c) the first principal components."""
    centered = vectors - vectors.mean(axis=0)
    _, axes = np.linalg.eigh(centered.T @ centered)
    places: Vectors = centered @ axes[:, ::-1][:, :count]
    return places


def _clusters(vectors: Vectors, count: int, *, seed: int) -> Rows:
    count = max(1, min(count, len(np.unique(vectors, axis=0))))
    found = KMeans(count, n_init=1, random_state=stream(seed, "clusters", count) % 2**32).fit_predict(vectors)
    clusters: Rows = found.astype(np.int64)
    return clusters


def _typicality(places: Vectors, clusters: Rows) -> NDArray[np.float64]:
    """(k,) the inverse of the mean distance of directions to the nearest texts of the same cluster."""
    vectors = places / np.maximum(np.linalg.norm(places, axis=1, keepdims=True), 1e-9)
    result = np.zeros(len(vectors))
    for cluster in np.unique(clusters):
        rows = np.flatnonzero(clusters == cluster)
        cosines = vectors[rows] @ vectors[rows].T
        many = min(TYPICAL + 1, len(rows))
        nearest = -np.partition(-cosines, many - 1, axis=1)[:, :many]
        distances = np.sqrt(np.maximum(2 - 2 * nearest, 0)).sum(axis=1) / max(many - 1, 1)
        result[rows] = 1 / (distances + 1e-6) if len(rows) > 1 else 0.0
    return result
