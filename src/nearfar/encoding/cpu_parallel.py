"""One batch on several cores: each takes a part of the texts through the whole encoder, with one thread of its own.

The usual way splits every matrix product between all cores, which then wait for each other hundreds of times in a
step; one that is busy with something else holds all others up each time. Here they meet twice, at the end of the
forward and of the backward pass, so that a core computes at its full speed and a busy machine costs only its share.
Each part forms gradients of all weights, so large encoders are cut into fewer parts, which have several threads each.

The numbers do not depend on how busy the machine is: the parts are cut by the lengths of the texts alone, each has a
dropout seed of its own, and their gradients are added in order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Barrier
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.unpadded import Body, Noise, Stream

LEAST = 128
"""Tokens that are worth a part of their own."""
EXTRA = 512 * 2**20
"""Bytes that the gradients of all parts but one may take: each part has those of all weights."""
SQUARE = 1152
"""The length of a text at which its attention costs as much as the rest of it, about: 3 times MiniLM's width."""

Result = TypeVar("Result")


def encode(body: Body, stream: Stream, *, training: bool, firsts: bool = False) -> Tensor:
    """What ``body.forward`` gives, computed by as many threads as torch has been given.

    In bf16 all of them compute with one copy of the matrices in that type; the weights themselves stay fp32, and what
    comes back to the copies is added up for them in fp32.
    """
    on_cpu = stream.ids.device.type == "cpu"
    low = on_cpu and torch.is_autocast_enabled("cpu")
    masters = [weight for weight in body.weights() if weight.requires_grad]
    graph = torch.is_grad_enabled() and bool(masters)
    most = workers(masters if graph else []) if on_cpu else 1
    parts = cut(stream, most)
    if len(parts) == 1 and not low:
        return body.forward(stream, training=training, firsts=firsts)
    noises = [Noise(training=training, seed=int(torch.randint(2**62, ())) if training else 0) for _ in parts]
    own, copies = lowered(body, torch.get_autocast_dtype("cpu")) if low else (body, {})
    jobs = [partial(_forward, own, part, noise, firsts) for part, noise in zip(parts, noises, strict=True)]
    if not graph:
        return torch.cat(at_once(jobs, most))
    used = [copies.get(weight, weight) for weight in masters]
    states: Tensor = _Spread.apply(jobs, most, used, *masters)  # type: ignore[no-untyped-call]
    return states


