"""Folders of transformers: the same probabilities where the architecture has a place for the head, else a reason."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.exports.models import HEADS, LABELS, PAIRS, TEXTS, model_on
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from nearfar.encoding import Card, Model, build, load
from nearfar.encoding.encoder import TextModel, Transform
from nearfar.encoding.model_folder import save
from nearfar.errors import SettingError
from nearfar.exports.transformers_folder import export_transformers


def their_logits(folder, texts):
    network = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        inputs = tokenizer(texts, padding=True, truncation=True, max_length=24, return_tensors="pt")
        return network.eval()(**inputs).logits


@pytest.mark.parametrize(
    ("family", "pooling"),
    [("bert", "first"), ("bert", "pooler"), ("roberta", "first"), ("distilbert", "first"), ("mpnet", "first")],
)
def test_a_linear_head_on_the_first_token_opens_with_its_labels(tiny, tmp_path, family, pooling):
    """The layer in between leaves the states as they are; the temperature is in the weights."""
    model = model_on(tiny(family), head=HEADS["linear"], pooling=pooling)
    model.model.temperature = 1.7
    export_transformers(model, tmp_path / "out")

    found = their_logits(tmp_path / "out", TEXTS).softmax(dim=1).numpy()
    assert np.abs(found - model.probabilities(TEXTS)).max() < 2e-5
    answers = pipeline("text-classification", model=str(tmp_path / "out"))(["a cat", "no", "a"])
    assert [one["label"] for one in answers] == [one.label for one in model.predict(["a cat", "no", "a"])]


def test_the_architectures_own_head_and_pairs(tiny, tmp_path):
    built = build(str(tiny("bert")), classes=LABELS, seed=1, pooling=None)
    card = Card(pooling="first", max_length=24, native=True, labels=LABELS, joined=True)
    model = Model(TextModel(built.model.network, pooling="first", native=True), built.tokenizer, card)
    model.model.temperature = 0.5
    before = {name: weight.clone() for name, weight in model.model.state_dict().items()}
    export_transformers(model, tmp_path / "out")

    found = their_logits(tmp_path / "out", [list(pair) for pair in PAIRS]).softmax(dim=1).numpy()
    assert np.abs(found - model.probabilities(PAIRS)).max() < 1e-5
    assert all(weight.equal(before[name]) for name, weight in model.model.state_dict().items())


def test_several_labels_are_sigmoids_there(tiny, tmp_path):
    model = model_on(tiny("bert"), head=HEADS["linear"], pooling="first", task={"kind": "multilabel"})
    export_transformers(model, tmp_path / "out")
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert network.config.problem_type == "multi_label_classification"
    assert np.abs(their_logits(tmp_path / "out", TEXTS).sigmoid().numpy() - model.probabilities(TEXTS)).max() < 2e-5


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_an_encoder_opens_in_sentence_transformers_and_here(tiny, tmp_path):
    generator = torch.Generator().manual_seed(0)
    transform = Transform(torch.randn(5, 32, generator=generator), torch.randn(5, generator=generator))
    model = model_on(tiny("bert"), normalize=True)
    export_transformers(model, tmp_path / "plain")
    assert np.abs(load(tmp_path / "plain").embed(TEXTS) - model.embed(TEXTS)).max() < 1e-5
    with pytest.raises((ValueError, IndexError, RuntimeError)):  # a random head would give labels without meaning
        pipeline("text-classification", model=str(tmp_path / "plain"))(["a cat"])
    from sentence_transformers import SentenceTransformer

    mapped = model_on(tiny("bert"), transform=transform, normalize=True)
    export_transformers(mapped, tmp_path / "mapped")
    theirs = SentenceTransformer(str(tmp_path / "mapped"), device="cpu").encode(TEXTS)
    assert np.abs(theirs - mapped.embed(TEXTS)).max() < 1e-5


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_folder_of_a_model_of_scores_gives_no_labels(tiny, tmp_path):
    model = model_on(tiny("bert"), head={"kind": "ridge"}, classes=1, task={"kind": "text-scores"})
    save(tmp_path, model.model, model.tokenizer, model.card, readme="# A model\n")
    assert load(tmp_path).scores(TEXTS).shape == (len(TEXTS),)
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        pipeline("text-classification", model=str(tmp_path))(["a cat"])


@pytest.mark.parametrize(
    ("family", "head", "pooling", "reason"),
    [
        ("bert", "linear", "mean", "the mean of all tokens, so transformers cannot express it"),
        ("bert", "nearest-center", "first", "'nearest-center', which reads vectors of length one"),
        ("bert", "logistic", "first", "'logistic', which reads vectors of length one"),
        ("modernbert", "linear", "first", "no class head of our kind for modernbert"),
        ("electra", "linear", "first", None),
    ],
)
def test_what_has_no_place_there_is_refused_with_the_reason(tiny, tmp_path, family, head, pooling, reason):
    """Nothing is written; ELECTRA's gelu is the identity for large numbers."""
    model = model_on(tiny(family), head=HEADS[head], pooling=pooling)
    if reason is None:
        export_transformers(model, tmp_path / "out")
        return
    with pytest.raises(SettingError, match=reason):
        export_transformers(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
