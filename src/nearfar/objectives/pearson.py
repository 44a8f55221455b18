"""Pearson: cosines of a batch should rise and fall with its scores."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nearfar.objectives.pair_inputs import cosines, pair_sizes, required
from nearfar.objectives.precision import full_precision, widened


class Pearson(nn.Module):
    r"""One minus Pearson's correlation of cosines and targets over the batch.

    .. math:: L = 1 - \frac{\sum_i (c_i - \bar c)(y_i - \bar y)}
              {\sqrt{\sum_i (c_i - \bar c)^2} \sqrt{\sum_i (y_i - \bar y)^2}}

    with :math:`c_i` the cosine of pair *i* and *y* the targets, of any range. Where there is no correlation to speak
    of (one pair, equal targets, or cosines that are equal but for rounding) it counts as zero: the value is 1 and
    nothing moves. Extra rows on the right, and groups, are accepted for the sake of blends and not looked at.

    Reads:    pairs of texts, a score each
    Batches:  as large as may be: the correlation of few pairs is mostly chance
    Related:  :class:`CosineMSE` also fixes where the cosines lie
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725

    >>> left, right = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    >>> round(Pearson()(left, right, torch.tensor([5.0, 1.0])).item(), 4)
    0.0
    """

    def forward(
        self, left: Tensor, right: Tensor, targets: Tensor | None = None, *, left_groups: Tensor | None = None,
        right_groups: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """(b, d) left, (b + extra, d) right, (b,) targets -> scalar."""
        b, _ = pair_sizes(left, right, targets, left_groups, right_groups)
        left, right = widened(left, right)
        wanted = required("Pearson", targets).to(left.dtype)
        with full_precision(left):
            c = cosines(left, right)
            x, y = c - c.mean(), wanted - wanted.mean()  # (b,) each
            spread, rounding = torch.linalg.vector_norm(x), 4 * torch.finfo(c.dtype).eps * b**0.5
            constant = (spread <= rounding) | (wanted == wanted[:1]).all()
            size: Tensor = spread * torch.linalg.vector_norm(y)
            return 1 - (x * y).sum() / size.masked_fill(constant, torch.inf)
