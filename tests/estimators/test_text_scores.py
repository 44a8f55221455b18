"""One score a text (regression): ``task="scores"``."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_regressor
from sklearn.metrics import r2_score
from sklearn.model_selection import cross_val_score

import nearfar
from nearfar import Classifier
from nearfar.errors import DataError, SettingError
from tests.estimators.test_same_weights import assert_same, command

TEXTS = [f"{thing} number {n}" for n in range(4) for thing in ("a bad apple", "a fine apple", "a good apple", "a saw")]
SCORES = [0.5, 2.25, 4.75, 3.0] * 4
QUICK = {"encoder": "toy", "epochs": 2, "batch_size": 8, "precision": "fp32", "task": "scores"}


@pytest.fixture(scope="module")
def model():
    return Classifier(**QUICK).fit(TEXTS, SCORES)


def test_scores_are_predicted(model, tmp_path):
    predicted = model.predict(TEXTS)
    assert predicted.shape == (16,)
    assert np.issubdtype(predicted.dtype, np.floating)
    assert model.score(TEXTS, SCORES) == pytest.approx(r2_score(SCORES, predicted))
    assert not hasattr(model, "classes_")
    assert "Classifier" in model._repr_html_()
    with pytest.raises(SettingError, match="no probabilities"):
        model.predict_proba(TEXTS)
    model.save(tmp_path / "model")
    again = nearfar.load(tmp_path / "model")
    assert isinstance(again, Classifier)
    assert again.task == "scores"
    np.testing.assert_array_equal(again.predict(TEXTS), predicted)


def test_tables_have_a_column_of_scores(model):
    for frame in (pd.DataFrame({"text": TEXTS, "score": SCORES}), pd.DataFrame({"text": TEXTS, "label": SCORES})):
        np.testing.assert_array_equal(Classifier(**QUICK).fit(frame).predict(TEXTS), model.predict(TEXTS))
    frame = pd.DataFrame({"text": TEXTS, "stars": SCORES})
    fitted = Classifier(**QUICK).fit(frame, "stars", validation=(TEXTS, SCORES))
    assert fitted.score(frame, "stars") <= 1
    assert "spearman" in fitted.scores_


def test_it_is_a_regressor():
    assert is_regressor(Classifier(**QUICK))
    assert np.isfinite(cross_val_score(Classifier(**{**QUICK, "epochs": 1}), TEXTS, SCORES, cv=2)).all()


def test_the_command_line_trains_the_same_weights(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command({"text": TEXTS, "score": SCORES}, "command")
    assert_same(model, "command")


def test_numbers_with_a_fraction_are_scores_only_where_that_is_said():
    with pytest.raises(DataError, match="row 1, column 'label': the label is neither a name nor a whole number"):
        Classifier("toy").fit(TEXTS, SCORES)
    with pytest.raises(DataError, match="row 2, column 'score'"):
        Classifier(**QUICK).fit(TEXTS, [1.0, "much", *SCORES[2:]])
    with pytest.raises(SettingError, match="task is 'auto', 'classes' or 'scores', got 'rank'"):
        Classifier("toy", task="rank").fit(TEXTS, SCORES)
