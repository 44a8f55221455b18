"""Scores of pairs: against SciPy, scikit-learn and loops over every cut, and at their edges."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, precision_score, recall_score

from nearfar.errors import NearfarError, SettingError, ShapeError
from nearfar.evaluation import best_threshold, pair_report, score_report

COARSE = st.integers(-4, 4).map(lambda quarter: quarter / 4)
"""Few values, so that many are equal."""
FINE = st.floats(-3, 3, allow_subnormal=False)


@st.composite
def judged_pairs(draw, values=COARSE) -> tuple[np.ndarray, np.ndarray]:
    """Up to 25 pairs, one of them at least positive."""
    rows = draw(st.lists(st.tuples(st.integers(0, 1), values), min_size=1, max_size=25))
    truth, scores = (np.array(side) for side in zip(*rows, strict=True))
    truth[draw(st.integers(0, len(truth) - 1))] = 1
    return truth, scores.astype(np.float64)


def f1_by_the_book(truth, predicted) -> float:
    right = sum(t == 1 and s for t, s in zip(truth, predicted, strict=True))
    wrong = sum(t == 0 and s for t, s in zip(truth, predicted, strict=True))
    missed = sum(t == 1 and not s for t, s in zip(truth, predicted, strict=True))
    return 2 * right / (2 * right + wrong + missed)


def accuracy_by_the_book(truth, predicted) -> float:
    return sum((t == 1) == s for t, s in zip(truth, predicted, strict=True)) / len(truth)


def average_precision_by_the_book(truth, scores) -> float:
    """Precision among all that score at least as high, summed over the positives."""
    total = 0.0
    for t, s in zip(truth, scores, strict=True):
        if t == 1:
            above = [u for u, r in zip(truth, scores, strict=True) if r >= s]
            total += sum(above) / len(above)
    return total / sum(truth)


# scores


@given(st.lists(st.tuples(COARSE, FINE), min_size=2, max_size=30))
def test_correlations_are_those_of_scipy(rows):
    """Ties on one side, none on the other; the error is the mean of the squared differences."""
    truth, predicted = (np.array(side) for side in zip(*rows, strict=True))
    assume(np.ptp(truth) > 0)
    assume(np.ptp(predicted) > 1e-9)
    report = score_report(truth, predicted)

    assert report.scores["pearson"] == pytest.approx(pearsonr(truth, predicted).statistic, abs=1e-9)
    assert report.scores["spearman"] == pytest.approx(spearmanr(truth, predicted).statistic, abs=1e-9)
    assert report.scores["mse"] == pytest.approx(sum((t - p) ** 2 for t, p in rows) / len(rows), abs=1e-12)
    assert report.rows == len(rows)
    assert report.constant == ()


@pytest.mark.parametrize(
    ("truth", "predicted", "constant"),
    [
        ([0.0, 1.0, 0.5], [0.3, 0.3, 0.3], ("predicted",)),
        ([1.0, 1.0], [0.1, 0.2], ("truth",)),
        ([0.0, 0.0], [0.0, 0.0], ("truth", "predicted")),
        ([0.7], [0.2], ("truth", "predicted")),
        ([0.0, 1.0, 0.5], [0.3, 0.3 + 5e-17, math.nextafter(0.3, 1)], ("predicted",)),
    ],
)
def test_a_constant_side_counts_as_no_correlation_and_is_named(truth, predicted, constant):
    """Zero and a name instead of NaN and a warning; rounding is no spread."""
    report = score_report(np.array(truth), np.array(predicted))

    assert report.scores["spearman"] == report.scores["pearson"] == 0.0
    assert report.constant == constant
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["constant"] == list(constant)


@pytest.mark.parametrize("scale", [1e-160, 1e-30, 1e30, 1e140])
def test_correlations_do_not_depend_on_the_size_of_the_scores(scale):
    """Squares of tiny numbers do not vanish, squares of huge ones do not overflow."""
    truth, predicted = np.array([0.1, 0.4, 0.2, 0.9]), np.array([0.2, 0.3, 0.4, 0.8])
    expected = pearsonr(truth, predicted).statistic

    assert score_report(truth, predicted * scale).scores["pearson"] == pytest.approx(expected, rel=1e-12)
    assert score_report(truth, predicted * scale).scores["spearman"] == pytest.approx(0.8)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", ["truth", "predicted"])
def test_scores_that_are_not_finite_are_refused_with_their_row(side, wrong):
    """NaN among the scores would otherwise be NaN in the report."""
    sides = {"truth": np.array([0.0, 1.0]), "predicted": np.array([0.5, 0.6])}
    sides[side][1] = wrong
    with pytest.raises(SettingError, match=f"{side} must be finite, got .* in row 1"):
        score_report(**sides)


# thresholds


@given(judged_pairs() | judged_pairs(FINE), st.sampled_from(["f1", "accuracy"]))
def test_the_best_threshold_is_the_best_of_all_cuts(pairs, metric):
    """No threshold at all does better, and of those that do as well, none is higher."""
    truth, scores = pairs
    measure = f1_by_the_book if metric == "f1" else accuracy_by_the_book
    edges = sorted({*scores, math.nextafter(scores.max(), math.inf)})  # each edge stands for one way to cut
    quality = {edge: measure(truth, [s >= edge for s in scores]) for edge in edges}
    best = max(quality.values())
    found = best_threshold(truth, scores, metric)

    assert measure(truth, [s >= found for s in scores]) == best
    highest = max(edge for edge in edges if quality[edge] == best)
    assert [s >= found for s in scores] == [s >= highest for s in scores]


@given(judged_pairs(FINE))
def test_a_cut_between_two_scores_lies_midway(pairs):
    """As far from one score as from the other, for new data."""
    truth, scores = pairs
    found = best_threshold(truth, scores)
    below, above = scores[scores < found], scores[scores >= found]
    assert len(above)  # F1 never wants all to be no
    if len(below):
        assert found == pytest.approx((below.max() + above.min()) / 2, abs=1e-12)
    else:
        assert found == above.min()


def test_neighboring_floats_are_told_apart():
    """No number lies between the two, so the midpoint rounds to one of them: it must be the upper."""
    low = 0.5
    for _ in range(4):
        high = math.nextafter(low, 1)
        found = best_threshold(np.array([0, 1]), np.array([low, high]))
        assert low < found <= high
        low = high


def test_without_positives_accuracy_has_a_threshold_and_f1_has_none():
    """All negative is the best, expressed as a threshold above every score."""
    truth, scores = np.array([0, 0]), np.array([0.3, 0.9])
    assert best_threshold(truth, scores, "accuracy") > 0.9
    with pytest.raises(SettingError, match="no pair is labeled 1"):
        best_threshold(truth, scores)


def test_an_unknown_metric_is_refused():
    """With the names that fit."""
    with pytest.raises(SettingError, match=r"f1 or accuracy, got 'acuracy'. Did you mean 'accuracy'"):
        best_threshold(np.array([1]), np.array([0.5]), "acuracy")


# reports


@given(judged_pairs() | judged_pairs(FINE), FINE, FINE)
def test_reports_at_a_given_threshold_are_those_of_scikit_learn(pairs, threshold, accuracy_threshold):
    """Every score at its threshold."""
    truth, scores = pairs
    report = pair_report(truth, scores, threshold, accuracy_threshold)
    predicted = scores >= threshold

    assert report.scores["f1"] == pytest.approx(f1_score(truth, predicted, zero_division=0))
    assert report.scores["precision"] == pytest.approx(precision_score(truth, predicted, zero_division=0))
    assert report.scores["recall"] == pytest.approx(recall_score(truth, predicted))
    assert report.scores["accuracy"] == pytest.approx(accuracy_score(truth, scores >= accuracy_threshold))
    assert report.scores["average_precision"] == pytest.approx(average_precision_score(truth, scores))
    assert report.scores["average_precision"] == pytest.approx(average_precision_by_the_book(truth, scores))
    assert (report.threshold, report.accuracy_threshold) == (threshold, accuracy_threshold)
    assert not report.chosen_here
    assert (report.rows, report.positives) == (len(truth), truth.sum())


@given(judged_pairs())
def test_thresholds_chosen_here_are_the_best_and_said(pairs):
    """And given back as they were, they give the same scores without the flattery."""
    truth, scores = pairs
    here = pair_report(truth, scores)
    again = pair_report(truth, scores, **here.thresholds)

    assert here.chosen_here
    assert not again.chosen_here
    assert again.scores == here.scores
    assert here.threshold == best_threshold(truth, scores, "f1")
    assert here.accuracy_threshold == best_threshold(truth, scores, "accuracy")
    assert json.loads(json.dumps(here.to_dict(), allow_nan=False))["chosen_here"] is True


def test_the_thresholds_of_f1_and_accuracy_differ():
    """Where positives are rare and low, F1 wants them all and accuracy gives them up."""
    truth = np.array([0, 0, 0, 1, 0, 1])
    scores = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    report = pair_report(truth, scores)
    assert report.threshold < 0.6 < report.accuracy_threshold
    assert report.scores["accuracy"] == pytest.approx(4 / 6)


def test_one_threshold_serves_for_both():
    """Accuracy is taken at the only threshold given."""
    report = pair_report(np.array([1, 0]), np.array([0.9, 0.2]), threshold=0.95)
    assert report.accuracy_threshold == 0.95
    assert report.scores["accuracy"] == 0.5


def test_thresholds_apply_to_single_precision_scores_without_rounding():
    """The threshold is not rounded to the scores' precision, so what was apart stays apart."""
    low = np.float32(0.1)
    high = np.nextafter(low, np.float32(1))
    truth, scores = np.array([0, 1]), np.array([low, high], dtype=np.float32)
    assert pair_report(truth, scores).scores["f1"] == 1.0


