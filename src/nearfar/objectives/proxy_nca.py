"""ProxyNCA: each class has one proxy, and a text should be nearer to its own than to the others."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.objectives.inputs import class_indices, count, full_precision, one_of, positive, unit, widened
from nearfar.shapes import expect


class ProxyNCA(nn.Module):
    r"""Neighborhood component analysis with proxies: Movshovitz-Attias et al. 2017, arXiv:1703.07464, eq. 4.

    Class *c* has one proxy :math:`p_c`, and a text is compared with proxies instead of other texts:

    .. math:: \ell_i = -\log \frac{\exp(-\sigma\, d(z_i, p_{y_i}))}{\sum_{c \neq y_i} \exp(-\sigma\, d(z_i, p_c))},
              \qquad d(z, p) = \lVert z - p \rVert^2 \text{ or } \lVert z - p \rVert

    with *z* and *p* L2-normalized. The value is the mean over texts. As in the paper the own proxy is not in the sum
    below, so :math:`\ell_i` falls under zero once the own proxy is near, to :math:`-4 \sigma` at least and with two
    classes. Where the own proxy is kept there, as by ``ProxyNCALoss`` of pytorch-metric-learning, a text costs
    :math:`\log(1 + \exp \ell_i)` instead: never below zero, with smaller gradients for texts that are already right.

    Reads:    single texts, one class each
    Batches:  any
    Related:  :class:`SoftTriple`, which has several centers a class, a margin, and the own class in the sum below
    Paper:    Movshovitz-Attias et al. 2017, arXiv:1703.07464

    Args:
        classes: how many classes there are.
        dim: width of the embeddings.
        scale: sigma above; higher values weight the nearest wrong proxies more. The paper takes 1.
        distance: d above: ``squared``, as in the paper, or ``euclidean``, as TripleEntropy's eq. 3 has it.

    >>> one_point = ProxyNCA(3, 2)
    >>> _ = nn.init.ones_(one_point.proxies)
    >>> round(one_point(torch.ones(5, 2), torch.tensor([0, 1, 2, 0, 1])).item(), 4)  # log(3 - 1)
    0.6931
    """

    def __init__(self, classes: int, dim: int, *, scale: float = 1.0, distance: str = "squared") -> None:
        super().__init__()
        count("ProxyNCA", "classes", classes, 2)
        count("ProxyNCA", "dim", dim, 1)
        positive("ProxyNCA", "scale", scale, "1 to 10")
        one_of("ProxyNCA", "distance", distance, ("squared", "euclidean"))
        self.scale, self.distance = scale, distance
        self.proxies = nn.Parameter(torch.empty(classes, dim))
        nn.init.normal_(self.proxies, std=1 / math.sqrt(dim))  # any direction, about unit length

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(n, d) embeddings, (n,) labels -> scalar."""
        c = expect(embeddings=(embeddings, "n d"), labels=(labels, "n"), proxies=(self.proxies, "c d"))["c"]
        labels = class_indices("ProxyNCA", labels, c)
        if len(labels) == 0:
            return (embeddings.sum() + self.proxies.sum()) * 0
        vectors, proxies = widened(embeddings, self.proxies)
        z, p = unit(vectors), F.normalize(proxies, dim=1)  # a zero text has no gradient; a zero proxy has one
        with full_precision(z):
            if self.distance == "euclidean":
                apart = torch.cdist(z, p, compute_mode="donot_use_mm_for_euclid_dist")  # (n, c): d
                logits = -self.scale * apart
            else:
                logits = 2 * self.scale * (z @ p.T)  # -scale * d, but for a constant that cancels: d = 2 - 2 zp
        target = F.one_hot(labels, c).bool()  # (n, c)
        return (logits.masked_fill(target, -torch.inf).logsumexp(dim=1) - logits[target]).mean()
