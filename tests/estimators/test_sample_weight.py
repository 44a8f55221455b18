"""Weights of texts: what they are equal to, the command line, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from sklearn.linear_model import LogisticRegression

import nearfar
from nearfar.errors import DataError, SettingError
from nearfar.pipeline import train
from nearfar.recipe import build_recipe
from nearfar.recipe.tasks import read_task_recipe

TEXTS = ["where is my parcel", "the parcel is late", "i was charged twice", "the invoice is wrong"] * 3
LABELS = ["delivery", "delivery", "payment", "payment"] * 3
WEIGHTS = [1.0, 3.0, 0.0, 2.0] * 3


def classifier(**settings: Any) -> nearfar.Classifier:
    return nearfar.Classifier("toy", precision="fp32", **settings)


@pytest.mark.parametrize("objective", ["supcon", "cross-entropy"])
def test_equal_weights_change_nothing_and_others_do(objective):
    plain = classifier(objective=objective).fit(TEXTS, LABELS).predict_proba(TEXTS)
    even = classifier(objective=objective).fit(TEXTS, LABELS, sample_weight=[2] * 12).predict_proba(TEXTS)
    weighted = classifier(objective=objective).fit(TEXTS, LABELS, sample_weight=WEIGHTS).predict_proba(TEXTS)
    assert np.abs(plain - even).max() < 1e-4
    assert np.abs(plain - weighted).max() > 1e-2


def test_fitted_heads_weigh_texts_as_scikit_learn_does():
    """On the vectors of the same encoder; texts of weight 0 are left out."""
    fitted = classifier(objective="supcon", head="logistic").fit(TEXTS, LABELS, sample_weight=WEIGHTS)
    vectors = fitted.embed(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    counts = np.array(WEIGHTS) > 0
    theirs = LogisticRegression(C=10.0, max_iter=1_000)
    theirs.fit(vectors[counts], np.array(LABELS)[counts], sample_weight=np.array(WEIGHTS)[counts])
    assert np.abs(fitted.predict_proba(TEXTS) - theirs.predict_proba(vectors)).max() < 1e-3


def test_a_center_is_the_weighted_mean_of_its_class():
    """Of the unit vectors of the trained encoder."""
    fitted = classifier(objective="supcon", head="nearest-center").fit(TEXTS, LABELS, sample_weight=WEIGHTS)
    vectors = fitted.embed(TEXTS)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for number, name in enumerate(("delivery", "payment")):
        own = np.array(LABELS) == name
        expected = np.average(vectors[own], axis=0, weights=np.array(WEIGHTS)[own])
        assert np.abs(fitted.model_.model.head.centers[number].numpy() - expected).max() < 1e-5


def test_a_column_of_a_file_gives_the_same_weights_as_a_list(tmp_path):
    """Bit for bit; a dev file needs no such column."""
    with (tmp_path / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label", "trust"), *zip(TEXTS, LABELS, WEIGHTS, strict=True)])
    (tmp_path / "dev.csv").write_text("text,label\nthe parcel,delivery\nan invoice,payment\n")
    values = {
        "seed": 0,
        "data": {"train": str(tmp_path / "train.csv"), "dev": str(tmp_path / "dev.csv"), "weight": "trust"},
        "encoder": {"name": "toy"}, "objective": {"name": "cross-entropy"}, "training": {"precision": "fp32", "epochs": 2},
    }  # fmt: skip
    train(build_recipe(values, where="the test"), tmp_path / "model")
    validation = (["the parcel", "an invoice"], ["delivery", "payment"])
    fitted = classifier(objective="cross-entropy", epochs=2)
    fitted.fit(TEXTS, LABELS, sample_weight=WEIGHTS, validation=validation).save(tmp_path / "python")
    one, other = (load_file(Path(tmp_path / name / "model.safetensors")) for name in ("model", "python"))
    assert all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1] * 3, "the columns differ in length"),
        ([-1] * 12, "the weight is not a number of 0 or more"),
        ([float("nan")] * 12, "the weight is not a number of 0 or more"),
        (["a"] * 12, "the weight is not a number of 0 or more"),
        ("trust", "there is no column 'trust'"),
        (np.ones((12, 1)), "sample_weight is one number for each text"),
        (2.0, "sample_weight is one number for each text"),
    ],
)
def test_wrong_weights_are_refused(weights, words):
    with pytest.raises(DataError, match=words):
        classifier().fit(TEXTS, LABELS, sample_weight=weights)


def test_weights_that_nothing_reads_are_refused():
    """Zeros, heads and rows that have no use for them."""
    with pytest.raises(SettingError, match="the weights of all rows are 0"):
        classifier().fit(TEXTS, LABELS, sample_weight=[0] * 12)
    with pytest.raises(SettingError, match="nor a neighbors head reads weights"):
        classifier(objective="supcon", head="neighbors").fit(TEXTS, LABELS, sample_weight=WEIGHTS)
    with pytest.raises(SettingError, match="texts with one class each"):
        classifier(task="scores").fit(TEXTS, WEIGHTS, sample_weight=WEIGHTS)


def test_tasks_refuse_weights(tmp_path):
    """They would not be read."""
    rows = "".join(f"{text},{label},1\n" for text, label in zip(TEXTS, LABELS, strict=True))
    (tmp_path / "train.csv").write_text(f"text,label,trust\n{rows}")
    (tmp_path / "tasks.toml").write_text(
        '[encoder]\nname = "toy"\n[[task]]\nname = "a"\n[task.data]\ntrain = "train.csv"\nweight = "trust"\n'
    )
    with pytest.raises(SettingError, match=r"task 'a': data\.weight is for a recipe without"):
        train(read_task_recipe(tmp_path / "tasks.toml"), tmp_path / "model")
