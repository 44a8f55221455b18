"""Rows of word embeddings that are updated when they are read: the numbers of dense AdamW, step for step."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.batching import ClassBalanced, EmbeddingSampler, FileOrder, NearestNeighbors, RandomOrder, ShingleSampler
from nearfar.encoding import build, tokenize
from nearfar.errors import NotFiniteError
from nearfar.objectives import CrossEntropy, SupCon
from nearfar.recipe import Training
from nearfar.training import CheckpointStore, Journal, Loader, LossModule, Term
from nearfar.training.optimizer import (
    WINDOW,
    LazyRows,
    build_optimizer,
    factor,
    lazy_rows,
    optimizer_tensors,
    parameter_groups,
    restore_optimizer,
)
from tests.training.modules import QuietCallback, fit_with, loss_module, step_with

ROWS, WIDTH, STEPS, RATE = 60, 8, 300, 5e-5
ONCE, NEVER = 58, 59
"""A row that one step reads, and one that none does."""


def adamw(
    start: Tensor, *, decay: float, rate: float = RATE, corrected: bool = True
) -> tuple[nn.Parameter, torch.optim.Optimizer]:
    weight = nn.Parameter(start.clone())
    group = {"params": [weight], "names": ["w"], "part": "encoder", "lr": rate, "base": rate, "weight_decay": decay}
    return weight, build_optimizer([group], bias_correction=corrected)


def reads(step: int) -> Tensor:
    """Token ids of a step: the first rows nearly always, the later the rarer, with repetitions."""
    chances = np.minimum(1.0, 2.0 / np.arange(1, ROWS + 1))
    chances[ONCE:] = 0
    rows = np.flatnonzero(np.random.default_rng(step).random(ROWS) < chances)
    if step == 100:
        rows = np.append(rows, ONCE)
    return torch.from_numpy(np.repeat(rows, 1 + rows % 3))


def gradient(step: int, ids: Tensor, scale: float) -> Tensor:
    return scale * torch.randn(len(ids), WIDTH, generator=torch.Generator().manual_seed(step))


def set_rate(optimizer: torch.optim.Optimizer, step: int, rate: float = RATE) -> None:
    optimizer.param_groups[0]["lr"] = rate * factor("linear", step, total=STEPS, warmup=0.1)


def lazy_step(weight: nn.Parameter, lazy: LazyRows, step: int, scale: float) -> Tensor:
    """One step on the rows it reads; what it read."""
    ids = reads(step)
    set_rate(lazy.optimizer, step)
    lazy.catch_up(ids)
    read = F.embedding(ids, weight, sparse=True)
    read.backward(gradient(step, ids, scale))
    lazy.step()
    return read.detach()


def dense_step(weight: nn.Parameter, optimizer: torch.optim.Optimizer, step: int, scale: float) -> Tensor:
    ids = reads(step)
    set_rate(optimizer, step)
    read = F.embedding(ids, weight)
    read.backward(gradient(step, ids, scale).to(weight.dtype))
    optimizer.step()
    optimizer.zero_grad()
    return read.detach()


@pytest.mark.parametrize("scale", [1e-3, 1e-8], ids=["usual", "near epsilon"])
@pytest.mark.parametrize(("decay", "corrected"), [(0.0, True), (0.01, True), (1.0, True), (0.01, False), (1.0, False)])
def test_every_row_is_dense_adamws_at_every_read_and_at_the_end(decay, corrected, scale):
    """Over 300 steps with warmup and decay: within 1e-6 of AdamW in float64, and no farther from it than in float32."""
    start = 0.05 * torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    weight, optimizer = adamw(start, decay=decay, corrected=corrected)
    lazy = LazyRows(optimizer, weight)
    exact, exact_optimizer = adamw(start.double(), decay=decay, corrected=corrected)
    dense, dense_optimizer = adamw(start, decay=decay, corrected=corrected)
    worst = worst_dense = 0.0
    waited = set()
    for step in range(STEPS):
        if step > 0:
            state = optimizer.state[weight]
            waited |= set((int(state["step"]) - state["seen"][reads(step)]).tolist())
        read = lazy_step(weight, lazy, step, scale)
        expected = dense_step(exact, exact_optimizer, step, scale)
        single = dense_step(dense, dense_optimizer, step, scale)
        worst = max(worst, float((read - expected).abs().max()))
        worst_dense = max(worst_dense, float((single - expected).abs().max()))
    assert min(waited) == 0
    assert max(waited) > 50
    lazy.current()

    worst = max(worst, float((weight - exact).detach().abs().max()))
    worst_dense = max(worst_dense, float((dense - exact).detach().abs().max()))
    assert worst <= 1e-6
    assert worst <= worst_dense + 1e-7
    assert (exact - start).abs().max() > RATE
    for key in ("exp_avg", "exp_avg_sq"):
        ours, theirs = optimizer.state[weight][key], exact_optimizer.state[exact][key]
        assert torch.allclose(ours.double(), theirs, rtol=1e-4, atol=1e-8 * float(theirs.abs().max())), key


def by_the_book(p: float, g: float, at: int, steps: int, *, rate: float, decay: float, corrected: bool = True) -> float:
    """AdamW on one number that has one gradient at step ``at``, one step after the other."""
    m = v = 0.0
    for t in range(1, steps + 1):
        own = g if t == at else 0.0
        m, v = 0.9 * m + 0.1 * own, 0.999 * v + 0.001 * own * own
        first, second = (1 - 0.9**t, 1 - 0.999**t) if corrected else (1.0, 1.0)
        p -= rate * decay * p
        p -= rate * (m / first) / (math.sqrt(v / second) + 1e-8)
    return p


@pytest.mark.parametrize("corrected", [True, False])
def test_dense_adamw_is_the_formula_step_for_step(corrected):
    """In float64, on a gradient at every step: with bias correction, and without as in the original code of BERT."""
    start, rate, decay = torch.linspace(-1, 1, 7, dtype=torch.float64), 1e-2, 0.1
    weight, optimizer = adamw(start, decay=decay, rate=rate, corrected=corrected)
    p, m, v = start.tolist(), [0.0] * 7, [0.0] * 7
    for t in range(1, 40):
        pushed = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(t))
        weight.grad = pushed.clone()
        optimizer.step()
        for place, g in enumerate(pushed.tolist()):
            m[place], v[place] = 0.9 * m[place] + 0.1 * g, 0.999 * v[place] + 0.001 * g * g
            first, second = (1 - 0.9**t, 1 - 0.999**t) if corrected else (1.0, 1.0)
            p[place] -= rate * decay * p[place]
            p[place] -= rate * (m[place] / first) / (math.sqrt(v[place] / second) + 1e-8)
        assert weight.tolist() == pytest.approx(p, rel=1e-12, abs=1e-14)
    assert math.isclose(0.999 ** (2**20), 0.0)


@pytest.mark.parametrize("waits", [0, 1, 9, 60, WINDOW + 1, 500])
@pytest.mark.parametrize(("at", "corrected"), [(1, True), (2, True), (100, True), (1, False), (100, False)])
def test_a_row_makes_up_for_any_number_of_steps(at, corrected, waits):
    """One gradient, then nothing: from far above AdamW's epsilon to far below, the stated error and no more."""
    rate, decay = 1e-2, 0.1
    sizes = [1.0, 1e-4, 1e-6, 3e-7, 1e-7, 3e-8, 1e-8, 1e-10, 0.0]
    start = torch.full((2, len(sizes)), 0.5)
    weight, optimizer = adamw(start, decay=decay, rate=rate, corrected=corrected)
    lazy = LazyRows(optimizer, weight)
    for step in range(1, at + waits + 1):
        lazy.catch_up(torch.tensor([1]))
        pushed = torch.zeros(1, len(sizes)) if step != at else torch.tensor([sizes])
        row = 0 if step == at else 1
        F.embedding(torch.tensor([row]), weight, sparse=True).backward(pushed)
        lazy.step()
    lazy.current()

    for place, g in enumerate(sizes):
        expected = by_the_book(0.5, g, at, at + waits, rate=rate, decay=decay, corrected=corrected)
        error = abs(float(weight.detach()[0, place]) - expected)
        assert error <= (1e-6 if g >= 1e-4 else 0.02 * rate), g


