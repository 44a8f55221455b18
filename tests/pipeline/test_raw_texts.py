"""Plain texts and triplets in, an encoder out: views, side objectives, presets, and what is kept when nothing is won."""

from __future__ import annotations

import io
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from tests.cli.test_pairs import call
from tests.training.modules import loss_module
from tests.training.runs import StopAt, digest

from nearfar.cli.progress import console_callback
from nearfar.encoding import build, load, tokenize
from nearfar.errors import DataError, Interrupted, SettingError
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.data import read_data
from nearfar.pipeline.defaults import choose
from nearfar.pipeline.objectives import build_terms
from nearfar.recipe import Recipe, build_recipe
from nearfar.recipe.pair_objectives import SimCSE
from nearfar.training import Batch, read_journal

THINGS = ["apple", "pear", "hammer", "saw", "horse", "otter", "river", "cloud", "violin", "lantern"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Plain texts, scored pairs and triplets about ten things."""
    folder, source = tmp_path_factory.mktemp("data"), random.Random(0)
    plain = [f"the old {thing} number {n} of many others here" for n, thing in enumerate(THINGS * 4)]
    pairs, triplets = [], []
    for n, thing in enumerate(THINGS * 4):
        other = source.choice([one for one in THINGS if one != thing])
        right = thing if n % 2 else other
        pairs.append({"text_a": f"the {thing} {n}", "text_b": f"{n} of a {right}", "score": float(thing == right)})
        triplets.append({"anchor": f"the {thing} {n}", "positive": f"{n} of a {thing}", "negative": f"no {other} here"})
    (folder / "plain.txt").write_text("\n".join(plain) + "\n", encoding="utf-8")
    for name, rows in (("pairs", pairs), ("triplets", triplets)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return {path.stem: path for path in folder.iterdir()}


def recipe_of(train: Path, objective: dict[str, Any], **tables: Any) -> Recipe:
    values: dict[str, Any] = {
        "seed": 3,
        "data": {"train": str(train)},
        "encoder": {"name": "toy", "max_length": 24},
        "objective": objective,
        "batches": {"size": 12},
        "training": {"epochs": 2, "learning_rate": 1e-3, "checkpoint_every": 1},
    }
    for name, table in tables.items():
        values[name] = {**values.get(name, {}), **table}
    return build_recipe(values, [], where="test")


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "masked words": ({"name": "simcse", "mlm_weight": 0.1}, {}),
    "masked words on the plain path": ({"name": "simcse", "mlm_weight": 0.1}, {"fast": False}),
    "dropped words": ({"name": "simcse", "views": "words"}, {}),
    "synonyms": ({"name": "simcse", "views": "synonyms"}, {}),
    "masked characters": ({"name": "mirror", "unit": "characters"}, {}),
    "drophead": ({"name": "mirror"}, {"drophead": 0.3, "dropout": 0.0}),
    "drophead on the plain path": ({"name": "simcse"}, {"drophead": 0.3, "fast": False}),
    "cut-off": ({"name": "simcse"}, {"cutoff": 0.2}),
    "a blend with a mirror": ({"name": "blend", "parts": {"a": {"name": "mirror"}, "b": {"name": "simcse"}}}, {}),
}


@pytest.mark.parametrize("way", WAYS, ids=WAYS.keys())
def test_every_way_trains_differs_from_plain_and_resumes_to_the_same_bits(way, files, tmp_path):
    """The folder holds the encoder and nothing that helped in training only."""
    objective, encoder = WAYS[way]
    recipe = recipe_of(files["plain"], objective, encoder=encoder)
    train_recipe(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train_recipe(recipe, tmp_path / "cut", callbacks=(StopAt(3),))
    train_recipe(recipe, tmp_path / "cut", resume=True)
    plain = {"name": objective["name"] if objective["name"] != "blend" else "simcse"}
    train_recipe(recipe_of(files["plain"], plain, encoder={"fast": encoder.get("fast", True)}), tmp_path / "plain")

    assert digest(tmp_path / "cut") == digest(tmp_path / "whole") != digest(tmp_path / "plain")
    assert {path.name for path in (tmp_path / "whole").glob("*.safetensors")} == {"model.safetensors"}
    assert load(tmp_path / "whole").embed(["a horse"]).shape == (1, 64)
    steps = [entry for entry in read_journal(tmp_path / "whole" / "journal.jsonl") if entry["kind"] == "step"]
    assert all(math.isfinite(entry["loss"]) for entry in steps)
    if "mlm_weight" in objective:
        for entry in steps:
            parts = entry["parts"]
            assert entry["loss"] == pytest.approx(parts["simcse"] + 0.1 * parts["mlm"], rel=1e-5)


def test_large_batches_in_chunks_train_with_masked_words_and_resume(files, tmp_path):
    recipe = recipe_of(
        files["plain"],
        {"name": "simcse", "mlm_weight": 0.1},
        batches={"size": 20, "chunk": 6},
        encoder={"drophead": 0.2},
    )
    train_recipe(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train_recipe(recipe, tmp_path / "cut", callbacks=(StopAt(2),))
    train_recipe(recipe, tmp_path / "cut", resume=True)

    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")


def test_a_run_that_only_loses_keeps_the_encoder_and_says_so(files, tmp_path):
    """The dev pairs choose among all evaluations, the one before the first step included."""
    told = io.StringIO()
    recipe = recipe_of(
        files["plain"], {"name": "simcse"}, data={"dev": str(files["pairs"])},
        training={"learning_rate": 0.05, "warmup": 0, "epochs": 3},
    )  # fmt: skip
    summary = train_recipe(recipe, tmp_path / "model", callbacks=[console_callback(Console(file=told, width=400))])
    start, *later = [entry["scores"]["spearman"] for entry in summary.progress.evaluations]
    whole = json.loads((tmp_path / "model" / "metrics.json").read_text())

    assert max(later) < start, "these settings are to ruin the toy encoder"
    assert f"warning: the dev spearman fell from {start:.4f} to {max(later):.4f} at best" in told.getvalue()
    assert whole["training"]["best_step"] == 0
    assert summary.report("dev").scores["spearman"] == pytest.approx(start, abs=1e-6)


def test_the_command_warns_of_it_once(files, tmp_path):
    code, _, errors = call(
        "train", str(files["plain"]), "--objective", "simcse", "--dev", str(files["pairs"]), "--encoder", "toy",
        "--learning-rate", "0.05", "--set", "training.warmup=0", "--epochs", "3", "--batch-size", "12", "--out",
        str(tmp_path / "model"),
    )  # fmt: skip
    assert (code, errors.count("warning: ")) == (0, 1), errors
    assert "so the pretrained encoder is kept" in errors
    assert "kept the weights of step" not in errors


def test_no_dev_rows_are_fine_and_the_last_weights_are_kept(files, tmp_path):
    """data.dev = 0 says the same as leaving it out, which is told."""
    told = []
    for dev in ({}, {"dev": 0}):
        screen = io.StringIO()
        recipe = recipe_of(files["plain"], {"name": "simcse"}, data=dev)
        train_recipe(recipe, tmp_path / str(len(dev)), callbacks=[console_callback(Console(file=screen, width=400))])
        told.append("note: no dev data: plain texts have nothing to be measured by" in screen.getvalue())

    assert told == [True, False]
    assert digest(tmp_path / "0") == digest(tmp_path / "1")
    assert json.loads((tmp_path / "1" / "metrics.json").read_text())["training"]["evaluations"] == []


def test_a_run_that_gains_does_not_warn(files, tmp_path):
    told = io.StringIO()
    recipe = recipe_of(files["triplets"], {"name": "simcse"}, data={"dev": str(files["pairs"])}, training={"epochs": 6})
    summary = train_recipe(recipe, tmp_path / "model", callbacks=[console_callback(Console(file=told, width=400))])
    scores = [entry["scores"]["spearman"] for entry in summary.progress.evaluations]

    assert max(scores[1:]) > scores[0]
    assert "warning: the dev" not in told.getvalue()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (0.04, 5, "tokens", None, 50, 1, 128)),
        ({"granularity": "phrases"}, (0.2, 2, "tokens", None, 25, 2, 128)),
        ({"granularity": "words"}, (0.2, 2, "tokens", None, 25, 2, 128)),
        ({"preset": "as-published"}, (0.04, 5, "characters", "mean", 50, 1, 200)),
        ({"granularity": "phrases", "preset": "as-published"}, (0.2, 0, "characters", "first", 25, 2, 200)),
        ({"granularity": "words", "preset": "as-published"}, (0.2, 0, "characters", "first", 25, 2, 200)),
    ],
)
def test_the_presets_of_mirror(files, settings, expected):
    """Temperature, mask, unit, pooling, length, epochs and batch; what the recipe says itself always stays."""

    def chosen(**more: Any) -> tuple[Any, ...]:
        values = {"data": {"train": str(files["plain"])}, "objective": {"name": "mirror", **settings}}
        for name, table in more.items():
            values[name] = {**values.get(name, {}), **table}
        recipe = build_recipe(values, [], where="test")
        found, _ = choose(recipe, read_data(recipe))
        mirror, encoder = found.objective, found.encoder
        return (mirror.temperature, mirror.masked, mirror.unit, encoder.pooling, encoder.max_length,  # type: ignore[attr-defined]
                found.training.epochs, found.batches.size)  # fmt: skip

    assert chosen() == expected
    own = (0.5, 3, "tokens", "pooler", 17, 4, 9)
    mine = {"objective": {"temperature": 0.5, "masked": 3, "unit": "tokens"}, "batches": {"size": 9},
            "encoder": {"pooling": "pooler", "max_length": 17}, "training": {"epochs": 4}}  # fmt: skip
    assert chosen(**mine) == own


def test_supervised_simcse_is_its_formula_on_triplets():
    """Every positive and every negative of the batch below the line, the own negative with its weight."""
    texts = [[f"{word} {n}" for n, word in enumerate(words)] for words in (THINGS[:4], THINGS[3:7], THINGS[6:])]
    built = build("toy", classes=None, seed=1, dropout=0.0)
    table = tokenize(built.tokenizer, [[text for column in texts for text in column]], max_length=16)
    weight, temperature = math.log(3.0), 0.05
    terms, _ = build_terms(
        SimCSE(hard_negative_weight=weight), classes=(), dim=64, labels=np.zeros(4, dtype=np.int64), seed=1
    )
    learner = loss_module(built.model, terms)
    inputs = built.model.inputs(table, np.arange(12))
    batch = Batch(
        inputs, torch.zeros(4, dtype=torch.int64), np.arange(4), columns=3,
        groups=torch.stack([torch.arange(4), torch.arange(4), 10 + torch.arange(4)]),
    )  # fmt: skip
    total, _ = learner(batch)
    vectors = built.model(inputs).embedding.double()
    unit = (vectors / vectors.norm(dim=1, keepdim=True)).tolist()
    cosine = [[sum(x * y for x, y in zip(one, other, strict=True)) for other in unit] for one in unit]
    costs = []
    for i in range(4):
        below = sum(math.exp(cosine[i][4 + j] / temperature) for j in range(4))
        below += sum(math.exp(cosine[i][8 + j] / temperature + (weight if i == j else 0)) for j in range(4))
        costs.append(-math.log(math.exp(cosine[i][4 + i] / temperature) / below))

    assert total.item() == pytest.approx(sum(costs) / 4, rel=1e-5)


BAD: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "views of triplets": ("triplets", {"name": "simcse", "views": "words"}, {}, r'objective\.views = "dropout"'),
    "mirrored triplets": ("triplets", {"name": "mirror"}, {}, r"use simcse, or set objective\.masked"),
    "a weight of negatives that are not there": (
        "plain",
        {"name": "simcse", "hard_negative_weight": 0.7},
        {},
        r"have a negative each \(triplets\).*set it to 0",
    ),
    "a batch of one": ("plain", {"name": "simcse"}, {"batches": {"size": 1}}, r"batches\.size is 1.*set 2 or more"),
    "a batch of one masked": (
        "plain",
        {"name": "mirror"},
        {"batches": {"size": 1}},
        "mirror compares the rows of a batch",
    ),
    "two ways at once": (
        "plain",
        {"name": "blend", "parts": {"a": {"name": "mirror"}, "b": {"name": "simcse", "views": "words"}}},
        {},
        "share it",
    ),
}


@pytest.mark.parametrize("case", BAD, ids=BAD.keys())
def test_what_cannot_work_is_refused_with_the_remedy(case, files, tmp_path):
    name, objective, tables, remedy = BAD[case]
    with pytest.raises(SettingError, match=remedy):
        train_recipe(recipe_of(files[name], objective, **tables), tmp_path / "model")


@pytest.mark.parametrize("content", ["one line\n", "the same\n" * 9])
def test_one_text_alone_is_refused(content, tmp_path):
    """It would train on nothing, with a loss of 0."""
    (tmp_path / "one.txt").write_text(content)
    with pytest.raises(DataError, match=r"one\.txt: there is only one training text.*two different texts at least"):
        read_data(recipe_of(tmp_path / "one.txt", {"name": "simcse"}))


def test_a_limit_that_leaves_one_text_is_refused(files):
    with pytest.raises(DataError, match="there is only one training text"):
        read_data(recipe_of(files["plain"], {"name": "mirror"}, data={"limit": 1}))
    assert len(read_data(recipe_of(files["plain"], {"name": "mirror"}, data={"limit": 2})).train) == 2


def test_a_triplet_has_its_negative_in_a_batch_of_one(files, tmp_path):
    recipe = recipe_of(files["triplets"], {"name": "simcse"}, batches={"size": 1}, data={"limit": 3})
    train_recipe(recipe, tmp_path / "model")
    assert all(entry["loss"] > 0 for entry in read_journal(tmp_path / "model" / "journal.jsonl") if "loss" in entry)


def test_dev_rows_of_plain_texts_must_be_comparable(files):
    with pytest.raises(DataError, match=r"the dev rows of plain texts are pairs.*scored pairs.*--dev") as error:
        read_data(recipe_of(files["plain"], {"name": "simcse"}, data={"dev": str(files["plain"])}))
    assert "class objective" not in str(error.value)


@pytest.mark.parametrize(
    ("objective", "encoder", "same"),
    [
        ({"name": "simcse"}, {"dropout": 0.0}, True),
        ({"name": "mirror", "masked": 0}, {"dropout": 0.0}, True),
        ({"name": "simcse"}, {}, False),
        ({"name": "mirror"}, {"dropout": 0.0}, False),
        ({"name": "simcse"}, {"dropout": 0.0, "drophead": 0.2}, False),
        ({"name": "simcse"}, {"dropout": 0.0, "cutoff": 0.2}, False),
    ],
)
def test_two_views_that_are_the_same_are_told_of(objective, encoder, same, files, tmp_path):
    told = io.StringIO()
    recipe = recipe_of(files["plain"], objective, encoder=encoder, training={"max_steps": 1})
    train_recipe(recipe, tmp_path / "model", callbacks=[console_callback(Console(file=told, width=400))])
    assert ("note: toy has no dropout here, so both views of a text are the same" in told.getvalue()) is same


@pytest.mark.parametrize("shuffle", ["shingles", "neighbors"])
def test_plain_texts_have_one_side_by_which_they_sit_together(shuffle, files, tmp_path):
    """Both views are of the same text, so batches.neighbor_text makes no difference."""
    found = []
    for side in ("left", "right"):
        batches, out = {"shuffle": shuffle, "neighbor_text": side, "group": 4}, tmp_path / side
        train_recipe(recipe_of(files["plain"], {"name": "simcse"}, batches=batches, training={"epochs": 1}), out)
        found.append(digest(out))
    assert found[0] == found[1]


def test_one_pair_alone_is_refused(files, tmp_path):
    """There is nothing in its batch that it could be told from."""
    recipe = recipe_of(files["pairs"], {"name": "batch-softmax"}, data={"limit": 1, "dev": 0})
    with pytest.raises(SettingError, match="there is one training row"):
        train_recipe(recipe, tmp_path / "model")
    assert not (tmp_path / "model").exists()
