"""A model of several tasks in use: what it takes, where it is opened from, and its classifiers in other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from nearfar.encoding import Card, Model, build, load, save
from nearfar.encoding.pretrained import quiet_transformers
from nearfar.encoding.task_model import (
    TaskCard,
    TaskModel,
    TaskNetwork,
    describe_tasks,
    export_task,
    load_tasks,
    save_heads,
)
from nearfar.errors import SettingError

CARDS = [
    TaskCard("kind", "classes", {"kind": "linear"}, "accuracy", ("a", "b", "c")),
    TaskCard("same", "pairs", {"kind": "joint"}, "accuracy", ("0", "1")),
    TaskCard("near", "pairs", {"kind": "concat"}, "accuracy", ("0", "1")),
]
TEXTS = ["a cat", "the quick brown fox jumps over the lazy dog", "no"]


def tasks_on(folder: Path, pooling: Any, *, shared: bool = False) -> TaskModel:
    """Untrained heads on a tiny encoder."""
    built = build(str(folder), classes=None, seed=1, pooling=pooling)
    card = Card(pooling=pooling, max_length=24, native=False, task=describe_tasks(CARDS, shared=shared))
    network = TaskNetwork(built.model, CARDS, shared=shared, seed=1)
    return TaskModel(Model(built.model, built.tokenizer, card), network, CARDS)


@pytest.fixture(scope="module")
def model(tiny) -> TaskModel:
    return tasks_on(tiny("bert"), "mean")


@pytest.mark.parametrize(("pooling", "shared"), [("pooler", False), ("first", True)])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_an_exported_classifier_gives_the_same_logits(tiny, tmp_path, family, pooling, shared):
    """Both heads that can be exported, on both kinds of class heads; others may read the files."""
    opened = tasks_on(tiny(family), pooling, shared=shared)
    export_task(opened, "kind", tmp_path)
    with quiet_transformers(), torch.no_grad():
        network = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
        inputs = AutoTokenizer.from_pretrained(tmp_path)(TEXTS, padding=True, truncation=True, return_tensors="pt")
        logits = network(**inputs).logits.numpy()

    np.testing.assert_allclose(logits, opened.outputs("kind", [TEXTS]), atol=1e-5)
    assert np.ptp(logits, axis=0).max() > 1e-3
    assert {oct(path.stat().st_mode)[-3:] for path in tmp_path.iterdir()} == {"644"}


@pytest.mark.parametrize(("family", "pooling", "shared"), [("electra", "first", True), ("distilbert", "mean", False)])
def test_where_no_setting_helps_none_is_named(tiny, tmp_path, family, pooling, shared):
    """Their own heads have another activation, or another layer."""
    opened = tasks_on(tiny(family), pooling, shared=shared)
    with pytest.raises(SettingError, match=f"head of {family} is of another kind") as caught:
        export_task(opened, "kind", tmp_path / "out")

    assert "encoder.pooling" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_where_a_setting_helps_it_is_named(tiny, tmp_path):
    """Another pooling, or the shared layer."""
    with pytest.raises(SettingError, match=r'stands on the first token; train with encoder\.pooling = "pooler"'):
        export_task(tasks_on(tiny("roberta"), "first"), "kind", tmp_path / "out")


@pytest.mark.parametrize("name", ["~/model", "someone/model"])
def test_tasks_open_wherever_the_encoder_does(model, tmp_path, monkeypatch, name):
    """In the home folder, and in the cache of the hub."""
    revision = "0123456789abcdef0123456789abcdef01234567"
    place = tmp_path / "models--someone--model"
    folder = tmp_path / "model" if name.startswith("~") else place / "snapshots" / revision
    folder.mkdir(parents=True)
    if not name.startswith("~"):
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text(revision)
    save_heads(folder, model.network, {})
    save(folder, model.network.encoder, model.model.tokenizer, model.model.card, readme="# x\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))

    assert load(name).embed(TEXTS).shape == (3, 32)
    np.testing.assert_allclose(load_tasks(name).outputs("kind", [TEXTS]), model.outputs("kind", [TEXTS]), atol=1e-6)


@pytest.mark.parametrize(
    ("task", "texts", "message"),
    [
        ("kind", ["a text"], r"give lists of texts, one for each column, not a string"),
        ("same", ["a text", "another"], r"give lists of texts, one for each column, not a string"),
        ("same", [["a", "b"], ["c", "d", "e"]], r"'same': the columns .* must have the same length, got 2 and 3"),
        ("near", [["a", "b", "c"], ["d", "e"]], r"'near': the columns .* must have the same length, got 3 and 2"),
        ("kind", [["a"], ["b"]], r"reads single texts; got 2 columns"),
    ],
)
def test_columns_that_do_not_fit_are_refused(model, task, texts, message):
    """Else a string would be read letter by letter, and a text beside one of another row."""
    with pytest.raises(SettingError, match=message):
        model.predict(task, texts)
