"""One batch on several cores: each takes some of the texts through the whole encoder, with one thread.

Usually every matrix product is split between all cores, which then wait for each other hundreds of times in a step; one
that is busy with something else delays all others each time. Here they synchronize twice, at the end of the forward and
of the backward pass, so that a core computes at its full speed and a busy machine costs only its share.
Each part computes gradients of all weights, so large encoders are split into fewer parts, with several threads each.

The results do not depend on how busy the machine is: the parts follow from the lengths of the texts alone, each has a
dropout seed of its own, and their gradients are added in order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Barrier, Lock
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from nearfar.encoding.dropout import DropoutMasks
from nearfar.encoding.products import linear
from nearfar.encoding.unpadded import Unpadded, UnpaddedEncoder

LEAST = 128
"""Tokens that are worth a part of their own."""
PART = 384
"""Tokens of a part, where nothing is trained: what is between two matrix products stays in the second-level cache."""
NARROW_PART = 4096
"""The same where states have 16 bits: little is between the products, and units for matrices want large ones."""
SMALL = 10**9
"""Multiplications below which one thread is enough: several are hardly faster, and wait for each other when others
compute on the machine, too."""
EXTRA = 512 * 2**20
"""Bytes that the gradients of all parts but one may take: each part has those of all weights."""
SQUARE = 1152
"""The length of a text at which its attention costs about as much as the rest of it: 3 times MiniLM's width."""

Result = TypeVar("Result")


def encode(encoder: UnpaddedEncoder, batch: Unpadded, *, training: bool, first_only: bool = False) -> Tensor:
    """What ``encoder.forward`` gives, computed by as many threads as torch may use.

    In bf16 all of them compute with one copy of the matrices in that type; the weights themselves stay fp32, and the
    gradients of the copies are summed in fp32.
    """
    on_cpu = batch.ids.device.type == "cpu"
    low = on_cpu and torch.is_autocast_enabled("cpu")
    masters = [weight for weight in encoder.weights() if weight.requires_grad]
    graph = torch.is_grad_enabled() and bool(masters)
    most = workers(masters if graph else []) if on_cpu else 1
    parts = split(batch, most)
    if len(parts) == 1 and not low:
        return encoder.forward(batch, DropoutMasks(training=training), first_only=first_only)
    masks = [DropoutMasks(training=training, seed=int(torch.randint(2**62, ())) if training else 0) for _ in parts]
    used, copies = in_dtype(encoder, torch.get_autocast_dtype("cpu")) if low else (encoder, {})
    jobs = [partial(used.forward, *each, first_only=first_only) for each in zip(parts, masks, strict=True)]
    if not graph:
        return torch.cat(run_parallel(jobs, most))
    weights = [copies.get(weight, weight) for weight in masters]
    states: Tensor = _ParallelEncoding.apply(jobs, most, weights, *masters)  # type: ignore[no-untyped-call]
    return states


