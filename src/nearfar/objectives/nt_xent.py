"""NT-Xent: each view of a text should be nearest to the other one among the views of all texts of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.objectives.inputs import positive, same_row, unit
from nearfar.objectives.pair_objective import PairObjective, Pairs


class NTXent(PairObjective):
    r"""Normalized temperature-scaled cross-entropy: Chen et al. 2020, arXiv:2002.05709, eq. 1.

    Rows *i* of both sides are two views of one text. With :math:`z_1 \dots z_{2b}` the views of both sides and
    :math:`i'` the other view of *i*,

    .. math:: \ell_i = -\log \frac{\exp(s_{ii'} / \tau)}{\sum_{k \neq i} \exp(s_{ik} / \tau)}

    with *s* the cosine: one positive, and the :math:`2b - 2` views of the other texts as negatives. The value is the
    mean over all views, that is, over both directions. It is the loss of the published code of Mirror-BERT.

    Where ids are given, views of texts with the same id as *i*, other than its own, are left out of the sum below:
    they are no negatives. Extra rows of the right side are negatives of all views, and a labeled negative is one of the
    others' negatives, too, but its own two terms are dropped.

    Reads:    two views of plain texts
    Batches:  large ones, any composition
    Related:  :class:`BatchSoftmax` without ``symmetric`` has one direction, and the other view's texts as negatives
    Paper:    Chen et al. 2020, arXiv:2002.05709; Liu et al. 2021, arXiv:2104.08027

    Args:
        temperature: tau above.

    >>> one_point = torch.ones(4, 2)
    >>> round(NTXent()(one_point, one_point).item(), 4)  # log(2 * 4 - 1)
    1.9459
    """

    def __init__(self, *, temperature: float = 0.04) -> None:
        super().__init__()
        positive("NTXent", "temperature", temperature, "0.04 to 0.5")
        self.temperature = temperature

    def loss(self, pairs: Pairs) -> Tensor:
        """The value of a batch."""
        b = len(pairs)
        if b == 0:
            return pairs.zero()
        counts = pairs.positive()  # (b,)
        views = unit(torch.cat([pairs.left, pairs.right]))  # (2b + extra, d): z
        anchors = torch.arange(2 * b, device=views.device)
        partner = anchors.roll(b)  # (2b,): i'
        left_out = same_row(len(views), views.device)[: 2 * b]
        if pairs.groups is not None:
            ids = torch.cat(pairs.groups)
            shared = ids[: 2 * b].unsqueeze(1) == ids.unsqueeze(0)
            shared[anchors, partner] = False
            left_out = left_out | shared
        logits = (views[: 2 * b] @ views.T / self.temperature).masked_fill(left_out, -torch.inf)  # (2b, 2b + extra)
        per_view = logits.logsumexp(dim=1) - logits[anchors, partner]  # (2b,)
        both = counts.repeat(2)
        return per_view.masked_fill(~both, 0).sum() / both.sum().clamp(min=1)
