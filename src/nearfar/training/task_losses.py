"""Losses that only heads of several tasks have: the squared error of scores, and a learned weight of a task."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class ScoreError(nn.Module):
    r"""The mean squared error of a head's scores, :math:`\frac1b \sum_i (s_i - y_i)^2`.

    Reads:    pairs of texts, a score from 0 to 1 each
    Batches:  any
    Related:  :class:`nearfar.objectives.CosineMSE`, which needs no head
    """

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(b, 1) outputs of a head, (b,) targets -> scalar."""
        return (outputs[:, 0] - targets.to(outputs.dtype)).square().mean()


class Uncertainty(nn.Module):
    r"""The weight of a task's loss, learned: Kendall, Gal and Cipolla 2018, arXiv:1705.07115, section 3.

    .. math:: e^{-s} L + \tfrac12 s, \qquad \tfrac12 e^{-s} L + \tfrac12 s \text{ for a squared error}

    with s the log-variance of the task, which begins at zero. A task that stays uncertain gets a lower weight.

    Args:
        squared: whether the loss is a squared error.

    >>> round(Uncertainty(squared=True)(torch.tensor(4.0)).item(), 4)
    2.0
    """

    def __init__(self, *, squared: bool) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(()))
        self.factor = 0.5 if squared else 1.0

    @property
    def weight(self) -> float:
        """The present weight of the loss."""
        return self.factor * math.exp(-self.log_variance.item())

    def forward(self, loss: Tensor) -> Tensor:
        """A scalar -> the weighted scalar."""
        weighted: Tensor = self.factor * torch.exp(-self.log_variance) * loss + self.log_variance / 2
        return weighted
