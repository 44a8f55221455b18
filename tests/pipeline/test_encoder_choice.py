"""Which encoder: the probe by hand, the choice among folders, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nearfar.data import read_memory
from nearfar.encoding import load
from nearfar.errors import SettingError
from nearfar.experiments.search_space import Request, prepare
from nearfar.pipeline import encoder_choice
from nearfar.pipeline.encoder_choice import (
    Probe,
    best_encoder,
    candidates,
    choose_encoder,
    is_open,
    leave_one_out,
    probe_encoder,
    ridge_errors,
)
from nearfar.pipeline.encoder_run import plan_encoder_run
from nearfar.pipeline.train import plan_recipe, train
from nearfar.recipe import Override, Recipe, build_recipe

WORDS = ("apple", "plum", "pear", "cherry", "melon", "fig", "grape", "lemon", "peach", "mango")
LABELED = {
    "text": [f"a ripe {word} from the garden" for word in WORDS] + [f"the steel {word} in my shop" for word in WORDS],
    "label": ["fruit"] * 10 + ["tool"] * 10,
}


def recipe(name: str, **tables: dict[str, object]) -> Recipe:
    return build_recipe({"data": {"train": "memory:train"}, "encoder": {"name": name}, **tables}, where="test")


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder that has nothing to say: nearly the same vector for every text."""
    import torch

    model = load("toy")
    with torch.no_grad():
        for name, weight in model.model.network.named_parameters():
            if "LayerNorm.weight" in name:
                weight.mul_(1e-4)
            elif "LayerNorm.bias" in name:
                weight.fill_(1.0)
    folder = tmp_path_factory.mktemp("encoders") / "blind"
    model.save(folder)
    return str(folder)


