"""Rows of all processes as one tensor, with exact gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def gather_rows(tensor: Tensor) -> Tensor:
    """(n, ...) rows of this process -> rows of all processes, in the order of the processes.

    In one process it is the tensor itself. In several, each computes the same loss on all rows; the gradient that
    comes back to a process's own rows is multiplied by the number of processes, because distributed training divides
    the sum of gradients by it. An objective's own weights need no such factor: they see the same gradient everywhere.
    """
    if not _several():
        return tensor
    gathered: Tensor = _Gather.apply(tensor)  # type: ignore[no-untyped-call]
    return gathered


def average_gradients(weights: Sequence[Tensor]) -> None:
    """Replace each gradient by its mean over all processes: one exchange a step, whatever led to the gradients."""
    if not _several():
        return
    for start, stop in _buckets([weight.numel() for weight in weights]):
        gradients = [_gradient(weight) for weight in weights[start:stop]]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, piece in zip(
            gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True
        ):
            gradient.copy_(piece.view_as(gradient))


def same_start(weights: Sequence[Tensor]) -> None:
    """Give every process the weights of the first one."""
    if _several():
        for weight in weights:
            dist.broadcast(weight.detach(), 0)


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad


def _buckets(sizes: list[int], limit: int = 8_000_000) -> list[tuple[int, int]]:
    """Runs of neighbors with at most ``limit`` numbers together: no second copy of all gradients is made."""
    runs, start, total = [], 0, 0
    for place, size in enumerate(sizes):
        if place > start and total + size > limit:
            runs.append((start, place))
            start, total = place, 0
        total += size
    return [*runs, (start, len(sizes))] if sizes else []


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        world, rank = dist.get_world_size(), dist.get_rank()
        sizes = [torch.zeros(1, dtype=torch.long, device=tensor.device) for _ in range(world)]
        dist.all_gather(sizes, torch.tensor([len(tensor)], device=tensor.device))
        counts = [int(size) for size in sizes]
        padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
        padded[: len(tensor)] = tensor
        pieces = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(pieces, padded)
        ctx.world, ctx.start, ctx.count = world, sum(counts[:rank]), counts[rank]
        return torch.cat([piece[:count] for piece, count in zip(pieces, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        own: Tensor = gradients[0][ctx.start : ctx.start + ctx.count] * ctx.world
        return own
