"""Defaults that train: pooling and heads of sentence encoders, least numbers of steps, learning rates."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from nearfar.encoding import build, load
from nearfar.encoding.pretrained import stated_pooling
from nearfar.errors import SettingError
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.defaults import (
    APART_RATE,
    FEW_RATE,
    LEAST_STEPS,
    NARROW,
    NARROW_RATE,
    NARROW_ROWS,
    NATIVE_HEAD,
    POOLED_HEAD,
    RATE,
)
from nearfar.pipeline.encoder_run import plan_encoder_run
from nearfar.recipe import Recipe, build_recipe
from nearfar.training import read_journal

HEADED = ("cross-entropy", "triple-entropy", "cross-entropy+supcon", "label-aware")


@pytest.fixture(scope="module")
def sentence_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder that states its pooling and has no class head."""
    built, folder = build("toy", classes=None, seed=1), tmp_path_factory.mktemp("sentence-encoder")
    from nearfar.encoding import Card, save

    card = Card(pooling="mean", max_length=24, native=False, labels=None)
    save(folder / "encoder", built.model, built.tokenizer, card, readme="")
    return str(folder / "encoder")


@pytest.fixture(scope="module")
def language_model(sentence_encoder, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same weights in a folder that states no pooling."""
    folder = tmp_path_factory.mktemp("language-model") / "encoder"
    shutil.copytree(sentence_encoder, folder)
    for name in ("modules.json", "nearfar.json", "SHA256SUMS"):
        (folder / name).unlink()
    return str(folder)


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"text": f"text {number} of {number % 2}", "label": f"c{number % 2}"} for number in range(count)]


def chosen(count: int, name: str = "toy", *, rows: Any = None, **tables: Any) -> Recipe:
    """The recipe of so many rows for an encoder, with nothing left open."""
    encoder = {"name": name, **tables.pop("encoder", {})}
    values = {"data": {"train": "-", "dev": 0}, "encoder": encoder, **tables}
    return plan_encoder_run(build_recipe(values, [], where="test"), rows or rows_of(count)).recipe


@pytest.mark.parametrize("objective", HEADED)
def test_heads_on_sentence_encoders_read_its_pooled_vectors(objective, sentence_encoder):
    """The vector that was trained to stand for the text; not the first token, which was not."""
    assert stated_pooling(sentence_encoder) == "mean"
    recipe = chosen(20, sentence_encoder, objective={"name": objective})
    assert (recipe.encoder.pooling, recipe.head.kind) == ("mean", "trained")


@pytest.mark.parametrize("pooling", ["first", "pooler"])
def test_a_pooling_that_is_asked_for_stays(pooling, sentence_encoder):
    recipe = chosen(20, sentence_encoder, objective={"name": "cross-entropy"}, encoder={"pooling": pooling})
    assert recipe.encoder.pooling == pooling


def test_other_encoders_and_classifiers_keep_the_head_of_their_architecture(tmp_path):
    """A language model states no pooling; a classifier has a head that can go on learning."""
    assert chosen(20, objective={"name": "cross-entropy"}).encoder.pooling is None
    values = {"data": {"train": "-", "dev": 0}, "encoder": {"name": "toy"}, "objective": {"name": "cross-entropy"}, "training": {"max_steps": 1}}  # fmt: skip
    train_recipe(build_recipe(values, [], where="test"), tmp_path / "classifier", data=rows_of(8))
    assert stated_pooling(str(tmp_path / "classifier")) is None
    assert chosen(20, str(tmp_path / "classifier"), objective={"name": "cross-entropy"}).encoder.pooling is None


def test_the_native_head_is_trained_on_a_sentence_encoder_and_opens_in_transformers(tmp_path, sentence_encoder):
    from transformers import AutoModelForSequenceClassification

    values = {
        "data": {"train": "-", "dev": 0}, "encoder": {"name": sentence_encoder}, "head": {"kind": "native"},
        "objective": {"name": "cross-entropy"}, "training": {"max_steps": 2, "epochs": 2},
    }  # fmt: skip
    train_recipe(build_recipe(values, [], where="test"), tmp_path / "native", data=rows_of(8))
    assert load(tmp_path / "native").model.native
    opened = AutoModelForSequenceClassification.from_pretrained(tmp_path / "native")
    assert opened.config.id2label == {0: "c0", 1: "c1"}


def test_a_native_head_with_a_pooling_is_refused():
    with pytest.raises(SettingError, match=r'head.kind is "native".*encoder.pooling is "mean": leave one of them out'):
        chosen(20, objective={"name": "cross-entropy"}, head={"kind": "native"}, encoder={"pooling": "mean"})


def test_a_native_head_needs_cross_entropy():
    with pytest.raises(SettingError, match=r'head.kind is "native", but supcon has no cross-entropy'):
        chosen(20, objective={"name": "supcon"}, head={"kind": "native"})


def test_a_native_head_is_not_replaced_by_a_fitted_one_for_few_texts():
    recipe = chosen(20, head={"kind": "native"})
    assert (recipe.objective.name, recipe.head.kind) == ("cross-entropy", "native")


@pytest.mark.parametrize(
    ("tables", "factor"), [({}, NATIVE_HEAD), ({"encoder": {"name": "toy", "pooling": "mean"}}, POOLED_HEAD)]
)
def test_heads_learn_faster_than_the_encoder(tables, factor, tmp_path):
    """They begin at random; the rates are those of the first step, and of all others with a constant schedule."""
    values = {
        "data": {"train": "-", "dev": 0}, "encoder": {"name": "toy"}, "objective": {"name": "cross-entropy"},
        "training": {"max_steps": 1, "schedule": "constant", "warmup": 0}, **tables,
    }  # fmt: skip
    train_recipe(build_recipe(values, [], where="test"), tmp_path / "model", data=rows_of(8))
    (step,) = [entry for entry in read_journal(tmp_path / "model" / "journal.jsonl") if entry["kind"] == "step"]
    assert step["learning_rates"]["head"] == pytest.approx(factor * step["learning_rates"]["encoder"])


@pytest.mark.parametrize("objective", [*HEADED, "soft-triple", "proxy-nca"])
@pytest.mark.parametrize("count", [20, 100])
def test_few_texts_get_enough_steps_and_the_higher_rate(objective, count):
    """What begins at random is not trained in five epochs of one batch."""
    recipe = chosen(count, objective={"name": objective})
    size, epochs = recipe.batches.size or 0, recipe.training.epochs or 0
    per_epoch = -(-count // size)
    assert LEAST_STEPS <= epochs * per_epoch < LEAST_STEPS + per_epoch
    assert recipe.training.learning_rate == FEW_RATE


def test_many_texts_get_five_epochs_at_the_usual_rate():
    recipe = chosen(2_001, objective={"name": "cross-entropy"})
    assert (recipe.training.epochs, recipe.training.learning_rate) == (5, RATE)


def test_the_published_preset_keeps_its_epochs_and_rates(sentence_encoder):
    recipe = chosen(20, sentence_encoder, objective={"name": "triple-entropy", "preset": "as-published"})
    training = recipe.training
    assert (training.epochs, training.learning_rate, training.head_learning_rate) == (5, 1e-5, 1e-5)
    assert recipe.encoder.pooling == "first"


@pytest.mark.parametrize(
    ("objective", "count", "steps"),
    [("cross-entropy", 20, 160), ("proxy-nca", 100, 160), ("supcon", 20, 80), ("supcon", 100, 80)],
)
def test_a_language_model_gets_more_steps_and_few_of_its_texts_are_read_by_their_mean(
    objective, count, steps, language_model
):
    recipe = chosen(count, language_model, objective={"name": objective})
    per_epoch = -(-count // (recipe.batches.size or 0))
    assert steps <= (recipe.training.epochs or 0) * per_epoch < steps + per_epoch
    assert recipe.training.learning_rate == FEW_RATE
    if objective in HEADED:
        assert recipe.encoder.pooling == "mean"
        assert chosen(2_001, language_model, objective={"name": objective}).encoder.pooling is None
        assert (
            chosen(count, language_model, objective={"name": objective}, head={"kind": "native"}).encoder.pooling
            is None
        )


@pytest.mark.parametrize("name", ["mnrl", "simcse", "mirror"])
def test_few_pairs_and_plain_texts_train_a_language_model_and_spare_a_sentence_encoder(
    name, language_model, sentence_encoder
):
    pairs = [{"text_a": f"left {n}", "text_b": f"right {n}"} for n in range(100)]
    rows = pairs if name == "mnrl" else [{"text": row["text_a"]} for row in pairs]
    model, spared = (
        chosen(0, encoder, rows=rows, objective={"name": name}).training
        for encoder in (language_model, sentence_encoder)
    )
    assert (model.epochs or 0) >= 40
    assert model.learning_rate == FEW_RATE
    assert (spared.epochs or 0) <= 5
    assert (spared.learning_rate or 1) <= RATE
    if name == "mirror":
        published = chosen(0, language_model, rows=rows, objective={"name": name, "preset": "as-published"}).training
        assert (published.epochs, published.learning_rate) == (1, 2e-5)


def test_a_narrow_language_model_learns_faster_from_many_rows(language_model, sentence_encoder):
    def rate(count: int, name: str, **training: Any) -> float | None:
        return chosen(count, name, objective={"name": "cross-entropy"}, training=training).training.learning_rate

    assert rate(NARROW_ROWS - 1, language_model) == FEW_RATE
    assert rate(NARROW_ROWS, language_model) == rate(3_000, language_model) == NARROW_RATE
    assert rate(NARROW_ROWS, language_model, learning_rate=3e-5) == 3e-5
    assert rate(NARROW_ROWS, sentence_encoder) == FEW_RATE
    config = Path(language_model) / "config.json"
    wide = json.loads(config.read_text()) | {"hidden_size": NARROW + 64}
    folder = Path(language_model).with_name("wide")
    shutil.copytree(language_model, folder)
    (folder / "config.json").write_text(json.dumps(wide))
    assert rate(NARROW_ROWS, str(folder)) == FEW_RATE


def test_texts_that_can_only_be_moved_apart_are_moved_little(sentence_encoder):
    """Each class has one text, so that no objective that compares texts of a class has anything to bring together."""
    rows = [{"text": f"text {number}", "label": f"c{number}"} for number in range(20)]
    recipe = chosen(0, sentence_encoder, rows=rows, objective={"name": "contrastive"})
    assert recipe.training.learning_rate == APART_RATE


def test_settings_of_the_user_win():
    recipe = chosen(20, objective={"name": "cross-entropy"}, training={"epochs": 2, "learning_rate": 3e-5})
    assert (recipe.training.epochs, recipe.training.learning_rate) == (2, 3e-5)
