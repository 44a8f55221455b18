"""What is read out of predictions and vectors, against slow loops and other libraries."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from sklearn.decomposition import PCA

from nearfar.report.analysis import (
    Prediction,
    accuracy_within,
    confident_mistakes,
    entropy,
    label_suspects,
    mean_curve,
    most_confused,
    nearest,
    neighbor_agreement,
    principal_plane,
    thinned,
)


def predicted(row, label, **chances):
    return Prediction(row, f"text {row}", label, max(chances, key=lambda name: chances[name]), chances)


def test_entropy_is_that_of_scipy_in_bits():
    source = np.random.default_rng(3)
    for chances in source.dirichlet(np.ones(7), size=20):
        assert entropy(chances.tolist()) == pytest.approx(stats.entropy(chances, base=2))
    assert entropy([0.25] * 4) == 2.0


def test_mistakes_come_by_confidence_and_each_row_with_a_wrong_label_once():
    predictions = [
        predicted(0, "a", a=0.1, b=0.9),
        predicted(0, "a", a=0.3, b=0.7),
        predicted(0, "a", a=0.9, b=0.1),
        predicted(1, "b", a=0.95, b=0.05),
        predicted(2, "b", a=0.2, b=0.8),
    ]
    first, second = confident_mistakes(predictions)
    assert (first.text, first.label, first.predicted, first.confidence) == ("text 1", "b", "a", 0.95)
    assert (second.text, second.runs, second.tested) == ("text 0", 2, 3)
    assert second.confidence == pytest.approx(0.8)
    assert len(confident_mistakes(predictions, most=1)) == 1


def test_the_plane_is_that_of_principal_components_of_directions():
    vectors = np.random.default_rng(4).normal(size=(40, 9)).astype(np.float32)
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    other = PCA(2, svd_solver="full").fit(directions.astype(np.float64))
    places, share = principal_plane(vectors)
    np.testing.assert_allclose(np.abs(places), np.abs(other.transform(directions)), atol=1e-6)
    assert share == pytest.approx(other.explained_variance_ratio_.sum(), abs=1e-6)
    for axis in (0, 1):
        assert places[np.abs(places[:, axis]).argmax(), axis] > 0


@pytest.mark.parametrize("vectors", [np.zeros((3, 4)), np.ones((1, 4)), np.ones((5, 1))])
def test_the_plane_of_vectors_without_spread_is_a_point(vectors):
    places, share = principal_plane(vectors)
    assert places.shape == (len(vectors), 2)
    assert np.isfinite(places).all()
    assert share == 0.0


def test_neighbors_are_those_of_a_slow_search():
    vectors = np.random.default_rng(5).normal(size=(30, 6))
    labels = [str(number % 3) for number in range(30)]
    found = nearest(vectors, 4)
    shares = []
    for one in range(30):
        cosines = {
            other: float(vectors[one] @ vectors[other])
            / math.dist(vectors[one], [0] * 6)
            / math.dist(vectors[other], [0] * 6)
            for other in range(30)
            if other != one
        }
        expected = sorted(cosines, key=lambda other: -cosines[other])[:4]
        assert found[one].tolist() == expected
        shares.append(Counter(labels[other] for other in expected)[labels[one]] / 4)
    assert neighbor_agreement(vectors, labels, 4) == pytest.approx(np.mean(shares))


def test_a_text_among_texts_of_another_class_is_suspected_and_nobody_else():
    source = np.random.default_rng(6)
    centers = np.eye(2, 8) * 10
    truth = [place % 2 for place in range(40)]
    vectors = centers[truth] + source.normal(size=(40, 8)) * 0.3
    labels = ["ham" if place == 0 else "spam" for place in truth]
    labels[10] = "spam"  # a ham by its place
    texts = [Prediction(100 + place, f"t{place}", label, label, {}) for place, label in enumerate(labels)]
    [found] = label_suspects(vectors, texts, {110: ["ham", "ham", "spam"]}, neighbors=5)
    assert (found.row, found.text, found.label, found.suggested) == (110, "t10", "spam", "ham")
    assert (found.share, found.runs, found.tested) == (1.0, 2, 3)


def test_doubt_below_the_share_is_no_suspicion():
    vectors = np.array([[1.0, 0], [1, 0.01], [1, 0.02], [1, 0.03]])
    texts = [Prediction(row, "", label, label, {}) for row, label in enumerate("abba")]
    assert label_suspects(vectors, texts, {}, neighbors=3, doubt=0.7) == []
    assert [one.row for one in label_suspects(vectors, texts, {}, neighbors=3, doubt=0.6)] == [0, 1, 2, 3]


def test_the_hardest_classes_are_the_worst_pair_and_who_is_taken_for_them():
    counts = np.full((5, 5), 1)
    np.fill_diagonal(counts, 100)
    counts[1, 3], counts[3, 1] = 40, 30
    counts[4, 3] = 20
    assert most_confused(counts.tolist(), 2) == [1, 3]
    assert most_confused(counts.tolist(), 3) == [1, 3, 4]
    assert most_confused([[5, 1], [2, 5]], 4) == [0, 1]


def test_accuracy_within_some_labels_forbids_all_others():
    predictions = [
        predicted(0, "a", a=0.3, b=0.2, c=0.5),  # c may not be predicted: correct
        predicted(1, "b", a=0.5, b=0.4, c=0.1),  # wrong
        predicted(2, "c", a=0.1, b=0.1, c=0.8),  # not asked
    ]
    assert accuracy_within(predictions, {"a", "b"}) == 0.5
    assert accuracy_within(predictions, {"z"}) is None


def test_the_mean_of_curves_with_the_same_places_is_their_mean():
    assert mean_curve([[(1, 2.0), (2, 4.0)], [(1, 4.0), (2, 8.0)]]) == [(1, 3.0), (2, 6.0)]


def test_the_mean_of_other_curves_is_read_between_their_points():
    curve = mean_curve([[(0, 0.0), (10, 10.0)], [(0, 2.0), (4, 2.0), (12, 2.0)]], points=5)
    assert [x for x, _ in curve] == [0, 2.5, 5, 7.5, 10]
    assert [y for _, y in curve] == pytest.approx([(x + 2) / 2 for x, _ in curve])
    assert mean_curve([]) == []


def test_a_long_curve_is_thinned_to_means_that_keep_its_total():
    curve = [(float(step), float(step % 7)) for step in range(1000)]
    thin = thinned(curve, 50)
    assert len(thin) == 50
    assert np.mean([y for _, y in thin]) == pytest.approx(np.mean([y for _, y in curve]))
    assert thinned(curve[:50], 50) == curve[:50]