def test_leave_one_out_is_that_of_slow_loops() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(30, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    numbers = generator.integers(3, size=30)
    right = 0
    for row in range(30):
        others = np.arange(30) != row
        centers = [vectors[others & (numbers == number)].mean(axis=0) for number in range(3)]
        right += int(np.argmin([((vectors[row] - center) ** 2).sum() for center in centers])) == numbers[row]
    assert leave_one_out(vectors, numbers, 3) == right / 30


def test_errors_of_the_ridge_regression_are_those_of_a_fit_without_each_text() -> None:
    generator = np.random.default_rng(0)
    vectors, numbers = generator.normal(size=(20, 4)), generator.integers(3, size=20)
    inputs = vectors - vectors.mean(axis=0)
    targets = np.eye(3)[numbers] - np.eye(3)[numbers].mean(axis=0)
    penalty = (inputs**2).sum(axis=1).mean() * np.eye(4)
    for row, error in enumerate(ridge_errors(vectors, numbers)):
        others = np.arange(20) != row
        weights = np.linalg.solve(inputs[others].T @ inputs[others] + penalty, inputs[others].T @ targets[others])
        assert error == pytest.approx(((targets[row] - inputs[row] @ weights) ** 2).sum())


def test_probes_are_level_within_a_standard_error_of_their_paired_difference() -> None:
    """The errors of texts differ by far more than those of two encoders at the same text."""
    errors = np.linspace(0, 10, 50)
    best = Probe("best", 0.5, errors, 10.0)
    worse = Probe("worse", 0.5, errors + 0.01 + 0.001 * np.tile([1, -1], 25), 10.0)
    same = Probe("same", 0.5, errors + 0.01 + np.tile([1, -1], 25), 10.0)
    assert not best.is_level(worse)
    assert best.is_level(same)
    assert best.is_level(best)
    assert best.score > worse.score
    assert best.score == pytest.approx(0.5)


def test_names_that_leave_the_encoder_open() -> None:
    assert [is_open(name) for name in ("auto", "a,b", "minilm", "owner/name")] == [True, True, False, False]
    assert candidates("toy, minilm,toy") == ["toy", "minilm"]


def test_the_better_encoder_is_taken_and_named(blind: str) -> None:
    plan = choose_encoder(recipe(f"{blind},toy"), LABELED)
    assert plan.recipe.encoder.name == "toy"
    assert plan.notes[0].startswith(
        "encoders by cross-validation of 20 texts without training, explained variance: toy "
    )
    assert plan.notes[0].endswith("toy is taken")
    assert 'name = "toy"' in plan.recipe_text()


def test_level_encoders_are_trained_for_a_short_time() -> None:
    plan = plan_encoder_run(recipe("toy"), LABELED)
    name, notes = best_encoder(plan, ["toy", "toy"])
    assert name == "toy"
    assert "the first two after a short training: toy" in notes[-1]


@pytest.mark.parametrize(("second", "chosen"), [(0.58, "toy"), (0.65, "other")])
def test_a_short_training_has_to_be_better_by_a_standard_error(
    second: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20 texts, a half of them right: 0.112."""
    plan = plan_encoder_run(recipe("toy"), LABELED)
    probe = probe_encoder(plan, "toy")
    monkeypatch.setattr(encoder_choice, "probe_encoder", lambda _, name: replace(probe, name=name))
    monkeypatch.setattr(type(plan), "with_encoder", lambda _, name: name)
    monkeypatch.setattr(encoder_choice, "fold_accuracy", {"toy": 0.5, "other": second}.__getitem__)
    name, notes = best_encoder(plan, ["toy", "other"])
    assert name == chosen
    assert notes[-1].endswith(f"after a short training: toy 0.50, other {second}; {chosen} is taken")


def test_a_model_is_trained_with_the_chosen_encoder(blind: str, tmp_path: Path) -> None:
    train(recipe(f"{blind},toy", training={"estimate": False}), tmp_path / "m", data=LABELED)
    assert 'name = "toy"' in (tmp_path / "m/recipe.toml").read_text()
    assert load(tmp_path / "m").predict(["a ripe quince"])[0].label == "fruit"


def test_all_contenders_of_a_tune_have_the_chosen_encoder(blind: str, tmp_path: Path) -> None:
    lines = [json.dumps({"text": text, "label": label}) for text, label in zip(*LABELED.values(), strict=True)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    encoder = Override(("encoder", "name"), f"{blind},toy", "--encoder")
    prepared = prepare(Request(file=str(tmp_path / "rows.jsonl"), out=tmp_path / "out", settings=(encoder,)))
    assert {trial.values["encoder"]["name"] for trial in prepared.planned.trials.values()} == {"toy"}
    assert prepared.notes[0].endswith("toy is taken")


def test_an_encoder_that_cannot_be_opened_is_left_out(blind: str) -> None:
    plan = plan_encoder_run(recipe("toy"), LABELED)
    name, notes = best_encoder(plan, ["toy", "/nowhere/encoder", blind])
    assert name == "toy"
    assert notes[0].startswith("encoder /nowhere/encoder is left out")
    with pytest.raises(SettingError, match="none of /nowhere/a, /nowhere/b can be opened"):
        best_encoder(plan, ["/nowhere/a", "/nowhere/b"])


def test_nothing_is_chosen_where_there_is_nothing_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_choice, "candidates", lambda _: ["toy"])
    plan = choose_encoder(recipe("auto"), LABELED)
    assert plan.recipe.encoder.name == "toy"
    assert "the only candidate" in plan.notes[0]
    monkeypatch.setattr(encoder_choice, "candidates", lambda _: [])
    with pytest.raises(SettingError, match="there is none; name some"):
        choose_encoder(recipe("auto"), LABELED)


def test_a_comma_alone_names_no_encoder() -> None:
    with pytest.raises(SettingError, match=r"--encoder , names no encoder; write --encoder NAME,NAME"):
        choose_encoder(recipe(","), LABELED)


def test_encoders_are_compared_on_classes_alone() -> None:
    pairs = {"text_a": ["a", "b", "c"], "text_b": ["d", "e", "f"], "score": [0.1, 0.9, 0.5]}
    with pytest.raises(SettingError, match="texts with one class each, and these are pairs with scores"):
        plan_recipe(recipe("toy,minilm"), read_memory(pairs, "memory:train"))


def test_the_probe_of_many_texts_reads_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_choice, "PROBED", 8)
    probe = probe_encoder(plan_encoder_run(recipe("toy"), LABELED), "toy")
    assert 0 <= probe.centers <= 1
    assert (probe.centers * 8).is_integer()
