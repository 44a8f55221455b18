"""Pair contrastive: positive pairs are pulled together, negative pairs pushed apart up to a margin."""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.errors import SettingError
from nearfar.objectives.inputs import finite
from nearfar.objectives.pair_objective import PairObjective, Pairs


class PairContrastive(PairObjective):
    r"""Contrastive objective of Hadsell et al. 2006 on labeled pairs, with cosine distance.

    .. math:: L = \frac{1}{2b} \sum_i y_i d_i^2 + (1 - y_i) \max(0, m - d_i)^2, \qquad d_i = 1 - \cos(q_i, a_i)

    with target *y* 1 for positive pairs and 0 for negative ones. Extra rows on the right, and groups, are accepted for
    the sake of blends and ignored.

    Reads:    pairs of texts, class 0 or 1 each
    Batches:  any
    Related:  :class:`BatchSoftmax`, which needs no negative pairs
    Paper:    Hadsell et al. 2006, doi:10.1109/CVPR.2006.100

    Args:
        margin: m above, the distance beyond which a negative pair costs nothing.
        threshold: pairs with a target above it are positive; None: targets are 0 or 1.

    >>> here, across = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> PairContrastive()(here, across, torch.tensor([1])).item()
    0.5
    >>> PairContrastive()(here, here, torch.tensor([0])).item()
    0.125
    """

    def __init__(self, *, margin: float = 0.5, threshold: float | None = None) -> None:
        super().__init__()
        if not 0 < margin <= 2:
            raise SettingError(
                f"PairContrastive: margin must be above 0 and at most 2, the largest cosine distance, got {margin}; "
                "try 0.5."
            )
        finite("PairContrastive", "threshold", threshold, 0.5)
        self.margin, self.threshold = margin, threshold

    def loss(self, pairs: Pairs) -> Tensor:
        """The value of a batch."""
        pairs.required_targets(low=0, high=1)
        positive = pairs.positive(threshold=self.threshold)
        if len(pairs) == 0:
            return pairs.zero()
        distance = 1 - pairs.cosines()  # (b,)
        return 0.5 * torch.where(positive, distance, (self.margin - distance).clamp(min=0)).square().mean()
