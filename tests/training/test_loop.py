"""The loop: what it counts, what it keeps, when it stops, and that nothing trainable stays behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from rich.console import Console
from torch import nn

from nearfar.batching import FileOrder, RandomOrder
from nearfar.encoding import build, load, tokenize
from nearfar.errors import CheckpointError, Interrupted, NotFiniteError
from nearfar.objectives import CrossEntropy, SoftTriple, SupCon
from nearfar.pipeline import train
from nearfar.pipeline.plan import try_out
from nearfar.recipe import Training
from nearfar.training import (
    Callback,
    CheckpointStore,
    FitSettings,
    Journal,
    Loader,
    LossModule,
    Term,
    loop,
    plan_run,
    read_journal,
)
from nearfar.training.optimizer import AdamW, factor, parameter_groups, part_of
from tests.training.modules import fit_with, loss_module

from .runs import StopAt, digest, recipe_for, write_texts

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("data") / "train.csv")


class Watch(Callback):
    """Keeps all that a listener is told; may act on a step."""

    def __init__(self, act: Any = None) -> None:
        self.steps: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []
        self.notices: list[str] = []
        self.act = act

    def step(self, entry: dict[str, Any]) -> None:
        self.steps.append(entry)
        if self.act:
            self.act(entry)

    def evaluation(self, entry: dict[str, Any]) -> None:
        self.evaluations.append(entry)

    def message(self, text: str) -> None:
        self.notices.append(text)


def small_learner(pooling: Any = None, dropout: float = 0.0) -> tuple[LossModule, Loader]:
    """A learner with all kinds of terms, on twelve texts of two classes."""
    built = build("toy", classes=("a", "b"), seed=1, pooling=pooling, dropout=dropout)
    terms = [
        Term("cross_entropy", 0.5, CrossEntropy(), "logits"),
        Term("soft_triple", 0.3, SoftTriple(2, 64, centers=3), "tokens"),
        Term("supcon", 0.2, SupCon(), "text"),
    ]
    rows = [f"text number {number} of kind {'xy'[number % 2]}" for number in range(12)]
    table = tokenize(built.tokenizer, [rows], max_length=32)
    labels = np.arange(12, dtype=np.int64) % 2
    return loss_module(built.model, terms), Loader(
        table, labels, FileOrder(rows=12, size=4), tuple(range(2, 14)), "t.csv"
    )


def fit_small(
    learner: LossModule, feed: Loader, folder: Path, *, callbacks: Any = (), followed: bool = False,
    resume: bool = False, **settings: Any,
) -> Any:  # fmt: skip
    training = Training(**{"epochs": 1, "learning_rate": 1e-2, "warmup": 0.0, **settings})
    return fit_with(
        learner, feed, training, rates={"encoder": 1e-3, "head": 1e-3, "objective": 1e-1}, seed=1,
        store=CheckpointStore(folder / "c"), journal=Journal(folder / "j.jsonl"), callbacks=callbacks,
        followed=followed, resume=resume,
    )  # fmt: skip


@pytest.mark.parametrize("pooling", [None, "mean", "first", "pooler"])
def test_every_trainable_tensor_moves(tmp_path, pooling):
    """After a few steps no weight that is in training is where it was: encoder, head and the objective's centers."""
    learner, feed = small_learner(pooling)
    settings = FitSettings(training=Training(epochs=20), rates={}, seed=1)
    frozen = try_out(learner, feed, settings, {"": 4}, Accelerator(cpu=True)).frozen
    before = {name: weight.detach().clone() for name, weight in learner.named_parameters()}
    fit_small(learner, feed, tmp_path, weight_decay=0.0)

    still = [
        name
        for name, weight in learner.named_parameters()
        if name not in frozen and weight.detach().equal(before[name])
    ]
    unmovable = {"model.network.bert.embeddings.token_type_embeddings.weight"}
    assert set(still) <= unmovable, still
    assert any("centers" in name for name in before)
    assert all(weight.detach().equal(before[name]) for name, weight in learner.named_parameters() if name in frozen)
    assert bool(frozen) == (pooling in ("mean", "first"))  # BERT's pooler stands idle there


