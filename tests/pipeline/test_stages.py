"""Trainings in a row: what they share, what is written down of them, and what can be resumed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import StopAt, digest, write_pairs, write_texts

from nearfar.encoding import build
from nearfar.encoding import load as open_model
from nearfar.errors import Interrupted, SettingError
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.data import read_data
from nearfar.pipeline.defaults import Stage, plan_stages, written
from nearfar.pipeline.encoder_run import plan_encoder_run
from nearfar.recipe import Recipe, build_recipe, to_toml
from nearfar.recipe.tasks import build_task_recipe
from nearfar.seeds import stream
from nearfar.training import read_journal
from nearfar.training.contracts import StepEntry


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


def write_opposite(path: Path) -> Path:
    """Dev pairs whose scores are the opposite of what the training pairs teach, so that training lowers them."""
    rows = [json.loads(line) for line in write_pairs(path, 24).read_text(encoding="utf-8").splitlines()]
    lines = (json.dumps({**row, "score": 1 - row["score"]}) for row in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def bsc_then_mse(train: Path, dev: Path, **keys: Any) -> Recipe:
    """The winner of the paper on STSb: batch-softmax up to overfitting, then the squared error (section 6)."""
    return recipe_of(
        train,
        stage("batch-softmax", epochs=3, learning_rate=3e-3, **keys),
        stage("cosine-mse", epochs=2),
        data={"train": str(train), "dev": str(dev)},
        training={"learning_rate": 1e-4, "checkpoint_every": 1, "precision": "fp32"},
    )


def dev_scores(journal: Path) -> dict[int, float]:
    return {
        entry["step"]: entry["scores"]["spearman"] for entry in read_journal(journal) if entry["kind"] == "evaluation"
    }


@pytest.mark.parametrize("keep", [None, "last", "best"])
def test_a_stage_begins_with_what_the_one_before_it_has_kept(tmp_path, keep):
    """The last weights unless it keeps its best: dev rows do not undo what the first stage has learned."""
    train, dev = write_pairs(tmp_path / "p.jsonl"), write_opposite(tmp_path / "d.jsonl")
    keys = {} if keep is None else {"keep": keep}
    recipe = bsc_then_mse(train, dev, **keys)
    train_recipe(recipe, tmp_path / "m")
    first, second = (dev_scores(tmp_path / "m" / f"journal-{number}.jsonl") for number in (1, 2))

    assert first[max(first)] != max(first.values()), "the last step is to be another than the best"
    assert second[0] == (max(first.values()) if keep == "best" else first[max(first)])


def test_last_weights_are_those_of_the_stage_alone(tmp_path):
    """With steps of no size, a second stage ends with the weights that the first one has as a run of its own."""
    train, dev = write_pairs(tmp_path / "p.jsonl"), write_opposite(tmp_path / "d.jsonl")
    shared = {"data": {"train": str(train), "dev": str(dev)}, "training": {"keep": "last", "precision": "fp32"}}
    one = stage("batch-softmax", epochs=2, learning_rate=1e-3)
    still = stage("cosine-mse", epochs=1, learning_rate=1e-30)
    train_recipe(recipe_of(train, dict(one), **shared), tmp_path / "one")
    train_recipe(recipe_of(train, dict(one), still, **shared), tmp_path / "two")
    alone, staged = (open_model(tmp_path / name).model.state_dict() for name in ("one", "two"))

    assert all(torch.equal(alone[name], staged[name]) for name in alone)


class StopInStage(StopAt):
    """Asks a run to stop at a step of one of its stages."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(step)
        self.left = number

    def begin(self, steps: int) -> None:
        self.left -= 1

    def step(self, entry: StepEntry) -> None:
        if self.left == 0:
            super().step(entry)


@pytest.mark.parametrize("number", [1, 2])
def test_a_run_that_keeps_last_weights_resumes_to_the_same_bits(tmp_path, number):
    """In the first stage and in the second; no best weights of the first stage are stored."""
    train, dev = write_pairs(tmp_path / "p.jsonl"), write_opposite(tmp_path / "d.jsonl")
    recipe = bsc_then_mse(train, dev)
    train_recipe(recipe, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train_recipe(recipe, tmp_path / "cut", callbacks=(StopInStage(number, 4),))
    assert not list((tmp_path / "cut" / "checkpoints" / "stage-1").glob("best-*"))
    train_recipe(recipe, tmp_path / "cut", resume=True)

    assert digest(tmp_path / "cut") == digest(tmp_path / "whole")


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"training": {"keep": "best"}}, "training.keep is"),
        ({"stage": [{"objective": {"name": "batch-softmax"}, "keep": "best"}, {}]}, "stage 1: keep is"),
        ({"stage": [{}, {"objective": {"name": "cosine-mse"}, "keep": "best"}]}, "stage 2: keep is"),
    ],
)
def test_the_best_weights_need_dev_rows(tmp_path, tables, message):
    """Refused before training, in one sentence."""
    train = write_pairs(tmp_path / "p.jsonl")
    values = {"data": {"train": str(train), "dev": 0}, "encoder": {"name": "toy"}, **tables}
    with pytest.raises(SettingError) as raised:
        train_recipe(build_recipe(values, [], where="test"), tmp_path / "m")

    assert str(raised.value) == (
        f'{message} "best", and there are no dev rows to tell which weights are best: set data.dev, or "last".'
    )
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("keys", "training", "message"),
    [
        ({"keep": "best"}, {}, "^stage 1: keep is .best., and there are no dev rows"),
        ({}, {"keep": "best"}, "^training.keep is .best., and no task has dev rows"),
    ],
)
def test_the_best_weights_before_tasks_need_dev_rows_of_the_stage(tmp_path, keys, training, message):
    """Those of the tasks say nothing about the stage, and the other way round."""
    pairs = str(write_pairs(tmp_path / "p.jsonl"))
    values = {
        "encoder": {"name": "toy"},
        "training": {"epochs": 1, **training},
        "stage": [{"data": {"train": pairs, "dev": 0}, "objective": {"name": "batch-softmax"}, **keys}],
        "task": [{"name": "sts", "data": {"train": pairs, "dev": 0}}],
    }
    with pytest.raises(SettingError, match=message):
        train_recipe(build_task_recipe(values, where="test"), tmp_path / "m")


@pytest.mark.parametrize("keep", ["last", "best"])
def test_a_stage_before_tasks_hands_on_what_it_keeps(tmp_path, keep):
    """Its own dev rows choose only if it keeps its best; here these are the weights before its first step."""
    pairs, dev = str(write_pairs(tmp_path / "p.jsonl")), str(write_opposite(tmp_path / "d.jsonl"))
    lower = {"objective": {"name": "batch-softmax"}, "learning_rate": 0.01, "keep": keep}
    values = {
        "encoder": {"name": "toy", "frozen": True},
        "training": {"epochs": 1, "precision": "fp32"},
        "stage": [{"data": {"train": pairs, "dev": dev}, **lower}],
        "task": [{"name": "sts", "data": {"train": pairs, "dev": dev}}],
    }
    recipe = build_task_recipe(values, where="test")
    train_recipe(recipe, tmp_path / "m")
    scores = dev_scores(tmp_path / "m" / "journal-stage-1.jsonl")
    untrained = build("toy", classes=None, seed=stream(stream(recipe.seed, "stage", 1) % 2**31, "head")).model
    same = all(
        torch.equal(weight, open_model(tmp_path / "m").model.state_dict()[name])
        for name, weight in untrained.state_dict().items()
    )

    assert max(scores, key=lambda step: scores[step]) == 0, "training is to lower the dev score"
    assert same == (keep == "best")
