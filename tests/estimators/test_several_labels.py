"""Several labels a text: lists of lists and indicator matrices, from Python and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.metrics import accuracy_score

import nearfar
from nearfar import Classifier
from nearfar.errors import DataError
from tests.estimators.test_same_weights import assert_same

TEXTS = [f"{thing} number {n}" for n in range(4) for thing in ("red apple", "red hammer", "green saw", "green pear")]
SETS = [["fruit", "red"], ["red", "tool"], ["tool"], ["fruit"]] * 4
NAMES = ["fruit", "red", "tool"]
MATRIX = np.array([[name in labels for name in NAMES] for labels in SETS], dtype=int)
QUICK = {"encoder": "toy", "max_steps": 3, "precision": "fp32"}


@pytest.fixture(scope="module")
def clf():
    return Classifier(**QUICK).fit(TEXTS, SETS)


def test_a_list_of_lists_gives_lists(clf):
    assert clf.classes_.tolist() == NAMES
    probabilities = clf.predict_proba(TEXTS)
    assert probabilities.shape == (16, 3)
    expected = [prediction.labels for prediction in clf.model_.predict(TEXTS)]
    assert [tuple(labels) for labels in clf.predict(TEXTS)] == expected
    exact = np.mean([set(said) == set(truth) for said, truth in zip(clf.predict(TEXTS), SETS, strict=True)])
    assert clf.score(TEXTS, SETS) == pytest.approx(exact)
    assert clf.score(TEXTS, pd.DataFrame(MATRIX, columns=NAMES)) == pytest.approx(exact)
    with pytest.raises(DataError, match="row 2: the model does not know this label"):
        clf.score(TEXTS[:2], [["red"], ["blue"]])


@pytest.mark.parametrize("form", [np.asarray, csr_matrix, lambda matrix: pd.DataFrame(matrix, columns=NAMES)])
def test_a_matrix_of_0_and_1_gives_such_a_matrix(clf, form, tmp_path):
    fitted = Classifier(**QUICK).fit(TEXTS, form(MATRIX))
    np.testing.assert_array_equal(fitted.predict_proba(TEXTS), clf.predict_proba(TEXTS))
    predicted = fitted.predict(TEXTS)
    assert predicted.shape == (16, 3)
    assert fitted.score(TEXTS, form(MATRIX)) == pytest.approx(accuracy_score(MATRIX, predicted))
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(nearfar.load(tmp_path / "model").predict(TEXTS), predicted)


def test_a_label_that_never_applies_keeps_its_column():
    matrix = np.insert(MATRIX, 1, 0, axis=1)
    fitted = Classifier(**QUICK).fit(TEXTS, matrix)
    assert fitted.classes_.tolist() == [0, 1, 2, 3]
    assert fitted.predict(TEXTS).shape == (16, 4)
    assert not fitted.predict_proba(TEXTS)[:, 1].any()
    assert 0 <= fitted.score(TEXTS, matrix) <= 1


def test_the_command_line_trains_the_same_weights(clf, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from nearfar.cli.app import app

    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"text": text, "label": labels}) for text, labels in zip(TEXTS, SETS, strict=True)]
    Path("rows.jsonl").write_text("\n".join(lines))
    flags = ["--encoder", "toy", "--set", "training.max_steps=3", "--precision", "fp32", "--seed", "0"]
    result = CliRunner().invoke(app, ["train", "rows.jsonl", "--out", "command", *flags])
    assert result.exit_code == 0, result.output
    assert_same(clf, "command")


def test_columns_of_a_table():
    frame = pd.DataFrame({"text": TEXTS, "label": [";".join(labels) for labels in SETS]})
    by_sign = Classifier(**QUICK, columns={"label_separator": ";"}).fit(frame)
    assert by_sign.classes_.tolist() == NAMES
    wide = pd.DataFrame({"text": TEXTS, **dict(zip(NAMES, MATRIX.T, strict=True))})
    by_column = Classifier(**QUICK, columns={"label_columns": NAMES}).fit(wide)
    assert by_column.classes_.tolist() == NAMES
    np.testing.assert_array_equal(by_column.predict_proba(TEXTS), by_sign.predict_proba(TEXTS))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([["a"]] * 15 + ["b"], "row 16"),
        ([["a"], None, *[["b"]] * 14], "row 2"),
        (np.full((16, 2), 7), "0 or 1"),
        (np.zeros((16, 2, 2)), "16 x 2 x 2"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises((DataError, ValueError), match=message):
        Classifier(**QUICK).fit(TEXTS, labels)
