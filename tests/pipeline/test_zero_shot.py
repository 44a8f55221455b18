"""Class names and unlabeled texts make a classifier without labels."""

from __future__ import annotations

import numpy as np
import pytest

import nearfar
from nearfar.encoding import load
from nearfar.errors import DataError, SettingError
from nearfar.pipeline import calibration, unlabeled, zero_shot
from nearfar.pipeline.encoder_run import plan_encoder_run
from nearfar.pipeline.train import train
from nearfar.recipe import build_recipe, read_recipe
from nearfar.training import Callback

NAMES = {"fruit": "apple plum fig cherry", "tool": "hammer wrench drill chisel"}
TEXTS = [f"{word} {n}" for words in NAMES.values() for word in words.split() for n in range(6)]


class Messages(Callback):
    """What a run says."""

    def __init__(self):
        self.texts = []

    def message(self, text):
        self.texts.append(text)


def recipe(names=None, **data):
    values = {
        "data": {"train": "memory:train", "unlabeled": True, "names": NAMES if names is None else names, **data},
        "encoder": {"name": "toy"},
        "training": {"epochs": 1},
    }
    return build_recipe(values, where="test")


def test_names_choose_the_training_texts_and_the_model_predicts_their_labels(tmp_path):
    plan = plan_encoder_run(recipe(), TEXTS)
    assert plan.data.classes == ("fruit", "tool")
    assert len(plan.data.train) <= 2 * zero_shot.A_CLASS
    assert any("unlabeled texts train, 16 a class at most, chosen by class names" in note for note in plan.notes)
    train(recipe(), tmp_path / "model", data=TEXTS)
    found = nearfar.load(tmp_path / "model").predict(["a plum", "a wrench"])
    assert set(found) <= set(NAMES)


def test_how_good_it_is_is_known_with_labeled_test_rows_only(tmp_path):
    messages = Messages()
    train(recipe(), tmp_path / "model", data=TEXTS, callbacks=[messages])
    assert "how good the model is on new texts is not known, because no text has a label" in messages.texts[-1]
    (found,) = load(tmp_path / "model").predict(["a plum"], typicality=True)
    assert found.typicality is not None  # the chosen texts say how near to its class a text is
    rows = {"train": TEXTS, "test": [("a plum", "fruit"), ("a drill", "tool")]}
    summary = train(recipe(), tmp_path / "tested", data=rows)
    assert summary.report("test").rows == 2


def test_folds_of_texts_that_names_have_chosen_are_easier_than_new_texts(tmp_path, monkeypatch):
    train(recipe(), tmp_path / "model", data=TEXTS)
    monkeypatch.setattr(calibration, "OF_NAMES", 1.0)
    train(recipe(), tmp_path / "sharp", data=TEXTS)
    warm, sharp = (load(tmp_path / name).model.temperature for name in ("model", "sharp"))
    assert warm == pytest.approx(3 * sharp)
    labeled = [(text, label) for label, words in NAMES.items() for text in TEXTS if text.split()[0] in words]
    train(recipe("none", unlabeled=False), tmp_path / "labeled", data=labeled)
    monkeypatch.undo()
    train(recipe("none", unlabeled=False), tmp_path / "again", data=labeled)
    first, second = (load(tmp_path / name).model.temperature for name in ("labeled", "again"))
    assert first == second


def test_a_file_is_read_in_windows_and_the_saved_recipe_runs_again(tmp_path, monkeypatch):
    pool = tmp_path / "pool.txt"
    pool.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    monkeypatch.setattr(unlabeled, "WINDOW", 5)
    train(recipe(train=str(pool)), tmp_path / "one")
    train(read_recipe(tmp_path / "one" / "recipe.toml"), tmp_path / "two")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]


def test_a_large_pool_is_drawn_from_by_the_seed(monkeypatch):
    monkeypatch.setattr(unlabeled, "MOST_TEXTS", 20)
    notes = [note for note in plan_encoder_run(recipe(), TEXTS).notes if "unlabeled" in note]
    assert " of 48 unlabeled texts train" in notes[0]
    assert notes[0].endswith("; 20 different ones were compared")
    first, second = (plan_encoder_run(recipe(), TEXTS).data.train.texts for _ in range(2))
    assert first == second


def test_the_surest_texts_are_those_with_sure_neighbors():
    names = np.array([[1.0, 0.0], [-1.0, 0.0]])
    vectors = np.array([[1.0, 0.1], [0.9, 0.1], [0.2, 1.0], [-1.0, 0.1], [-0.9, -0.1], [-0.1, -1.0]])
    found = zero_shot.surest(vectors, names, np.array([0, 1]), a_class=2)
    assert [sorted(rows) for rows in found] == [[0, 1], [3, 4]]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("auto", r"nothing but class names tells the classes: describe them with data\.names \(--names\)"),
        ({"fruit": "a fruit"}, "describes 1 class; two or more are needed"),
    ],
)
def test_classes_must_have_names(names, message):
    with pytest.raises(SettingError, match=message):
        plan_encoder_run(recipe(names), TEXTS)


def test_pools_that_cannot_be_used(tmp_path):
    with pytest.raises(DataError, match=r"there are 3 unlabeled texts for 2 classes, fewer than two each"):
        plan_encoder_run(recipe(), ["a", "b", "c", "a"])
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"empty\.txt"):
        plan_encoder_run(recipe(train=str(empty)))
    with pytest.raises(DataError, match=r"unlabeled texts are single texts, and these are pairs"):
        plan_encoder_run(recipe(), {"text_a": ["a", "c"], "text_b": ["b", "d"]})


def test_the_classifier_of_python_has_the_type_of_the_labels():
    names = dict(zip((0, 1), NAMES.values(), strict=True))
    clf = nearfar.Classifier("toy", label_names=names, epochs=1).fit(unlabeled=TEXTS)
    assert clf.classes_.tolist() == [0, 1]
    with pytest.raises(SettingError, match="fit takes texts with their labels, or unlabeled texts"):
        nearfar.Classifier("toy", label_names=names).fit()
