"""The model folder: transformers, sentence-transformers and nearfar open it to the same results, or none does."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from nearfar.encoding import Built, Card, build, load, model_folder, save
from nearfar.encoding import load as open_model
from nearfar.encoding.pretrained import STAGING, quiet_transformers
from nearfar.errors import EncoderError
from nearfar.objectives import SoftTriple

FAMILIES = ["bert", "roberta", "distilbert", "electra", "xlnet", "modernbert"]
WITH_POOLER = ["bert", "roberta"]
LABELS = ("near", "far", "außerhalb")
TEXTS = [
    "a cat sat on the mat", "", "no", "two words", "the quick brown fox jumps over the lazy dog and is not seen again",
    "¿qué? 猫", "a b c d e f g h", "x", "Capital Letters, and: signs!",
]  # fmt: skip
LIMIT = 24


def saved(folder: Path, name: str | Path, *, classes: bool = True, pooling: Any = None, **card: Any) -> Built:
    """Build on an encoder and save, as a run does at its end."""
    built = build(str(name), classes=LABELS if classes else None, seed=5, pooling=pooling, max_length=LIMIT)
    built.model.eval()
    head = None if built.model.head is None else {"kind": "linear", "dropout": built.model.head.dropout.p}
    written = Card(
        pooling=built.model.pooling, max_length=built.max_length, native=built.model.native, head=head,
        labels=LABELS if classes else None, **card,
    )  # fmt: skip
    save(folder, built.model, built.tokenizer, written, readme="# A model\n")
    return built


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=1e-5, rtol=0)


def far_apart(rows: np.ndarray) -> bool:
    """Whether the outputs of the texts differ by much more than the tolerance; else equality would prove nothing."""
    return float(np.ptp(rows, axis=0).max()) > 0.05


def states_of(folder: Path, text: str) -> torch.Tensor:
    """Last hidden states of one text, in plain transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with quiet_transformers(), torch.no_grad():
        network = AutoModel.from_pretrained(folder).eval()
        return network(**tokenizer(text, truncation=True, max_length=LIMIT, return_tensors="pt"))[0][0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_native_head_opens_everywhere_to_the_same_probabilities(tiny, tmp_path, family):
    """nearfar in batches of mixed lengths, the pipeline and the bare class text by text."""
    saved(tmp_path, tiny(family))
    model = open_model(tmp_path)
    chances = model.probabilities(TEXTS, batch_size=4)
    with quiet_transformers():
        classify = pipeline("text-classification", str(tmp_path), top_k=None, device="cpu")
    piped = classify(TEXTS, truncation=True)  # where the training cut them
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        bare = [
            network(**tokenizer(text, truncation=True, max_length=LIMIT, return_tensors="pt"))
            .logits.softmax(1)[0]
            .numpy()
            for text in TEXTS
        ]

    assert far_apart(chances)
    close(chances.sum(axis=1), np.ones(len(TEXTS)))
    close(chances, bare)
    close(chances, [[{one["label"]: one["score"] for one in row}[label] for label in LABELS] for row in piped])
    predicted = model.predict(TEXTS)
    assert [one.label for one in predicted] == [row[0]["label"] for row in piped]
    close([list(one.probabilities.values()) for one in predicted], chances)
    assert [list(one.probabilities) for one in predicted] == [list(LABELS)] * len(TEXTS)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("family", "pooling"),
    [
        *((family, pooling) for family in FAMILIES for pooling in (None, "first", "mean")),
        *((family, "last") for family in ("bert", "xlnet")),
        *((family, "pooler") for family in WITH_POOLER),
    ],
)
def test_embeddings_are_those_of_sentence_transformers_and_of_the_training(tiny, tmp_path, family, pooling, normalize):
    """Before saving, after loading, and elsewhere; with the architecture's head and with each pooling."""
    built = saved(tmp_path, tiny(family), pooling=pooling, normalize=normalize)
    model = load(tmp_path)
    vectors = model.embed(TEXTS, batch_size=4)
    with quiet_transformers():
        other = SentenceTransformer(str(tmp_path), device="cpu")
    table = model.tokenize(TEXTS)
    with torch.no_grad():
        before = built.model(table.padded(range(len(TEXTS))))

    assert far_apart(vectors)
    close(vectors, other.encode(TEXTS, batch_size=3))
    assert other.max_seq_length == LIMIT
    assert (tmp_path / "2_Dense").exists() == (pooling == "pooler")
    if normalize:
        close(np.linalg.norm(vectors, axis=1), np.ones(len(TEXTS)))
    else:
        close(vectors, before.embedding)
    close(model.probabilities(TEXTS), before.logits.softmax(dim=1))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", [None, "mean"])