def test_the_objectives_weights_are_clipped_with_all_others(tmp_path, monkeypatch):
    """The norm that is clipped is that of every gradient, the centers' among them."""
    learner, feed = small_learner()
    seen: list[float] = []

    def look(*_: Any) -> None:
        grads = [weight.grad for weight in learner.parameters() if weight.grad is not None]
        seen.append(float(torch.nn.utils.get_total_norm(grads)))

    learner.objectives["soft_triple"].scale = 500.0
    original = AdamW.step
    monkeypatch.setattr(AdamW, "step", lambda self, *a, **k: (look(), original(self, *a, **k))[1])
    watch = Watch()
    fit_small(learner, feed, tmp_path, clip=0.25, callbacks=(watch,))
    assert len(seen) == 3
    assert max(seen) <= 0.2501
    assert min(entry["gradient_norm"] for entry in watch.steps) > 0.3  # the journal has the norm before clipping


def test_groups_have_their_own_rates_and_only_matrices_decay():
    """Biases, norms and centers never decay; each part has its own learning rate."""
    learner, _ = small_learner("mean")
    groups = parameter_groups(learner, {"encoder": 1.0, "head": 2.0, "objective": 3.0}, weight_decay=0.1)
    by_name = {name: group for group in groups for name in group["names"]}

    assert set(by_name) == {name for name, _ in learner.named_parameters()}
    assert by_name["objectives.soft_triple.centers"]["lr"] == 3.0
    assert by_name["objectives.soft_triple.centers"]["weight_decay"] == 0.0
    assert by_name["model.head.linear.weight"]["lr"] == 2.0
    assert by_name["model.head.linear.weight"]["weight_decay"] == 0.1
    for name, group in by_name.items():
        if name.endswith("bias") or "LayerNorm" in name:
            assert group["weight_decay"] == 0.0
    native, _ = small_learner()
    assert part_of("model.network.classifier.weight", native) == "head"
    assert part_of("model.network.bert.pooler.dense.weight", native) == "head"  # its first layer
    assert part_of("model.network.bert.encoder.layer.0.output.dense.weight", native) == "encoder"
    pooler, _ = small_learner("pooler")
    assert part_of("model.network.pooler.dense.weight", pooler) == "encoder"


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("warmup", [0.0, 0.2, 3])
def test_schedules_rise_then_fall(schedule, warmup):
    """Full speed is reached right after the warm-up; then it never rises again, and never below zero."""
    factors = [factor(schedule, step, total=20, warmup=warmup) for step in range(20)]
    rising = round(warmup * 20) if warmup < 1 else int(warmup)

    assert factors[:rising] == sorted(factors[:rising])
    assert max(factors) == pytest.approx(1.0)
    assert factors[rising:] == sorted(factors[rising:], reverse=True)
    assert all(0 <= value <= 1 for value in factors)
    assert (factors[-1] < 0.1) == (schedule != "constant")


def test_accumulating_halves_is_training_on_the_whole(tmp_path):
    """Two batches of 4 added up give the step of one batch of 8, for an objective that is a mean over rows."""
    results = []
    for size, accumulate in ((8, 1), (4, 2)):
        learner, feed = small_learner()
        learner = loss_module(learner.model, [Term("cross_entropy", 1.0, CrossEntropy(), "logits")])
        feed = Loader(feed.tokens, feed.labels, FileOrder(rows=12, size=size), feed.lines, feed.source)
        watch = Watch()
        folder = tmp_path / str(size)
        fit_small(learner, feed, folder, accumulate=accumulate, callbacks=(watch,))
        results.append(([entry["loss"] for entry in watch.steps], learner.state_dict()))
    (first, weights), (second, others) = results
    assert len(first) == len(second) == 2  # 8 rows and the last 4
    assert second == pytest.approx(first, rel=1e-5)
    assert all(torch.allclose(weights[name], others[name], atol=2e-4) for name in weights)


@pytest.mark.parametrize(
    ("size", "accumulate", "epochs", "limit"), [(4, 1, 2, None), (5, 2, 3, None), (12, 4, 1, None), (3, 1, 4, 5)]
)
def test_the_plan_is_what_happens(tmp_path, size, accumulate, epochs, limit):
    """Steps are counted exactly before the run, and each is an update of the optimizer."""
    learner, feed = small_learner()
    feed = Loader(feed.tokens, feed.labels, RandomOrder(rows=12, size=size, seed=1), feed.lines, feed.source)
    settings = {"epochs": epochs, "accumulate": accumulate, "max_steps": limit}
    plan = plan_run(feed, Training(**settings))
    watch = Watch()
    progress = fit_small(learner, feed, tmp_path, callbacks=(watch,), **settings)

    assert progress.step == len(watch.steps) == plan.steps
    if limit is None:
        assert progress.texts == 12 * epochs


