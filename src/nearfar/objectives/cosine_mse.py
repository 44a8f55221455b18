"""Cosine MSE: the cosine of a pair should be its score."""

from __future__ import annotations

import torch  # noqa: F401 - the examples below read it
from torch import Tensor, nn

from nearfar.objectives.pair_inputs import cosines, pair_sizes, required
from nearfar.objectives.precision import full_precision, widened


class CosineMSE(nn.Module):
    r"""Mean squared error of the cosine of each pair.

    .. math:: L = \frac{1}{b} \sum_i (\cos(q_i, a_i) - y_i)^2

    with *y* the targets, from 0 for nothing in common to 1 for the same. Extra rows on the right, and groups, are
    accepted for the sake of blends and not looked at.

    Reads:    pairs of texts, a score from 0 to 1 or a class 0 or 1 each
    Batches:  any
    Related:  :class:`BatchSoftmax`, which also compares with the rest of the batch; :class:`Pearson`
    Paper:    Reimers and Gurevych 2019, arXiv:1908.10084; eq. 6 of Chernyavskiy et al. 2022, arXiv:2110.15725

    >>> same, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    >>> CosineMSE()(same, other, torch.tensor([0.5])).item()
    0.25
    """

    def forward(
        self, left: Tensor, right: Tensor, targets: Tensor | None = None, *, left_groups: Tensor | None = None,
        right_groups: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """(b, d) left, (b + extra, d) right, (b,) targets -> scalar."""
        pair_sizes(left, right, targets, left_groups, right_groups)
        wanted = required("CosineMSE", targets, low=0, high=1)
        left, right = widened(left, right)
        if len(left) == 0:
            return (left.sum() + right.sum()) * 0
        with full_precision(left):
            return (cosines(left, right) - wanted.to(left.dtype)).square().mean()
