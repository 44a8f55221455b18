"""Objectives reckon in fp32 or better, whatever they are given and whatever autocast does to the encoder."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor


def full_precision(vectors: Tensor) -> torch.autocast:
    """Autocast off: similarities in bf16 keep three digits, and the distance of two near centers none."""
    return torch.autocast(vectors.device.type, enabled=False)


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors in the widest of their types, fp32 at least. Gradients come back in each one's own type.

    >>> [tensor.dtype for tensor in widened(torch.ones(2, dtype=torch.bfloat16), torch.ones(2))]
    [torch.float32, torch.float32]
    """
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    return tuple(tensor.to(dtype) for tensor in tensors)