@pytest.mark.parametrize("corrected", [True, False])
def test_a_checkpoint_anywhere_changes_no_bit(corrected):
    """The optimizer's memory, stored and restored after odd steps, with the rows left as they are."""
    start = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(2))
    weight, optimizer = adamw(start, decay=0.1, corrected=corrected)
    lazy = LazyRows(optimizer, weight)
    again, other = adamw(start, decay=0.1, corrected=corrected)
    resumed = LazyRows(other, again)
    behind = 0
    for step in range(140):
        lazy_step(weight, lazy, step, 1e-3)
        lazy_step(again, resumed, step, 1e-3)
        if step in (0, 1, 17, 62, 63, 64, 131):
            stored = {name: tensor.clone() for name, tensor in optimizer_tensors(other).items()}
            behind += int((stored["seen|w"] < step + 1).sum())
            again, other = adamw(again.detach(), decay=0.1, corrected=corrected)
            restore_optimizer(other, stored)
            resumed = LazyRows(other, again)
    assert behind > 100
    assert again.equal(weight)
    lazy.current()
    resumed.current()
    assert again.equal(weight)


def test_a_gradient_from_elsewhere_reaches_all_rows():
    """A dense part in the sum makes the whole gradient dense; then every row is updated, as AdamW does."""
    start = 0.05 * torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(3))
    weight, optimizer = adamw(start, decay=0.1)
    lazy = LazyRows(optimizer, weight)
    dense, dense_optimizer = adamw(start, decay=0.1)
    pull = 1e-3 * torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(4))
    for step in range(30):
        ids = reads(step)
        lazy.catch_up(ids)
        for own, sparse in ((weight, True), (dense, False)):
            F.embedding(ids, own, sparse=sparse).backward(gradient(step, ids, 1e-3))
            if step % 7 == 3:
                (own * pull).sum().backward()
        assert weight.grad is not None
        assert weight.grad.is_sparse == (step % 7 != 3)
        lazy.step()
        dense_optimizer.step()
        dense_optimizer.zero_grad()
    lazy.current()
    assert torch.allclose(weight, dense, rtol=0, atol=1e-6)


