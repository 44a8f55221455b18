"""Class objectives at the edges: what they need, what they leave out, and what a user is told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.modules import loss_module
from tests.training.runs import write_texts

import nearfar
from nearfar.cli.progress import console_callback
from nearfar.encoding import build, tokenize
from nearfar.encoding import load as open_model
from nearfar.errors import SettingError
from nearfar.evaluation import embed_table
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.data import read_data
from nearfar.pipeline.defaults import check_objective, choose, plan_stages
from nearfar.pipeline.heads import TrainingRows, fit_head
from nearfar.pipeline.loaders import texts_per_class
from nearfar.pipeline.objectives import build_terms
from nearfar.recipe import Recipe, build_recipe
from nearfar.recipe.capabilities import Objective
from nearfar.recipe.class_objectives import (
    CrossEntropy,
    CrossEntropySupCon,
    LabelAware,
    ProxyNCA,
    SoftTriple,
    SupCon,
    TripleEntropy,
)
from nearfar.recipe.objectives import Blend

CLASSES = ("animal", "fruit", "tool")


def recipe_of(train: Path, objective: dict[str, Any], **tables: Any) -> Recipe:
    values: dict[str, Any] = {
        "data": {"train": str(train), "dev": 0},
        "encoder": {"name": "toy", "max_length": 24},
        "objective": objective,
        "batches": {"size": 12},
        "training": {"epochs": 1, "learning_rate": 1e-3},
    }
    for name, table in tables.items():
        values[name] = {**values.get(name, {}), **table}
    return build_recipe(values, [], where="test")


def terms_of(objective: Objective, counts: tuple[int, ...] = (4, 4, 4)) -> tuple[list[Any], str]:
    """The terms for as many texts of each class, and what is told about them."""
    labels = np.repeat(np.arange(len(counts)), counts)
    classes = (*CLASSES, "weather", "music")[: len(counts)]
    terms, notes = build_terms(objective, classes=classes, dim=8, labels=labels, seed=1)
    return terms, " | ".join(notes)


def told_by(recipe: Recipe, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    train_recipe(recipe, out, callbacks=[console_callback()])
    return re.sub(r"\s+", " ", capsys.readouterr().err)


SILENT: dict[str, dict[str, Any]] = {
    "triple-entropy": {"name": "triple-entropy", "beta": 0},
    "cross-entropy+supcon": {"name": "cross-entropy+supcon", "weight": 1},
    "label-aware": {"name": "label-aware", "weight": 0},
    "blend": {"name": "blend", "weights": {"a": 0},
              "parts": {"a": {"name": "cross-entropy"}, "b": {"name": "supcon"}}},
}  # fmt: skip


@pytest.mark.parametrize("objective", SILENT.values(), ids=SILENT.keys())
def test_a_cross_entropy_without_weight_trains_no_head_so_one_is_fitted(objective, tmp_path, capsys):
    """A head that nothing teaches would guess; the fitted one knows the training texts."""
    train = write_texts(tmp_path / "texts.csv", 48)
    recipe = recipe_of(train, objective, data={"test": str(train)})
    summary = train_recipe(recipe, tmp_path / "model", callbacks=[console_callback()])
    said = " ".join(capsys.readouterr().err.split())

    assert "gives its cross-entropy no weight here" in said
    compares = objective["name"] != "triple-entropy"
    kind = "nearest-center" if compares else "logistic"
    assert f"a {kind} one is fitted afterwards" in said
    assert (open_model(tmp_path / "model").card.head or {})["kind"] == kind
    assert summary.report("test").scores["accuracy"] > 0.9
    with pytest.raises(SettingError, match=r'head.kind is "trained", but .* gives its cross-entropy no weight'):
        train_recipe(
            recipe_of(train, objective, head={"kind": "trained"}), tmp_path / "trained", callbacks=[console_callback()]
        )


def test_a_little_cross_entropy_trains_a_head():
    for objective in (
        CrossEntropy(), TripleEntropy(beta=0.1), CrossEntropySupCon(weight=0.9), LabelAware(weight=0.1),
        Blend(parts={"a": CrossEntropy(), "b": SupCon()}), Blend(parts={"a": TripleEntropy(beta=0.1)}),
    ):  # fmt: skip
        assert objective.does.trains_head
    for objective in (SupCon(), SoftTriple(), Blend(parts={"a": TripleEntropy(beta=0)})):
        assert not objective.does.trains_head


def test_a_learning_rate_that_nothing_learns_at_is_told():
    """Cross-entropy has no weights of its own; centers and proxies are some."""
    for objective in (CrossEntropy(learning_rate=0.5), SupCon(learning_rate=0.5)):
        assert f"objective.learning_rate is 0.5, but {objective.name} has no weights" in terms_of(objective)[1]
    for objective in (TripleEntropy(learning_rate=0.5, centers=2), ProxyNCA(learning_rate=0.5), SupCon()):
        assert "no weights of its own" not in terms_of(objective)[1]
    parts = {"near": SupCon(learning_rate=0.5), "proxies": ProxyNCA(learning_rate=0.5)}
    told = terms_of(Blend(parts=parts, learning_rate=0.1))[1]
    assert "objective.parts.near.learning_rate is 0.5" in told
    assert told.count("no weights of its own") == 1


def test_more_centers_than_texts_are_told_with_a_number_that_fits():
    assert terms_of(SoftTriple(centers=4))[1] == ""
    assert terms_of(SoftTriple(centers=5), (9, 1, 9))[1] == (
        "objective.centers is 5, but the class 'fruit' has only 1 text; some of its centers may stay unused"
    )
    assert terms_of(SoftTriple(centers=5), (9, 1, 9, 2, 9))[1].endswith("; some of its centers may stay unused")
    assert terms_of(TripleEntropy(centers=2_000), (9, 3, 4))[1] == (
        "objective.centers is 2,000, but 3 of 3 classes have fewer texts, such as 'fruit' with 3 texts; "
        "objective.centers = 4 may do as well"
    )
    assert terms_of(SoftTriple(centers=5), (9, 0, 9))[1] == ""  # a class that is not there needs no centers


def test_classes_of_one_text_are_told():
    assert "1 of 3 classes has a single text (fruit), which" in terms_of(SupCon(), (4, 1, 4))[1]
    assert "2 of 3 classes have a single text (fruit, tool), which" in terms_of(SupCon(), (4, 1, 1))[1]
    for quiet in (CrossEntropy(), ProxyNCA(), LabelAware(), SoftTriple(centers=1), TripleEntropy(centers=1)):
        said = terms_of(quiet, (4, 1, 4))[1]
        assert "1 of 3 classes has a single text (fruit), which is all there is to know the class by; give" in said
        assert "single text" not in str(terms_of(quiet, (4, 2, 4))[1])


def test_weights_of_classes_can_be_named():
    """Those that are not named count 1."""
    (term,), _ = terms_of(CrossEntropy(class_weight={"tool": 2.5, "animal": 0}))
    assert term.objective.class_weights.tolist() == [0.0, 1.0, 2.5]
    for objective in (TripleEntropy, CrossEntropySupCon, LabelAware):
        first = terms_of(objective(class_weight={"tool": 3}))[0][0]
        assert first.objective.class_weights.tolist() == [1.0, 1.0, 3.0]


def test_weights_of_classes_that_are_not_there_are_refused():
    with pytest.raises(
        SettingError, match=r"objective\.class_weight names 'tols', which is no class\. Did you mean 'tool'\?"
    ):
        check_objective(CrossEntropy(class_weight={"tols": 2}), CLASSES)
    with pytest.raises(SettingError, match=r"objective\.parts\.ce\.class_weight names 'x', .*There are: animal, fruit"):
        check_objective(Blend(parts={"ce": CrossEntropy(class_weight={"x": 2})}), CLASSES)
    with pytest.raises(SettingError, match="class_weight is zero for all classes"):
        check_objective(CrossEntropy(class_weight=dict.fromkeys(CLASSES, 0.0)), CLASSES)
    check_objective(CrossEntropy(class_weight={"tool": 0}), CLASSES)


def test_named_weights_train_and_are_in_the_saved_recipe(tmp_path):
    train = write_texts(tmp_path / "texts.csv", 24)
    objective = {"name": "cross-entropy", "class_weight": {"tool": 2.5}}
    train_recipe(recipe_of(train, objective), tmp_path / "model")
    again = nearfar.recipe.read_recipe(tmp_path / "model" / "recipe.toml")
    assert again.objective == CrossEntropy(class_weight={"tool": 2.5})
    card = json.loads((tmp_path / "model" / "nearfar.json").read_text())
    assert card["objective"]["class_weight"] == {"tool": 2.5}


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ({"name": "cross-entropy", "class_weight": {"tols": 2}}, "which is no class"),
        ({"name": "blend"}, "needs parts"),
        ({"name": "blend", "parts": {"a": {"name": "supcon"}}, "weights": {"b": 1}}, "which is no part"),
        ({"name": "blend", "parts": {"a": {"name": "supcon"}}, "weights": {"a": 0}}, "all zero"),
    ],
)
def test_what_an_objective_names_is_looked_for_before_anything_is_opened(objective, message, tmp_path):
    """As by --dry-run, which plans and goes no further."""
    recipe = recipe_of(write_texts(tmp_path / "texts.csv", 24), objective)
    with pytest.raises(SettingError, match=message):
        plan_stages(recipe, read_data(recipe))


@pytest.mark.parametrize(
    ("objective", "classes", "rows", "head"),
    [
        ("supcon", 10, 1_000, "nearest-center"),
        ("triplet", 2, 20, "nearest-center"),
        ("supcon", 11, 110, "logistic"),
        ("supcon", 10, 1_001, "logistic"),
        ("soft-triple", 2, 20, "logistic"),
        ("proxy-nca", 2, 20, "logistic"),
        ("cross-entropy", 2, 20, "trained"),
    ],
)
def test_the_head_follows_the_objective_the_classes_and_the_texts_of_each(objective, classes, rows, head, tmp_path):
    """Centers where texts of a class were compared and are few, unless the recipe says otherwise."""
    train = tmp_path / "texts.csv"
    train.write_text("text,label\n" + "".join(f"text {n},c{n % classes}\n" for n in range(rows)))
    recipe = recipe_of(train, {"name": objective})
    asked = recipe_of(train, {"name": objective}, head={"kind": "neighbors"})

    assert choose(recipe, read_data(recipe))[0].head.kind == head
    assert choose(asked, read_data(asked))[0].head.kind == "neighbors"


@pytest.mark.parametrize(
    ("classes", "rows", "objective", "said"),
    [
        (2, 2_000, "supcon", "2,000 labeled texts are few"),
        (2, 2_001, "cross-entropy", "2,001 labeled texts are many"),
        (12, 2_400, "supcon", "2,400 labeled texts are few for 12 classes"),
        (12, 2_401, "cross-entropy", "2,401 labeled texts are many"),
    ],
)
def test_texts_are_few_by_their_number_or_by_that_of_each_class(classes, rows, objective, said, tmp_path):
    train = tmp_path / "texts.csv"
    train.write_text("text,label\n" + "".join(f"text {n},c{n % classes}\n" for n in range(rows)))
    recipe = recipe_of(train, {"name": "auto"}, data={"dev": 0})
    chosen, notes = choose(recipe, read_data(recipe))

    assert chosen.objective.name == objective
    assert notes == [f"objective: {objective}, because {said}; --objective chooses another"]


@pytest.mark.parametrize("present", [(0, 2), (0, 1, 3)])
@pytest.mark.parametrize("kind", ["logistic", "nearest-center", "neighbors"])
def test_a_fitted_head_never_says_a_class_without_training_texts(kind, present):
    """And tells the others apart as one without that class does."""
    built = build("toy", classes=None, seed=1, pooling="mean")
    texts = [f"{('apple', 'saw', 'horse', 'river')[n % 4]} number {n}" for n in range(24)]
    table = tokenize(built.tokenizer, [texts], max_length=16)
    places = np.arange(24) % len(present)
    head = fit_head(kind, built.model, TrainingRows(table, np.array(present)[places], tuple("abcd")))
    alone = fit_head(kind, built.model, TrainingRows(table, places, tuple("abcd")[: len(present)]))
    vectors = torch.from_numpy(embed_table(built.model, table, batch_size=8))
    vectors = torch.cat([vectors, -vectors])  # also where every center is far
    found = head(vectors).softmax(dim=1)

    absent = [number for number in range(4) if number not in present]
    assert found.isfinite().all()
    assert found[:, absent].max() < 1e-5
    torch.testing.assert_close(found[:, list(present)], alone(vectors).softmax(dim=1), atol=1e-4, rtol=1e-4)


def test_a_draw_smaller_than_the_classes_is_told_and_one_class_refused(tmp_path, capsys):
    train = write_texts(tmp_path / "texts.csv", 24)
    said = told_by(recipe_of(train, {"name": "supcon"}, data={"limit": 2}), tmp_path / "two", capsys)
    assert "data.limit is 2, which leaves 1 of 3 classes without a training text to learn from: tool" in said
    assert np.isfinite(list(open_model(tmp_path / "two").predict(["a saw"])[0].probabilities.values())).all()
    with pytest.raises(
        SettingError, match=r"data\.limit is 1, which leaves training texts of one class only.*per_class"
    ):
        read_data(recipe_of(train, {"name": "supcon"}, data={"limit": 1}))
    assert not any("without a training" in note for note in read_data(recipe_of(train, {"name": "auto"})).notes)


def test_an_objective_that_finds_no_positives_is_said_to_learn_nothing(tmp_path, capsys):
    train = write_texts(tmp_path / "texts.csv", 24)
    few = {"per_class": 1}
    remedy = "data.per_class leaves one text of each: set 2 or more, 8 is usual"
    said = told_by(recipe_of(train, {"name": "supcon"}, data=few), tmp_path / "a", capsys)
    assert "supcon learns nothing here" in said
    assert remedy in said
    said = told_by(recipe_of(train, {"name": "cross-entropy+supcon"}, data=few), tmp_path / "b", capsys)
    assert "3 of 3 training texts have no positive in their batch" in said
    assert remedy in said


def test_anchors_without_a_positive_are_helped_by_what_can_help_them(tmp_path, capsys):
    """Larger batches where there is a positive elsewhere, more texts where there is none."""
    train = write_texts(tmp_path / "texts.csv", 24)
    with train.open("a") as file:
        file.write("a violin,music\n")
    said = told_by(recipe_of(train, {"name": "supcon"}, batches={"size": 32}), tmp_path / "a", capsys)
    assert "1 of 25 training texts has no positive in its batch" in said
    assert "closer; more texts of a class would help, two of each at least" in said
    apart = {"size": 3, "shuffle": "file-order"}
    said = told_by(recipe_of(train, {"name": "supcon"}, batches=apart), tmp_path / "b", capsys)
    assert "larger batches (batches.size, 6 for one) or more texts of a class would help" in said


def test_two_classes_fit_into_a_balanced_batch():
    """Half a batch is of a class at most, unless a batch is too small for two pairs."""
    assert [texts_per_class(4, size) for size in (2, 3, 4, 6, 8, 64)] == [2, 2, 2, 3, 4, 4]
    assert texts_per_class(20, 12) == 6


def test_fewer_texts_of_a_class_in_a_batch_than_asked_for_are_told(tmp_path, capsys):
    train = write_texts(tmp_path / "texts.csv", 24)
    for batches, told in (
        ({"size": 12, "per_class": 20}, "batches.per_class is 20, but 6 texts of a class share a batch"),
        ({"size": 2}, "batches.size is 2, so texts of one class fill a batch"),
    ):
        recipe = recipe_of(train, {"name": "supcon"}, batches=batches)
        assert told in told_by(recipe, tmp_path / str(batches["size"]), capsys)
    quiet = told_by(recipe_of(train, {"name": "supcon"}), tmp_path / "quiet", capsys)
    assert "per_class" not in quiet


def test_the_parts_of_a_blend_may_have_any_names():
    """Names of torch's own, and names that become the same, included: no part takes the place of another."""
    names = ("values", "training", "a.b", "a_b", "c", "c_supcon")
    parts = {name: CrossEntropySupCon() if name == "c" else SupCon() for name in names}
    terms, _ = terms_of(Blend(parts=parts))
    model = build("toy", classes=CLASSES, seed=1, pooling="mean").model

    assert len(terms) == len(loss_module(model, terms).objectives) == 7
    assert [term.name for term in terms][2:4] == ["a_b", "a_b_"]
