"""A model of several tasks in use: what it takes, and where it is opened from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nearfar.encoding import Card, Model, build, load, save
from nearfar.encoding.task_model import TaskCard, TaskModel, TaskNetwork, describe_tasks, load_tasks, save_heads
from nearfar.errors import SettingError

CARDS = [
    TaskCard("mood", "classes", {"kind": "linear", "single_logit": True}, "accuracy", ("bad", "good")),
    TaskCard("kind", "classes", {"kind": "linear"}, "accuracy", ("a", "b", "c")),
    TaskCard("same", "pairs", {"kind": "joint"}, "accuracy", ("0", "1")),
    TaskCard("near", "pairs", {"kind": "concat"}, "accuracy", ("0", "1")),
    TaskCard("one", "pairs", {"kind": "concat", "single_logit": True}, "accuracy", ("0", "1")),
    TaskCard("deep", "classes", {"kind": "linear", "dropout": 0.5, "hidden_layers": 2}, "accuracy", ("a", "b", "c")),
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


def test_one_logit_answers_for_two_classes(model):
    """The probability of the second class is the sigmoid of the logit that the head gives."""
    pairs = [TEXTS, TEXTS[::-1]]
    vectors = torch.from_numpy(model.model.embed(TEXTS))
    head = model.network.head.of("one")
    with torch.no_grad():
        chances = torch.sigmoid(head(vectors, vectors.flip(0))[:, 0]).tolist()
    outputs, answers = model.outputs("one", pairs), model.predict("one", pairs)

    assert (outputs.shape, head.linear.out_features) == ((3, 2), 1)
    assert not outputs[:, 0].any()
    for answer, chance in zip(answers, chances, strict=True):
        assert answer.probabilities == pytest.approx({"0": 1 - chance, "1": chance}, abs=1e-5)
        assert answer.label == ("1" if chance > 0.5 else "0")


def test_hidden_layers_are_dense_layers_of_one_task(model):
    """tanh(W2 tanh(W1 z + b1) + b2) in front of the linear layer, number by number; the other tasks have none."""
    heads = model.network.head
    assert set(heads.hidden) == {"deep"}
    assert all("hidden" not in name for name, weight in model.network.named_parameters()
               if any(weight is shared for shared in model.network.shared_weights()))  # fmt: skip
    vector = model.model.embed(TEXTS[:1])[0].tolist()
    for layer in (*heads.hidden["deep"], heads.of("deep")):
        weight, bias = layer.linear.weight.tolist(), layer.linear.bias.tolist()
        vector = [sum(w * x for w, x in zip(row, vector, strict=True)) + b for row, b in zip(weight, bias, strict=True)]
        if layer is not heads.of("deep"):
            vector = [math.tanh(x) for x in vector]

    np.testing.assert_allclose(model.outputs("deep", [TEXTS[:1]])[0], vector, atol=1e-5)
    assert [layer.before.p for layer in heads.hidden["deep"]] == [0.5, 0.5]


def test_dropout_in_front_of_the_shared_layer_leaves_the_heads_alone(tiny):
    """CL as published: the pooler is dropped, the shared layer is not; and the failed variant, both."""
    built = build(str(tiny("bert")), classes=None, seed=1, pooling="mean")
    vectors = torch.ones(300, built.model.dim)

    def dropped(head: float, **settings: Any) -> tuple[float, float]:
        """The share of zeros that the shared layer and the head read."""
        cards = [TaskCard("kind", "classes", {"kind": "linear", "dropout": head}, "accuracy", ("a", "b"))]
        network = TaskNetwork(built.model, cards, shared=True, seed=1, **settings).train()
        seen: list[torch.Tensor] = []
        assert network.head.shared is not None
        for module in (network.head.shared.linear, network.head.of("kind").linear):
            module.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        network.head("kind", [vectors])
        before, behind = (float((tensor == 0).float().mean()) for tensor in seen)
        return before, behind

    assert dropped(0.0, dropout=(0.5, 0.0)) == (pytest.approx(0.5, abs=0.03), 0)
    assert dropped(0.5, dropout=(0.5, 0.0)) == (pytest.approx(0.5, abs=0.03), pytest.approx(0.5, abs=0.03))
    assert dropped(0.5) == (0, pytest.approx(0.5, abs=0.03))
    assert dropped(0.0, dropout=(0.0, 0.5)) == (0, pytest.approx(0.5, abs=0.03))
