"""Static token vectors: means of rows, a head that says what the model says, and files that are checked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tests.exports.models import HEADS, LABELS, model_on

import nearfar
from nearfar.errors import EncoderError, SettingError
from nearfar.exports import static_export, token_vectors
from nearfar.exports.exported_model import CARD, TOKENIZER
from nearfar.exports.quality import LIMITS, compare
from nearfar.exports.static_export import export_static, fit_head, held_out_labels
from nearfar.exports.static_model import FILE, VECTORS, StaticModel
from nearfar.exports.static_model import HEADS as HEADS_FILE
from nearfar.exports.sums import SUMS
from nearfar.exports.token_vectors import frequencies

WORDS = ["cat", "dog", "fox", "bird", "stone", "river", "plum", "saw"]
FITTED = [f"{one} {other}" for one in WORDS for other in WORDS]


@pytest.fixture(scope="module")
def model(tiny):
    """Its classes are near three words, so that its labels differ."""
    made = model_on(tiny("bert"), head=HEADS["nearest-center"])
    centers = torch.nn.functional.normalize(torch.from_numpy(made.embed(["cat dog", "stone plum", "river saw"])), dim=1)
    made.model.head.centers.copy_(centers)
    made.model.head.bias.zero_()
    return made


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("static") / "model"
    export_static(model, out, FITTED, label_type="int")
    return out


def test_a_text_is_the_mean_of_its_tokens(folder, model):
    """In any order and any batch; special tokens count nothing, and a text without tokens is zero."""
    exported = nearfar.load(folder)
    assert isinstance(exported, StaticModel)
    vectors = load_file(folder / FILE)[VECTORS]
    ids = model.tokenizer("a fox", add_special_tokens=False)["input_ids"]
    mean = vectors[ids].mean(axis=0)

    found = exported.embed(["a fox", "fox a", "", "[SEP] a fox"])
    assert np.allclose(found[0], mean / np.linalg.norm(mean), atol=1e-6)
    assert np.allclose(found[0], found[1], atol=1e-6)
    assert np.allclose(found[0], found[3], atol=1e-6)
    assert not found[2].any()
    many = FITTED * 40
    assert np.allclose(exported.embed(many), exported.embed(FITTED)[np.arange(len(many)) % len(FITTED)], atol=1e-6)
    assert exported.embed([]).shape == (0, exported.card.dim)


def test_its_head_says_what_the_model_says(folder, model):
    exported = StaticModel(folder)
    assert exported.classes_.tolist() == sorted(map(int, LABELS))
    said = [int(one.label) for one in model.predict(FITTED)]
    assert len(set(said)) > 1
    assert np.mean(exported.predict(FITTED) == said) > 0.6
    chances = exported.predict_proba(FITTED)
    assert np.allclose(chances.sum(axis=1), 1, atol=1e-5)
    order = np.argsort([int(label) for label in LABELS])
    assert np.abs(chances - model.probabilities(FITTED)[:, order]).mean() < 0.2


def test_what_it_costs_is_measured_on_texts_that_the_head_has_not_seen(folder, model):
    """A head that is asked about its own texts looks better than it is."""
    exported = StaticModel(folder)
    answers = held_out_labels(model, exported, FITTED)
    assert answers is not None
    assert answers != [str(one) for one in exported.predict(FITTED)]
    quality = compare(model, exported, FITTED, [one.label for one in model.predict(FITTED)], answers=answers)
    assert (quality.kind, quality.limits) == ("static", LIMITS["static"])
    assert quality.before.accuracy == 100
    assert quality.after.accuracy == pytest.approx(100 - quality.changed)
    assert 0 <= quality.distance < 2


@pytest.mark.parametrize("kind", ["classes", "multilabel", "scores"])
def test_heads_are_fitted_to_outputs(kind):
    """A linear rule is found again, from probabilities or scores."""
    x = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    rule = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    logits = x @ rule.T
    goals = {
        "classes": np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True),
        "multilabel": 1 / (1 + np.exp(-logits)),
        "scores": logits,
    }[kind]
    weight, bias = fit_head(x, goals.astype(np.float32), kind)
    found = x @ weight.T + bias
    if kind == "classes":
        found, logits = (values - values.mean(axis=1, keepdims=True) for values in (found, logits))
    assert np.abs(found - logits).mean() < 0.05


def test_frequencies_follow_zipf_and_many_texts(model):
    none = frequencies(model.tokenizer, [], 100)
    assert none.sum() == pytest.approx(1)
    assert none[0] / none[9] == pytest.approx(10)
    token = model.tokenizer("z", add_special_tokens=False)["input_ids"][0]
    size = len(model.tokenizer)
    some, many = (frequencies(model.tokenizer, ["z z z z z"] * count, size)[token] for count in (1, 20_000))
    assert some < 0.01
    assert many > 0.4


def test_token_vectors_are_principal_components_weighted_by_frequency(model, monkeypatch):
    """Centered on real tokens, the directions of the largest variance first; frequent tokens count less."""
    alone = token_vectors._alone(model)
    words = np.setdiff1d(np.arange(len(alone)), model.tokenizer.all_special_ids)
    variances = np.linalg.eigvalsh(np.cov(alone[words].T, bias=True))[::-1]
    weights = token_vectors.SMOOTH / (token_vectors.SMOOTH + frequencies(model.tokenizer, FITTED, len(alone)))
    weighted = token_vectors.static_vectors(model, FITTED, dims=4)
    plain = weighted[words] / weights[words, None]
    assert weighted.shape == (len(alone), 4)
    assert np.allclose(plain.mean(axis=0), 0, atol=1e-4)
    assert np.allclose(plain.var(axis=0), variances[:4], rtol=1e-3)


def test_a_head_is_fitted_to_so_many_texts_at_most(model, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(static_export, "MOST", 10)
    plain = static_export.targets
    monkeypatch.setattr(static_export, "targets", lambda of, texts: seen.append(list(texts)) or plain(of, texts))
    export_static(model, tmp_path / "out", FITTED)
    assert seen == [FITTED[::7]]


def test_held_out_texts_choose_the_penalty():
    """Noise wants a strong one, and a rule without noise a weak one."""
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.normal(size=(60, 20)))
    rule = torch.from_numpy(draw.normal(size=(1, 20)))
    noise = torch.from_numpy(draw.normal(size=(60, 1)))
    assert static_export._penalty(x, x @ rule.T, "scores") == static_export.PENALTIES[-1]
    assert static_export._penalty(x, noise, "scores") == static_export.PENALTIES[0]
    shifted = static_export._held_out(x, x @ rule.T + 100, "scores", 1e-4)
    assert (shifted - 100 - x @ rule.T).abs().mean() < 1


def test_several_labels_and_scores(tiny, tmp_path):
    several = model_on(tiny("bert"), head=HEADS["logistic"], task={"kind": "multilabel", "thresholds": {"9": 0.2}})
    export_static(several, tmp_path / "labels", FITTED)
    said = [one.labels for one in several.predict(FITTED)]
    assert np.mean([set(one) == set(other) for one, other in zip(StaticModel(tmp_path / "labels").predict(FITTED), said, strict=True)]) > 0.5  # fmt: skip
    scored = model_on(tiny("bert"), head={"kind": "ridge"}, classes=1, task={"kind": "text-scores"})
    export_static(scored, tmp_path / "scores", FITTED)
    found = StaticModel(tmp_path / "scores").predict(FITTED)
    assert np.corrcoef(found, scored.scores(FITTED))[0, 1] > 0.4


def test_an_encoder_without_a_head_embeds(tiny, tmp_path):
    plain = model_on(tiny("roberta"), normalize=True)
    export_static(plain, tmp_path / "out", [])
    exported = StaticModel(tmp_path / "out")
    assert exported.embed(["a fox"]).shape == (1, 32)
    quality = compare(plain, exported, FITTED)
    assert (quality.changed, quality.before.accuracy) == (None, None)
    with pytest.raises(SettingError, match="no class head"):
        exported.predict(["a fox"])


def test_pairs_are_refused(tiny, tmp_path):
    with pytest.raises(SettingError, match="reads pairs; export it with --to onnx"):
        export_static(model_on(tiny("bert"), head=HEADS["logistic"], joined=True), tmp_path / "out", FITTED)
    assert not (tmp_path / "out").exists()


def test_damaged_files_are_refused_with_the_reason(folder, tmp_path):
    def refused(name: str, damage) -> str:
        shutil.copytree(folder, tmp_path / name)
        damage(tmp_path / name)
        if not missing(tmp_path / name):
            with pytest.raises(EncoderError, match="has changed since it was exported"):
                StaticModel(tmp_path / name)
        (tmp_path / name / SUMS).unlink()
        with pytest.raises(EncoderError) as error:
            StaticModel(tmp_path / name)
        return str(error.value)

    def missing(place: Path) -> bool:
        return len(list(place.iterdir())) < len(list(folder.iterdir()))

    raw = (folder / FILE).read_bytes()
    card = json.loads((folder / CARD).read_text())
    assert "cannot be read" in refused("cut", lambda place: (place / FILE).write_bytes(raw[: len(raw) // 2]))
    assert "cannot be read" in refused("card", lambda place: (place / CARD).write_text("{"))
    assert "is missing" in refused("none", lambda place: (place / CARD).unlink())
    assert "is missing" in refused("untold", lambda place: (place / TOKENIZER).unlink())
    assert "cannot be read" in refused("headless", lambda place: (place / HEADS_FILE).unlink())
    few = {VECTORS: load_file(folder / FILE)[VECTORS][:9]}
    assert "token vectors" in refused("few", lambda place: save_file(few, place / FILE))
    wide = json.dumps({**card, "dim": 7})
    assert "token vectors" in refused("wide", lambda place: (place / CARD).write_text(wide))
    other = {name: values[:1] for name, values in load_file(folder / HEADS_FILE).items()}
    assert "of another model" in refused("other", lambda place: save_file(other, place / HEADS_FILE))
    newer = json.dumps({**card, "format": 99})
    assert "newer than this nearfar" in refused("newer", lambda place: (place / CARD).write_text(newer))
    with pytest.raises(SettingError, match="batch_size"):
        StaticModel(folder).embed(["a"], batch_size=0)