def workers(trained: Sequence[Tensor]) -> int:
    """How many parts may be computed at once: one for each thread, and fewer where their gradients are large."""
    size = sum(weight.numel() * weight.element_size() for weight in trained)
    return threads() if not size else min(threads(), 1 + EXTRA // size)


class Matrix:
    """A linear layer whose weights are copies in the type that is computed in."""

    def __init__(self, layer: nn.Linear, kind: torch.dtype) -> None:
        self.weight = layer.weight.detach().to(kind).requires_grad_(layer.weight.requires_grad)
        self.bias = None
        if layer.bias is not None:
            self.bias = layer.bias.detach().to(kind).requires_grad_(layer.bias.requires_grad)

    def __call__(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, e)."""
        return F.linear(x, self.weight, self.bias)


def lowered(body: Body, kind: torch.dtype) -> tuple[Body, dict[Tensor, Tensor]]:
    """The body with its matrices in another type, and the copy of each weight that has one.

    The copies are new at every call: they belong to one pass, whose graph may outlive the next.
    """
    copies: dict[Tensor, Tensor] = {}

    def copied(layer: nn.Linear) -> Any:
        made = Matrix(layer, kind)
        copies[layer.weight] = made.weight
        if made.bias is not None:
            copies[layer.bias] = made.bias
        return made

    layers = tuple(
        replace(layer, **{name: copied(part) for name, part in vars(layer).items() if isinstance(part, nn.Linear)})
        for layer in body.layers
    )
    return replace(body, layers=layers, project=body.project and copied(body.project)), copies


def threads() -> int:
    """How many threads torch has been given."""
    return torch.get_num_threads()


def cut(stream: Stream, most: int) -> list[Stream]:
    """The stream in at most ``most`` parts of about the same work, the order kept.

    >>> stream = Stream(torch.zeros(600, dtype=torch.int64), None, (200, 150, 100, 100, 50), torch.arange(5))
    >>> [part.lengths for part in cut(stream, 2)]
    [(200, 150), (100, 100, 50)]
    """
    lengths = np.array(stream.lengths, dtype=np.int64)
    count = min(most, len(lengths), int(lengths.sum()) // LEAST)
    if count < 2:
        return [stream]
    work = np.cumsum(lengths * (1 + lengths / SQUARE))
    middle = (work - 0.5 * np.diff(work, prepend=0)) / work[-1]  # of each text, as a share of all work
    owner = np.minimum((middle * count).astype(np.int64), count - 1)
    ends = np.cumsum(lengths)
    parts = []
    for own in np.unique(owner):
        rows = np.flatnonzero(owner == own)
        start, stop = int(ends[rows[0]] - lengths[rows[0]]), int(ends[rows[-1]])
        types = None if stream.types is None else stream.types[start:stop]
        own_lengths = tuple(stream.lengths[rows[0] : rows[-1] + 1])
        parts.append(Stream(stream.ids[start:stop], types, own_lengths, torch.arange(len(rows))))
    return parts


def _forward(body: Body, part: Stream, noise: Noise, firsts: bool) -> Tensor:
    return body.forward(part, training=noise.training, firsts=firsts, noise=noise)


class _Spread(torch.autograd.Function):
    """The parts' own graphs behind one node of the graph around them."""

    @staticmethod
    def forward(
        ctx: Any, jobs: Sequence[Callable[[], Tensor]], most: int, used: Sequence[Tensor], *masters: Tensor
    ) -> Tensor:
        with torch.enable_grad():
            states = at_once(jobs, most)
        ctx.states, ctx.used, ctx.most, ctx.kinds = states, used, most, [weight.dtype for weight in masters]
        return torch.cat([own.detach() for own in states])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, used = ctx.states, ctx.used
        ctx.states = ctx.used = None  # each graph goes as soon as it has been walked
        uppers = torch.split(gradients[0], [len(own) for own in states])
        jobs = [partial(_backward, own, used, upper) for own, upper in zip(states, uppers, strict=True)]
        del states
        found = zip(*at_once(jobs, ctx.most), strict=True)
        return (None, None, None, *(_summed(own, kind) for own, kind in zip(found, ctx.kinds, strict=True)))


def _backward(states: Tensor, weights: Sequence[Tensor], upper: Tensor) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(states, weights, upper, allow_unused=True)


def _summed(parts: Sequence[Tensor | None], kind: torch.dtype) -> Tensor | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    total = known[0].to(kind)
    for part in known[1:]:
        total = total + part if total.is_sparse else total.add_(part)
    return total


def at_once(jobs: Sequence[Callable[[], Result]], most: int) -> list[Result]:
    """Every job in one of ``most`` threads, which share out torch's own; the results in order.

    A single job runs right here, with all of them.
    """
    if len(jobs) == 1:
        return [jobs[0]()]
    gradients, low, kind = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    pool = _pool(most, max(1, threads() // most))
    waiting = [pool.submit(_alone, job, gradients, low, kind) for job in jobs]
    return [future.result() for future in waiting]


def _alone(job: Callable[[], Result], gradients: bool, autocast: bool, kind: torch.dtype) -> Result:
    # what belongs to a thread must be set in it; the pool's threads are nobody else's
    with torch.set_grad_enabled(gradients), torch.autocast("cpu", kind, enabled=autocast, cache_enabled=False):
        return job()


_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _pool(size: int, own: int) -> ThreadPoolExecutor:
    """Threads that have ``own`` threads of torch each; they are kept for the next pass."""
    if (size, own) not in _pools:
        before = torch.get_num_threads()
        pool = ThreadPoolExecutor(size, "nearfar-encoder", partial(_have, own))
        _start(pool, size)
        torch.set_num_threads(before)  # torch keeps the number that any thread has set for threads to come
        _pools[size, own] = pool
    return _pools[size, own]


def _have(threads: int) -> None:
    torch.set_num_threads(threads)
    torch.get_num_threads()  # a thread takes its number over when it first asks, and keeps that one


def _start(pool: ThreadPoolExecutor, size: int) -> None:
    """Have all threads of the pool begin, which do so one by one as jobs come in."""
    gate = Barrier(size)
    for future in [pool.submit(gate.wait) for _ in range(size)]:
        future.result()


os.register_at_fork(after_in_child=_pools.clear)
