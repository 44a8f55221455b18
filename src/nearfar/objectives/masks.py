"""Who counts as whose positive, as boolean matrices."""

from __future__ import annotations

import torch
from torch import Tensor


def itself(n: int, device: torch.device) -> Tensor:
    """(n, n): True on the diagonal."""
    return torch.eye(n, dtype=torch.bool, device=device)


def classmates(labels: Tensor) -> Tensor:
    """(n,) labels -> (n, n): True where two different rows share a class.

    >>> classmates(torch.tensor([0, 1, 0])).int().tolist()
    [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    """
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    return same & ~itself(len(labels), labels.device)
