"""Adaptation: the encoder is trained on unlabeled texts before the labeled ones."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.pipeline.test_pseudo_labels import LABELED, POOL, Messages, rows

from nearfar.cli import main
from nearfar.errors import CheckpointError, Interrupted, SettingError
from nearfar.pipeline import adaptation, unlabeled
from nearfar.pipeline.encoder_run import EncoderPlan, plan_encoder_run
from nearfar.pipeline.train import train
from nearfar.recipe import build_recipe, read_recipe
from nearfar.training import Callback


def recipe(training=None, **data):
    values = {
        "data": {"train": "memory:train", "names": "none", "adapt": True, **data},
        "encoder": {"name": "toy"},
        "training": {"max_steps": 2, "estimate": False, **(training or {})},
    }
    return build_recipe(values, where="test")


class StopAt(Callback):
    """Ctrl-C when a message begins in some way."""

    def __init__(self, start):
        self.start = start

    def message(self, text):
        if text.startswith(self.start):
            raise KeyboardInterrupt


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def test_the_encoder_of_the_classes_is_what_the_adaptation_left(tmp_path, monkeypatch):
    opened = []
    original = EncoderPlan.open

    def watch(self, accelerator, encoder=None):
        opened.append(encoder or self.adapted)
        return original(self, accelerator, encoder)

    monkeypatch.setattr(EncoderPlan, "open", watch)
    messages = Messages()
    train(recipe({"estimate": True}), tmp_path / "m", data=rows(), callbacks=[messages])
    assert messages.of("adapting the encoder to 136 unlabeled texts: simcse")
    assert len(messages.of("note: unlabeled texts: ")) == 1
    stage = str(tmp_path / "m/stages/1")
    before, trained = opened[: opened.index(stage)], opened[opened.index(stage) :]
    assert before == [None, None]  # to check the recipe, and the adaptation itself
    assert [name for name in trained if name != stage] == ["toy"]  # the baseline of the estimate: the untrained encoder
    assert (tmp_path / "m/journal-stage-1.jsonl").is_file()
    assert not (tmp_path / "m/stages").exists()


def test_it_changes_the_model_and_the_saved_recipe_does_the_same_again(tmp_path):
    few, pool = tmp_path / "few.jsonl", tmp_path / "pool.txt"
    few.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in LABELED))
    pool.write_text("\n".join(POOL) + "\n")
    files = {"train": str(few), "unlabeled": str(pool)}
    train(recipe(**files), tmp_path / "file")
    train(recipe(), tmp_path / "memory", data=rows())
    train(recipe(adapt=False), tmp_path / "plain", data=rows())
    assert "adapt = true" in (tmp_path / "file/recipe.toml").read_text()
    train(read_recipe(tmp_path / "file/recipe.toml"), tmp_path / "again")
    assert weights(tmp_path / "file") == weights(tmp_path / "memory") == weights(tmp_path / "again")
    assert weights(tmp_path / "plain") != weights(tmp_path / "file")


def test_a_run_that_was_stopped_after_the_adaptation_does_not_adapt_again(tmp_path):
    train(recipe(), tmp_path / "whole", data=rows())
    with pytest.raises((KeyboardInterrupt, Interrupted)):
        train(recipe(), tmp_path / "m", data=rows(), callbacks=[StopAt("note: unlabeled texts: ")])
    with pytest.raises(CheckpointError, match="trained by another recipe"):
        train(replace(recipe(), seed=7), tmp_path / "m", data=rows(), resume=True)
    messages = Messages()
    train(recipe(), tmp_path / "m", data=rows(), callbacks=[messages], resume=True)
    assert messages.of("(trained before)")
    assert weights(tmp_path / "m") == weights(tmp_path / "whole")


def test_a_large_pool_is_drawn_from(monkeypatch):
    monkeypatch.setattr(unlabeled, "MOST_TEXTS", 60)
    plan = plan_encoder_run(recipe(), rows())
    assert plan.domain is not None
    assert len(plan.domain) == 60
    assert plan.with_encoder("toy").domain == plan.domain


def test_of_the_recipe_the_encoder_and_the_precision_count():
    given = build_recipe(
        {"data": {"train": "x"}, "encoder": {"name": "toy", "max_length": 9}, "training": {"precision": "fp32"}},
        where="test",
    )
    made = adaptation.adaptation_recipe(given, "folder")
    assert (made.encoder.name, made.encoder.max_length, made.training.precision) == ("folder", 9, "fp32")
    assert made.objective.name == "simcse"


@pytest.mark.parametrize("source", [False, True])
def test_there_must_be_unlabeled_texts_beside_labeled_ones(source):
    data = {"names": {"fruit": "fruit", "tool": "tool"}, "unlabeled": source}
    with pytest.raises(SettingError, match=r"name a file of them with data\.unlabeled \(--unlabeled\)"):
        plan_encoder_run(recipe(**data), {"train": POOL if source else LABELED})


def test_the_command_has_a_flag(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.jsonl").write_text(
        "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in LABELED)
    )
    (tmp_path / "pool.txt").write_text("\n".join(POOL) + "\n")
    arguments = ["nearfar", "train", "few.jsonl", "--unlabeled", "pool.txt", "--encoder", "toy", "--adapt", "--dry-run"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert "adapt = true" in capsys.readouterr().out
