"""The gradient-cached step: loss and every gradient are those of the whole batch, dropout on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from nearfar.batching import FileOrder
from nearfar.encoding import build, tokenize
from nearfar.objectives import BatchSoftmax, CosineMSE, CrossEntropy, SoftTriple, SupCon
from nearfar.pipeline import train
from nearfar.training import Loader, LossModule, Term, read_journal
from nearfar.training.step import cached_backward
from tests.training.modules import loss_module

from .runs import recipe_for, write_texts

ROWS = 13


def learner_and_feed(pooling: Any, dropout: float) -> tuple[LossModule, Loader]:
    built = build("toy", classes=("a", "b", "c"), seed=1, pooling=pooling, dropout=dropout)
    torch.manual_seed(2)
    terms = [
        Term("cross_entropy", 0.5, CrossEntropy(), "logits"),
        Term("soft_triple", 0.3, SoftTriple(3, 64, centers=4), "tokens"),
        Term("supcon", 0.2, SupCon(), "text"),
    ]
    texts = ["word " * (1 + n % 5) + str(n) for n in range(ROWS)]
    table = tokenize(built.tokenizer, [texts], max_length=32)
    labels = np.arange(ROWS, dtype=np.int64) % 3
    return loss_module(built.model, terms).train(), Loader(
        table, labels, FileOrder(rows=ROWS, size=ROWS), tuple(range(ROWS)), "t"
    )


def gradients(learner: LossModule) -> dict[str, torch.Tensor]:
    found = {name: weight.grad.clone() for name, weight in learner.named_parameters() if weight.grad is not None}
    learner.zero_grad(set_to_none=True)
    return found


@pytest.mark.parametrize("chunk", [1, 4, 5, 12])
@pytest.mark.parametrize("pooling", [None, "mean"])
def test_cached_is_the_plain_step_with_dropout_on(chunk, pooling):
    """Against one graph over all chunks with the same masks: loss, encoder, head and centers."""
    learner, feed = learner_and_feed(pooling, dropout=0.2)
    chunks = feed.batches(learner.model, np.arange(ROWS), chunk)
    assert len(chunks) == -(-ROWS // chunk)
    told: list[float] = []
    torch.manual_seed(9)
    cached_backward(learner, chunks, 0.7, lambda total, parts: told.append(total.item()))
    cached = gradients(learner)

    torch.manual_seed(9)
    seeds = torch.randint(2**62, (len(chunks),)).tolist()
    parts = []
    for batch, seed in zip(chunks, seeds, strict=True):
        torch.manual_seed(seed)
        parts.append(learner.represent(batch))
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    total, _ = learner.combine(whole)
    (0.7 * total).backward()
    plain = gradients(learner)

    assert told == [pytest.approx(total.item(), rel=1e-6)]
    assert set(cached) == set(plain)
    assert "objectives.soft_triple.centers" in cached
    for name, gradient in plain.items():
        assert torch.allclose(cached[name], gradient, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("chunk", [1, 5])
def test_cached_pairs_are_plain_pairs(chunk):
    """Left, right and negative texts, groups and targets come together again from their chunks, temperature included."""
    plain_learner, feed = learner_and_feed("mean", dropout=0.0)
    terms = [
        Term("contrast", 0.6, BatchSoftmax(trainable=True), "grouped-pairs"),
        Term("mse", 0.4, CosineMSE(), "pairs"),
    ]
    learner = loss_module(plain_learner.model, terms).train()
    every = np.arange(ROWS)
    feed = replace(
        feed,
        columns=(every, np.roll(every, 3), np.roll(every, 7)),
        targets=(every % 3 > 0).astype(np.float32),
        groups=(every % 4, np.roll(every, 3) % 4, 100 + every),
    )
    (batch,) = feed.batches(learner.model, every, None)
    total, _ = learner(batch)
    total.backward()
    plain = gradients(learner)
    told: list[float] = []
    cached_backward(
        learner, feed.batches(learner.model, every, chunk), 1.0, lambda loss, _parts: told.append(loss.item())
    )
    cached = gradients(learner)

    assert told == [pytest.approx(total.item(), rel=1e-5)]
    assert set(cached) == set(plain)
    assert "objectives.contrast.log_temperature" in cached
    for name, gradient in plain.items():
        assert torch.allclose(cached[name], gradient, rtol=1e-4, atol=1e-6), name


def test_without_dropout_the_chunks_do_not_matter():
    """Then it is the loss and gradient of the ordinary step, whatever the chunk."""
    learner, feed = learner_and_feed(None, dropout=0.0)
    (batch,) = feed.batches(learner.model, np.arange(ROWS), None)
    total, _ = learner(batch)
    total.backward()
    plain = gradients(learner)
    for chunk in (2, 7):
        told: list[float] = []
        chunks = feed.batches(learner.model, np.arange(ROWS), chunk)
        cached_backward(learner, chunks, 1.0, lambda loss, _parts, told=told: told.append(loss.item()))
        cached = gradients(learner)
        assert told == [pytest.approx(total.item(), rel=1e-6)]
        assert all(torch.allclose(cached[name], plain[name], rtol=1e-4, atol=1e-6) for name in plain)


def test_only_one_chunk_has_a_graph_at_a_time():
    """The tensors kept for backward never exceed those of one chunk by much."""
    learner, feed = learner_and_feed(None, dropout=0.1)

    def kept(chunk: int | None) -> int:
        alive = largest = 0

        class Kept:
            def __init__(self, tensor: torch.Tensor) -> None:
                nonlocal alive, largest
                self.tensor = tensor
                alive += tensor.numel()
                largest = max(largest, alive)

            def __del__(self) -> None:
                nonlocal alive
                alive -= self.tensor.numel()

        with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
            chunks = feed.batches(learner.model, np.arange(ROWS), chunk)
            cached_backward(learner, chunks, 1.0, lambda _t, _p: None)
        learner.zero_grad(set_to_none=True)
        return largest

    assert kept(1) < 0.6 * kept(None)


def test_a_recipe_with_chunks_follows_the_plain_loss_curve(tmp_path):
    """batches.chunk through the whole run, with an objective that compares the texts of a batch."""
    texts = write_texts(tmp_path / "train.csv")
    curves = []
    for chunk in (None, 3):
        recipe = recipe_for(
            texts, objective="cross-entropy+supcon", encoder={"dropout": 0.0}, batches={"size": 16} if chunk is None else {"size": 16, "chunk": chunk},
            training={"epochs": 2},
        )  # fmt: skip
        train(recipe, tmp_path / str(chunk))
        journal = read_journal(tmp_path / str(chunk) / "journal.jsonl")
        curves.append([entry["loss"] for entry in journal if entry["kind"] == "step"])
    assert curves[1] == pytest.approx(curves[0], rel=2e-4)
