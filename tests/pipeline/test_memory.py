"""Training from memory gives the model that a file gives; its folder says where the rows were."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path

import pytest
from rich.console import Console
from safetensors.torch import load_file
from tests.training.runs import write_texts
from tests.training.task_runs import task_recipe, write_all

from nearfar.cli.progress import console_callback
from nearfar.data import read
from nearfar.encoding import load as open_model
from nearfar.errors import CheckpointError, DataError, Interrupted, SettingError
from nearfar.pipeline import train
from nearfar.recipe import Recipe, build_recipe
from nearfar.training import Callback


class StopAt(Callback):
    """Ends a run after some steps."""

    def __init__(self, number: int) -> None:
        self.number = number

    def step(self, entry: dict[str, object]) -> None:
        if entry["step"] == self.number:
            raise Interrupted("stopped")

    def evaluation(self, _entry: object) -> None:
        return

    def message(self, _text: str) -> None:
        return


def recipe_of(**data: object) -> Recipe:
    values = {"data": {"train": "memory:train", **data}, "encoder": {"name": "toy"}, "batches": {"size": 8}}
    return build_recipe({**values, "training": {"epochs": 2, "precision": "fp32", "checkpoint_every": 1}}, where="test")


def weights(folder: Path) -> dict[str, list[float]]:
    return {name: tensor.tolist() for name, tensor in load_file(folder / "model.safetensors").items()}


def test_rows_in_memory_train_the_model_of_the_file(tmp_path):
    """Bit for bit, and with the shares of dev rows that the file has."""
    file = write_texts(tmp_path / "t.csv", 40)
    records = read(str(file))
    rows = list(zip(records.texts[0], records.labels or (), strict=True))
    train(recipe_of(train=str(file), dev=0.2), tmp_path / "file")
    summary = train(recipe_of(dev=0.2), tmp_path / "memory", data=rows)
    assert weights(tmp_path / "memory") == weights(tmp_path / "file")
    assert summary.report("dev").scores == dev_scores(tmp_path / "file")
    assert tomllib.loads((tmp_path / "memory" / "recipe.toml").read_text())["data"]["train"] == "memory:train"
    assert "memory:train" in (tmp_path / "memory" / "README.md").read_text()
    assert open_model(tmp_path / "memory").predict(["apple"]) == open_model(tmp_path / "file").predict(["apple"])


def dev_scores(folder: Path) -> dict[str, float]:
    found = json.loads((folder / "metrics.json").read_text())["dev"]
    return {name: found[name] for name in ("accuracy", "f1_macro", "f1_weighted", "ece", "log_loss")}


def test_dev_and_test_rows_come_from_memory_too(tmp_path):
    records = read(str(write_texts(tmp_path / "t.csv", 60)))
    parts = {"train": records.take(range(40)), "dev": records.take(range(40, 50)), "test": records.take(range(50, 60))}
    said = io.StringIO()
    summary = train(
        recipe_of(), tmp_path / "m", data=parts, callbacks=[console_callback(Console(file=said, width=400))]
    )
    assert "rows: train 40, dev 10, test 10" in said.getvalue()
    assert summary.reports.keys() == {"dev", "test"}
    saved = tomllib.loads((tmp_path / "m" / "recipe.toml").read_text())["data"]
    assert (saved["dev"], saved["test"]) == ("memory:dev", "memory:test")


def test_a_run_is_resumed_with_the_same_rows_only(tmp_path):
    records = read(str(write_texts(tmp_path / "t.csv", 40)))
    train(recipe_of(), tmp_path / "whole", data=records)
    with pytest.raises(Interrupted):
        train(recipe_of(), tmp_path / "m", data=records, callbacks=(StopAt(3),))
    with pytest.raises(DataError, match=r"memory:train: these rows were in memory, and none were passed"):
        train(recipe_of(), tmp_path / "m", resume=True)
    with pytest.raises(CheckpointError):
        train(recipe_of(), tmp_path / "m", data=records.take(range(39)), resume=True)
    train(recipe_of(), tmp_path / "m", data=records, resume=True)
    assert weights(tmp_path / "m") == weights(tmp_path / "whole")


def test_what_is_wrong_with_the_rows_is_told_over_all_of_them(tmp_path):
    """Training and dev rows at once, each with row and column."""
    rows = {"train": [("good", "x"), ("", "y")], "dev": [("good", None)]}
    with pytest.raises(DataError) as error:
        train(recipe_of(), tmp_path / "m", data=rows)
    assert "memory:train, row 2, column 'text': the text is empty" in str(error.value)
    assert "memory:dev, row 1, column 'label': the label is missing" in str(error.value)


def test_several_tasks_take_their_rows_by_name(tmp_path):
    """Some from memory, others from files, with the weights of files alone."""
    recipe = task_recipe(write_all(tmp_path))
    kind = next(task for task in recipe.task if task.name == "kind")
    splits = {
        split: read(str(source)) for split in ("train", "dev") if isinstance(source := getattr(kind.data, split), str)
    }
    train(recipe, tmp_path / "files")
    train(recipe, tmp_path / "memory", data={"kind": splits})
    assert weights(tmp_path / "memory") == weights(tmp_path / "files")
    saved = tomllib.loads((tmp_path / "memory" / "recipe.toml").read_text())
    assert saved["task"][0]["data"]["train"] == "memory:kind/train"
    with pytest.raises(SettingError, match=r"data has rows of 'kin', and the tasks are .* Did you mean 'kind'"):
        train(recipe, tmp_path / "m", data={"kin": splits})