def test_nan_in_the_loss_stops_the_run_with_the_reason(tmp_path):
    """The message names step, part and the lines of the batch; no weight is touched."""
    learner, feed = small_learner()
    with torch.no_grad():
        learner.objectives["soft_triple"].centers[0, 0, 0] = float("nan")
    before = learner.model.network.classifier.weight.detach().clone()

    with pytest.raises(
        NotFiniteError, match=r"(?s)the loss is nan at step 1 .*soft_triple nan.*t.csv lines 2, 3, 4, 5"
    ):
        fit_small(learner, feed, tmp_path)
    assert learner.model.network.classifier.weight.detach().equal(before)


def test_infinite_gradients_stop_the_run_with_the_reason(tmp_path):
    """A finite loss with a broken gradient is no step either; the first broken weight is named."""

    class Cliff(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edge = nn.Parameter(torch.zeros(1))

        def forward(self, embeddings: Any, labels: Any) -> Any:
            return self.edge.abs().sqrt().sum() + 0 * embeddings.sum()

    learner, feed = small_learner()
    learner = loss_module(learner.model, [Term("cliff", 1.0, Cliff(), "text")])
    with pytest.raises(NotFiniteError, match=r"the gradient is (nan|inf) at step 1.*first in objectives.cliff.edge"):
        fit_small(learner, feed, tmp_path)


def test_the_best_weights_on_the_dev_rows_are_kept(texts, tmp_path):
    """The saved model has the best dev score of the run, not the last one, and is what is saved."""
    watch = Watch()
    recipe = recipe_for(texts, training={"epochs": 6, "learning_rate": 3e-3, "metric": "accuracy"})
    summary = train(recipe, tmp_path / "m", callbacks=(watch,))
    values = [entry["scores"]["accuracy"] for entry in watch.evaluations]

    assert len(values) == 6
    best = max(values)
    assert summary.progress is not None
    assert summary.progress.best is not None
    assert summary.progress.best["step"] == (values.index(best) + 1) * 6
    assert summary.report("dev").scores["accuracy"] == pytest.approx(best)
    assert load(tmp_path / "m").labels == ("animal", "fruit", "tool")


def test_patience_ends_a_run_that_no_longer_gains(texts, tmp_path):
    """With a learning rate that teaches nothing the first evaluation stays the best, and two more end the run."""
    watch = Watch()
    changes = {"epochs": 9, "learning_rate": 1e-12, "patience": 2, "evaluate_every": 3}
    summary = train(recipe_for(texts, training=changes), tmp_path / "m", callbacks=(watch,))

    assert summary.progress is not None
    assert summary.progress.stopped
    assert summary.progress.step == 9
    assert len(watch.evaluations) == 3


def test_the_same_seed_gives_the_same_model_and_another_seed_another(texts, tmp_path):
    """Randomness is an argument: two runs agree to the bit, a third with another seed does not."""
    import dataclasses

    recipe = recipe_for(texts, training={"epochs": 1})
    torch.manual_seed(123)
    train(recipe, tmp_path / "a")
    torch.manual_seed(456)
    np.random.default_rng()
    train(recipe, tmp_path / "b")
    train(dataclasses.replace(recipe, seed=8), tmp_path / "c")

    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert digest(tmp_path / "a") != digest(tmp_path / "c")


def test_the_journal_has_every_step_with_all_that_was_promised(texts, tmp_path):
    """Step, epoch, loss and its parts, learning rates, gradient norm, speed; evaluations too."""
    train(recipe_for(texts, objective="triple-entropy", training={"epochs": 2}), tmp_path / "m")
    entries = read_journal(tmp_path / "m" / "journal.jsonl")
    steps = [entry for entry in entries if entry["kind"] == "step"]

    assert [entry["step"] for entry in steps] == list(range(1, 13))
    for entry in steps:
        assert set(entry["parts"]) == {"cross_entropy", "soft_triple"}
        assert entry["loss"] == pytest.approx(
            0.9 * entry["parts"]["cross_entropy"] + 0.1 * entry["parts"]["soft_triple"], rel=1e-4
        )
        assert set(entry["learning_rates"]) == {"encoder", "head", "objective"}
        assert entry["gradient_norm"] > 0
        assert entry["texts_per_second"] > 0
    assert [entry["epoch"] for entry in steps] == [1] * 6 + [2] * 6
    assert sum(entry["kind"] == "evaluation" for entry in entries) == 2


def test_asking_a_run_to_stop_leaves_a_checkpoint(texts, tmp_path):
    """SIGTERM in the middle of an epoch: the run ends after the step, and the resumed one ends as if nothing was."""
    import os
    import signal

    def stop(entry: dict[str, Any]) -> None:
        if entry["step"] == 9:
            os.kill(os.getpid(), signal.SIGTERM)

    recipe = recipe_for(texts, training={"checkpoint_every": "epoch"})
    with pytest.raises(Interrupted, match="stopped after step 9 of 18; continue with --resume"):
        train(recipe, tmp_path / "a", callbacks=(Watch(stop),))
    train(recipe, tmp_path / "a", resume=True)
    train(recipe, tmp_path / "b")

    assert digest(tmp_path / "a") == digest(tmp_path / "b")


def test_the_resolved_recipe_reruns_to_the_same_numbers(texts, tmp_path):
    """recipe.toml beside the model holds everything the run depended on."""
    from nearfar.recipe import read_recipe

    train(recipe_for(texts, objective="cross-entropy+supcon"), tmp_path / "a")
    train(read_recipe(tmp_path / "a" / "recipe.toml"), tmp_path / "b")

    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    first, second = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in "ab")
    assert first["dev"] == second["dev"]