def encode_packed(encoder: UnpaddedEncoder, batch: Unpadded, *, first_only: bool = False) -> Tensor:
    """What ``encoder.forward`` gives with packed weights, in parts that fit into the caches of a core."""
    most, tokens = threads(), len(batch.ids)
    size = PART if encoder.states is None else NARROW_PART
    parts = split(batch, max(most, most * -(-tokens // (most * size))))
    masks = DropoutMasks(training=False)
    jobs = [partial(encoder.forward, part, masks, first_only=first_only) for part in parts]
    if len(jobs) > 1:
        return torch.cat(run_parallel(jobs, most))
    work = tokens * len(encoder.layers) * 12 * encoder.words.weight.shape[1] ** 2
    return run_alone(jobs[0]) if work < SMALL and most > 1 else jobs[0]()


def workers(trained: Sequence[Tensor]) -> int:
    """How many parts may be computed at once: one for each thread, and fewer where their gradients are large."""
    size = sum(weight.numel() * weight.element_size() for weight in trained)
    return threads() if not size else min(threads(), 1 + EXTRA // size)


class LinearCopy:
    """A linear layer with copies of the weights in another type."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype) -> None:
        self.weight = layer.weight.detach().to(dtype).requires_grad_(layer.weight.requires_grad)
        self.bias = None
        if layer.bias is not None:
            self.bias = layer.bias.detach().to(dtype).requires_grad_(layer.bias.requires_grad)

    def __call__(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, e)."""
        return linear(x, self.weight, self.bias)


def in_dtype(encoder: UnpaddedEncoder, dtype: torch.dtype) -> tuple[UnpaddedEncoder, dict[Tensor, Tensor]]:
    """The encoder with its matrices in another type, and the copy of each weight that has one.

    The copies are new at every call: they belong to one pass, whose graph may outlive the next.
    """
    copies: dict[Tensor, Tensor] = {}

    def copied(layer: nn.Linear) -> Any:
        copy = LinearCopy(layer, dtype)
        copies[layer.weight] = copy.weight
        if copy.bias is not None:
            copies[layer.bias] = copy.bias
        return copy

    layers = tuple(
        replace(layer, **{name: copied(part) for name, part in vars(layer).items() if isinstance(part, nn.Linear)})
        for layer in encoder.layers
    )
    return replace(encoder, layers=layers, project=encoder.project and copied(encoder.project)), copies


def threads() -> int:
    """How many threads torch may use."""
    return torch.get_num_threads()


def split(batch: Unpadded, most: int) -> list[Unpadded]:
    """The batch in at most ``most`` parts of about the same work, the order kept.

    >>> batch = Unpadded(torch.zeros(600, dtype=torch.int64), None, (200, 150, 100, 100, 50), torch.arange(5))
    >>> [part.lengths for part in split(batch, 2)]
    [(200, 150), (100, 100, 50)]
    """
    lengths = np.array(batch.lengths, dtype=np.int64)
    count = min(most, len(lengths), int(lengths.sum()) // LEAST)
    if count < 2:
        return [batch]
    work = np.cumsum(lengths * (1 + lengths / SQUARE))
    middle = (work - 0.5 * np.diff(work, prepend=0)) / work[-1]  # of each text, as a share of all work
    owner = np.minimum((middle * count).astype(np.int64), count - 1)
    ends = np.cumsum(lengths)
    parts = []
    for part in np.unique(owner):
        rows = np.flatnonzero(owner == part)
        first, last = int(rows[0]), int(rows[-1])
        tokens = slice(int(ends[first] - lengths[first]), int(ends[last]))
        types = None if batch.types is None else batch.types[tokens]
        parts.append(Unpadded(batch.ids[tokens], types, batch.lengths[first : last + 1], torch.arange(len(rows))))
    return parts


class _ParallelEncoding(torch.autograd.Function):
    """The graphs of the parts as one node of the graph around them."""

    @staticmethod
    def forward(
        ctx: Any, jobs: Sequence[Callable[[], Tensor]], most: int, weights: Sequence[Tensor], *masters: Tensor
    ) -> Tensor:
        with torch.enable_grad():
            states = run_parallel(jobs, most)
        ctx.states, ctx.weights, ctx.most, ctx.dtypes = states, weights, most, [weight.dtype for weight in masters]
        return torch.cat([part.detach() for part in states])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, weights = ctx.states, ctx.weights
        ctx.states = ctx.weights = None  # each graph is freed as soon as its gradients are computed
        upstream = torch.split(gradients[0], [len(part) for part in states])
        jobs = [partial(_gradients, part, upper, weights) for part, upper in zip(states, upstream, strict=True)]
        del states
        by_weight = zip(*run_parallel(jobs, ctx.most), strict=True)
        return (None, None, None, *(_sum(parts, dtype) for parts, dtype in zip(by_weight, ctx.dtypes, strict=True)))


def _gradients(states: Tensor, upstream: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """Those of weights; the gradient of the states is that of a product, because torch imports sympy to check a given
    one."""
    with torch.enable_grad():
        product = (states * upstream).sum()
    return torch.autograd.grad(product, weights, allow_unused=True)


def _sum(parts: Sequence[Tensor | None], dtype: torch.dtype) -> Tensor | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    total = known[0].to(dtype)
    for part in known[1:]:
        total = total + part if total.is_sparse else total.add_(part)
    return total


def run_parallel(jobs: Sequence[Callable[[], Result]], most: int) -> list[Result]:
    """Every job in one of ``most`` threads, which share torch's threads; the results in order.

    A single job runs in this thread, with all of them.
    """
    if len(jobs) == 1:
        return [jobs[0]()]
    return list(_pool(most, max(1, threads() // most)).map(_with_modes(), jobs))


def run_alone(job: Callable[[], Result]) -> Result:
    """A job in a thread with one torch thread; as many at once as torch has threads."""
    return _pool(threads(), 1).submit(_with_modes(), job).result()


def _with_modes() -> Callable[[Callable[[], Result]], Result]:
    """Runs jobs with the modes of this thread, which belong to a thread; no other code uses those of the pool."""
    gradients, low, dtype = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def run(job: Callable[[], Result]) -> Result:
        with torch.set_grad_enabled(gradients), torch.autocast("cpu", dtype, enabled=low, cache_enabled=False):
            return job()

    return run


_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_making = Lock()


def _pool(size: int, torch_threads: int) -> ThreadPoolExecutor:
    """Threads with so many torch threads each; they are kept for the next pass."""
    with _making:
        if (size, torch_threads) not in _pools:
            before = torch.get_num_threads()
            pool = ThreadPoolExecutor(size, "nearfar-encoder", partial(_set_threads, torch_threads))
            gate = Barrier(size)
            for future in [pool.submit(gate.wait) for _ in range(size)]:  # a pool starts its threads as jobs come in
                future.result()
            torch.set_num_threads(before)  # torch keeps the number that any thread has set for new threads
            _pools[size, torch_threads] = pool
        return _pools[size, torch_threads]


def _set_threads(number: int) -> None:
    torch.set_num_threads(number)
    torch.get_num_threads()  # a thread takes the number over at its first question, and keeps it


os.register_at_fork(after_in_child=_pools.clear)
