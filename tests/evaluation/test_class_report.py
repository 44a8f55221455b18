"""Class reports: against scikit-learn's own scores, and at their edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score

from nearfar.errors import NearfarError, SettingError
from nearfar.evaluation import class_report, most_likely


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_scores_are_those_of_scikit_learn(pairs):
    """Accuracy and F1 over the classes that occur, whatever classes the model knows beside them."""
    truth, predicted = (np.array(side) for side in zip(*pairs, strict=True))
    report = class_report(truth, predicted, ("a", "b", "c", "d", "never seen"))

    assert report.scores["accuracy"] == pytest.approx(accuracy_score(truth, predicted))
    assert report.scores["f1_macro"] == pytest.approx(f1_score(truth, predicted, average="macro", zero_division=0))
    assert report.scores["f1_weighted"] == pytest.approx(
        f1_score(truth, predicted, average="weighted", zero_division=0)
    )
    assert report.confusion.sum() == len(pairs)
    assert report.confusion.trace() == (truth == predicted).sum()
    assert report.per_class["never seen"]["texts"] == 0


def test_rows_are_the_truth():
    """One text of class a taken for b stands in row a, column b."""
    assert class_report(np.array([0]), np.array([1]), ("a", "b")).confusion.tolist() == [[0, 1], [0, 0]]


def test_probabilities_that_are_no_numbers_are_no_first_class():
    """argmax alone would call every text of such a model the first class; minus infinity is a class without a chance."""
    assert most_likely(np.array([[-np.inf, 0.0], [0.3, -np.inf]])).tolist() == [1, 0]
    with pytest.raises(SettingError, match=r"in row 1 \(2 such rows\); a model whose weights are NaN"):
        most_likely(np.array([[0.1, 0.9], [0.5, np.nan], [np.nan, np.nan]]))


def test_nothing_to_evaluate_is_refused():
    """No rows have no scores."""
    with pytest.raises(NearfarError, match="no rows"):
        class_report(np.array([], dtype=np.int64), np.array([], dtype=np.int64), ("a", "b"))