def test_the_encoder_within_opens_in_transformers_to_the_same_states(tiny, tmp_path, family, pooling):
    """The last hidden states of a padded batch are those of each text alone."""
    saved(tmp_path, tiny(family), pooling=pooling)
    model = load(tmp_path)
    with torch.no_grad():
        output = model.model(model.tokenize(TEXTS).padded(range(len(TEXTS))))

    for row in (0, 2, 4):
        close(output.states[row][output.mask[row].bool()], states_of(tmp_path, TEXTS[row]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", [None, "first"])
def test_padding_changes_nothing(tiny, tmp_path, family, pooling):
    """One text a batch or all in one."""
    saved(tmp_path, tiny(family), pooling=pooling)
    model = load(tmp_path)

    close(model.embed(TEXTS, batch_size=1), model.embed(TEXTS, batch_size=64))
    close(model.probabilities(TEXTS, batch_size=1), model.probabilities(TEXTS, batch_size=64))


def test_joined_pairs_open_in_the_pipeline_to_the_same_labels(tiny, tmp_path):
    """The pair format, with its type ids, is the tokenizer's own."""
    saved(tmp_path, tiny("bert"), joined=True)
    pairs = [
        ("a cat", "a dog"),
        ("", "two words"),
        ("the quick brown fox jumps", "over the lazy dog and some more words"),
    ]
    with quiet_transformers():
        classify = pipeline("text-classification", str(tmp_path), top_k=None, device="cpu")
    piped = [
        classify({"text": left, "text_pair": right}, truncation=True, max_length=LIMIT) for left, right in pairs
    ]  # fmt: skip
    chances = load(tmp_path).probabilities(pairs)

    assert far_apart(chances)
    close(chances, [[{one["label"]: one["score"] for one in row}[label] for label in LABELS] for row in piped])


def test_a_saved_encoder_without_a_head_embeds_and_predicts_nothing(tiny, tmp_path):
    """It has no labels."""
    saved(tmp_path, tiny("bert"), classes=False)
    model = load(tmp_path)

    assert model.labels is None
    assert not (tmp_path / model_folder.EXTRAS).exists()
    short = TEXTS[:4]  # the encoder itself reads more tokens of the long ones
    close(model.embed(short), load(tiny("bert")).embed(short))


@pytest.mark.parametrize("pooling", [None, "mean"])
def test_a_saved_folder_is_an_encoder_to_train_further(tiny, tmp_path, pooling):
    """With its own weights, pooling and length, and a head for the new classes."""
    saved(tmp_path, tiny("bert"), pooling=pooling)
    again = build(str(tmp_path), classes=("one", "two"), seed=1)

    assert (again.model.pooling, again.max_length, again.model.classes) == ("mean", LIMIT, 2)
    assert again.notes == ()
    base = again.model.network.base_model.eval()
    with torch.no_grad():
        states = base(**again.tokenizer(TEXTS[0], return_tensors="pt"))[0][0]
    close(states, states_of(tmp_path, TEXTS[0]))


@pytest.mark.parametrize("family", ["bert", "roberta", "xlnet"])
def test_a_head_for_other_labels_is_drawn_anew(tiny, tmp_path, family):
    """Else as many other classes would begin with the weights of the old ones, whatever the seed; the rest stays."""
    old = saved(tmp_path, tiny(family)).model.network.state_dict()
    same, turned, others = (
        [build(str(tmp_path), classes=classes, seed=seed) for seed in (1, 2)]
        for classes in (tuple(label.upper() for label in LABELS[:2]) + LABELS[2:], LABELS[::-1], ("x", "y", "z"))
    )
    for built in same:
        assert all(torch.equal(weight, old[name]) for name, weight in built.model.network.state_dict().items())
        assert not any("class head" in note for note in built.notes)
    for first, second in (turned, others):
        one, two = first.model.network.state_dict(), second.model.network.state_dict()
        drawn = {name for name in old if not torch.equal(one[name], old[name])}
        assert {len(old[name]) for name in drawn} == {len(LABELS)}
        assert {name for name in old if not torch.equal(one[name], two[name])} == {
            name for name in drawn if "bias" not in name
        }
        assert [note for note in first.notes if "class head" in note] == [
            f"the class head of {tmp_path} is for other labels (near, far, außerhalb), so a new one is drawn"
        ]


@pytest.mark.parametrize("classes", [None, ("one", "two")])
def test_a_folder_with_a_pooler_trains_further(tiny, tmp_path, classes):
    """Its pooling is read back as what it is, also under BERT's own head."""
    saved(tmp_path, tiny("bert"), pooling="pooler")

    assert build(str(tmp_path), classes=classes, seed=1).model.pooling == "pooler"


def test_the_folder_holds_data_and_no_code(tiny, tmp_path):
    """Only safetensors, JSON and text: nothing that is executed when it is opened."""
    built = build(str(tiny("bert")), classes=LABELS, seed=0, pooling="pooler")
    card = Card(pooling="pooler", max_length=9, native=False, labels=LABELS, normalize=True)
    centers = SoftTriple(3, 32)
    save(tmp_path, built.model, built.tokenizer, card, readme="# x\n", objective=dict(centers.state_dict()))
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())

    assert {Path(file).suffix for file in files if file != "SHA256SUMS"} == {".json", ".md", ".safetensors"}
    assert {"config.json", "model.safetensors", "tokenizer.json", "modules.json", "nearfar.json", "README.md"} <= set(
        files
    )
    assert torch.equal(model_folder.read_extras(tmp_path, "objective")["centers"], centers.centers)
    assert set(model_folder.read_extras(tmp_path, "head")) == {"linear.weight", "linear.bias"}
    assert json.loads((tmp_path / "nearfar.json").read_text())["labels"] == list(LABELS)
    assert model_folder.read_card(tmp_path) == card


def test_a_card_survives_writing_and_reading(tiny, tmp_path):
    """Every field of it."""
    more = {"normalize": True, "joined": True, "objective": {"name": "x"}, "versions": {"nearfar": "1"}}
    saved(tmp_path, tiny("bert"), **more)

    assert model_folder.read_card(tmp_path) == Card(
        pooling="mean", max_length=LIMIT, native=True, labels=LABELS, **more
    )


class PowerCutError(Exception):
    """The power goes out."""


def crashing_after(moves: int, log: list[str]):
    """os.replace that does so many moves, and no more."""
    replace = os.replace

    def crash(source: Path, target: Path) -> None:
        if len(log) == moves:
            raise PowerCutError
        log.append(Path(target).name)
        replace(source, target)

    return crash


def test_the_card_is_moved_in_last(tiny, tmp_path, monkeypatch):
    """A folder that has one is whole."""
    moved: list[str] = []
    monkeypatch.setattr(os, "replace", crashing_after(1000, moved))
    saved(tmp_path, tiny("bert"))

    assert moved[-1] == "nearfar.json"
    assert moved.count("nearfar.json") == 1
    assert len(moved) == len(list(tmp_path.iterdir()))


@pytest.mark.parametrize("before", ["nothing", "another model"])
@pytest.mark.parametrize("moves", [0, 3, 6, 10])
def test_an_interrupted_save_is_no_model_and_can_be_repeated(tiny, tmp_path, monkeypatch, before, moves):
    """Whenever it was interrupted: half a model never opens, neither for use nor for training."""
    if before == "another model":
        saved(tmp_path, tiny("bert"), pooling="mean")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crashing_after(moves, []))
        with pytest.raises(PowerCutError):
            saved(tmp_path, tiny("bert"), pooling="first")

    with pytest.raises(EncoderError, match=r"has not finished; continue it with --resume"):
        load(tmp_path)
    with pytest.raises(EncoderError, match=r"has not finished; continue it with --resume"):
        build(str(tmp_path), classes=LABELS, seed=0)
    saved(tmp_path, tiny("bert"), pooling="first")
    assert load(tmp_path).card.pooling == "first"
    assert not (tmp_path / STAGING).exists()


