"""Triplet: a classmate should be nearer than a stranger, by a margin."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.errors import SettingError
from nearfar.objectives.bounds import positive
from nearfar.objectives.labels import class_names
from nearfar.objectives.masks import classmates
from nearfar.objectives.pair_inputs import unit
from nearfar.objectives.precision import full_precision, widened
from nearfar.shapes import expect

Select = Literal["all", "hard", "semihard"]
Distance = Literal["euclidean", "squared"]


class Triplet(nn.Module):
    r"""Triplet objective with selection inside the batch: Hermans et al. 2017, arXiv:1703.07737.

    Anchor *a*, a classmate *p* and a text *n* of another class cost

    .. math:: \ell_{apn} = \max(0,\; m + d_{ap} - d_{an})

    with *d* the distance of L2-normalized embeddings, at most 2 (squared: 4), so that a margin means the same whatever
    the encoder. (Hermans et al. do not normalize; Schroff et al. 2015 do.) ``select`` says which triplets count:

    - ``all``: every one of the batch ("batch all").
    - ``hard``: for each anchor the farthest classmate with the nearest stranger ("batch hard").
    - ``semihard``: those with :math:`d_{ap} < d_{an} < d_{ap} + m`, every one of them (Schroff et al. 2015, FaceNet).

    The value is the mean over those that cost anything, whichever the selection ("batch all, not zero" of the paper,
    which sums batch hard over all anchors): triplets that are already right do not dilute the others. With none it is
    zero. Two texts at the same place have no direction to part in, and are not moved by their distance.

    Reads:    single texts, one class each
    Batches:  two or more texts of a class, and two or more classes
    Related:  :class:`Contrastive` judges pairs by themselves, :class:`SupCon` all strangers at once
    Paper:    Hermans et al. 2017, arXiv:1703.07737

    Args:
        margin: m above, how much nearer a classmate should be.
        select: which triplets count.
        distance: ``euclidean``, or its square, which hardly moves texts that are near already.

    >>> two_points = torch.tensor([[1.0, 0.0], [0.0, 1.0]])[[0, 1, 0, 1]]
    >>> round(Triplet(select="hard")(two_points, torch.tensor([0, 0, 1, 1])).item(), 4)  # sqrt(2) - 0 + 0.5
    1.9142
    """

    def __init__(self, *, margin: float = 0.5, select: Select = "all", distance: Distance = "euclidean") -> None:
        super().__init__()
        positive("Triplet", "margin", margin, "0.2 to 1")
        for name, choice, known in (("select", select, get_args(Select)), ("distance", distance, get_args(Distance))):
            if choice not in known:
                raise SettingError(f"Triplet: {name} must be {_either(known)}, got {choice!r}; try {known[0]!r}.")
        self.margin, self.select, self.distance = margin, select, distance

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(n, d) embeddings, (n,) labels -> scalar."""
        expect(embeddings=(embeddings, "n d"), labels=(labels, "n"))
        if len(labels) == 0:
            return embeddings.sum() * 0
        labels, (vectors,) = class_names("Triplet", labels), widened(embeddings)
        z = unit(vectors)
        with full_precision(z):
            d = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")  # (n, n), exactly zero for equal rows
        d = d.square() if self.distance == "squared" else d
        near, far = classmates(labels), labels.unsqueeze(0) != labels.unsqueeze(1)  # (n, n) twice
        if self.select == "hard":
            pull, push = _hardest(d.detach(), near, far, self.margin)
        else:
            pull, push = _violating(d.detach(), near, far, self.margin, semihard=self.select == "semihard")
        triplets = pull.sum()
        return (((pull - push) * d).sum() + self.margin * triplets) / triplets.clamp(min=1)


def _violating(d: Tensor, near: Tensor, far: Tensor, margin: float, *, semihard: bool) -> tuple[Tensor, Tensor]:
    """(n, n) distances and masks -> in how many triplets that cost a pair is the near one, and in how many the far one.

    The loss is linear in the distances of such triplets, so counts are all it needs, and sorting finds them without
    ever looking at n * n * n triplets.
    """
    mates, strangers = (d.masked_fill(~mask, torch.inf).sort(dim=1).values for mask in (near, far))  # (n, n) twice
    pull = torch.searchsorted(strangers, d + margin)  # strangers nearer than d + margin
    push = torch.searchsorted(mates + margin, d, right=True).neg()  # all mates but those nearer by the margin
    if semihard:
        pull = pull - torch.searchsorted(strangers, d, right=True)  # ... and farther than d
        push = push + torch.searchsorted(mates, d)  # ... only mates nearer than d
    else:
        push = push + near.sum(dim=1, keepdim=True)
    return (pull * near).to(d.dtype), (push * far).to(d.dtype)


def _hardest(d: Tensor, near: Tensor, far: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """The same for one triplet an anchor: its farthest classmate and its nearest stranger."""
    farthest, mate = d.masked_fill(~near, -torch.inf).max(dim=1)  # (n,) twice; -inf without a classmate
    nearest, stranger = d.masked_fill(~far, torch.inf).min(dim=1)  # inf without a stranger
    costs = (farthest + margin > nearest).unsqueeze(1)  # (n, 1)
    pull, push = (F.one_hot(one, len(d)) * costs for one in (mate, stranger))
    return pull.to(d.dtype), push.to(d.dtype)


def _either(known: tuple[str, ...]) -> str:
    return " or ".join(", ".join(map(repr, known)).rsplit(", ", 1))
