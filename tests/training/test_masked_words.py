"""Masked words beside another objective: its own pass through the encoder, and the other objective's bits untouched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nearfar.batching import FileOrder
from nearfar.encoding import EncoderNoise, build, tokenize
from nearfar.encoding.masked_lm import make_masked_lm_head
from nearfar.errors import SettingError
from nearfar.objectives import BatchSoftmax, CrossEntropy
from nearfar.training import Loader, LossModule, Term
from nearfar.training.step import cached_backward
from tests.training.modules import loss_module

ROWS = 13
WEIGHT = 0.1
CONTRAST = Term("simcse", 1.0, BatchSoftmax(temperature=0.05, symmetric=False), "grouped-pairs")
MLM = Term("mlm", WEIGHT, CrossEntropy(), "masked-words")


def learner_and_feed(*, mlm: bool = True, texts: list[str] | None = None, **settings: Any) -> tuple[LossModule, Loader]:
    noise = EncoderNoise(**{name: settings.pop(name) for name in ("drophead", "cutoff") if name in settings})
    built = build("toy", classes=None, seed=1, noise=noise, **settings)
    texts = texts or ["word " * (2 + n % 5) + f"number {n}" for n in range(ROWS)]
    table = tokenize(built.tokenizer, [texts], max_length=32)
    every = np.arange(len(texts))
    feed = Loader(
        table, np.zeros(len(texts), dtype=np.int64), FileOrder(rows=len(texts), size=len(texts)),
        tuple(range(len(texts))), "t", columns=(every, every), groups=(every, every),
    )  # fmt: skip
    head = make_masked_lm_head("toy", built, seed=2)[0] if mlm else None
    return loss_module(built.model, [CONTRAST, *([MLM] if mlm else [])], masked=head).train(), feed


def gradients(learner: LossModule) -> dict[str, torch.Tensor]:
    found = {name: weight.grad.clone() for name, weight in learner.named_parameters() if weight.grad is not None}
    learner.zero_grad(set_to_none=True)
    return found


def losses(learner: LossModule, feed: Loader, seed: int = 5) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    torch.manual_seed(seed)
    (batch,) = feed.batches(learner.model, np.arange(len(feed)), None)
    return learner(batch)


def test_the_contrast_has_the_same_bits_with_and_without():
    """Words are hidden after the two views were drawn and encoded."""
    total, parts = losses(*learner_and_feed(dropout=0.2))
    alone, single = losses(*learner_and_feed(dropout=0.2, mlm=False))

    assert set(parts) == {"simcse", "mlm"}
    assert parts["simcse"].equal(single["simcse"])
    assert total.item() == pytest.approx(alone.item() + WEIGHT * parts["mlm"].item(), rel=1e-6)


@pytest.mark.parametrize("fast", [True, False])
def test_the_part_is_the_mean_over_hidden_words_of_both_views(fast):
    """One word after the other, against the learner's sum."""
    learner, feed = learner_and_feed(dropout=0.0, fast=fast)
    _, parts = losses(learner, feed)
    torch.manual_seed(5)
    (batch,) = feed.batches(learner.model, np.arange(ROWS), None)
    hidden = learner.masked.mask(batch.inputs)
    output = learner.model(hidden.inputs)
    states = output.states if output.states.ndim == 2 else output.states.flatten(0, 1)
    costs = [
        -F.log_softmax(learner.masked(states[place : place + 1])[0], dim=0)[word].item()
        for place, word in zip(hidden.places.tolist(), hidden.words.tolist(), strict=True)
    ]

    assert len(costs) > 10
    assert parts["mlm"].item() == pytest.approx(sum(costs) / len(costs), rel=1e-5)


@pytest.mark.parametrize("noise", [{"dropout": 0.2}, {"dropout": 0.1, "drophead": 0.4, "cutoff": 0.1}], ids=str)
@pytest.mark.parametrize("chunk", [1, 5])
def test_in_chunks_it_is_the_plain_step_with_the_same_noise(chunk, noise):
    """Loss and every gradient, of the head and the tied embeddings as well, with the masks of both passes alike."""
    learner, feed = learner_and_feed(**noise)
    chunks = feed.batches(learner.model, np.arange(ROWS), chunk)
    told: list[float] = []
    torch.manual_seed(9)
    cached_backward(learner, chunks, 0.7, lambda total, _parts: told.append(total.item()))
    cached = gradients(learner)
    torch.manual_seed(9)
    pieces = []
    for batch, seed in zip(chunks, torch.randint(2**62, (len(chunks),)).tolist(), strict=True):
        torch.manual_seed(seed)
        pieces.append(learner.represent(batch))
    total, _ = learner.combine({name: torch.cat([piece[name] for piece in pieces]) for name in pieces[0]})
    (0.7 * total).backward()
    plain = gradients(learner)

    assert told == [pytest.approx(total.item(), rel=1e-6)]
    assert set(cached) == set(plain) >= {"masked.dense.weight", "masked.bias"}
    for name, gradient in plain.items():
        assert torch.allclose(cached[name], gradient, rtol=1e-4, atol=1e-6), name


def test_a_batch_in_which_nothing_is_hidden_costs_nothing():
    """Texts without words: zero rather than NaN, and a gradient of zero, so that nothing counts as unused."""
    learner, feed = learner_and_feed(texts=["", "", ""])
    total, parts = losses(learner, feed)
    total.backward()

    assert parts["mlm"].item() == 0
    assert torch.isfinite(total)
    assert learner.masked.bias.grad.abs().sum() == 0


def test_two_views_differ_in_training_and_agree_in_evaluation():
    """By dropout, by drophead alone, and by cut-off alone."""
    for noise in ({"dropout": 0.1}, {"dropout": 0.0, "drophead": 0.4}, {"dropout": 0.0, "cutoff": 0.2}):
        learner, feed = learner_and_feed(mlm=False, **noise)
        torch.manual_seed(3)
        (batch,) = feed.batches(learner.model, np.arange(ROWS), None)
        pieces = learner.represent(batch)
        assert ((pieces["left"] - pieces["right"]).abs().amax(dim=1) > 1e-4).float().mean() > 0.8, noise
        calm = learner.eval().represent(batch)
        assert (calm["left"] - calm["right"]).abs().max() < 1e-5, noise


def test_a_term_on_masked_words_needs_a_head():
    built = build("toy", classes=None, seed=1)
    with pytest.raises(SettingError, match="needs a head"):
        loss_module(built.model, [MLM])
