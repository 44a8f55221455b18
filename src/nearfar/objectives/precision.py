"""Arithmetic of objectives: in fp32 or better, whatever their inputs and whatever autocast does to the encoder."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

SHORTEST = 1e-12
"""A vector shorter than this has no direction, and a coordinate narrower than this is constant: both become zero."""


def full_precision(vectors: Tensor) -> torch.autocast:
    """Autocast off: similarities in bf16 keep three digits, and the distance of two near centers none."""
    return torch.autocast(vectors.device.type, enabled=False)


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors in the widest of their types, fp32 at least. Each gradient has the type of its tensor.

    >>> [tensor.dtype for tensor in widened(torch.ones(2, dtype=torch.bfloat16), torch.ones(2))]
    [torch.float32, torch.float32]
    """
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    return tuple(tensor.to(dtype) for tensor in tensors)


def unit(vectors: Tensor, dim: int = 1) -> Tensor:
    """Divide by the L2 length along an axis: 1 normalizes every row, 0 every coordinate over the batch.

    Where the length is zero, so is the result, with a zero gradient.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    return vectors / _divisor(torch.linalg.vector_norm(vectors, dim=dim, keepdim=True))


def minmax(vectors: Tensor) -> Tensor:
    """Scale every coordinate to 0..1 over the batch. A constant one becomes zero, with a zero gradient.

    >>> minmax(torch.tensor([[1.0, 5.0], [2.0, 5.0], [5.0, 5.0]]))
    tensor([[0.0000, 0.0000],
            [0.2500, 0.0000],
            [1.0000, 0.0000]])
    """
    low, high = vectors.amin(dim=0, keepdim=True), vectors.amax(dim=0, keepdim=True)  # (1, d) each
    return (vectors - low) / _divisor(high - low)


def _divisor(size: Tensor) -> Tensor:
    """The size, or infinity where it is zero but for rounding: dividing by that gives zero, and no gradient."""
    return size.masked_fill(size <= SHORTEST, torch.inf)
