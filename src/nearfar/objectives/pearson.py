"""Pearson: cosines of a batch should rise and fall with its scores."""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.objectives.pair_objective import PairObjective, Pairs


class Pearson(PairObjective):
    r"""One minus Pearson's correlation of cosines and targets over the batch.

    .. math:: L = 1 - \frac{\sum_i (c_i - \bar c)(y_i - \bar y)}
              {\sqrt{\sum_i (c_i - \bar c)^2} \sqrt{\sum_i (y_i - \bar y)^2}}

    with :math:`c_i` the cosine of pair *i* and *y* the targets, of any range. Where the correlation is undefined (one
    pair, equal targets, or cosines that are equal but for rounding) it counts as zero: the value is 1 and the gradient
    zero. Extra rows on the right, and groups, are accepted for the sake of blends and ignored.

    Reads:    pairs of texts, a score each
    Batches:  large ones: the correlation of few pairs is mostly chance
    Related:  :class:`CosineMSE` also fixes where the cosines lie
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725

    >>> left, right = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> round(Pearson()(left, right, torch.tensor([5.0, 1.0])).item(), 4)
    0.0
    """

    def loss(self, pairs: Pairs) -> Tensor:
        """The value of a batch."""
        targets = pairs.required_targets().to(pairs.left.dtype)
        c = pairs.cosines()
        x, y = c - c.mean(), targets - targets.mean()  # (b,) each
        spread, rounding = torch.linalg.vector_norm(x), 4 * torch.finfo(c.dtype).eps * len(pairs) ** 0.5
        constant = (spread <= rounding) | (targets == targets[:1]).all()
        size: Tensor = spread * torch.linalg.vector_norm(y)
        return 1 - (x * y).sum() / size.masked_fill(constant, torch.inf)