def test_bf16_trains_and_keeps_full_precision_weights(texts, tmp_path):
    """Mixed precision computes in bf16; the weights that are saved are fp32, and the loss falls."""
    watch = Watch()
    train(
        recipe_for(texts, training={"precision": "bf16", "epochs": 8, "learning_rate": 3e-3}),
        tmp_path / "m", callbacks=(watch,),
    )  # fmt: skip
    weights = load(tmp_path / "m").model.state_dict()

    assert all(weight.dtype in (torch.float32, torch.int64) for weight in weights.values())
    losses = [entry["loss"] for entry in watch.steps]
    assert np.mean(losses[-6:]) < np.mean(losses[:6])


def test_tensorboard_gets_the_curves(texts, tmp_path):
    """A tracker named in the recipe receives losses and dev scores through accelerate."""
    pytest.importorskip("tensorboard", reason="pip install 'nearfar[tensorboard]'")
    train(recipe_for(texts, training={"epochs": 1, "trackers": ["tensorboard"]}), tmp_path / "m")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "m" / "nearfar"))
    events.Reload()
    tags = events.Tags()["scalars"]

    assert {"train/loss", "train/parts/cross_entropy", "train/learning_rate/encoder", "dev/f1_weighted"} <= set(tags)
    assert len(events.Scalars("train/loss")) == 6


def test_a_signal_in_the_last_step_stops_what_follows(tmp_path):
    """A run of its own ends as it would have; one that others follow stops, with its last step in a checkpoint."""
    learner, feed = small_learner("mean")
    assert fit_small(learner, feed, tmp_path / "alone", callbacks=(StopAt(3),)).step == 3
    with pytest.raises(Interrupted, match="after step 3 of 3"):
        fit_small(learner, feed, tmp_path / "first", callbacks=(StopAt(3),), followed=True)
    checkpoint, _ = CheckpointStore(tmp_path / "first" / "c").newest()
    assert checkpoint is not None
    assert checkpoint.state["step"] == 3


def test_a_checkpoint_of_an_earlier_version_is_refused(tmp_path, monkeypatch):
    """It may store a run in another way: it is not misread, and the message says what to do."""
    learner, feed = small_learner()
    with monkeypatch.context() as earlier:
        earlier.setattr(loop, "FORMAT", loop.FORMAT - 1)
        fit_small(learner, feed, tmp_path, checkpoint_every=1)

    with pytest.raises(CheckpointError, match=r"written by another version of nearfar.*--overwrite"):
        fit_small(learner, feed, tmp_path, checkpoint_every=1, resume=True)
