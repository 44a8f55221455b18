"""Class weights from the recipe to the model, and the note on classes of very different sizes."""

from __future__ import annotations

import pytest

import nearfar.recipe
from nearfar.encoding import load as open_model
from nearfar.errors import SettingError
from nearfar.pipeline.train import plan_recipe, train
from nearfar.recipe import build_recipe

WORDS = {"fruit": ("apple pear", "plum fig"), "tool": ("hammer saw", "axe drill")}


def rows(fruits=33, tools=3):
    """Texts of two classes, some of which have words of both."""
    sizes = {"fruit": fruits, "tool": tools}
    return [
        (f"{WORDS[name][n % 2]} {WORDS['fruit'][0] if n % 3 else 'thing'} {n}", name)
        for name, size in sizes.items()
        for n in range(size)
    ]


def recipe(objective, head="auto", **data):
    values = {
        "data": {"train": "memory:train", "dev": 0, **data},
        "objective": objective,
        "head": {"kind": head},
        "encoder": {"name": "toy"},
        "training": {"epochs": 1, "estimate": False},  # which would also calibrate the probabilities
    }
    return build_recipe(values, where="test")


def notes_of(objective, data, head="auto"):
    return " ".join(note for note in plan_recipe(recipe(objective, head), data).notes if "differ" in note)


def test_the_note_names_both_classes_and_what_helps_with_the_head():
    ce = {"name": "cross-entropy"}
    assert notes_of(ce, rows(31, 3)) == (
        "the classes differ 10:1 in size ('fruit' has 31 texts, 'tool' 3); --class-weight balanced "
        "(objective.class_weight) gives all classes the same weight"
    )
    assert "nearest-center head gives all classes the same weight" in notes_of({"name": "auto"}, rows())
    assert '"logistic", --class-weight balanced' in notes_of({"name": "supcon"}, rows(), "neighbors")
    assert notes_of(ce, rows(30, 3)) == ""
    assert notes_of({**ce, "class_weight": "balanced"}, rows()) == ""


@pytest.mark.parametrize(
    ("objective", "head"),
    [("cross-entropy", "auto"), ("auto", "logistic"), ("supcon", "logistic"), ("proxy-nca", "auto")],
)
def test_balanced_weights_make_the_rare_class_more_likely(objective, head, tmp_path):
    chances = {}
    for weight in ("none", "balanced"):
        out = tmp_path / weight
        train(recipe({"name": objective, "class_weight": weight}, head), out, data=rows())
        model = open_model(out)
        chances[weight] = [model.predict([text])[0].probabilities["tool"] for text, _ in rows()]
        assert nearfar.recipe.read_recipe(out / "recipe.toml").objective.class_weight == weight
    assert all(many > few for few, many in zip(chances["none"], chances["balanced"], strict=True))


def test_weights_of_nothing_are_refused():
    with pytest.raises(SettingError, match=r"class_weight weights classes, and the rows are positive pairs; leave it"):
        plan_recipe(recipe({"name": "auto", "class_weight": "balanced"}, text="a", pair="b"), [
            {"a": "one", "b": "two"}, {"a": "three", "b": "four"},
        ])  # fmt: skip
    with pytest.raises(SettingError, match=r'no effect under head\.kind = "neighbors".*"logistic"'):
        plan_recipe(recipe({"name": "supcon", "class_weight": "balanced"}, "neighbors"), rows())
    with pytest.raises(SettingError, match=r"names 'tols', which is no class\. Did you mean 'tool'"):
        plan_recipe(recipe({"name": "auto", "class_weight": {"tols": 2}}), rows())
