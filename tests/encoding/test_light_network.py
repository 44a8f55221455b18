"""Models that are opened without transformers give the same numbers as with it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from nearfar.encoding import Card, TextModel, load, pretrained, save
from nearfar.encoding.heads import LinearHead
from nearfar.encoding.light_network import LightNetwork
from nearfar.encoding.light_tokenizer import LightTokenizer, light_tokenizer
from nearfar.encoding.model import Model
from nearfar.encoding.pretrained import build
from nearfar.encoding.tokens import encode_all, tokenize
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
    assert isinstance(light.model.held, LightNetwork)
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
    light = model.model.held
    assert isinstance(light, LightNetwork)
    before, names = model.embed(TEXTS), set(model.model.state_dict())
    weights = dict(light.named_parameters())
    network = model.model.network
    assert model.model.network is network is model.model.held
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
    assert isinstance(light.model.held, LightNetwork)
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
    assert not isinstance(model.model.held, LightNetwork)


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


def built_by_transformers(folder, monkeypatch, **settings):
    with monkeypatch.context() as patched:
        patched.setattr(pretrained, "open_light", lambda *_, **__: None)
        built = build(str(folder), classes=None, seed=0, **settings)
    assert not isinstance(built.model.held, LightNetwork)
    return built


@pytest.mark.parametrize("dropout", [None, 0.0, 0.4])
@pytest.mark.parametrize("pooling", ["mean", "first", "pooler"])
def test_training_starts_from_the_same_numbers_as_with_transformers(tiny, monkeypatch, pooling, dropout):
    settings = {"pooling": pooling, "dropout": dropout}
    light = build(str(tiny("bert")), classes=None, seed=0, **settings)
    whole = built_by_transformers(tiny("bert"), monkeypatch, **settings)
    assert isinstance(light.model.held, LightNetwork)
    assert (light.max_length, light.normalize, light.notes, light.pools) == (
        whole.max_length, whole.normalize, whole.notes, whole.pools,
    )  # fmt: skip
    gradients = []
    for made in (light, whole):
        table = tokenize(made.tokenizer, [TEXTS], max_length=made.max_length)
        np.testing.assert_array_equal(table.ids, tokenize(whole.tokenizer, [TEXTS], max_length=whole.max_length).ids)
        made.model.train()
        torch.manual_seed(7)
        embedding = made.model(made.model.inputs(table, range(len(TEXTS)))).embedding
        (embedding * torch.arange(1.0, 1 + embedding.shape[1])).sum().backward()
        weights = {name.removeprefix("network."): weight for name, weight in made.model.named_parameters()}
        gradients.append((embedding.detach(), {name: weight.grad for name, weight in weights.items()}))
    (first, here), (second, there) = gradients
    torch.testing.assert_close(first, second, rtol=0, atol=1e-6)
    assert here.keys() == there.keys()
    for name, gradient in here.items():
        torch.testing.assert_close(gradient, there[name], rtol=1e-4, atol=1e-5, msg=name)


def test_a_saved_encoder_has_the_files_that_transformers_would_write(tiny, monkeypatch, tmp_path):
    for name, made in (
        ("light", build(str(tiny("bert")), classes=None, seed=0)),
        ("whole", built_by_transformers(tiny("bert"), monkeypatch)),
    ):
        card = Card("mean", made.max_length, native=False, labels=None)
        save(tmp_path / name, made.model, made.tokenizer, card, readme="")
    light, whole = tmp_path / "light", tmp_path / "whole"
    assert {path.name for path in light.iterdir()} == {path.name for path in whole.iterdir()}
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        here, there = (json.loads((folder / name).read_text()) for folder in (light, whole))
        for opening in ("transformers_version", "is_local", "local_files_only"):
            there.pop(opening, None)
            here.pop(opening, None)
        assert here == there, name
    weights, expected = (load_file(folder / "model.safetensors") for folder in (light, whole))
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    vectors = AutoModel.from_pretrained(light)(**AutoTokenizer.from_pretrained(light)("a text", return_tensors="pt"))
    assert torch.isfinite(vectors.last_hidden_state).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_are_those_of_transformers(tiny, tmp_path, family):
    folder = saved(tmp_path / "model", tiny(family))
    light = light_tokenizer(folder, lambda: pytest.fail("transformers opens it"))
    whole = AutoTokenizer.from_pretrained(folder)
    assert light is not None
    assert light.all_special_ids == whole.all_special_ids
    assert len(light) == len(whole)
    for kind in ("unk", "sep", "pad", "cls", "mask"):
        assert getattr(light, f"{kind}_token_id") == getattr(whole, f"{kind}_token_id")
        assert getattr(light, f"{kind}_token") == getattr(whole, f"{kind}_token")


def test_what_only_transformers_knows_is_asked_of_it(tiny, tmp_path):
    folder = saved(tmp_path / "model", tiny("bert"))
    whole = AutoTokenizer.from_pretrained(folder)
    light = light_tokenizer(folder, lambda: whole)
    assert light is not None
    assert light.convert_ids_to_tokens([2, 3]) == whole.convert_ids_to_tokens([2, 3])
    assert light.bos_token_id is None
    settings = {**json.loads((folder / "tokenizer_config.json").read_text()), "additional_special_tokens": ["the"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    more = light_tokenizer(folder, lambda: AutoTokenizer.from_pretrained(folder))
    assert more is not None
    assert set(more.all_special_ids) == set(AutoTokenizer.from_pretrained(folder).all_special_ids)


OTHERS = {
    "lower case": lambda config, _: config.update(do_lower_case=False),
    "accents": lambda config, _: config.update(strip_accents=True),
    "Chinese": lambda config, _: config.update(tokenize_chinese_chars=False),
    "special token": lambda config, _: config.update(sep_token="."),
    "class": lambda config, _: config.update(tokenizer_class="PreTrainedTokenizerFast"),
    "normalizer": lambda _, file: file["normalizer"].update(lowercase=False),
    "pre-tokenizer": lambda _, file: file.update(pre_tokenizer={"type": "Whitespace"}),
    "added token": lambda _, file: file["added_tokens"].append({**file["added_tokens"][0], "content": "the"}),
    "template": lambda _, file: file["post_processor"]["pair"].pop(),
    "prefix": lambda _, file: file["model"].update(continuing_subword_prefix="@@"),
}


@pytest.mark.parametrize("change", OTHERS)
def test_a_folder_whose_tokenizer_files_disagree_is_left_to_transformers(tiny, tmp_path, change):
    folder = tmp_path / "encoder"
    shutil.copytree(tiny("bert"), folder)
    files = [folder / "tokenizer_config.json", folder / "tokenizer.json"]
    contents = [json.loads(path.read_text()) for path in files]
    OTHERS[change](*contents)
    for path, content in zip(files, contents, strict=True):
        path.write_text(json.dumps(content))
    assert light_tokenizer(folder, lambda: None, stated=True) is None
    assert light_tokenizer(tiny("bert"), lambda: None, stated=True) is not None


def test_an_encoder_without_a_pooler_is_left_to_transformers(tiny, tmp_path):
    folder = tmp_path / "encoder"
    shutil.copytree(tiny("bert"), folder)
    weights = {name: value for name, value in load_file(folder / "model.safetensors").items() if "pooler" not in name}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    built = build(str(folder), classes=None, seed=0)
    assert not isinstance(built.model.held, LightNetwork)
    assert "drawn at random" in " ".join(built.notes)


def test_few_texts_are_trained_without_importing_transformers(tiny, tmp_path):
    rows = [f"the {thing} is {state},{thing}" for thing in ("lamp", "card") for state in ("late", "here", "old")]
    (tmp_path / "few.csv").write_text("\n".join(["text,label", *rows, ""]))
    code = (
        "import sys; from nearfar.cli.app import main\n"
        f"sys.argv = ['nearfar', 'train', {str(tmp_path / 'few.csv')!r}, '--encoder', {str(tiny('bert'))!r},"
        f" '--out', {str(tmp_path / 'model')!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "wrong = {'transformers', 'sklearn', 'scipy', 'torch._dynamo'} & set(sys.modules)\n"
        "assert not wrong, wrong\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert load(tmp_path / "model").predict(["the lamp is old"])[0].label in ("lamp", "card")
