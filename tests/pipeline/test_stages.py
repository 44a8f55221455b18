"""Trainings in a row: what they share, what is written down of them, and what can be resumed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import write_pairs, write_texts

from nearfar.encoding import load as open_model
from nearfar.errors import SettingError
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.data import read_data
from nearfar.pipeline.defaults import Stage, plan_stages, written
from nearfar.pipeline.encoder_run import plan_encoder_run
from nearfar.recipe import Recipe, build_recipe, to_toml
from nearfar.training import read_journal


def recipe_of(train: Path, *objectives: dict[str, Any], **tables: Any) -> Recipe:
    values: dict[str, Any] = {
        "data": {"train": str(train), "dev": 0.2},
        "encoder": {"name": "toy"},
        "batches": {"size": 8},
        "stage": [{"objective": {"name": one.pop("name"), **one.pop("more", {})}, **one} for one in objectives],
    }
    return build_recipe({**values, **tables}, [], where="test")


def planned(recipe: Recipe) -> list[Stage]:
    return plan_stages(recipe, read_data(recipe))[0]


def stage(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, **keys}


@pytest.mark.parametrize(
    "stages",
    [
        (stage("supcon"), stage("cross-entropy")),
        (stage("cross-entropy"), stage("supcon")),
        (stage("triple-entropy", more={"preset": "as-published"}), stage("supcon")),
        (stage("cross-entropy"), stage("triple-entropy", more={"preset": "as-published"})),
        (stage("cross-entropy", epochs=2), stage("cross-entropy", epochs=20)),
        (stage("supcon", epochs=30), stage("label-aware", epochs=11), stage("proxy-nca")),
        (stage("mirror"), stage("simcse")),
        (stage("simcse"), stage("mirror", epochs=12)),
    ],
)
def test_the_recipe_that_is_written_plans_the_same_stages(tmp_path, stages):
    """So that it runs the training again, and a run can be resumed from its folder alone."""
    pairs = stages[0]["name"] in ("mirror", "simcse")
    train = write_pairs(tmp_path / "p.jsonl") if pairs else write_texts(tmp_path / "t.csv", 30)
    first = planned(recipe_of(train, *(dict(one) for one in stages)))
    again = planned(build_recipe(tomllib.loads(to_toml(written(first))), [], where="written"))

    assert [one.recipe for one in again] == [one.recipe for one in first]
    assert len({one.recipe.encoder for one in first}) == 1


@pytest.mark.parametrize("names", [("supcon", "cross-entropy"), ("cross-entropy", "supcon")])
def test_a_fitted_head_is_what_speaks_in_its_stage(tmp_path, names):
    """Beside a stage that trains a head, too: dev rows are not judged by a head that has learned nothing, or before."""
    train = write_texts(tmp_path / "t.csv", 60)
    training = {"epochs": 2, "learning_rate": 1e-3}
    train_recipe(recipe_of(train, *map(stage, names), training=training), tmp_path / "m")
    fitted = read_journal(tmp_path / "m" / f"journal-{names.index('supcon') + 1}.jsonl")

    assert [entry["scores"]["accuracy"] > 0.8 for entry in fitted if entry["kind"] == "evaluation"] == [True, True]
    model = open_model(tmp_path / "m")
    assert not model.model.native
    assert (model.card.head or {})["kind"] == ("nearest-center" if names[-1] == "supcon" else "linear")


def test_a_checkpoint_knows_the_stages_before_its_own(tmp_path):
    """The second of two stages is not continued on weights that another first one has left; storing may change."""
    train = write_texts(tmp_path / "t.csv", 30)
    one, other, stored = (
        recipe_of(train, stage("cross-entropy", **keys), stage("cross-entropy"), **tables)
        for keys, tables in (({}, {}), ({"epochs": 9}, {}), ({}, {"training": {"keep_checkpoints": 9}}))
    )
    names = [[plan_encoder_run(recipe).identity(place, 1) for place in (0, 1)] for recipe in (one, other, stored)]
    assert names[0] == names[2]
    assert names[0][0] != names[1][0]
    assert names[0][1] != names[1][1]


@pytest.mark.parametrize(("kind", "metric"), [("classes", "spearman"), ("scores", "f1"), ("scores", "mrr")])
def test_a_metric_that_the_dev_rows_do_not_have_is_refused(tmp_path, kind, metric):
    """Before anything is trained; without dev rows nothing is chosen by it."""
    train = write_texts(tmp_path / "t.csv", 30) if kind == "classes" else write_pairs(tmp_path / "p.jsonl")
    with pytest.raises(SettingError, match=rf"training.metric is '{metric}'.*choose one of"):
        planned(recipe_of(train, training={"metric": metric}))
    planned(recipe_of(train, data={"train": str(train), "dev": 0}, training={"metric": metric}))


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (stage("batch-softmax", batch_size=1), "batches.size is 1"),
        (stage("cosine-mse", shuffle="balanced"), "needs classes"),
        (stage("simcse", more={"hard_negative_weight": 1.0}), "objective.hard_negative_weight is for rows"),
    ],
)
def test_a_later_stage_is_refused_before_the_first_begins(tmp_path, last, message):
    """Not after hours of it, and not after the folder was made."""
    train = write_pairs(tmp_path / "p.jsonl")
    with pytest.raises(SettingError, match=message):
        train_recipe(recipe_of(train, stage("cosine-mse"), dict(last)), tmp_path / "m")
    assert not (tmp_path / "m").exists()