def test_a_step_without_gradient_is_no_step():
    """As with AdamW: nothing moves, nothing decays, nothing is counted."""
    weight, optimizer = adamw(torch.ones(ROWS, WIDTH), decay=0.5)
    lazy = LazyRows(optimizer, weight)
    lazy.step()
    lazy.current()
    assert weight.detach().equal(torch.ones(ROWS, WIDTH))
    lazy_step(weight, lazy, 5, 1.0)
    counted = optimizer.state[weight]["step"].clone()
    lazy.step()
    assert optimizer.state[weight]["step"] == counted == 1


def learner_and_feed(*, dropout: float = 0.0) -> tuple[LossModule, Loader]:
    built = build("toy", classes=("a", "b"), seed=1, dropout=dropout)
    terms = [Term("cross_entropy", 0.7, CrossEntropy(), "logits"), Term("supcon", 0.3, SupCon(), "text")]
    texts = [f"text {'abcdefghijklmnop'[number]} of kind {'xy'[number % 2]}" for number in range(16)]
    table = tokenize(built.tokenizer, [texts], max_length=32)
    order = RandomOrder(rows=16, size=4, seed=1)
    return loss_module(built.model, terms), Loader(
        table, np.arange(16, dtype=np.int64) % 2, order, tuple(range(2, 18)), "t.csv"
    )


def words_of(learner: LossModule) -> nn.Embedding:
    assert learner.model.unpadded is not None
    return learner.model.unpadded.words


def trained(*, lazily: bool, steps: int = 12, accumulate: int = 1, chunk: int | None = None, clip: float = 0.2) -> Any:
    """Losses, gradient norms and weights of a short run of steps."""
    learner, feed = learner_and_feed(dropout=0.1)
    rates: Any = {"encoder": 1e-3, "head": 1e-3, "objective": 1e-3}
    optimizer = build_optimizer(parameter_groups(learner, rates, 0.1))
    order = [rows for epoch in range(9) for rows in feed.sampler.batches(epoch)]
    results = []
    with lazy_rows(learner, optimizer, world=1 if lazily else 2) as lazy:
        assert len(lazy) == lazily
        for step in range(steps):
            torch.manual_seed(step)
            members = order[step * accumulate : (step + 1) * accumulate]
            result = step_with(learner, optimizer, feed, members, clip=clip, chunk=chunk, step=step, lazy=lazy)
            results.append(result)
    return results, dict(learner.named_parameters())


