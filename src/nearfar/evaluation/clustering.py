"""Clusters of embeddings against classes: normalized mutual information and purity of k-means."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError
from nearfar.evaluation.classification import ScoredReport
from nearfar.evaluation.vectors import directions, refuse_unusable
from nearfar.shapes import expect

STARTS = 10
"""Random starts of k-means, of which the tightest clusters are kept."""


@dataclass(frozen=True)
class ClusterReport(ScoredReport):
    """How well clusters agree with classes: ``scores`` holds ``nmi`` and ``purity``, each at most 1."""

    rows: int
    """How many texts were clustered."""
    clusters: int
    """As many as there are classes."""


def cluster_report(vectors: NDArray[np.floating], truth: NDArray[np.integer], *, seed: int = 0) -> ClusterReport:
    """Cluster the directions of embeddings by k-means, with as many clusters as classes, and compare.

    Args:
        vectors: (n, d) embeddings; their lengths do not matter.
        truth: (n,) the class of each.
        seed: of the random starts.

    >>> report = cluster_report(np.array([[1.0, 0], [0.9, 0], [0, 1], [0, 2]]), np.array([5, 5, 7, 7]))
    >>> report.scores, report.clusters
    ({'nmi': 1.0, 'purity': 1.0}, 2)
    """
    from sklearn.cluster import KMeans

    expect(vectors=(vectors, "n d"), truth=(truth, "n"))
    refuse_unusable(vectors=vectors)
    k = len(np.unique(truth))
    if k < 2:
        raise SettingError("clusters are compared with two classes or more; all of these rows have the same.")
    found = KMeans(n_clusters=k, n_init=STARTS, random_state=seed).fit_predict(directions(vectors))
    return ClusterReport({"nmi": nmi(truth, found), "purity": purity(truth, found)}, len(truth), k)


def nmi(truth: NDArray[np.integer], clusters: NDArray[np.integer]) -> float:
    r"""Normalized mutual information, 2 I(T; C) / (H(T) + H(C)): 1 for the same division, 0 for an unrelated one.

    Two divisions of one part each are the same, which is 1.

    >>> truth = np.array([0, 0, 1, 1])
    >>> nmi(truth, np.array([1, 1, 0, 0])), round(nmi(truth, np.array([0, 1, 0, 1])), 9)
    (1.0, 0.0)
    """
    counts = _contingency(truth, clusters)
    joint = counts / counts.sum()
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    whole = _entropy(rows) + _entropy(columns)
    if whole == 0:
        return 1.0
    mutual = _entropy(rows) + _entropy(columns) - _entropy(joint.ravel())
    return float(np.clip(2 * mutual / whole, 0.0, 1.0))


def purity(truth: NDArray[np.integer], clusters: NDArray[np.integer]) -> float:
    """The share of rows whose class is the most frequent one of their cluster.

    >>> purity(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]))
    0.75
    """
    counts = _contingency(truth, clusters)
    return float(counts.max(axis=0).sum() / counts.sum())


def _contingency(truth: NDArray[np.integer], clusters: NDArray[np.integer]) -> NDArray[np.int64]:
    """(c, k) how many rows of each class are in each cluster."""
    n = expect(truth=(truth, "n"), clusters=(clusters, "n"))["n"]
    if n == 0:
        raise SettingError("there is nothing to evaluate: no rows.")
    _, row = np.unique(truth, return_inverse=True)
    _, column = np.unique(clusters, return_inverse=True)
    counts = np.zeros((row.max() + 1, column.max() + 1), dtype=np.int64)
    np.add.at(counts, (row, column), 1)
    return counts


def _entropy(chances: NDArray[np.float64]) -> float:
    positive = chances[chances > 0]
    return float(-(positive * np.log(positive)).sum())
