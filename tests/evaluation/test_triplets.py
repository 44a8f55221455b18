"""Triplets: against cosines of Model.embed, and at their edges."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nearfar.data import RowType
from nearfar.encoding import load as open_model
from nearfar.errors import SettingError, ShapeError
from nearfar.evaluation import EvaluationRows, Truth, evaluate
from nearfar.evaluation.pairs import triplet_report

TRIPLETS = Truth(RowType.TRIPLETS, np.zeros(0))
TEXTS = ["a red apple", "the green pear", "an old hammer", "a saw", "the river at night"]


def test_a_triplet_is_right_where_its_positive_is_nearer():
    """Accuracy and margin of each possible triplet, one by one."""
    model = open_model("toy")
    vectors = model.embed(TEXTS).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.array([(a, p, n) for a in range(5) for p in range(5) for n in range(5) if len({a, p, n}) == 3])
    gaps = [float(vectors[a] @ vectors[p] - vectors[a] @ vectors[n]) for a, p, n in rows]
    report = evaluate(model.model, EvaluationRows(model.tokenize(TEXTS), tuple(rows.T), TRIPLETS), batch_size=2)

    assert report.rows == 60
    assert report.scores["accuracy"] == np.mean([gap > 0 for gap in gaps]) == 0.5  # each pair of them both ways
    assert report.scores["margin"] == pytest.approx(0, abs=1e-6)
    first = evaluate(model.model, EvaluationRows(model.tokenize(TEXTS), tuple(rows[:1].T), TRIPLETS), batch_size=2)
    assert first.scores["margin"] == pytest.approx(gaps[0], abs=1e-6)
    assert json.loads(json.dumps(first.to_dict()))["rows"] == 1


def test_equal_cosines_are_a_mistake():
    assert triplet_report(np.array([0.2, 0.3]), np.array([0.2, 0.1])).scores["accuracy"] == 0.5


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_cosines_that_are_not_finite_are_refused(value):
    """They would count as mistakes, and their margin is no number."""
    with pytest.raises(SettingError, match=r"near must be finite, got (nan|inf) in row 1 .* a model whose weights"):
        triplet_report(np.array([0.1, value]), np.array([0.2, 0.3]))
    with pytest.raises(SettingError, match="far must be finite"):
        triplet_report(np.array([0.1]), np.array([value]))


@pytest.mark.parametrize("place", [-1, len(TEXTS)])
def test_texts_that_are_not_there_are_refused(place):
    model = open_model("toy")
    rows = (np.array([0]), np.array([1]), np.array([place]))
    with pytest.raises(SettingError, match=f"right must be indices of 5 rows, from 0 on; got {place} at index 1"):
        evaluate(model.model, EvaluationRows(model.tokenize(TEXTS), rows, TRIPLETS), batch_size=2)


def test_no_rows_and_uneven_rows_are_refused():
    with pytest.raises(SettingError, match="no rows"):
        triplet_report(np.zeros(0), np.zeros(0))
    with pytest.raises(ShapeError):
        triplet_report(np.zeros(2), np.zeros(1))