@pytest.mark.parametrize(("accumulate", "chunk"), [(1, None), (3, None), (1, 2), (2, 3)])
def test_training_is_that_with_dense_gradients(accumulate, chunk):
    """Loss, norm before clipping and all weights, also over several batches a step and with the cached step."""
    rowwise, ours = trained(lazily=True, accumulate=accumulate, chunk=chunk)
    dense, theirs = trained(lazily=False, accumulate=accumulate, chunk=chunk)

    assert [one.loss for one in rowwise] == pytest.approx([one.loss for one in dense], rel=1e-4)
    assert [one.gradient_norm for one in rowwise] == pytest.approx([one.gradient_norm for one in dense], rel=1e-3)
    assert min(one.gradient_norm for one in dense) > 0.2  # every step is clipped
    for name, weight in theirs.items():
        assert torch.allclose(ours[name], weight, rtol=1e-4, atol=1e-5), name


def test_a_broken_gradient_of_a_row_is_named():
    """The message has the weight's name, and nothing was updated."""
    learner, feed = learner_and_feed()
    optimizer = build_optimizer(parameter_groups(learner, {"encoder": 1e-3, "head": 1e-3, "objective": 1e-3}, 0.0))
    words = words_of(learner).weight
    before = words.detach().clone()
    words.register_hook(lambda gradient: gradient * math.inf)
    with lazy_rows(learner, optimizer) as lazy, pytest.raises(NotFiniteError, match=r"word_embeddings\.weight"):
        step_with(learner, optimizer, feed, feed.sampler.batches(0)[:1], lazy=lazy)
    assert words.detach().equal(before)


def groups_of(learner: LossModule, decay: float = 0.01) -> Any:
    return parameter_groups(learner, {"encoder": 1.0, "head": 1.0, "objective": 1.0}, decay)


@pytest.mark.parametrize("why", ["several processes", "frozen", "tied", "plain path", "decays to nothing"])
def test_where_rows_would_be_wrong_gradients_stay_dense(why):
    """Each reason alone is enough."""
    learner, _ = learner_and_feed()
    words = words_of(learner)
    if why == "frozen":
        words.weight.requires_grad = False
    if why == "tied":
        learner.tied = nn.Linear(64, len(words.weight), bias=False)
        learner.tied.weight = words.weight
    if why == "plain path":
        learner.model.unpadded = None
    optimizer = build_optimizer(groups_of(learner, 2.0 if why == "decays to nothing" else 0.01))
    with lazy_rows(learner, optimizer, world=2 if why == "several processes" else 1) as lazy:
        assert lazy == []
        assert not words.sparse


def test_afterwards_gradients_are_dense_again():
    """Whether the run ended well or not."""
    learner, _ = learner_and_feed()
    optimizer = build_optimizer(groups_of(learner))
    with lazy_rows(learner, optimizer):
        assert words_of(learner).sparse
    assert not words_of(learner).sparse
    with pytest.raises(KeyError), lazy_rows(learner, optimizer):
        raise KeyError
    assert not words_of(learner).sparse


