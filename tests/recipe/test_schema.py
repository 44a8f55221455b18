"""The schema: what is in it, and that every key explains itself."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, fields

import pytest

from nearfar.recipe import OBJECTIVES, Batches, Data, Encoder, Head, Objective, Recipe, Stage, Training, TripleEntropy
from nearfar.recipe.capabilities import Single
from nearfar.recipe.keys import entries, fits, phrase
from nearfar.recipe.objectives import Auto, Blend
from nearfar.recipe.reference import LABELS, description

TABLES = [Recipe, Data, Encoder, Head, Batches, Training, Stage, *OBJECTIVES.values()]


def test_the_objectives_are_listed_once_under_their_own_names():
    assert tuple(OBJECTIVES.values()) == Objective.tables() == fits(Objective).tables
    assert [table().name for table in OBJECTIVES.values()] == list(OBJECTIVES)
    assert list(OBJECTIVES) == [
        "auto",
        "cross-entropy",
        "triple-entropy",
        "soft-triple",
        "cross-entropy+supcon",
        "supcon",
        "label-aware",
        "proxy-nca",
        "triplet",
        "contrastive",
        "score-mse",
        "batch-softmax",
        "mnrl",
        "cosine-mse",
        "pearson",
        "pair-triplet",
        "contrastive-pairs",
        "simcse",
        "mirror",
        "blend",
    ]


def test_a_blend_holds_every_objective_but_auto_and_blends():
    assert (
        Single.tables()
        == fits(Single).tables
        == tuple(table for table in OBJECTIVES.values() if table not in (Auto, Blend))
    )
    assert fits(entries(Blend)["parts"].kind).values == Single


def test_a_stage_sets_what_other_tables_set_for_all():
    """A key of a stage fits what the key it stands for fits, and may be unset."""
    for name, (table, key) in {
        "epochs": (Training, "epochs"),
        "learning_rate": (Training, "learning_rate"),
        "batch_size": (Batches, "size"),
        "shuffle": (Batches, "shuffle"),
    }.items():
        mine, whole = entries(Stage)[name], entries(table)[key]
        assert phrase(mine.kind, mine.key) == phrase(whole.kind, whole.key)
        assert mine.default is None
        assert f"{table.__name__.lower()}.{key}." in mine.key.about
    assert entries(Stage)["objective"].kind == entries(Recipe)["objective"].kind


def test_every_key_has_one_sentence():
    sentences = [(table, entry) for table in TABLES for entry in entries(table).values()]
    assert len(sentences) > 160
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
    data = {part.name for part in fields(Data) if getattr(recipe.data, part.name) is not None}
    assert data == {
        "train",
        "dev",
        "invalid",
        "positives_only",
        "names",
        "unlabeled",
        "adapt",
        "max_chars",
        "large",
        "disk",
    }
    assert recipe.data.names == "auto"
    assert not recipe.data.unlabeled
    assert not recipe.data.adapt
    assert recipe.data.positives_only is False
    assert (recipe.data.max_chars, recipe.data.large, recipe.data.disk) == (10_000_000, False, "auto")
    assert recipe.encoder == Encoder(
        name="minilm", max_length=None, pooling=None, dropout=None, drophead=0.0, cutoff=0.0, fast=True
    )
    assert recipe.objective == Auto(learning_rate=None)
    assert recipe.head == Head(kind="auto", neighbors=5)
    assert recipe.stage == ()
    assert Stage() == Stage(objective=Auto(), epochs=None, learning_rate=None, batch_size=None, shuffle=None)
    batches = {part.name: getattr(recipe.batches, part.name) for part in fields(Batches)}
    assert batches == {
        "size": None,
        "chunk": None,
        "shuffle": "auto",
        "per_class": 4,
        "group": 8,
        "candidates": 500,
        "neighbor_text": "left",
        "reverse": True,
        "refresh": 1,
        "clusters": 300,
        "shingle_size": 1,
        "neighbors": 5,
        "memory": 4.0,
        "separate_duplicates": False,
    }
    training = {part.name: getattr(recipe.training, part.name) for part in fields(Training)}
    assert training == {
        "epochs": None,
        "max_steps": None,
        "learning_rate": None,
        "head_learning_rate": None,
        "weight_decay": 0.01,
        "bias_correction": True,
        "warmup": None,
        "schedule": "auto",
        "clip": 1.0,
        "accumulate": 1,
        "precision": "auto",
        "evaluate_every": "auto",
        "metric": "auto",
        "keep": "auto",
        "keep_untrained": None,
        "patience": None,
        "checkpoint_every": "auto",
        "keep_checkpoints": 2,
        "trackers": (),
        "estimate": True,
    }
    triple = TripleEntropy()
    assert (triple.beta, triple.centers, triple.gamma, triple.scale, triple.margin) == (0.9, None, 0.1, 3.3, 0.3)
    assert (triple.preset, triple.spread, triple.level, triple.padding) == ("none", 0.0, "tokens", False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auto", {"class_weight": "none"}),
        ("cross-entropy", {"label_smoothing": 0.0, "class_weight": "none"}),
        (
            "soft-triple",
            {
                "centers": 10,
                "gamma": 0.1,
                "scale": 20.0,
                "margin": 0.01,
                "spread": 0.0,
                "level": "text",
                "class_weight": "none",
            },
        ),
        (
            "cross-entropy+supcon",
            {"weight": 0.9, "temperature": 0.3, "views": "none", "label_smoothing": 0.0, "class_weight": "none"},
        ),
        ("supcon", {"temperature": 0.1, "views": "none", "class_weight": "none"}),
        (
            "label-aware",
            {
                "weight": 0.5,
                "temperature": 0.3,
                "views": "dropout",
                "weighting": None,
                "label_smoothing": 0.0,
                "class_weight": "none",
            },
        ),
        ("proxy-nca", {"scale": 1.0, "distance": "squared", "class_weight": "none"}),
        ("triplet", {"margin": 0.5, "select": "all", "distance": "euclidean", "class_weight": "none"}),
        ("contrastive", {"margin": 1.0, "class_weight": "none"}),
        (
            "batch-softmax",
            {
                "temperature": 0.1,
                "trainable": False,
                "symmetric": True,
                "normalize": "row",
                "threshold": None,
                "reduction": "positives",
                "hard_negative_weight": 0.0,
                "groups": True,
            },
        ),
        ("score-mse", {}),
        ("mnrl", {"scale": 20.0, "groups": False}),
        ("cosine-mse", {}),
        ("pearson", {}),
        ("pair-triplet", {"margin": 0.5, "distance": "euclidean", "negatives": "batch"}),
        ("contrastive-pairs", {"margin": 0.5}),
        (
            "simcse",
            {
                "temperature": 0.05,
                "projection": True,
                "hard_negative_weight": 0.0,
                "views": "dropout",
                "mlm_weight": 0.0,
            },
        ),
        (
            "mirror",
            {
                "granularity": "sentences",
                "preset": "none",
                "temperature": None,
                "masked": None,
                "unit": None,
                "negatives": None,
            },
        ),
        ("blend", {"weights": {}, "parts": {}}),
    ],
)
def test_the_defaults_of_an_objective(name, expected):
    made = OBJECTIVES[name]()
    found = {part.name: getattr(made, part.name) for part in fields(made)}
    assert found == {"name": name, "learning_rate": None, **expected}


def test_every_objective_says_what_it_reads_and_where_it_comes_from():
    for table in OBJECTIVES.values():
        assert list(description(table)) == ["summary", *(label.lower() for label in LABELS)]
        assert all(description(table).values())


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


def test_the_package_loads_nothing_heavy(monkeypatch):
    monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)  # make coverage loads modules of its own
    code = "import sys, nearfar.recipe; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "tomllib" in loaded
    for heavy in ("torch", "transformers", "numpy", "datasets", "pyarrow", "sklearn", "typer", "rich", "json"):
        assert heavy not in loaded
    assert "nearfar.data" not in loaded
