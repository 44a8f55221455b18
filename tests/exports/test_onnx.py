"""Exported graphs give the numbers of the model they were made of, for every head, pooling and row, without torch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.exports.models import HEADS, LABELS, PAIRS, TEXTS, long_bert, model_on

import nearfar
from nearfar.encoding import Card, Model, build
from nearfar.encoding.encoder import TextModel, Transform
from nearfar.encoding.task_model import TaskCard, TaskModel, TaskNetwork, describe_tasks
from nearfar.errors import EncoderError, SettingError
from nearfar.exports.exported_model import TOKENIZER
from nearfar.exports.folders import is_exported
from nearfar.exports.heads import ExportedCard
from nearfar.exports.onnx_graph import export_onnx
from nearfar.exports.onnx_model import FILE, METADATA, OnnxModel
from nearfar.exports.quality import compare, compare_tasks
from nearfar.exports.sums import SUMS


@pytest.mark.parametrize("kind", HEADS)
def test_every_class_head_gives_the_same_probabilities_and_labels(tiny, tmp_path, kind):
    """One row and many, an empty text, one at the maximal length; labels of numbers are numbers, in their order."""
    model = model_on(tiny("bert"), head=HEADS[kind])
    model.model.temperature = 1.7
    export_onnx(model, tmp_path / "out", label_type="int")
    exported = OnnxModel(tmp_path / "out", threads=1)

    assert exported.classes_.tolist() == [9, 10, 11]
    order = np.argsort([int(label) for label in LABELS])
    for texts in (TEXTS, TEXTS[:1], TEXTS[2:5]):
        ours = model.probabilities(texts)
        assert np.abs(ours[:, order] - exported.predict_proba(texts)).max() < 1e-5
        assert np.abs(model.embed(texts) - exported.embed(texts)).max() < 1e-5
        assert exported.predict(texts).tolist() == [int(LABELS[place]) for place in ours.argmax(axis=1)]
    assert exported.predict_proba(TEXTS, batch_size=2).argmax(axis=1).tolist() == ours_of(exported)
    assert exported.predict([]).shape == (0,)


@pytest.mark.parametrize("kind", HEADS)
def test_every_class_head_is_exported_in_eight_bits(tiny, tmp_path, kind):
    model = model_on(tiny("bert"), head=HEADS[kind])
    export_onnx(model, tmp_path / "out", int8=True)
    exported = OnnxModel(tmp_path / "out", threads=1)
    assert np.abs(model.probabilities(TEXTS)[:, np.argsort(LABELS)] - exported.predict_proba(TEXTS)).max() < 0.3


def ours_of(exported: OnnxModel) -> list[int]:
    return exported.predict_proba(TEXTS).argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("family", "pooling"),
    [
        ("roberta", "first"), ("bert", "pooler"), ("distilbert", "last"),
        *((family, "mean") for family in ("electra", "mpnet", "deberta-v2", "modernbert", "gte", "nomic_bert")),
    ],
)  # fmt: skip
def test_every_pooling_gives_the_same_vectors(tiny, tmp_path, family, pooling):
    """With a map behind the pooling, and normalized, where the card says so; other families than BERT, too."""
    dim = 32
    generator = torch.Generator().manual_seed(0)
    transform = Transform(torch.randn(5, dim, generator=generator), torch.randn(5, generator=generator))
    model = model_on(tiny(family), pooling=pooling, transform=transform, normalize=True)
    export_onnx(model, tmp_path / "out")
    exported = OnnxModel(tmp_path / "out", threads=1)
    texts = [text for text in TEXTS if text]

    assert exported.embed(texts).shape == (len(texts), 5)
    assert np.abs(model.embed(texts) - exported.embed(texts)).max() < 1e-5
    with pytest.raises(SettingError, match="no class head"):
        exported.predict(texts)


def test_an_encoder_that_torch_cannot_convert_is_refused(tiny, tmp_path):
    with pytest.raises(EncoderError, match="cannot convert an encoder of type xlnet to ONNX"):
        export_onnx(model_on(tiny("xlnet"), pooling="last"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", HEADS)
def test_heads_on_joined_pairs(tiny, tmp_path, kind):
    model = model_on(tiny("bert"), head=HEADS[kind], joined=True)
    export_onnx(model, tmp_path / "out")
    exported = OnnxModel(tmp_path / "out", threads=1)
    assert exported.predict(PAIRS).tolist() == [one.label for one in model.predict(PAIRS)]
    order = np.argsort(LABELS)
    assert np.abs(model.probabilities(PAIRS)[:, order] - exported.predict_proba(PAIRS)).max() < 1e-5


def test_the_architectures_own_head_and_joined_pairs(tiny, tmp_path):
    built = build(str(tiny("bert")), classes=LABELS, seed=1, pooling=None)
    card = Card(pooling="first", max_length=24, native=True, labels=LABELS, joined=True)
    model = Model(TextModel(built.model.network, pooling="first", native=True), built.tokenizer, card)
    export_onnx(model, tmp_path / "out")
    exported = OnnxModel(tmp_path / "out", threads=1)

    assert exported.predict(PAIRS).tolist() == [one.label for one in model.predict(PAIRS)]
    order = np.argsort(LABELS)
    assert np.abs(model.probabilities(PAIRS)[:, order] - exported.predict_proba(PAIRS)).max() < 1e-5
    assert np.abs(model.embed(PAIRS) - exported.embed(PAIRS)).max() < 1e-5
    with pytest.raises(SettingError, match="reads pairs of texts"):
        exported.predict(TEXTS)


def test_several_labels_a_text_and_scores(tiny, tmp_path):
    thresholds = {"9": 0.2, "10": 0.9}
    model = model_on(tiny("bert"), head=HEADS["logistic"], task={"kind": "multilabel", "thresholds": thresholds})
    export_onnx(model, tmp_path / "labels")
    exported = OnnxModel(tmp_path / "labels", threads=1)
    assert exported.predict(TEXTS) == [one.labels for one in model.predict(TEXTS)]

    model = model_on(tiny("bert"), head={"kind": "ridge"}, classes=1, task={"kind": "text-scores"})
    export_onnx(model, tmp_path / "scores")
    exported = OnnxModel(tmp_path / "scores", threads=1)
    assert np.abs(exported.predict(TEXTS) - model.scores(TEXTS)).max() < 1e-5
    with pytest.raises(SettingError, match="no probabilities"):
        exported.predict_proba(TEXTS)


TASKS = [
    TaskCard("mood", "classes", {"kind": "linear", "single_logit": True}, "accuracy", ("bad", "good")),
    TaskCard("same", "pairs", {"kind": "joint-difference"}, "accuracy", ("0", "1")),
    TaskCard("near", "scores", {"kind": "concat"}, "spearman", None, low=1.0, high=5.0),
    TaskCard("like", "pairs", {"kind": "cosine"}, "f1", ("0", "1"), threshold=0.9, accuracy_threshold=0.5),
]


def test_all_tasks_are_in_one_graph(tiny, tmp_path):
    """Single texts, pairs encoded together in both orders, and pairs encoded apart."""
    built = build(str(tiny("bert")), classes=None, seed=1, pooling="mean")
    card = Card(pooling="mean", max_length=24, native=False, task=describe_tasks(TASKS, shared=True))
    network = TaskNetwork(built.model, TASKS, shared=True, seed=1)
    tasks = TaskModel(Model(built.model, built.tokenizer, card), network, TASKS)
    export_onnx(tasks.model, tmp_path / "out", tasks=tasks)
    exported = OnnxModel(tmp_path / "out", threads=1)

    assert exported.tasks == ("mood", "same", "near", "like")
    assert compare_tasks(tasks, exported, TEXTS) < 1e-5
    assert exported.predict(TEXTS, task="mood").tolist() == [one.label for one in tasks.predict("mood", [TEXTS])]
    columns = [list(column) for column in zip(*PAIRS, strict=True)]
    for name in ("same", "like"):
        assert exported.predict(PAIRS, task=name).tolist() == [one.label for one in tasks.predict(name, columns)]
    scores = [one.score for one in tasks.predict("near", columns)]
    assert np.allclose(exported.predict(PAIRS, task="near"), scores, atol=1e-5)
    with pytest.raises(SettingError, match="name one with task="):
        exported.predict(TEXTS)
    with pytest.raises(SettingError, match="Did you mean 'mood'"):
        exported.predict(TEXTS, task="moot")


def largest_weight(path: Path) -> int:
    """The largest 8-bit weight of the matrix products of a graph."""
    import onnx

    graph = onnx.load(path).graph
    weights = {node.input[1] for node in graph.node if node.op_type == "MatMulInteger"}
    kept = [onnx.numpy_helper.to_array(one) for one in graph.initializer if one.name in weights]
    assert kept
    return max(int(np.abs(one.astype(np.int32)).max()) for one in kept)


def test_eight_bits_are_smaller_and_their_cost_is_stated(tmp_path):
    """On an encoder of 512 positions, and a text that fills them."""
    model = model_on(long_bert(tmp_path / "encoder"), head=HEADS["nearest-center"], max_length=512)
    export_onnx(model, tmp_path / "whole")
    export_onnx(model, tmp_path / "small", int8=True)
    whole, small = (OnnxModel(tmp_path / name, threads=1) for name in ("whole", "small"))

    long = ["word " * 600, "no"]
    assert model.tokenize(long).lengths.tolist() == [512, 3]
    assert np.abs(model.embed(long) - whole.embed(long)).max() < 1e-5
    assert small.path.stat().st_size < 0.9 * whole.path.stat().st_size
    assert 60 <= largest_weight(small.path) <= 64, "7 bits: products of two do not overflow without VNNI"
    assert (whole.card.precision, small.card.precision) == ("fp32", "int8")
    exact, rough = (compare(model, one, TEXTS, ["9"] * len(TEXTS)) for one in (whole, small))
    assert exact.distance < 1e-6 < rough.distance
    assert (exact.changed, exact.before.accuracy) == (0, exact.after.accuracy)
    assert exact.problem is None
    assert min(rough.after.texts_per_second, rough.after.milliseconds, rough.after.megabytes) > 0


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("exported") / "model"
    export_onnx(model_on(tiny("bert"), head=HEADS["logistic"]), out)
    return out


def test_a_vector_that_is_no_number_is_not_good_enough(folder, tiny):
    model = model_on(tiny("bert"), head=HEADS["logistic"])
    quality = compare(model, OnnxModel(folder, threads=1), TEXTS)
    from dataclasses import replace

    assert quality.problem is None
    assert "1 - cosine" in (replace(quality, distance=float("nan")).problem or "")
    assert "1 - cosine" in (replace(quality, distance=0.5).problem or "")
    assert "labels change" in (replace(quality, changed=3.0).problem or "")
    worse = replace(quality, before=replace(quality.before, accuracy=90.0), after=replace(quality.after, accuracy=88.0))
    assert "loses 2.0 points" in (worse.problem or "")


def test_folders_of_models_are_no_exports(folder, tmp_path):
    assert is_exported(folder)
    assert is_exported(folder / FILE)
    assert not is_exported(tmp_path)
    shutil.copytree(folder, tmp_path / "both")
    (tmp_path / "both" / "nearfar.json").write_text("{}")
    assert not is_exported(tmp_path / "both")


def test_a_graph_beside_the_weights_of_another_library_is_not_opened(tiny, folder, tmp_path):
    """Encoders on the hub have some."""
    from nearfar.exports.transformers_folder import export_transformers

    export_transformers(model_on(tiny("bert")), tmp_path / "encoder")
    shutil.copyfile(folder / FILE, tmp_path / "encoder" / FILE)
    assert not is_exported(tmp_path / "encoder")
    assert nearfar.load(tmp_path / "encoder").embed(["a cat"]).shape == (1, 32)


def changed(folder: Path, to: Path, **metadata) -> Path:
    import onnx

    shutil.copytree(folder, to)
    (to / SUMS).unlink()
    proto = onnx.load(to / FILE)
    (entry,) = proto.metadata_props
    assert entry.key == METADATA
    entry.value = json.dumps({**json.loads(entry.value), **metadata})
    onnx.save(proto, to / FILE)
    return to


def test_damaged_files_are_refused_with_the_reason(folder, tmp_path):
    def refused(name: str, damage) -> str:
        shutil.copytree(folder, tmp_path / name)
        (tmp_path / name / SUMS).unlink()
        damage(tmp_path / name)
        with pytest.raises(EncoderError) as error:
            OnnxModel(tmp_path / name)
        return str(error.value)

    raw = (folder / FILE).read_bytes()
    assert "cannot be opened" in refused("cut", lambda place: (place / FILE).write_bytes(raw[: len(raw) // 2]))
    assert "cannot be opened" in refused("text", lambda place: (place / FILE).write_text("no graph"))
    assert "tokenizer is missing" in refused("untold", lambda place: (place / TOKENIZER).unlink())
    assert "cannot be read" in refused("bad", lambda place: (place / TOKENIZER).write_text("{"))
    with pytest.raises(EncoderError, match="no such file"):
        OnnxModel(tmp_path / "none.onnx")
    for name, metadata, reason in (
        ("newer", {"format": 99}, "newer than this nearfar"),
        ("length", {"max_length": -1}, "out of range"),
        ("strange", {"other": 1}, "cannot be read"),
        ("headless", {"heads": [{"name": "", "output": "x", "reads": "texts", "kind": "scores"}]}, "no output 'x'"),
    ):
        with pytest.raises(EncoderError, match=reason):
            OnnxModel(changed(folder, tmp_path / name, **metadata))


@pytest.mark.parametrize("name", [FILE, TOKENIZER])
def test_one_changed_bit_is_refused(folder, tmp_path, name, monkeypatch):
    """It could be a weight or a letter of a token, and change answers without an error."""
    shutil.copytree(folder, tmp_path / "copy")
    file = tmp_path / "copy" / name
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    for place in (tmp_path / "copy", tmp_path / "copy" / FILE):
        with pytest.raises(EncoderError, match=f"{name}: this file has changed since it was exported"):
            nearfar.load(place)
    file.write_bytes((folder / name).read_bytes())
    nearfar.load(tmp_path / "copy")
    sums = tmp_path / "copy" / SUMS
    sums.write_text("".join(line for line in sums.read_text().splitlines(keepends=True) if name not in line))
    with pytest.raises(EncoderError, match=f"does not list {name}"):
        nearfar.load(tmp_path / "copy")
    monkeypatch.setenv("NEARFAR_CHECK_WEIGHTS", "0")
    nearfar.load(tmp_path / "copy")


def test_wrong_texts_are_refused(folder):
    exported = OnnxModel(folder)
    with pytest.raises(SettingError, match="not one string"):
        exported.predict("a cat")
    with pytest.raises(SettingError, match="text 1 must be a string"):
        exported.predict(["a cat", 3])
    with pytest.raises(SettingError, match="reads single texts"):
        exported.predict([("a cat", "a dog")])
    with pytest.raises(SettingError, match="batch_size"):
        exported.embed(["a cat"], batch_size=0)
    with pytest.raises(SettingError, match="threads"):
        OnnxModel(folder, threads=0)


@pytest.mark.parametrize("values", [[], {"heads": 3}, {"heads": [{}]}, {"heads": [{"name": "", "output": "x", "reads": "texts", "kind": "odd"}]}])  # fmt: skip
def test_a_card_that_makes_no_sense_is_refused(values):
    whole = {"format": 1, "max_length": 8, "dim": 4, "pad_id": 0, "pad_type": 0, "pad_left": False, "typed": True, "version": "0"}  # fmt: skip
    with pytest.raises(ValueError):
        ExportedCard.from_json({**whole, **values} if isinstance(values, dict) else values)
