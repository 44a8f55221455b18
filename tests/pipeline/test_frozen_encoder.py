"""A frozen encoder: what is trained, what stays bit for bit, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import write_pairs, write_texts

from nearfar.encoding import build
from nearfar.encoding import load as open_model
from nearfar.errors import SettingError
from nearfar.pipeline import train as train_recipe
from nearfar.pipeline.data import read_data
from nearfar.pipeline.defaults import plan_stages
from nearfar.recipe import Recipe, build_recipe
from nearfar.recipe.tasks import build_task_recipe
from nearfar.seeds import stream


def recipe_of(train: Path, **tables: Any) -> Recipe:
    values: dict[str, Any] = {
        "data": {"train": str(train), "dev": 0},
        "encoder": {"name": "toy", "frozen": True},
        "batches": {"size": 10},
        "training": {"epochs": 2, "learning_rate": 1e-3},
    }
    for name, table in tables.items():
        values[name] = {**values.get(name, {}), **table}
    return build_recipe(values, [], where="test")


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"encoder": {"pooling": "mean"}},
        {"encoder": {"fast": False}},
        {"objective": {"name": "triple-entropy"}},
        {"objective": {"name": "cross-entropy+supcon", "weight": 0.5}},
        {"batches": {"chunk": 4}},
    ],
)
def test_only_the_head_moves(tmp_path, tables):
    """Every weight of the network but those of the class head is what the seed has drawn, bit for bit."""
    recipe = recipe_of(write_texts(tmp_path / "t.csv", 30), **{"objective": {"name": "cross-entropy"}, **tables})
    before = build(
        "toy", classes=("a", "b"), seed=stream(recipe.seed, "head"), pooling=recipe.encoder.pooling
    ).model.state_dict()
    train_recipe(recipe, tmp_path / "m")
    after = open_model(tmp_path / "m").model.state_dict()
    after = {name: weight for name, weight in after.items() if not name.startswith("scope.")}  # fitted afterwards
    changed = {name for name, weight in after.items() if not torch.equal(weight, before.get(name, weight[:0]))}

    assert changed == {name for name in after if name.startswith(("head.", "network.classifier."))}
    assert len(changed) == 2


def test_auto_chooses_an_objective_that_trains_a_head(tmp_path):
    """Few texts would otherwise be compared with each other, which trains the encoder alone."""
    recipe = recipe_of(write_texts(tmp_path / "t.csv", 30), objective={"name": "auto"})
    stages, notes = plan_stages(recipe, read_data(recipe))

    assert stages[0].recipe.objective.name == "cross-entropy"
    assert notes == ["objective: cross-entropy, because the encoder is frozen; --objective chooses another"]


@pytest.mark.parametrize("name", ["supcon", "proxy-nca", "soft-triple", "triplet"])
def test_an_objective_of_classes_without_a_head_is_refused(tmp_path, name):
    """Centers and proxies would move, but nothing that the model predicts with."""
    recipe = recipe_of(write_texts(tmp_path / "t.csv", 30), objective={"name": name})
    with pytest.raises(SettingError) as raised:
        train_recipe(recipe, tmp_path / "m")

    assert str(raised.value) == (
        f"encoder.frozen is true, and {name} trains no class head, so nothing would be learned: set objective.name = "
        '"cross-entropy", or remove encoder.frozen.'
    )
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("name", ["batch-softmax", "cosine-mse", "simcse"])
def test_an_objective_of_pairs_is_refused(tmp_path, name):
    """Pairs have no head to train."""
    recipe = recipe_of(write_pairs(tmp_path / "p.jsonl"), objective={"name": name})
    with pytest.raises(SettingError, match="trains no class head, so nothing would be learned: for these rows, remove"):
        train_recipe(recipe, tmp_path / "m")


def task_recipe(tmp_path: Path, *heads: str) -> Any:
    pairs = write_pairs(tmp_path / "p.jsonl")
    tasks = [
        {"name": f"t{place}", "data": {"train": str(pairs), "dev": 0}, "head": {"kind": head}}
        for place, head in enumerate(heads)
    ]
    values = {
        "encoder": {"name": "toy", "frozen": True},
        "shared_layer": True,
        "training": {"epochs": 1},
        "batches": {"size": 8},
        "task": tasks,
    }
    return build_task_recipe(values, where="test")


def test_several_tasks_train_their_heads_and_the_shared_layer(tmp_path):
    """The encoder of the saved folder is the one that was opened."""
    recipe = task_recipe(tmp_path, "concat", "joint")
    train_recipe(recipe, tmp_path / "m")
    before = build("toy", classes=None, seed=stream(recipe.seed, "head")).model.state_dict()
    after = open_model(tmp_path / "m").model.state_dict()
    after = {name: weight for name, weight in after.items() if not name.startswith("scope.")}  # fitted afterwards

    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in after)


def test_a_task_whose_head_has_no_weights_is_refused(tmp_path):
    """A cosine head compares the vectors of the encoder as they are."""
    with pytest.raises(SettingError, match=r"^task t1: encoder.frozen is true, and there is no head to train"):
        train_recipe(task_recipe(tmp_path, "concat", "cosine"), tmp_path / "m")
