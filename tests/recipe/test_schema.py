"""The schema: what is in it, and that every key explains itself."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from typing import get_args

import pytest

from nearfar.recipe import OBJECTIVES, Batches, CrossEntropy, Data, Encoder, Objective, Recipe, Training, TripleEntropy
from nearfar.recipe.keys import entries, fits, phrase

TABLES = [Recipe, Data, Encoder, Batches, Training, *OBJECTIVES.values()]


def test_the_objectives_are_listed_once_under_their_own_names():
    assert tuple(OBJECTIVES.values()) == get_args(Objective)
    assert [table().name for table in OBJECTIVES.values()] == list(OBJECTIVES)
    assert list(OBJECTIVES) == ["cross-entropy", "triple-entropy", "cross-entropy+supcon"]


def test_every_key_has_one_sentence():
    sentences = [(table, entry) for table in TABLES for entry in entries(table).values()]
    assert len(sentences) == 60
    for table, entry in sentences:
        about = entry.key.about
        assert about.endswith("."), (table, entry.name)
        assert about[0].isupper() or about[0] == '"', (table, entry.name)
        assert "\n" not in about, (table, entry.name)
        assert about.count(". ") == 0, (table, entry.name)


def test_only_the_training_texts_are_required():
    required = [(table, name) for table in TABLES for name, entry in entries(table).items() if entry.required]
    assert required == [(Recipe, "data"), (Data, "train")]


def test_the_defaults():
    recipe = Recipe(data=Data(train="a.csv"))
    assert recipe.seed == 2
    assert recipe.data.dev == "auto"
    assert recipe.data.invalid == "refuse"
    assert recipe.encoder == Encoder(name="minilm", max_length=None, pooling=None, dropout=None)
    assert recipe.objective == CrossEntropy(learning_rate=None, label_smoothing=0.0, class_weights="none")
    assert recipe.batches == Batches(size=32, shuffle="random")
    training = {part.name: getattr(recipe.training, part.name) for part in fields(Training)}
    assert training == {
        "epochs": 5,
        "max_steps": None,
        "learning_rate": 5e-5,
        "head_learning_rate": None,
        "weight_decay": 0.01,
        "warmup": 0.06,
        "schedule": "linear",
        "clip": 1.0,
        "accumulate": 1,
        "precision": "auto",
        "evaluate_every": "epoch",
        "metric": "f1_weighted",
        "patience": None,
        "checkpoint_every": "epoch",
        "keep_checkpoints": 2,
        "trackers": (),
    }
    triple = TripleEntropy()
    assert (triple.beta, triple.centers, triple.gamma, triple.scale, triple.margin) == (0.9, 10, 0.1, 3.3, 0.3)
    assert (triple.spread, triple.level) == (0.0, "tokens")


@pytest.mark.parametrize("table", TABLES)
def test_tables_are_frozen_and_keyword_only(table):
    assert all(part.kw_only for part in fields(table))
    made = table(data=Data(train="a")) if table is Recipe else table(train="a") if table is Data else table()
    with pytest.raises(FrozenInstanceError):
        made.seed = 3


def test_every_default_fits_its_own_key():
    for table in TABLES:
        for entry in entries(table).values():
            form = fits(entry.kind)
            assert phrase(entry.kind, entry.key)
            assert form.optional == (entry.default is None)


def test_a_type_no_recipe_can_hold_is_our_mistake():
    with pytest.raises(TypeError, match="bytes"):
        fits(bytes)


def test_the_room_loads_nothing_heavy():
    code = "import sys, nearfar.recipe; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "tomllib" in loaded
    for heavy in ("torch", "transformers", "numpy", "datasets", "pyarrow", "sklearn", "typer", "rich", "json"):
        assert heavy not in loaded
    assert "nearfar.data" not in loaded