@pytest.mark.parametrize(
    ("truth", "scores", "settings", "message"),
    [
        ([0, 0], [0.1, 0.2], {}, "none of the 2 pairs is labeled 1"),
        ([0, 0], [0.1, 0.2], {"threshold": 0.5}, "none of the 2 pairs is labeled 1"),
        ([1, 2], [0.1, 0.2], {}, "truth must be 0 or 1, got 2 in row 1"),
        ([1, -1], [0.1, 0.2], {}, "truth must be 0 or 1, got -1 in row 1"),
        ([1, 0], [0.1, np.nan], {}, "scores must be finite, got nan in row 1"),
        ([1, 0], [0.1, 0.2], {"threshold": np.nan}, "threshold must be a finite number, got nan"),
        ([1, 0], [0.1, 0.2], {"accuracy_threshold": 0.5}, "accuracy_threshold needs threshold"),
        ([], [], {}, "no rows"),
    ],
)
def test_pairs_that_cannot_be_judged_are_refused(truth, scores, settings, message):
    """What came, and what to do."""
    with pytest.raises(SettingError, match=message):
        pair_report(np.array(truth, dtype=np.int64), np.array(scores, dtype=np.float64), **settings)


@pytest.mark.parametrize("report", [score_report, pair_report])
def test_sides_of_different_lengths_are_refused(report):
    """Three labels for two scores."""
    with pytest.raises(ShapeError):
        report(np.array([1, 0, 1]), np.array([0.5, 0.5]))


def test_no_scores_have_no_report():
    """As everywhere in the room."""
    with pytest.raises(NearfarError, match="no rows"):
        score_report(np.zeros(0), np.zeros(0))
