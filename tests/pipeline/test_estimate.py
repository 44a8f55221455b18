"""How good a model is on new texts: honest, beside baselines, and without a trace in the weights."""

from __future__ import annotations

import json
import os
import signal
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from tests.preloaded import children

import nearfar
from nearfar.data import Records, read_memory
from nearfar.encoding.model_folder import read_extras
from nearfar.errors import Interrupted
from nearfar.pipeline import Summary, estimate, train
from nearfar.pipeline.estimate import LEAST, _parts
from nearfar.recipe import build_recipe
from nearfar.training import Callback

FRUIT = ("apple", "plum", "pear", "cherry", "melon", "fig", "grape", "lemon", "peach", "mango")
TOOLS = ("hammer", "wrench", "drill", "saw", "chisel", "pliers", "file", "clamp", "level", "vise")
LABELED = {
    "text": [f"a ripe {name} from the garden" for name in FRUIT]
    + [f"the steel {name} in my workshop" for name in TOOLS],
    "label": ["fruit"] * 10 + ["tool"] * 10,
}

EXACT = {"precision": "fp32"}


class Lines(Callback):
    """The messages and steps that callbacks see."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.steps = 0

    def message(self, text: str) -> None:
        self.messages.append(text)

    def step(self, entry: object) -> None:
        self.steps += 1


def run(out: Path, rows: object, *callbacks: Callback, **tables: Mapping[str, Any]) -> Summary:
    values = {"data": {"train": "memory:train"}, "encoder": {"name": "toy"}, **tables}
    return train(build_recipe(values, where="test"), out, data=rows, callbacks=callbacks)


def resumed(out: Path) -> Summary:
    return train(
        build_recipe(tomllib.loads((out / "recipe.toml").read_text()), where="test"), out, data=LABELED, resume=True
    )


def test_few_texts_end_with_an_estimate_beside_baselines(tmp_path: Path) -> None:
    lines = Lines()
    summary = run(tmp_path / "m", LABELED, lines)
    estimate = summary.estimate
    assert estimate is not None
    assert (estimate.source, estimate.metric, estimate.rows, estimate.folds) == ("cross-validation", "accuracy", 20, 3)
    assert estimate.low < estimate.value <= estimate.high
    assert estimate.value > 0.7  # the two classes share no words
    assert estimate.baselines["most frequent class"] == 0.5
    assert 0 <= estimate.baselines["untrained encoder"] <= 1
    assert json.loads((tmp_path / "m/metrics.json").read_text())["estimate"]["value"] == estimate.value
    assert f"{estimate.value:.2f} (95 % interval" in (tmp_path / "m/README.md").read_text()
    assert lines.steps == summary.progress.step if summary.progress else False  # the folds are not steps of the run
    assert any("--no-estimate" in line for line in lines.messages)


def test_the_weights_are_the_same_without_it(tmp_path: Path) -> None:
    run(tmp_path / "with", LABELED, training=EXACT)
    assert run(tmp_path / "without", LABELED, training={"estimate": False, **EXACT}).estimate is None
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("with", "without"))
    assert one == other
    heads = [read_extras(tmp_path / name, "head") for name in ("with", "without")]
    assert torch.equal(heads[0]["centers"], heads[1]["centers"])
    assert "estimate" not in json.loads((tmp_path / "without/metrics.json").read_text())


def test_random_labels_are_not_called_good(tmp_path: Path) -> None:
    words = np.random.default_rng(0).integers(10_000, 99_999, size=(40, 4))
    rows = {"text": [" ".join(map(str, row)) for row in words], "label": ["a", "b"] * 20}
    summary = run(tmp_path / "m", rows, head={"kind": "neighbors", "neighbors": 1})
    assert summary.estimate is not None
    assert 0.2 < summary.estimate.value < 0.8
    model = nearfar.load(tmp_path / "m")
    assert model.predict(rows["text"]).tolist() == rows["label"]  # though it is right about all that it has seen


@pytest.mark.parametrize("split", ["dev", "test"])
def test_rows_that_were_set_aside_are_the_measure(tmp_path: Path, split: str) -> None:
    other = {
        "text": ["a ripe quince from the garden", "the steel ladder in my workshop"] * 2,
        "label": ["fruit", "tool"] * 2,
    }
    summary = run(tmp_path / "m", {"train": LABELED, split: other})
    estimate = summary.estimate
    assert estimate is not None
    assert (estimate.source, estimate.rows, estimate.folds) == (split, 4, None)
    assert estimate.value == summary.report(split).scores["accuracy"]
    assert estimate.baselines.keys() == {"most frequent class", "untrained encoder"}


def test_several_labels_and_scores_have_one_too(tmp_path: Path) -> None:
    sets = {"text": LABELED["text"], "label": [f"{label};thing" for label in LABELED["label"]]}
    several = run(tmp_path / "sets", sets, data={"train": "memory:train", "label_separator": ";"})
    assert several.estimate is not None
    assert several.estimate.metric == "f1_micro"
    assert several.estimate.low <= several.estimate.value <= several.estimate.high
    assert several.estimate.baselines["most frequent class"] == pytest.approx(2 * 20 / (20 + 40))
    rated = run(tmp_path / "scores", {"text": LABELED["text"], "score": [1.0, 2.0] * 5 + [4.0, 5.0] * 5})
    assert rated.estimate is not None
    assert (rated.estimate.metric, rated.estimate.rows) == ("spearman", 20)
    assert rated.estimate.baselines.keys() == {"untrained encoder"}


def test_too_few_texts_are_said_to_be_too_few(tmp_path: Path) -> None:
    lines = Lines()
    rows = {name: values[8:12] for name, values in LABELED.items()}
    assert run(tmp_path / "m", rows, lines).estimate is None
    assert any("too few to estimate" in line for line in lines.messages)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def kill_in_the_second_fold(out: Path) -> None:
    """Train in a process of its own, which is killed when one of three folds is done."""
    done, real = [], estimate.fold_run

    def fold(*arguments: Any) -> Any:
        if done:
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(real(*arguments))
        return done[-1]

    with patch.object(estimate, "fold_run", fold):
        run(out, LABELED, training=EXACT)


def content(folder: Path) -> dict[str, Any]:
    """All files by name, but for the times that no two runs share."""
    files: dict[str, Any] = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    metrics = json.loads(files["metrics.json"])
    del metrics["training"]["seconds"], metrics["training"]["texts_per_second"]
    return {**files, "metrics.json": metrics, "journal.jsonl": files["journal.jsonl"].count(b"\n")}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("whole") / "m"
    run(out, LABELED, training=EXACT)
    return content(out)


def test_a_run_killed_in_its_estimate_resumes_to_the_same_bytes(tmp_path: Path, whole: dict[str, Any]) -> None:
    process = children().Process(target=kill_in_the_second_fold, args=(tmp_path / "m",))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert "estimate" not in json.loads((tmp_path / "m/metrics.json").read_text())
    assert nearfar.load(tmp_path / "m").predict(["a ripe kiwi from the garden"])
    assert resumed(tmp_path / "m").estimate is not None
    assert content(tmp_path / "m") == whole
    assert resumed(tmp_path / "m").progress is None  # it has finished


def test_an_interrupted_estimate_leaves_a_complete_model_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("nearfar.pipeline.estimate.fold_run", interrupt)
        with pytest.raises(Interrupted, match=r"the model is complete without it, and --resume computes it\."):
            run(tmp_path / "m", LABELED, training=EXACT)
    assert nearfar.load(tmp_path / "m").predict(["a ripe kiwi from the garden"])
    resumed(tmp_path / "m")
    assert content(tmp_path / "m") == whole


def test_in_python_an_interrupted_estimate_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearfar.pipeline.estimate.fold_run", interrupt)
    values = {"data": {"train": "memory:train"}, "encoder": {"name": "toy"}}
    summary = train(build_recipe(values, where="test"), tmp_path / "m", data=LABELED, on_interrupt="finish")
    assert summary.estimate is None
    assert resumed(tmp_path / "m").progress is None
    assert not [path.name for path in (tmp_path / "m").iterdir() if path.name.startswith(".")]


def records(texts: list[str], labels: list[str]) -> Records:
    return read_memory({"text": texts, "label": labels}, "memory:train")


def test_no_text_is_predicted_by_a_model_that_has_seen_it() -> None:
    texts = [*LABELED["text"], "A ripe apple  from the garden", "a thing of its own"]
    parts = _parts(records(texts, [*LABELED["label"], "fruit", "lonely"]), seed=1)
    assert parts is not None
    predicted = [row for _, outside in parts for row in outside]
    assert sorted(predicted) == list(range(21))  # the only text of a class trains in every fold
    for inside, outside in parts:
        assert not set(inside) & set(outside)
        assert 21 in inside
        assert (0 in inside) == (20 in inside)  # equal but for case and spaces


def test_repeated_texts_do_not_make_enough() -> None:
    assert _parts(records(["the same", "another"] * LEAST, ["a", "b"] * LEAST), seed=1) is None


def test_a_classifier_knows_its_estimate(tmp_path: Path) -> None:
    fitted = nearfar.Classifier("toy").fit(LABELED["text"], LABELED["label"])
    assert fitted.estimate_ is not None
    fitted.save(tmp_path / "m")
    opened = nearfar.load(tmp_path / "m")
    assert isinstance(opened, nearfar.Classifier)
    assert opened.estimate_ == fitted.estimate_
    assert nearfar.Classifier("toy", estimate=False).fit(LABELED["text"], LABELED["label"]).estimate_ is None
