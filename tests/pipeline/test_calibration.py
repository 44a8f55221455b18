"""Calibrated probabilities and rejection: set by folds or dev rows, saved with the model, labels as before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nearfar
from nearfar.encoding import load
from nearfar.encoding.predictor import open_predictor
from nearfar.errors import EncoderError, SettingError
from nearfar.pipeline import train
from nearfar.recipe import build_recipe

WORDS = ("apple", "plum", "pear", "cherry", "melon", "fig", "grape", "lemon", "peach", "mango")
LABELED = {
    "text": [f"a ripe {word} from the garden" for word in WORDS] + [f"the steel {word} in my shop" for word in WORDS],
    "label": ["fruit"] * 10 + ["tool"] * 10,
}
OTHER = ["0 1 2 3 4 5 6 7", "%%% &&& ???", "zzzzzzzzzzzzzzzzzzzzzzzz"]


def run(out: Path, data: object = LABELED, **tables: dict[str, object]) -> Path:
    values = {"data": {"train": "memory:train"}, "encoder": {"name": "toy"}, **tables}
    train(build_recipe(values, where="test"), out, data=data)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("models") / "m")


def calibration(folder: Path) -> dict[str, object] | None:
    return json.loads((folder / "nearfar.json").read_text())["task"].get("calibration")


def test_folds_calibrate_where_there_are_no_dev_rows(folder: Path) -> None:
    about = calibration(folder)
    assert about is not None
    assert (about["by"], about["texts"]) == ("folds", 20)
    assert load(folder).model.temperature == about["temperature"] != 1


def test_dev_rows_calibrate_where_there_are_some(tmp_path: Path) -> None:
    about = calibration(run(tmp_path / "m", {"train": LABELED, "dev": LABELED}))
    assert about is not None
    assert (about["by"], about["texts"]) == ("dev", 20)


def test_test_rows_choose_nothing(tmp_path: Path, folder: Path) -> None:
    """Folds do, as without them, and the reported calibration is that of the saved model."""
    out = run(tmp_path / "m", {"train": LABELED, "test": {"text": LABELED["text"][:6], "label": LABELED["label"][:6]}})
    assert calibration(out) == calibration(folder)
    test = json.loads((out / "metrics.json").read_text())["test"]
    chances = load(out).probabilities(LABELED["text"][:6])
    assert test["log_loss"] == pytest.approx(-np.log(chances[:, 0]).mean(), rel=1e-4)


def test_labels_are_those_without_calibration(tmp_path: Path, folder: Path) -> None:
    bare = run(tmp_path / "m", training={"estimate": False})
    assert calibration(bare) is None
    one, other = load(folder), load(bare)
    texts = LABELED["text"] + OTHER
    assert [each.label for each in one.predict(texts)] == [each.label for each in other.predict(texts)]
    assert not np.allclose(one.probabilities(texts), other.probabilities(texts), atol=1e-3)
    with pytest.raises(SettingError, match="this model cannot reject texts"):
        other.predict(texts, typicality=True)


def test_strange_texts_are_less_typical_than_those_of_the_classes(folder: Path) -> None:
    model = load(folder)
    inside = [one.typicality for one in model.predict(LABELED["text"], typicality=True)]
    outside = [one.typicality for one in model.predict(OTHER, typicality=True)]
    assert np.median(inside) > max(outside)
    assert max(outside) < 0.05


def test_the_estimator_rejects(folder: Path) -> None:
    clf = nearfar.Classifier.from_pretrained(folder)
    labels = clf.predict(LABELED["text"] + OTHER, reject=0.05)
    assert labels[-3:].tolist() == [None] * 3
    assert sum(label is not None for label in labels[:20]) >= 16
    assert clf.predict(LABELED["text"], reject=0).tolist() == clf.predict(LABELED["text"]).tolist()
    assert clf.typicality(OTHER).max() < 0.05
    for level in (2, "0.05", True, float("nan")):
        with pytest.raises(SettingError, match=f"reject is a share of texts from 0 to 1, got {level!r}"):
            clf.predict(OTHER, reject=level)
        with pytest.raises(SettingError, match=f"reject is a share of texts from 0 to 1, got {level!r}"):
            open_predictor(str(folder)).check_reject(level)


def test_a_copy_and_a_reopened_model_reject_the_same(folder: Path, tmp_path: Path) -> None:
    clf = nearfar.Classifier.from_pretrained(folder)
    clf.save(tmp_path / "copy")
    copy = nearfar.Classifier.from_pretrained(tmp_path / "copy")
    np.testing.assert_array_equal(clf.typicality(OTHER), copy.typicality(OTHER))


def test_a_card_with_an_impossible_temperature_is_refused(folder: Path, tmp_path: Path) -> None:
    nearfar.load(folder).save(tmp_path / "m")
    card = json.loads((tmp_path / "m/nearfar.json").read_text())
    card["task"]["calibration"]["temperature"] = 0
    (tmp_path / "m/nearfar.json").write_text(json.dumps(card))
    (tmp_path / "m/SHA256SUMS").unlink()  # which would notice the change first
    with pytest.raises(EncoderError, match="the temperature of its probabilities is 0"):
        load(tmp_path / "m")
