"""An objective from outside the package: one table, one module, one call of register."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import torch
from tests.cli.test_bad_pairs import call
from torch import Tensor, nn

from nearfar.encoding import load as open_model
from nearfar.pipeline.objectives import BuildContext, register, unregister
from nearfar.recipe import OBJECTIVES
from nearfar.recipe.capabilities import Capabilities, Single
from nearfar.recipe.keys import Key
from nearfar.training import Term


@dataclass(frozen=True, kw_only=True)
class Center(Single):
    """Texts come near the mean of their class in the batch.

    Reads:    single texts, one class each
    Paper:    none
    """

    name: Literal["center"] = "center"
    learning_rate: float | None = None
    strength: Annotated[float, Key("How much each text counts.", above=0)] = 1.0

    @property
    def does(self) -> Capabilities:
        return Capabilities(reads="classes", in_batch=True, needs_positives=True)


class CenterLoss(nn.Module):
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        same = (labels[:, None] == labels).float()
        return (embeddings - same @ embeddings / same.sum(dim=1, keepdim=True)).square().sum(dim=1).mean()


def build(settings: Center, context: BuildContext) -> tuple[list[Term], list[str]]:
    return [Term("center", settings.strength, CenterLoss(), "text")], [f"{len(context.classes)} centers"]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(Center, build)
    yield
    unregister(Center)


@pytest.fixture
def texts(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [(f"{word} number {n}", label) for n in range(12) for word, label in (("plum", "fruit"), ("saw", "tool"))]
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


def test_it_trains_by_its_name_and_the_model_loads(texts):
    code, _, said = call(
        "train", texts.name, "--encoder", "toy", "--objective", "center", "--epochs", "2", "--out", "model"
    )
    assert code == 0, said
    assert "2 centers" in said
    assert "objective: center;" in said
    assert 'shuffle = "balanced"' in Path("model/recipe.toml").read_text()
    assert open_model("model").predict(["plum number 3"])[0].label in ("fruit", "tool")
    losses = [json.loads(line).get("loss") for line in Path("model/journal.jsonl").read_text().splitlines()]
    assert all(torch.isfinite(torch.tensor(loss)) for loss in losses if loss is not None)


def test_it_can_be_part_of_a_blend(texts):
    Path("recipe.toml").write_text(
        '[data]\ntrain = "texts.csv"\n[encoder]\nname = "toy"\n[training]\nepochs = 1\n[objective]\nname = "blend"\n'
        '[objective.parts.near]\nname = "center"\nstrength = 0.5\n[objective.parts.classes]\nname = "cross-entropy"\n'
    )
    code, _, said = call("train", "recipe.toml", "--out", "blend")
    assert code == 0, said
    assert open_model("blend").labels == ("fruit", "tool")


def test_its_keys_are_checked_and_its_name_is_listed(texts):
    code, _, said = call("train", texts.name, "--objective", "center", "--set", "objective.strenth=1", "--out", "no")
    assert code != 0
    assert "Did you mean 'strength'?" in said
    code, out, _ = call("objectives", "--json")
    assert json.loads(out)["center"]["settings"][1]["key"] == "strength"
    assert call("objectives")[0] == 0


def test_it_can_be_removed_again(texts):
    unregister(Center)
    try:
        assert "center" not in OBJECTIVES
        code, _, said = call("train", texts.name, "--objective", "center", "--out", "no")
        assert code != 0
        assert "center" in said
    finally:
        register(Center, build)