def test_a_save_that_breaks_off_while_writing_leaves_the_old_model(tiny, tmp_path, monkeypatch):
    """Nothing is moved in before all of it is written."""
    saved(tmp_path, tiny("bert"), pooling="mean")
    vectors = load(tmp_path).embed(TEXTS)

    def crash(*_: Any, **__: Any) -> None:
        raise PowerCutError

    monkeypatch.setattr(model_folder, "save_file", crash)
    with pytest.raises(PowerCutError):
        saved(tmp_path, tiny("bert"), pooling="first")

    close(load(tmp_path).embed(TEXTS), vectors)


def test_a_folder_in_which_training_still_runs_is_told_apart(tmp_path):
    """Checkpoints and no model yet."""
    (tmp_path / "checkpoints").mkdir()

    with pytest.raises(EncoderError, match=r"has not finished; continue it with --resume"):
        load(tmp_path)


def test_saving_over_a_model_replaces_it_and_keeps_other_files(tiny, tmp_path):
    """What is not part of the layout stays; what is part of it is as if saved into an empty folder."""
    over, fresh = tmp_path / "over", tmp_path / "fresh"
    saved(over, tiny("bert"), pooling="pooler", normalize=True)
    (over / "notes.txt").write_text("mine")
    (over / "plots").mkdir()
    (over / "plots" / "loss.csv").write_text("1,2")
    saved(over, tiny("bert"))
    saved(fresh, tiny("bert"))
    names = {path.relative_to(fresh).as_posix() for path in fresh.rglob("*")}

    assert {path.relative_to(over).as_posix() for path in over.rglob("*")} == names | {
        "notes.txt",
        "plots",
        "plots/loss.csv",
    }
    assert all((over / name).read_bytes() == (fresh / name).read_bytes() for name in names if (fresh / name).is_file())
    assert (over / "notes.txt").read_text() == "mine"


