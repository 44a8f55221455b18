"""Triplet: a positive should be nearer than a negative, by a margin."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.objectives.inputs import labeled_directions, one_of, pair_distances, positive

Select = Literal["all", "hard", "semihard"]
Distance = Literal["euclidean", "squared"]


class Triplet(nn.Module):
    r"""Triplet objective with selection inside the batch: Hermans et al. 2017, arXiv:1703.07737.

    Anchor *a*, a positive *p* of its class and a negative *n* of another class cost

    .. math:: \ell_{apn} = \max(0,\; m + d_{ap} - d_{an})

    with *d* the distance of L2-normalized embeddings, at most 2 (squared: 4), so that a margin means the same whatever
    the encoder. (Hermans et al. do not normalize; Schroff et al. 2015 do.) ``select`` says which triplets count:

    - ``all``: every one of the batch ("batch all").
    - ``hard``: for each anchor the farthest positive with the nearest negative ("batch hard").
    - ``semihard``: those with :math:`d_{ap} < d_{an} < d_{ap} + m`, every one of them (Schroff et al. 2015, FaceNet).

    The value is the mean over those that cost anything, whichever the selection ("batch all, not zero" of the paper,
    which sums batch hard over all anchors): satisfied triplets do not dilute the others. Without any it is zero. The
    distance of two equal embeddings has no direction, and a zero gradient.

    Reads:    single texts, one class each
    Batches:  two or more texts of a class, and two or more classes
    Related:  :class:`Contrastive` has a cost for each pair, :class:`SupCon` compares with all negatives at once
    Paper:    Hermans et al. 2017, arXiv:1703.07737

    Args:
        margin: m above, how much nearer a positive should be.
        select: which triplets count.
        distance: ``euclidean``, or its square, whose gradient is small for texts that are near already.

    >>> two_points = torch.tensor([[1.0, 0.0], [0.0, 1.0]])[[0, 1, 0, 1]]
    >>> round(Triplet(select="hard")(two_points, torch.tensor([0, 0, 1, 1])).item(), 4)  # sqrt(2) - 0 + 0.5
    1.9142
    """

    def __init__(self, *, margin: float = 0.5, select: Select = "all", distance: Distance = "euclidean") -> None:
        super().__init__()
        positive("Triplet", "margin", margin, "0.2 to 1")
        one_of("Triplet", "select", select, get_args(Select))
        one_of("Triplet", "distance", distance, get_args(Distance))
        self.margin, self.select, self.distance = margin, select, distance

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(n, d) embeddings, (n,) labels -> scalar."""
        z, labels = labeled_directions("Triplet", embeddings, labels)
        if len(labels) == 0:
            return z.sum() * 0
        d, positives, negatives = pair_distances(z, labels)  # (n, n) each
        d = d.square() if self.distance == "squared" else d
        if self.select == "hard":
            pull, push = _hardest(d.detach(), positives, negatives, self.margin)
        else:
            semihard = self.select == "semihard"
            pull, push = _violating(d.detach(), positives, negatives, self.margin, semihard=semihard)
        triplets = pull.sum()
        return (((pull - push) * d).sum() + self.margin * triplets) / triplets.clamp(min=1)


def _violating(
    d: Tensor, positives: Tensor, negatives: Tensor, margin: float, *, semihard: bool
) -> tuple[Tensor, Tensor]:
    """(n, n) distances and masks -> in how many triplets that cost a pair is the positive, in how many the negative.

    The loss is linear in the distances of such triplets, so counts are all it needs, and sorting finds them without
    enumerating n * n * n triplets.
    """
    near, far = (d.masked_fill(~mask, torch.inf).sort(dim=1).values for mask in (positives, negatives))  # (n, n) twice
    pull = torch.searchsorted(far, d + margin)  # negatives nearer than d + margin
    push = torch.searchsorted(near + margin, d, right=True).neg()  # all positives but those nearer by the margin
    if semihard:
        pull = pull - torch.searchsorted(far, d, right=True)  # ... and farther than d
        push = push + torch.searchsorted(near, d)  # ... only positives nearer than d
    else:
        push = push + positives.sum(dim=1, keepdim=True)
    return (pull * positives).to(d.dtype), (push * negatives).to(d.dtype)


def _hardest(d: Tensor, positives: Tensor, negatives: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """The same for one triplet an anchor: its farthest positive and its nearest negative."""
    farthest, positive = d.masked_fill(~positives, -torch.inf).max(dim=1)  # (n,) twice; -inf without a positive
    nearest, negative = d.masked_fill(~negatives, torch.inf).min(dim=1)  # inf without a negative
    costs = (farthest + margin > nearest).unsqueeze(1)  # (n, 1)
    pull, push = (F.one_hot(one, len(d)) * costs for one in (positive, negative))
    return pull.to(d.dtype), push.to(d.dtype)
