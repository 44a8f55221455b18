"""Models that are opened without transformers give the same numbers as with it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModel

from nearfar.encoding import Card, TextModel, load, save
from nearfar.encoding.heads import LinearHead
from nearfar.encoding.light_network import LightNetwork
from nearfar.encoding.light_tokenizer import LightTokenizer
from nearfar.encoding.model import Model
from nearfar.encoding.pretrained import build
from nearfar.encoding.tokens import encode_all
from nearfar.errors import EncoderError

TEXTS = ["a text", "", "another one, somewhat longer than the first!", "two [SEP] Words", "x " * 100]
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")


def saved(folder, encoder, *, pooling="mean", head=None, labels=None):
    """A folder of nearfar with this encoder."""
    built = build(str(encoder), classes=None, seed=0)
    model = TextModel(built.model.network, pooling=pooling, head=head)
    card = Card(pooling, 24, native=False, labels=labels, head=None if head is None else {"kind": "linear"})
    save(folder, model, built.tokenizer, card, readme="")
    return folder


def opened_by_transformers(folder) -> Model:
    model = load(folder)
    assert not isinstance(model.model.network, LightNetwork)
    assert not isinstance(model.tokenizer, LightTokenizer)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_have_the_same_vectors_as_with_transformers(tiny, tmp_path, family):
    folder = saved(tmp_path / "model", tiny(family))
    light, whole = load(folder), opened_by_transformers(folder)
    assert isinstance(light.model._held, LightNetwork)
    before = light.embed(TEXTS)
    np.testing.assert_array_equal(light.tokenize(TEXTS).ids, whole.tokenize(TEXTS).ids)
    for special in (True, False):
        assert isinstance(light.reader, LightTokenizer)
        assert encode_all(light.reader, TEXTS, special=special) == encode_all(whole.tokenizer, TEXTS, special=special)
    np.testing.assert_array_equal(light.tokenize(TEXTS).ids, whole.tokenize(TEXTS).ids)
    np.testing.assert_allclose(before, whole.embed(TEXTS), atol=1e-6)
    network = AutoModel.from_pretrained(folder).eval()
    table = light.tokenize(TEXTS)
    with torch.inference_mode():
        inputs = table.padded(range(len(TEXTS))).tensors
        states = network(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1)
        np.testing.assert_allclose(before, ((states * mask).sum(1) / mask.sum(1)).numpy(), atol=1e-5)


def test_the_network_of_transformers_has_the_very_weights(tiny, tmp_path):
    model = load(saved(tmp_path / "model", tiny("roberta"), pooling="pooler"))
    light = model.model._held
    assert isinstance(light, LightNetwork)
    before, names = model.embed(TEXTS), set(model.model.state_dict())
    weights = dict(light.named_parameters())
    network = model.model.network
    assert model.model.network is network is model.model._held
    assert not isinstance(network, LightNetwork)
    assert all(weights[name] is weight for name, weight in network.named_parameters())
    assert set(model.model.state_dict()) == names
    np.testing.assert_array_equal(model.embed(TEXTS), before)
    model.save(tmp_path / "copy")
    np.testing.assert_array_equal(load(tmp_path / "copy").embed(TEXTS), before)


def test_a_class_head_predicts_the_same(tiny, tmp_path):
    head = LinearHead(32, 3)
    folder = saved(tmp_path / "model", tiny("roberta"), head=head, labels=("a", "b", "c"))
    light, whole = load(folder), opened_by_transformers(folder)
    assert isinstance(light.model._held, LightNetwork)
    np.testing.assert_allclose(light.probabilities(TEXTS), whole.probabilities(TEXTS), atol=1e-6)


@pytest.mark.parametrize(
    "change", [{"hidden_act": "relu"}, {"position_embedding_type": "relative_key"}, {"num_hidden_layers": 1}]
)
def test_other_settings_are_left_to_transformers(tiny, tmp_path, change):
    folder = saved(tmp_path / "model", tiny("roberta"))
    (folder / "SHA256SUMS").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    try:
        model = load(folder)
    except Exception:
        return  # transformers refuses it, too
    assert not isinstance(model.model._held, LightNetwork)


def test_a_saved_model_predicts_without_importing_transformers_and_scikit_learn(tiny, tmp_path):
    folder = saved(tmp_path / "model", tiny("roberta"), head=LinearHead(32, 2), labels=("a", "b"))
    (tmp_path / "one.txt").write_text("a text\n")
    code = (
        "import sys; from nearfar.cli.app import main\n"
        f"sys.argv = ['nearfar', 'predict', {str(folder)!r}, {str(tmp_path / 'one.txt')!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "wrong = {'transformers', 'sklearn', 'scipy', 'accelerate', 'torch._dynamo'} & set(sys.modules)\n"
        "assert not wrong, wrong\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["label"] in ("a", "b")


@pytest.mark.parametrize("value", [-1, 1e8, "x", None])
def test_a_dropout_that_is_no_probability_is_refused(tiny, tmp_path, value):
    folder = saved(tmp_path / "model", tiny("bert"))
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_dropout_prob": value}))
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(EncoderError, match=r"dropout|hidden_dropout_prob|could not|cannot"):
        load(folder).embed(TEXTS)
