"""Metrics of several labels against scikit-learn and loops, and the choice of thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from nearfar.errors import SettingError
from nearfar.evaluation import multi_label_report
from nearfar.evaluation.multi_label import apply_thresholds, choose_thresholds

CLASSES = ("a", "b", "c")


def rows(n, seed, share=0.4):
    source = np.random.default_rng(seed)
    return (source.random((n, 3)) < share).astype(np.int64), source.random((n, 3)).round(2)


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.8]))
def test_scores_are_scikit_learns(n, seed, share):
    truth, chances = rows(n, seed, share)
    thresholds = {"a": 0.3, "b": 0.5, "c": 0.9}
    found = multi_label_report(truth, chances, CLASSES, thresholds)
    predicted = (chances >= np.array([0.3, 0.5, 0.9])).astype(int)

    assert found.scores["f1_micro"] == pytest.approx(
        metrics.f1_score(truth, predicted, average="micro", zero_division=0)
    )
    assert found.scores["f1_samples"] == pytest.approx(
        metrics.f1_score(truth, predicted, average="samples", zero_division=1)
    )
    assert found.scores["lrap"] == pytest.approx(metrics.label_ranking_average_precision_score(truth, chances))
    assert found.scores["accuracy"] == pytest.approx(metrics.accuracy_score(truth, predicted))
    occurring = [place for place in range(3) if truth[:, place].any() or predicted[:, place].any()]
    macro = metrics.f1_score(truth, predicted, labels=occurring, average="macro", zero_division=0) if occurring else 0
    assert found.scores["f1_macro"] == pytest.approx(macro)
    assert not found.chosen_here
    assert found.thresholds == thresholds


@settings(max_examples=25)
@given(st.integers(1, 8), st.integers(0, 10_000))
def test_f1_is_the_formula_in_loops(n, seed):
    truth, chances = rows(n, seed)
    found = multi_label_report(truth, chances, CLASSES, dict.fromkeys(CLASSES, 0.5))
    hits = wrong = missed = 0
    samples = []
    for i in range(n):
        said = {c for c in range(3) if chances[i, c] >= 0.5}
        right = {c for c in range(3) if truth[i, c]}
        hits, wrong, missed = hits + len(said & right), wrong + len(said - right), missed + len(right - said)
        samples.append(2 * len(said & right) / (len(said) + len(right)) if said | right else 1.0)
    assert found.scores["f1_micro"] == pytest.approx(2 * hits / max(2 * hits + wrong + missed, 1))
    assert found.scores["f1_samples"] == pytest.approx(np.mean(samples))


@settings(max_examples=25)
@given(st.integers(1, 10), st.integers(0, 10_000))
def test_the_chosen_threshold_has_the_best_micro_f1_of_all(n, seed):
    truth, chances = rows(n, seed)
    if not truth.any():
        assert choose_thresholds(truth, chances, CLASSES) == dict.fromkeys(CLASSES, 0.5)
        return
    found = multi_label_report(truth, chances, CLASSES)
    said = [chances >= cut for cut in np.arange(0, 1.01, 0.01)]
    tried = [2 * (truth * one).sum() / max(1, truth.sum() + one.sum()) for one in said]
    assert found.chosen_here
    assert found.scores["f1_micro"] >= max(tried) - 1e-12


def test_a_label_without_a_threshold_applies_from_a_half_on():
    assert apply_thresholds(np.array([[0.5, 0.5, 0.49]]), CLASSES, {"a": 0.6}).tolist() == [[False, True, False]]


def test_no_rows_and_numbers_that_are_none_are_refused():
    with pytest.raises(SettingError, match="no rows"):
        multi_label_report(np.zeros((0, 3), int), np.zeros((0, 3)), CLASSES)
    with pytest.raises(SettingError, match="must be finite"):
        multi_label_report(np.ones((1, 3), int), np.array([[0.1, np.nan, 0.2]]), CLASSES)
