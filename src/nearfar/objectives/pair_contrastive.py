"""Pair contrastive: pull what belongs together, push what does not beyond a margin."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nearfar.errors import SettingError
from nearfar.objectives.pair_inputs import cosines, pair_sizes, positive_pairs, required
from nearfar.objectives.precision import full_precision, widened


class PairContrastive(nn.Module):
    r"""Contrastive objective of Hadsell et al. 2006 on labeled pairs, with cosine distance.

    .. math:: L = \frac{1}{2b} \sum_i y_i d_i^2 + (1 - y_i) \max(0, m - d_i)^2, \qquad d_i = 1 - \cos(q_i, a_i)

    with target *y* 1 for pairs that belong together and 0 for others. Extra rows on the right, and groups, are
    accepted for the sake of blends and not looked at.

    Reads:    pairs of texts, class 0 or 1 each
    Batches:  any
    Related:  :class:`BatchSoftmax`, which needs no negative pairs
    Paper:    Hadsell et al. 2006, doi:10.1109/CVPR.2006.100

    Args:
        margin: m above, the distance beyond which a negative pair is left alone.

    >>> here, across = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> PairContrastive()(here, across, torch.tensor([1])).item()
    0.5
    >>> PairContrastive()(here, here, torch.tensor([0])).item()
    0.125
    """

    def __init__(self, *, margin: float = 0.5) -> None:
        super().__init__()
        if not 0 < margin <= 2:
            raise SettingError(
                f"PairContrastive: margin must be above 0 and at most 2, the largest cosine distance, got {margin}; "
                "try 0.5."
            )
        self.margin = margin

    def forward(
        self, left: Tensor, right: Tensor, targets: Tensor | None = None, *, left_groups: Tensor | None = None,
        right_groups: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """(b, d) left, (b + extra, d) right, (b,) targets -> scalar."""
        b, _ = pair_sizes(left, right, targets, left_groups, right_groups)
        left, right = widened(left, right)
        together = positive_pairs("PairContrastive", left, required("PairContrastive", targets, low=0, high=1))
        if b == 0:
            return (left.sum() + right.sum()) * 0
        with full_precision(left):
            distance = 1 - cosines(left, right)  # (b,)
            return 0.5 * torch.where(together, distance, (self.margin - distance).clamp(min=0)).square().mean()
