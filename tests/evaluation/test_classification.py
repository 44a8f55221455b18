"""Classes of a whole table: in the order of its rows, whatever the batches, and only where they are numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nearfar.data import RowType
from nearfar.encoding import Card, Model, build
from nearfar.errors import SettingError
from nearfar.evaluation import EvaluationRows, Truth, class_report, classify, evaluate

LABELS = ("near", "far", "beyond")
TEXTS = ["a", "two words", "the quick brown fox jumps over the lazy dog", "some text of some length", "b"]


@pytest.fixture
def model() -> Model:
    built = build("toy", classes=LABELS, seed=0, pooling="mean")
    return Model(
        built.model, built.tokenizer, Card(pooling="mean", max_length=32, native=False, labels=LABELS, joined=False)
    )


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_probabilities_are_those_of_the_front_door(model, batch_size):
    """Row by row, though the longest texts are read first; and the report is that of the likeliest classes."""
    model.model.train()
    table, truth = model.tokenize(TEXTS), np.array([0, 1, 2, 0, 1])
    found = classify(model.model, table, batch_size=batch_size)
    rows = EvaluationRows(table, (), Truth(RowType.LABELED, truth, LABELS))
    report = evaluate(model.model, rows, batch_size=batch_size)

    assert model.model.training
    np.testing.assert_allclose(found, model.probabilities(TEXTS), atol=1e-6)
    assert report.to_dict() == class_report(truth, found.argmax(axis=1), LABELS, found).to_dict()


def test_a_model_whose_weights_are_no_numbers_has_no_score(model):
    """It would be as good as the first class is frequent."""
    with torch.no_grad():
        next(model.model.parameters()).fill_(torch.nan)
    rows = EvaluationRows(model.tokenize(TEXTS), (), Truth(RowType.LABELED, np.zeros(5, dtype=np.int64), LABELS))
    with pytest.raises(SettingError, match=r"got \[nan, nan, nan\] in row 0 \(5 such rows\); a model whose weights"):
        evaluate(model.model, rows, batch_size=2)


def test_a_model_in_training_stays_so_where_it_fails(model):
    model.model.train()
    with pytest.raises(SettingError, match="batch_size must be 1 or more, got 0"):
        classify(model.model, model.tokenize(TEXTS), batch_size=0)
    table = model.tokenize(TEXTS)
    model.model.head = None
    with pytest.raises(AssertionError):
        classify(model.model, table, batch_size=2)
    assert model.model.training
