"""Clusters against classes: NMI and purity as loops, against scikit-learn, at their edges; k-means on directions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import normalized_mutual_info_score

from nearfar.errors import SettingError
from nearfar.evaluation.clustering import cluster_report, nmi, purity

divisions = st.integers(1, 30).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 4), min_size=n, max_size=n) for _ in range(2)))
)


def slow_nmi(truth: list[int], clusters: list[int]) -> float:
    """One loop for each sum of the formula."""
    n, mutual, whole = len(truth), 0.0, 0.0
    for t in set(truth):
        for c in set(clusters):
            both = sum(1 for a, b in zip(truth, clusters, strict=True) if (a, b) == (t, c)) / n
            if both:
                mutual += both * math.log(both / ((truth.count(t) / n) * (clusters.count(c) / n)))
    for side in (truth, clusters):
        for part in set(side):
            whole -= side.count(part) / n * math.log(side.count(part) / n)
    return 1.0 if whole == 0 else 2 * mutual / whole


def slow_purity(truth: list[int], clusters: list[int]) -> float:
    right = 0
    for c in set(clusters):
        inside = [t for t, other in zip(truth, clusters, strict=True) if other == c]
        right += max(inside.count(t) for t in set(inside))
    return right / len(truth)


@given(divisions)
def test_nmi_and_purity_agree_with_loops_and_with_scikit_learn(both):
    truth, clusters = both
    value = nmi(np.array(truth), np.array(clusters))
    assert value == pytest.approx(slow_nmi(truth, clusters), abs=1e-9)
    assert value == pytest.approx(normalized_mutual_info_score(truth, clusters), abs=1e-9)
    assert purity(np.array(truth), np.array(clusters)) == pytest.approx(slow_purity(truth, clusters))


def test_names_of_classes_and_clusters_do_not_matter():
    truth, clusters = np.array([3, 3, 8, 8, 1]), np.array([0, 0, 5, 5, 9])
    assert nmi(truth, clusters) == pytest.approx(1.0)
    assert purity(truth, clusters) == 1.0


def test_k_means_finds_directions_whatever_their_lengths():
    draw = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 20)
    vectors = np.eye(3)[truth] + draw.normal(scale=0.05, size=(60, 3))
    vectors *= draw.uniform(0.1, 50, size=(60, 1))
    report = cluster_report(vectors, truth)
    assert report.scores == {"nmi": pytest.approx(1.0), "purity": 1.0}
    assert (report.rows, report.clusters) == (60, 3)
    assert report.to_dict() == {**report.scores, "rows": 60, "clusters": 3}
    random, labels = draw.normal(size=(300, 8)), draw.integers(0, 3, size=300)
    noise = cluster_report(random, labels, seed=4)
    assert noise.scores["nmi"] < 0.05
    assert noise == cluster_report(random, labels, seed=4)


def test_bad_input():
    with pytest.raises(SettingError, match="two classes or more"):
        cluster_report(np.eye(3), np.zeros(3, dtype=int))
    with pytest.raises(SettingError, match="must be finite"):
        cluster_report(np.array([[np.nan], [1.0]]), np.array([0, 1]))
    with pytest.raises(SettingError, match="no rows"):
        nmi(np.zeros(0, dtype=int), np.zeros(0, dtype=int))
