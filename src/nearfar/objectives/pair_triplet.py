"""Pair triplet: an anchor should be nearer to its positive than to a negative, by a margin."""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.objectives.inputs import finite, one_of, positive, unit
from nearfar.objectives.pair_objective import PairObjective, Pairs

DISTANCE = ("euclidean", "squared", "cosine")


class PairTriplet(PairObjective):
    r"""Triplet objective on pairs: anchor :math:`q_i` on the left, positive :math:`a_i` on the right, negatives *n*.

    .. math:: L = \frac{1}{|T|} \sum_{(i, n) \in T} \max(0,\; d(q_i, a_i) - d(q_i, a_n) + m)

    *d* is a distance of vectors of length 1, so that one margin fits every encoder and training agrees with the cosine
    that is used afterwards. The negatives of row *i* are

    - extra row *i* of the right side, if there are as many extra rows as pairs: given triplets;
    - every extra row, if there is another number of them;
    - without any, the hardest in-batch negative: the nearest right row of the batch that is no known positive.

    Pairs with target 0 have no anchor, though their right side may be the hardest negative of another pair. Rows of
    the anchor's group are never negatives; see :class:`BatchSoftmax` for groups. The value is the mean over the
    triplets, those beyond the margin included, and zero if there are none.

    Reads:    pairs of texts, class 0 or 1 or none; or triplets of texts
    Batches:  triplets of labeled or mined negatives of the same anchor; large or hard batches for pairs
    Related:  :class:`BatchSoftmax` compares with all negatives at once
    Paper:    Weinberger et al. 2006; Chernyavskiy et al. 2022, arXiv:2110.15725, take a margin of 0.5

    Args:
        margin: m above.
        distance: ``euclidean``, ``squared`` (Euclidean) or ``cosine`` (one minus it, half the squared one).
        threshold: pairs with a target above it are positive; None: targets are 0 or 1.

    >>> anchor, near, far = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> PairTriplet(distance="squared")(anchor, torch.cat([far, near])).item()  # 2 - 0 + 0.5
    2.5
    """

    def __init__(self, *, margin: float = 0.5, distance: str = "euclidean", threshold: float | None = None) -> None:
        super().__init__()
        positive("PairTriplet", "margin", margin, "0.5", zero=True)
        finite("PairTriplet", "threshold", threshold, 0.5)
        one_of("PairTriplet", "distance", distance, DISTANCE)
        self.margin, self.distance, self.threshold = margin, distance, threshold

    def loss(self, pairs: Pairs) -> Tensor:
        """The value of a batch."""
        b, extra = len(pairs), len(pairs.right) - len(pairs)
        if b == 0:
            return pairs.zero()
        anchors = pairs.positive(threshold=self.threshold)  # (b,)
        negative = anchors.unsqueeze(1).repeat(1, b + extra)  # (b, b + extra): the possible negatives of each anchor
        if (shared := pairs.same_group(anchors)) is not None:
            negative &= ~shared
        negative.fill_diagonal_(fill_value=False)
        q, a = unit(pairs.left), unit(pairs.right)
        near = self._between(q, a[:b])  # (b,)
        if extra in (0, b):
            which = torch.arange(b, b + extra, device=q.device) if extra else _nearest(q, a, negative)  # (b,)
            counts, far = negative.gather(1, which.unsqueeze(1)), self._between(q, a[which]).unsqueeze(1)  # (b, 1)
        else:
            counts, far = negative[:, b:], self._across(q, a[b:])  # (b, extra)
        costs = (near.unsqueeze(1) - far + self.margin).clamp(min=0).masked_fill(~counts, 0)
        return costs.sum() / counts.sum().clamp(min=1)

    def _between(self, q: Tensor, a: Tensor) -> Tensor:
        """(b, d) twice -> (b,): the distance of each pair."""
        if self.distance == "cosine":
            return 1 - (q * a).sum(dim=1)
        gap = q - a
        return gap.square().sum(dim=1) if self.distance == "squared" else torch.linalg.vector_norm(gap, dim=1)

    def _across(self, q: Tensor, a: Tensor) -> Tensor:
        """(b, d), (n, d) -> (b, n): the distance of every left row to every right row."""
        if self.distance == "cosine":
            return 1 - q @ a.T
        far = torch.cdist(q, a, compute_mode="donot_use_mm_for_euclid_dist")
        return far.square() if self.distance == "squared" else far


def _nearest(q: Tensor, a: Tensor, negative: Tensor) -> Tensor:
    """(b,): the nearest right row among those that may be negatives. On unit vectors all distances agree on it."""
    with torch.no_grad():
        return (q @ a.T).masked_fill(~negative, -torch.inf).argmax(dim=1)
