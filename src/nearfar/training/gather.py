"""Rows of all processes as one tensor, with exact gradients."""

from __future__ import annotations

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
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return tensor
    gathered: Tensor = _Gather.apply(tensor)  # type: ignore[no-untyped-call]
    return gathered


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