def truncate(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Path:
    """A folder with everything nearfar writes."""
    folder = tmp_path_factory.mktemp("whole")
    saved(folder, tiny("bert"), pooling="pooler", normalize=True)
    return folder


@pytest.fixture
def broken(whole, tmp_path) -> Path:
    """A copy of it, for breaking, without the digests that would refuse it before anything else."""
    return Path(shutil.copytree(whole, tmp_path / "broken", ignore=shutil.ignore_patterns("SHA256SUMS")))


@pytest.mark.parametrize(
    "file",
    [
        "nearfar.safetensors",
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "nearfar.json",
    ],
)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_an_error_about_the_folder(broken, file, share):
    """Never another exception, never a model with other numbers."""
    truncate(broken / file, share)

    with pytest.raises(EncoderError, match=r"broken.*[Ii]s (the folder|it) complete\?"):
        load(broken)


@pytest.mark.parametrize("file", ["nearfar.safetensors", "model.safetensors", "config.json", "tokenizer.json"])
def test_a_missing_file_is_an_error(broken, file):
    """Each of those that the numbers depend on."""
    (broken / file).unlink()

    with pytest.raises(EncoderError, match="broken"):
        load(broken)


@pytest.mark.parametrize(
    "content", ["{}", "[]", "7", "null", "nonsense", '{"format": "x", "labels": null}', '{"format": 1}']
)
def test_a_garbled_card_is_an_error(broken, content):
    """JSON or not."""
    (broken / "nearfar.json").write_text(content)

    with pytest.raises(
        EncoderError, match=r"nearfar\.json: this is (not a card|not readable JSON|JSON, but).*Is the folder complete\?"
    ):
        load(broken)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 99), ("pooling", "max"), ("pooling", None), ("surprise", 1), ("max_length", "long"),
        ("max_length", 0), ("labels", ["one"]), ("labels", ["one", "two"]), ("labels", 3), ("native", "no"),
        ("head", 7),
    ],
)  # fmt: skip
def test_a_card_that_does_not_fit_is_an_error(broken, field, value):
    """Of a newer format, with unknown fields, or at odds with the weights."""
    card = json.loads((broken / "nearfar.json").read_text())
    (broken / "nearfar.json").write_text(json.dumps(card | {field: value}))

    with pytest.raises(EncoderError, match="newer than this nearfar reads" if field == "format" else "broken"):
        load(broken)


@pytest.mark.parametrize("lost", ["pooler.dense.weight", "encoder.layer.1.output.dense.weight"])
def test_weights_that_are_not_there_are_not_drawn_at_random(broken, lost):
    """A layer without weights makes the folder unusable, the pooler too where it is the pooling."""
    weights = load_file(broken / "model.safetensors")
    del weights[lost]
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(EncoderError, match=f"weights are missing from the folder: {lost}"):
        load(broken)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_an_encoder_gives_no_labels_in_transformers(tiny, tmp_path):
    """It has none here either."""
    saved(tmp_path, tiny("bert"), pooling="mean", classes=False)
    with quiet_transformers():
        with pytest.raises((ValueError, IndexError, RuntimeError)):
            pipeline("text-classification", str(tmp_path), device="cpu")("a cat")
        assert AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=4).config.num_labels == 4
    close(SentenceTransformer(str(tmp_path)).encode(["a cat"]), load(tmp_path).embed(["a cat"]))
    assert build(str(tmp_path), classes=("one", "two"), seed=1, pooling=None).model.classes == 2


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_head_that_transformers_does_not_know_gives_no_labels_there(tiny, tmp_path):
    """A head drawn at random would give labels without meaning; encoders of other libraries open as before."""
    saved(tmp_path, tiny("bert"), pooling="mean")
    with quiet_transformers():
        with pytest.raises((ValueError, IndexError, RuntimeError)):
            pipeline("text-classification", str(tmp_path), device="cpu")("a cat")
        assert AutoModel.from_pretrained(tmp_path).config.num_labels == 0
        assert AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=4).config.num_labels == 4
    assert load(tmp_path).predict(["a cat"])[0].label in LABELS
    close(SentenceTransformer(str(tmp_path)).encode(["a cat"]), load(tmp_path).embed(["a cat"]))
    assert build(str(tmp_path), classes=("one", "two"), seed=1, pooling=None).model.classes == 2
