"""Every objective trains from a recipe, leaves a model that does its work, and resumes to the same bits."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.runs import StopAt, digest, losses, write_texts

from nearfar.cli.progress import console_callback
from nearfar.encoding import load as open_model
from nearfar.errors import DataError, Interrupted, SettingError
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.data import read_data
from nearfar.pipeline.defaults import choose
from nearfar.recipe import OBJECTIVES, Batches, Recipe, Training, build_recipe, read_recipe
from nearfar.recipe.keys import entries

CLASS_OBJECTIVES = [
    "cross-entropy", "triple-entropy", "soft-triple", "cross-entropy+supcon", "supcon", "label-aware", "proxy-nca",
    "triplet", "contrastive",
]  # fmt: skip
PAIR_OBJECTIVES = ["batch-softmax", "mnrl", "cosine-mse", "pearson", "pair-triplet", "contrastive-pairs"]
VIEW_OBJECTIVES = ["simcse", "mirror"]
THINGS = ["apple", "pear", "hammer", "saw", "horse", "otter", "river", "cloud", "violin", "lantern"]


def write_pairs(path: Path, kind: str, rows: int = 40) -> Path:
    """Pairs of made-up texts; those about the same thing belong together."""
    source = random.Random(0)
    made: list[dict[str, Any]] = []
    for row in range(rows):
        one = THINGS[row % len(THINGS)]
        other = one if row % 3 else source.choice([thing for thing in THINGS if thing != one])
        left, right = f"the {one} number {row}", f"number {row} of a {other}"
        if kind == "scores":
            made.append({"text_a": left, "text_b": right, "score": 5.0 * (one == other)})
        elif kind == "pairs":
            made.append({"text_a": left, "text_b": right, "label": int(one == other)})
        elif kind == "positives":
            made.append({"text_a": left, "text_b": f"number {row} of a {one}"})
        elif kind == "triplets":
            made.append({"anchor": left, "positive": f"number {row} of a {one}", "negative": f"no {other} at all"})
        else:
            made.append({"query_id": one, "query": f"the {one}", "doc_id": str(row), "doc": right,
                         "relevance": int(one == other)})  # fmt: skip
    path.write_text("\n".join(json.dumps(one) for one in made) + "\n", encoding="utf-8")
    return path


def recipe_of(train: Path, objective: dict[str, Any], **tables: Any) -> Recipe:
    values: dict[str, Any] = {
        "seed": 3,
        "data": {"train": str(train), "dev": 0.25},
        "encoder": {"name": "toy", "max_length": 24},
        "objective": objective,
        "batches": {"size": 12},
        "training": {"epochs": 2, "learning_rate": 1e-3, "checkpoint_every": 1, "precision": "fp32"},
    }
    for name, table in tables.items():
        values[name] = {**values.get(name, {}), **table} if isinstance(table, dict) else table
    return build_recipe(values, [], where="test")


def resumed_after(step: int, recipe: Recipe, folder: Path) -> None:
    """Stopped after a step and resumed, a run has the weights and all the losses of the one in ``whole``."""
    cut = folder / f"cut-{step}"
    with pytest.raises(Interrupted):
        train_recipe(recipe, cut, callbacks=(StopAt(step),))
    train_recipe(recipe, cut, resume=True)

    assert digest(cut) == digest(folder / "whole"), step
    assert losses(cut) == losses(folder / "whole"), step
    assert losses(cut)[-1][0] > step


def test_every_objective_is_tried_here():
    others = {"auto", "blend", "score-mse"}  # score-mse: tests/pipeline/test_text_scores.py
    assert {*CLASS_OBJECTIVES, *PAIR_OBJECTIVES, *VIEW_OBJECTIVES, *others} == set(OBJECTIVES)


@pytest.mark.parametrize("name", CLASS_OBJECTIVES)
def test_a_class_objective_trains_predicts_and_resumes(name, tmp_path):
    """Interrupted within an epoch and resumed, the folder has the same last weights as one that was left alone."""
    last = {"dev": 0, "test": 0.25}
    recipe = recipe_of(write_texts(tmp_path / "texts.csv", 48), {"name": name}, data=last)
    summary = train_recipe(recipe, tmp_path / "whole")
    resumed_after(4, recipe, tmp_path)

    assert set(summary.report("test").scores) >= {"accuracy", "f1_weighted"}
    model = open_model(tmp_path / "whole")
    (found,) = model.predict(["a horse and an otter"])
    assert found.label in ("fruit", "tool", "animal")
    assert sum(found.probabilities.values()) == pytest.approx(1, abs=1e-5)
    steps = [json.loads(line) for line in (tmp_path / "whole" / "journal.jsonl").read_text().splitlines()]
    assert all(np.isfinite(entry["loss"]) for entry in steps if entry["kind"] == "step")


@pytest.mark.parametrize(
    ("objective", "training"),
    [
        ({"name": "supcon", "views": "dropout"}, {}),
        ({"name": "cross-entropy+supcon", "views": "spans"}, {}),
        ({"name": "proxy-nca", "distance": "euclidean"}, {"bias_correction": False}),
        ({"name": "cross-entropy"}, {"bias_correction": False}),
    ],
)
def test_variants_of_papers_train_and_resume_to_the_same_bits(objective, training, tmp_path):
    """Two views, another distance, and AdamW without bias correction, which updates word embeddings row by row, too."""
    train = write_texts(tmp_path / "texts.csv", 48)
    recipe = recipe_of(train, objective, data={"dev": 0}, training=training)
    train_recipe(recipe, tmp_path / "whole")
    resumed_after(4, recipe, tmp_path)
    plain = recipe_of(train, {"name": objective["name"]}, data={"dev": 0})
    train_recipe(plain, tmp_path / "plain")

    assert digest(tmp_path / "plain") != digest(tmp_path / "whole")


def test_mirror_as_published_has_the_authors_loss_and_rate(tmp_path):
    """NT-Xent in batches of 200, a constant rate without warmup; each key that the recipe sets takes precedence."""
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(f"the {thing} number {n} of many" for n, thing in enumerate(THINGS * 4)) + "\n")
    recipe = recipe_of(plain, {"name": "mirror", "preset": "as-published"}, data={"train": str(plain), "dev": 0})
    train_recipe(recipe, tmp_path / "whole")
    resumed_after(4, recipe, tmp_path)
    entries = [json.loads(line) for line in (tmp_path / "whole" / "journal.jsonl").read_text().splitlines()]
    rates = {entry["learning_rates"]["encoder"] for entry in entries if entry["kind"] == "step"}
    saved = tomllib.loads((tmp_path / "whole" / "recipe.toml").read_text(encoding="utf-8"))
    own = recipe_of(
        plain,
        {"name": "mirror", "preset": "as-published", "negatives": "other-view"},
        data={"train": str(plain), "dev": 0},
        training={"warmup": 0.5, "schedule": "linear"},
    )
    train_recipe(own, tmp_path / "own")
    kept = tomllib.loads((tmp_path / "own" / "recipe.toml").read_text(encoding="utf-8"))

    assert rates == {1e-3}
    assert (saved["objective"]["negatives"], saved["training"]["schedule"], saved["training"]["warmup"]) == (
        "both-views", "constant", 0.0,
    )  # fmt: skip
    assert (kept["objective"]["negatives"], kept["training"]["schedule"], kept["training"]["warmup"]) == (
        "other-view", "linear", 0.5,
    )  # fmt: skip
    assert digest(tmp_path / "own") != digest(tmp_path / "whole")


@pytest.mark.parametrize("kind", ["scores", "pairs"])
@pytest.mark.parametrize("name", PAIR_OBJECTIVES)
def test_a_pair_objective_trains_and_resumes(name, kind, tmp_path):
    last = {"dev": 0, "test": 0.25}
    recipe = recipe_of(write_pairs(tmp_path / "pairs.jsonl", kind), {"name": name}, data=last)
    summary = train_recipe(recipe, tmp_path / "whole")
    resumed_after(4, recipe, tmp_path)

    assert ("spearman" if kind == "scores" else "f1") in summary.report("test").scores
    assert open_model(tmp_path / "whole").embed(["the apple"]).shape == (1, 64)


@pytest.mark.parametrize("kind", ["positives", "triplets", "ranking"])
@pytest.mark.parametrize("name", ["auto", "batch-softmax", "mnrl", "pair-triplet"])
def test_other_shapes_of_rows_train(kind, name, tmp_path):
    recipe = recipe_of(write_pairs(tmp_path / "rows.jsonl", kind), {"name": name})
    summary = train_recipe(recipe, tmp_path / "model")

    wanted = {"positives": "mrr", "triplets": "accuracy", "ranking": "map"}[kind]
    assert wanted in summary.report("dev").scores


@pytest.mark.parametrize("name", VIEW_OBJECTIVES)
def test_plain_texts_train_by_two_views_and_are_measured_by_scored_pairs(name, tmp_path):
    """The weights from before the training are measured, too, and kept if nothing is better."""
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(f"the {thing} number {n} of many" for n, thing in enumerate(THINGS * 4)) + "\n")
    pairs = write_pairs(tmp_path / "sts.jsonl", "scores")
    recipe = recipe_of(plain, {"name": name}, data={"train": str(plain), "dev": str(pairs)})
    summary = train_recipe(recipe, tmp_path / "whole")
    resumed_after(1, recipe, tmp_path)

    assert summary.progress is not None
    assert summary.progress.evaluations[0]["step"] == 0
    best = max(entry["scores"]["spearman"] for entry in summary.progress.evaluations)
    assert summary.report("dev").scores["spearman"] == pytest.approx(best, abs=1e-6)
    names = {path.name for path in (tmp_path / "whole").glob("*.safetensors")}
    assert names == {"model.safetensors"}  # the projection took part in training only


def test_a_share_of_plain_texts_cannot_measure_anything(tmp_path):
    plain = tmp_path / "plain.txt"
    plain.write_text("one\ntwo\nthree\nfour\n")
    with pytest.raises(SettingError, match="scored pairs"):
        train_recipe(recipe_of(plain, {"name": "simcse"}, data={"train": str(plain), "dev": 0.5}), tmp_path / "model")


def test_triplets_train_with_simcse(tmp_path):
    recipe = recipe_of(
        write_pairs(tmp_path / "rows.jsonl", "triplets"), {"name": "simcse", "hard_negative_weight": 0.3}
    )
    assert "accuracy" in train_recipe(recipe, tmp_path / "model").report("dev").scores


@pytest.mark.parametrize("head", ["logistic", "nearest-center", "neighbors"])
@pytest.mark.parametrize("name", ["supcon", "cross-entropy"])
def test_a_fitted_head_is_saved_and_says_what_the_run_said(head, name, tmp_path):
    train, test = write_texts(tmp_path / "texts.csv", 48), write_texts(tmp_path / "test.csv", 30)
    recipe = recipe_of(train, {"name": name}, head={"kind": head}, data={"train": str(train), "test": str(test)})
    summary = train_recipe(recipe, tmp_path / "model")
    model = open_model(tmp_path / "model")

    rows = [line.split(",") for line in test.read_text().splitlines()[1:]]
    right = np.mean(
        [found.label == label for found, (_, label) in zip(model.predict([r[0] for r in rows]), rows, strict=True)]
    )
    assert right == pytest.approx(summary.report("test").scores["accuracy"])
    assert model.card.head["kind"] == head


def test_a_blend_logs_every_part(tmp_path):
    objective = {
        "name": "blend", "weights": {"contrast": 0.1},
        "parts": {"contrast": {"name": "batch-softmax", "trainable": True}, "mse": {"name": "cosine-mse"}},
    }  # fmt: skip
    train_recipe(recipe_of(write_pairs(tmp_path / "pairs.jsonl", "scores"), objective), tmp_path / "model")
    steps = [json.loads(line) for line in (tmp_path / "model" / "journal.jsonl").read_text().splitlines()]
    for entry in steps:
        if entry["kind"] == "step":
            assert set(entry["parts"]) == {"contrast", "mse"}
            assert entry["loss"] == pytest.approx(0.1 * entry["parts"]["contrast"] + entry["parts"]["mse"], rel=1e-4)


def test_a_part_of_a_blend_learns_at_its_own_rate(tmp_path):
    """The journal has the rate of each."""
    parts = {"centers": {"name": "soft-triple", "learning_rate": 0.5}, "proxies": {"name": "proxy-nca"}}
    out = tmp_path / "model"
    train_recipe(
        recipe_of(write_texts(tmp_path / "t.csv"), {"name": "blend", "parts": parts}, training={"epochs": 1}), out
    )
    first = json.loads((out / "journal.jsonl").read_text().splitlines()[0])
    assert set(first["learning_rates"]) == {"encoder", "objective", "objective/centers"}
    assert first["learning_rates"]["objective/centers"] == pytest.approx(5 * first["learning_rates"]["objective"])


def test_the_journal_tells_learned_temperatures_and_masked_negatives(tmp_path):
    """A temperature moves from where it began, and the right texts that come twice are counted."""
    objective = {"name": "batch-softmax", "trainable": True, "temperature": 0.2}
    rows = [{"text_a": f"the {thing} {n}", "text_b": f"a {thing}"} for n in range(3) for thing in THINGS]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"train": str(tmp_path / "p.jsonl"), "dev": 0}
    train_recipe(recipe_of(tmp_path / "p.jsonl", objective, data=data, batches={"size": 30}), tmp_path / "model")
    steps = [json.loads(line) for line in (tmp_path / "model" / "journal.jsonl").read_text().splitlines()]
    steps = [entry for entry in steps if entry["kind"] == "step"]
    assert steps[0]["temperatures"]["batch_softmax"] == pytest.approx(0.2)
    assert steps[-1]["temperatures"]["batch_softmax"] != steps[0]["temperatures"]["batch_softmax"]
    assert all(entry["masked"] == {"batch_softmax": 2 * 30 * 2} for entry in steps)  # 2 others each, in 2 directions


def test_an_objective_beside_stages_is_said_to_do_nothing(tmp_path, capsys):
    train = write_pairs(tmp_path / "pairs.jsonl", "scores")
    stages = [{"objective": {"name": "batch-softmax"}, "epochs": 1}, {"objective": {"name": "cosine-mse"}, "epochs": 1}]
    shown = [console_callback()]
    train_recipe(recipe_of(train, {"name": "pearson"}, stage=stages), tmp_path / "model", callbacks=shown)
    assert "'pearson' is not used" in " ".join(capsys.readouterr().err.split())
    train_recipe(read_recipe(tmp_path / "model" / "recipe.toml"), tmp_path / "again", callbacks=shown)
    assert "is not used" not in capsys.readouterr().err  # a saved recipe names the last one


def test_groups_of_a_run_begin_at_the_threshold_of_its_objective(tmp_path):
    """Two right texts of one left text belong together where their score is above it; a fixed temperature is no news."""
    rows = [{"text_a": f"a {n // 2}", "text_b": f"b {n}", "score": 0.4} for n in range(14)]
    rows += [{"text_a": "low", "text_b": "lowest", "score": 0.0}, {"text_a": "high", "text_b": "highest", "score": 1.0}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"train": str(tmp_path / "p.jsonl"), "dev": 0}
    for threshold, masked in ((0.3, 14 * 2), (0.5, 0)):
        out = tmp_path / str(threshold)
        objective = {"name": "batch-softmax", "threshold": threshold}
        train_recipe(
            recipe_of(tmp_path / "p.jsonl", objective, data=data, batches={"size": 16}, training={"epochs": 1}), out
        )
        entry = json.loads((out / "journal.jsonl").read_text().splitlines()[0])
        assert entry["masked"] == {"batch_softmax": masked}
        assert "temperatures" not in entry


def test_a_text_with_a_second_view_is_not_said_to_be_alone(tmp_path, capsys):
    """Under label-aware a text of a class of its own still has its second view to come near to."""
    path = write_texts(tmp_path / "t.csv", 24)
    path.write_text(path.read_text() + "a lonely cloud,weather\n")
    data = {"train": str(path), "dev": 0}
    for name, told in (("supcon", True), ("label-aware", False)):
        train_recipe(
            recipe_of(path, {"name": name}, data=data, training={"epochs": 1}),
            tmp_path / name,
            callbacks=[console_callback()],
        )
        said = " ".join(capsys.readouterr().err.split())
        assert ("have no positive in their batch" in said) == told


def test_stages_run_one_after_the_other_and_resume_within_the_second(tmp_path):
    train = write_pairs(tmp_path / "pairs.jsonl", "scores")
    stages = [{"objective": {"name": "batch-softmax"}}, {"objective": {"name": "cosine-mse"}, "epochs": 3}]
    data = {"train": str(train), "dev": 0}  # so that the last weights are kept
    recipe = recipe_of(train, {"name": "auto"}, stage=stages, data=data)
    train_recipe(recipe, tmp_path / "whole")

    class StopInSecond(StopAt):
        def step(self, entry: dict[str, Any]) -> None:
            if "cosine_mse" in entry["parts"]:
                super().step(entry)

    with pytest.raises(Interrupted):
        train_recipe(recipe, tmp_path / "cut", callbacks=(StopInSecond(2),))
    train_recipe(recipe, tmp_path / "cut", resume=True)

    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")
    for folder in ("whole", "cut"):
        first, second = (
            [json.loads(line) for line in (tmp_path / folder / f"journal-{number}.jsonl").read_text().splitlines()]
            for number in (1, 2)
        )
        assert [entry["step"] for entry in first if entry["kind"] == "step"] == list(range(1, 9))
        assert [entry["step"] for entry in second if entry["kind"] == "step"] == list(range(1, 13))
    alone = recipe_of(train, {"name": "batch-softmax"}, data=data)
    train_recipe(alone, tmp_path / "alone")
    assert digest(tmp_path / "alone") != digest(tmp_path / "whole")


@pytest.mark.parametrize("shuffle", ["random", "file-order", "neighbors", "words", "clusters", "neighbor-ids"])
def test_every_order_of_batches_trains_and_resumes(shuffle, tmp_path):
    """Also between two encodings: the epoch plan in force is part of the checkpoint."""
    recipe = recipe_of(
        write_pairs(tmp_path / "pairs.jsonl", "pairs"), {"name": "batch-softmax"},
        batches={"size": 12, "shuffle": shuffle, "group": 4, "refresh": 2, "clusters": 3},
        training={"epochs": 4}, data={"dev": 0, "test": 0.25},
    )  # fmt: skip
    train_recipe(recipe, tmp_path / "whole")
    for at in (2, 3, 5):  # within the first epoch, at its end, within the second
        resumed_after(at, recipe, tmp_path)
    grouped = [
        entry
        for entry in map(json.loads, (tmp_path / "whole" / "journal.jsonl").read_text().splitlines())
        if entry["kind"] == "batches"
    ]
    assert bool(grouped) == (shuffle not in ("random", "file-order"))
    assert all(entry["groups"] >= 1 for entry in grouped)


def test_a_weighting_network_is_trained_and_not_saved(tmp_path):
    recipe = recipe_of(write_texts(tmp_path / "texts.csv", 48), {"name": "label-aware"})
    train_recipe(recipe, tmp_path / "model")
    steps = [json.loads(line) for line in (tmp_path / "model" / "journal.jsonl").read_text().splitlines()]
    parts = [entry["parts"]["weighting"] for entry in steps if entry["kind"] == "step"]
    assert len(set(parts)) == len(parts)
    plain = recipe_of(write_texts(tmp_path / "texts.csv", 48), {"name": "cross-entropy"})
    train_recipe(plain, tmp_path / "plain")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "plain").glob("*.safetensors")}
    assert {path.name: path.stat().st_size for path in (tmp_path / "model").glob("*.safetensors")} == sizes


@pytest.mark.parametrize("views", ["spans", "synonyms"])
def test_the_second_view_of_a_text_may_be_changed(views, tmp_path):
    """Other losses than with dropout alone, and the same bits after a resume."""
    train = write_texts(tmp_path / "texts.csv", 36)
    recipe = recipe_of(train, {"name": "label-aware", "views": views})
    train_recipe(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train_recipe(recipe, tmp_path / "cut", callbacks=(StopAt(2),))
    train_recipe(recipe, tmp_path / "cut", resume=True)
    train_recipe(recipe_of(train, {"name": "label-aware"}), tmp_path / "plain")

    assert digest(tmp_path / "cut") == digest(tmp_path / "whole") != digest(tmp_path / "plain")


@pytest.mark.parametrize(
    ("views", "encoder", "same"),
    [("dropout", {"dropout": 0.0}, True), ("spans", {"dropout": 0.0}, False), ("dropout", {"dropout": 0.1}, False)],
)
def test_two_views_of_a_labeled_text_that_are_the_same_are_told_of(views, encoder, same, tmp_path, capsys):
    objective = {"name": "label-aware", "views": views}
    train = write_texts(tmp_path / "texts.csv", 24)
    train_recipe(
        recipe_of(train, objective, encoder=encoder, training={"max_steps": 1}),
        tmp_path / "model",
        callbacks=[console_callback()],
    )
    told = " ".join(capsys.readouterr().err.split())
    advice = 'change the second view: objective.views = "spans" or "synonyms"'
    assert ("both views of a text are the same" in told) is (advice in told) is same


BAD = {
    "one class": ({"name": "auto"}, {}, "label"),
    "a trained head without cross-entropy": ({"name": "supcon"}, {"head": {"kind": "trained"}}, "logistic"),
    "neighbors for classes": ({"name": "supcon"}, {"batches": {"shuffle": "neighbors"}}, "balanced"),
    "padding on the fast path": ({"name": "triple-entropy", "padding": True}, {}, "encoder.fast"),
    "padding of whole texts": (
        {"name": "triple-entropy", "padding": True, "level": "text"}, {"encoder": {"fast": False}},
        r'objective\.level = "tokens"',
    ),
    "a blend of nothing": ({"name": "blend"}, {}, "objective.parts"),
    "a weight without a part": (
        {"name": "blend", "weights": {"b": 1.0}, "parts": {"a": {"name": "supcon"}}}, {}, "no part",
    ),
    "texts and pairs": (
        {"name": "blend", "parts": {"a": {"name": "supcon"}, "b": {"name": "mnrl"}}}, {}, "same kind of rows",
    ),
    "pairs wanted": ({"name": "mnrl"}, {}, "--pair"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD, ids=BAD.keys())
def test_what_cannot_work_is_refused_with_the_remedy(case, tmp_path):
    objective, tables, remedy = BAD[case]
    train = write_texts(tmp_path / "texts.csv", 24)
    if case == "one class":
        train.write_text("text,label\na,x\nb,x\nc,x\n")
    with pytest.raises((DataError, SettingError), match=remedy):
        train_recipe(recipe_of(train, objective, **tables), tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "size", "epochs", "stated"),
    [("cross-entropy", 32, 40, 80), ("supcon", 64, 6, 6), ("triplet", 64, 6, 6), ("simcse", 128, 1, 1),
     ("cosine-mse", 32, 5, 5), ("mnrl", 64, 5, 5)],
)  # fmt: skip
def test_unset_batches_and_epochs_are_what_the_recipe_page_says(name, size, epochs, stated, tmp_path):
    texts = write_texts(tmp_path / "texts.csv", 48)
    train = texts if name in CLASS_OBJECTIVES else write_pairs(tmp_path / "pairs.jsonl", "pairs")
    recipe = recipe_of(train, {"name": name}, batches={"size": None}, training={"epochs": None})
    chosen, _ = choose(recipe, read_data(recipe))
    assert (chosen.batches.size, chosen.training.epochs) == (size, epochs)
    assert str(size) in entries(Batches)["size"].key.about
    assert str(stated) in entries(Training)["epochs"].key.about


@pytest.mark.parametrize(
    ("texts", "settings", "epochs", "rate"),
    [
        (64, {}, 6, 2e-4),
        (65, {}, 15, 1e-4),
        (256, {}, 8, 1e-4),
        (257, {}, 6, 1e-4),
        (641, {}, 3, 1e-4),
        (65, {"max_steps": 9}, 15, 2e-4),
        (65, {"accumulate": 2}, 30, 1e-4),
        (65, {"epochs": 4}, 4, 2e-4),
        (48, {"epochs": 10}, 10, 1e-4),
        (48, {"epochs": 10, "learning_rate": 3e-5}, 10, 3e-5),
    ],
)
def test_one_batch_of_texts_gets_six_steps_and_few_thirty_at_half_the_rate(tmp_path, texts, settings, epochs, rate):
    recipe = recipe_of(
        write_texts(tmp_path / "texts.csv", texts), {"name": "supcon"}, batches={"size": 64}, data={"dev": 0},
        training={"epochs": None, "learning_rate": None, **settings},
    )  # fmt: skip
    chosen, _ = choose(recipe, read_data(recipe))
    assert (chosen.training.epochs, chosen.training.learning_rate) == (epochs, rate)


def test_pairs_that_all_belong_together_are_measured_on_pairs_of_both_kinds(tmp_path):
    (tmp_path / "train.csv").write_text("text_a,text_b,label\nred car,crimson auto,1\nold man,aged person,1\n")
    (tmp_path / "dev.csv").write_text("text_a,text_b,label\nred bus,crimson coach,yes\nbig tree,small pea,no\n")
    dev = {"dev": str(tmp_path / "dev.csv")}
    data = read_data(recipe_of(tmp_path / "train.csv", {"name": "mnrl"}, data=dev))
    assert (data.row_type, data.measured) == ("pairs", "pairs")
    with pytest.raises(DataError, match="one class"):
        read_data(recipe_of(tmp_path / "train.csv", {"name": "supcon"}, data=dev))


def test_few_texts_are_drawn_by_seed_and_class(tmp_path):
    train = write_texts(tmp_path / "texts.csv", 60)
    summary = train_recipe(
        recipe_of(train, {"name": "auto"}, data={"train": str(train), "dev": 0, "per_class": 4}), tmp_path / "m"
    )
    assert summary.progress is not None
    assert summary.progress.texts % 12 == 0
    text = (tmp_path / "m" / "README.md").read_text()
    assert "| train | texts.csv | 12 |" in text
