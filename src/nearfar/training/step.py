"""One optimizer step: forward and backward over its batches, the checks, the update."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from nearfar.batching import Rows
from nearfar.errors import NotFiniteError
from nearfar.objectives import BatchSoftmax
from nearfar.training.feed import Feed
from nearfar.training.gather import average_gradients
from nearfar.training.grad_cache import cached_backward
from nearfar.training.lazy_adamw import LazyRows, ids_of
from nearfar.training.loss_module import Learner, Term


@dataclass(frozen=True)
class StepResult:
    """What a step reports."""

    loss: float
    parts: dict[str, float]
    gradient_norm: float
    texts: int
    more: dict[str, Any] = field(default_factory=dict)
    """What else goes into the journal."""


def take_step(
    accelerator: Accelerator,
    learner: Learner,
    optimizer: torch.optim.Optimizer,
    feed: Feed,
    members: list[Rows],
    *,
    clip: float,
    chunk: int | None,
    rank: int,
    world: int,
    step: int,
    rates: dict[str, float],
    lazy: Sequence[LazyRows] = (),
) -> StepResult:
    """Train on the ``members``, the batches that make up one step; each counts by its number of rows.

    With a ``chunk`` no more than that many rows have a graph at a time: see :mod:`nearfar.training.grad_cache`.
    The ``lazy`` rows are brought up to date before they are read, and updated with all other weights.
    """
    learner.train()
    texts = sum(len(rows) for rows in members)
    loss, parts, masked = 0.0, dict.fromkeys(learner.objectives, 0.0), Counter[str]()
    warm = temperatures(learner.terms)
    for rows in members:
        share = len(rows) / texts

        def accept(total: Tensor, pieces: dict[str, Tensor], rows: Rows = rows, share: float = share) -> None:
            nonlocal loss
            value = total.item()
            values = {name: piece.item() for name, piece in pieces.items()}
            if not math.isfinite(value):
                raise NotFiniteError(reason("the loss", value, values, feed.place(rows), step, rates))
            loss += share * value
            for name, piece in values.items():
                parts[name] += share * piece

        backward(accelerator, learner, feed, rows, share, accept, chunk=chunk, rank=rank, world=world, lazy=lazy)
        masked.update(left_out(learner.terms))
    average_gradients([weight for weight in learner.parameters() if weight.grad is not None])
    norm = update(
        learner, optimizer, clip=clip, parts=parts, place=feed.place(members[0]), step=step, rates=rates, lazy=lazy
    )
    return StepResult(loss, parts, norm, texts, seen_within(warm, masked))


def backward(
    accelerator: Accelerator,
    learner: Learner,
    feed: Feed,
    rows: Rows,
    share: float,
    accept: Callable[[Tensor, dict[str, Tensor]], None],
    *,
    chunk: int | None,
    rank: int,
    world: int,
    lazy: Sequence[LazyRows] = (),
) -> None:
    """Add the gradients of ``share`` times the loss of a batch; ``accept`` sees the loss before, and may refuse it."""
    own = [batch.to(accelerator.device) for batch in feed.batches(learner.model, rows, chunk, rank=rank, world=world)]
    for rows_of in lazy:
        rows_of.catch_up(ids_of(own))
    if len(own) > 1:
        cached_backward(learner, own, share, accept)
    else:
        total, pieces = learner(own[0])
        accept(total, pieces)
        accelerator.backward(total * share)


def update(
    learner: Learner,
    optimizer: torch.optim.Optimizer,
    *,
    clip: float,
    parts: dict[str, float],
    place: str,
    step: int,
    rates: dict[str, float],
    lazy: Sequence[LazyRows] = (),
) -> float:
    """Check, clip and spend the gradients that lie on the weights; returns their norm before clipping."""
    weights = [weight for weight in learner.parameters() if weight.grad is not None]
    gradients = [_numbers(weight) for weight in weights]
    norm = float(torch.nn.utils.get_total_norm(gradients))
    if not math.isfinite(norm):
        broken = [name for name, weight in learner.named_parameters()
                  if weight.grad is not None and not _numbers(weight).isfinite().all()]  # fmt: skip
        where = f"{place}; first in {broken[0]}" if broken else place
        raise NotFiniteError(reason("the gradient", norm, parts, where, step, rates))
    if 0 < clip < norm:
        for gradient in gradients:
            gradient.mul_(clip / norm)
    for rows_of in lazy:
        rows_of.step()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def temperatures(terms: Iterable[Term]) -> dict[str, float]:
    """The temperatures that are learned, by term."""
    return {
        term.name: term.objective.temperature
        for term in terms
        if isinstance(term.objective, BatchSoftmax) and term.objective.trainable
    }


def left_out(terms: Iterable[Term]) -> dict[str, int]:
    """How many positives the last batch kept from counting as negatives of each other, by term that knows groups."""
    return {
        term.name: int(term.objective.masked)
        for term in terms
        if isinstance(term.objective, BatchSoftmax) and term.view == "grouped-pairs"
    }


def seen_within(temperatures: Mapping[str, float], masked: Mapping[str, int]) -> dict[str, Any]:
    """What the journal has of the insides of objectives: nothing where there is nothing to tell."""
    told = {"temperatures": dict(temperatures), "masked": dict(masked)}
    return {name: values for name, values in told.items() if values}


def _numbers(weight: Tensor) -> Tensor:
    """The numbers of a weight's gradient, to read and to change: of the rows it has, where it has only some."""
    assert weight.grad is not None
    if weight.grad.is_sparse:
        weight.grad = weight.grad.coalesce()
        return weight.grad.values()
    return weight.grad


def reason(what: str, value: float, parts: dict[str, float], where: str, step: int, rates: dict[str, float]) -> str:
    """What to tell of numbers that are not finite, and what to try."""
    pieces = ", ".join(f"{name} {part:g}" for name, part in parts.items())
    speeds = ", ".join(f"{name} {rate:.2g}" for name, rate in rates.items())
    return (
        f"{what} is {value} at step {step} (parts: {pieces}; learning rates: {speeds}; batch: {where}). "
        "The run stops here; checkpoints that it has written hold the weights from before. "
        'Try a lower training.learning_rate or objective.learning_rate, or training.precision = "fp32".'
    )