def test_evaluation_and_the_end_see_current_weights_and_checkpoints_do_not_make_them(tmp_path: Path):
    """A row that no text has shrinks by weight decay alone: all of it at each evaluation and at the end."""
    learner, feed = learner_and_feed()
    weight = words_of(learner).weight
    unread = sorted(set(range(len(weight))) - set(feed.tokens.ids.tolist()))[-1]
    start = weight[unread].detach().clone()
    training = Training(epochs=3, learning_rate=1e-2, warmup=0.0, schedule="constant", weight_decay=1.0, patience=None,
                        evaluate_every=5, checkpoint_every=1, metric="accuracy")  # fmt: skip
    store, seen = CheckpointStore(tmp_path / "c"), []

    def look() -> dict[str, float]:
        seen.append(weight[unread].detach().clone())
        return {"accuracy": 1.0 - len(seen)}

    class Stored(QuietCallback):
        late = 0

        def step(self, entry: dict[str, Any]) -> None:
            checkpoint, _ = store.newest()
            if checkpoint is not None:
                (row,) = (own for name, own in checkpoint.tensors["optimizer"].items() if name.startswith("seen|"))
                self.late += int(row[unread] < checkpoint.state["step"])

    stored = Stored()
    rates: Any = {"encoder": 1e-2, "head": 1e-2, "objective": 1e-2}
    settings: Any = {"rates": rates, "seed": 1, "store": store}
    fit_with(learner, feed, training, **settings, journal=Journal(tmp_path / "j"), callbacks=(stored,), evaluate=look)

    assert len(seen) == 3
    for own, steps in zip(seen, (5, 10, 12), strict=True):
        assert torch.allclose(own, start * 0.99**steps, rtol=1e-5)
    assert weight[unread].detach().equal(seen[0])  # the best one
    assert stored.late >= 4

    learner, feed = learner_and_feed()
    fit_with(learner, feed, training, **settings, journal=Journal(tmp_path / "k"))
    assert torch.allclose(words_of(learner).weight[unread], start * 0.99**12, rtol=1e-5)


@pytest.mark.parametrize("reads", [True, False])
def test_rows_are_current_at_each_epoch_for_a_sampler_that_reads_the_model_and_wait_for_any_other(
    tmp_path: Path, reads: bool
):
    """With one batch an epoch, as few texts have, bringing all rows up to date would cost as much as the step."""
    learner, feed = learner_and_feed()
    weight = words_of(learner).weight
    unread = sorted(set(range(len(weight))) - set(feed.tokens.ids.tolist()))[-1]
    start = weight[unread].detach().clone()
    seen = []

    class Looking:
        reads_model = reads

        def __len__(self) -> int:
            return len(feed.sampler)

        def batches(self, epoch: int, previous: list[Any] | None = None) -> list[Any]:
            seen.append(weight[unread].detach().clone())
            return feed.sampler.batches(epoch, previous)

    training = Training(epochs=3, learning_rate=1e-2, warmup=0.0, schedule="constant", weight_decay=1.0)
    rates: Any = {"encoder": 1e-2, "head": 1e-2, "objective": 1e-2}
    fit_with(
        learner, replace(feed, sampler=Looking()), training, rates=rates, seed=1,
        store=CheckpointStore(tmp_path / "c"), journal=Journal(tmp_path / "j"),
    )  # fmt: skip
    assert len(seen) == 3
    for epoch, own in enumerate(seen):
        assert torch.allclose(own, start * 0.99 ** (4 * epoch if reads else 0), rtol=1e-5)
    assert torch.allclose(weight[unread], start * 0.99**12, rtol=1e-5)


def test_batches_of_neighbors_are_made_from_current_rows(tmp_path: Path):
    learner, feed = learner_and_feed()
    weight = words_of(learner).weight
    unread = sorted(set(range(len(weight))) - set(feed.tokens.ids.tolist()))[-1]
    start = weight[unread].detach().clone()
    seen = []

    def vectors() -> Any:
        seen.append(weight[unread].detach().clone())
        return np.random.default_rng(1).normal(size=(16, 4)).astype(np.float32)

    grouping = NearestNeighbors(group=2)
    sampler = EmbeddingSampler(rows=16, size=4, seed=1, vectors=vectors, grouping=grouping)
    training = Training(epochs=2, learning_rate=1e-2, warmup=0.0, schedule="constant", weight_decay=1.0)
    rates: Any = {"encoder": 1e-2, "head": 1e-2, "objective": 1e-2}
    fit_with(
        learner, replace(feed, sampler=sampler), training, rates=rates, seed=1,
        store=CheckpointStore(tmp_path / "c"), journal=Journal(tmp_path / "j"),
    )  # fmt: skip
    assert len(seen) == 2
    assert torch.allclose(seen[1], start * 0.99**4, rtol=1e-5)


def test_samplers_that_only_shuffle_do_not_read_the_model():
    assert not any(kind.reads_model for kind in (RandomOrder, FileOrder, ClassBalanced, ShingleSampler))
