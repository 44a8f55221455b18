"""Contrastive: pairs of one class come together, pairs of two classes part up to a margin."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.objectives.bounds import positive
from nearfar.objectives.labels import class_names
from nearfar.objectives.masks import classmates
from nearfar.objectives.pair_inputs import unit
from nearfar.objectives.precision import full_precision, widened
from nearfar.shapes import expect


class Contrastive(nn.Module):
    r"""Contrastive objective on all pairs of a batch: Hadsell et al. 2006, eq. 4.

    .. math:: \ell_{ij} = \begin{cases} \frac{1}{2} d_{ij}^2 & y_i = y_j \\
              \frac{1}{2} \max(0,\; m - d_{ij})^2 & y_i \neq y_j \end{cases}

    with *d* the Euclidean distance of L2-normalized embeddings, at most 2, so that a margin means the same whatever the
    encoder. The value is the mean over all :math:`n(n-1)/2` pairs of the batch, those that cost nothing included; a
    batch of one text has no pairs and costs zero. Two texts at the same place have no direction to part in: they cost
    their margin, but do not move.

    Reads:    single texts, one class each
    Batches:  two or more texts of a class
    Related:  :class:`Triplet` compares distances with each other instead of with a margin
    Paper:    Hadsell, Chopra and LeCun 2006, Dimensionality Reduction by Learning an Invariant Mapping

    Args:
        margin: m above, how far apart texts of two classes should be; orthogonal vectors are 1.41 apart.

    >>> two_points = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(Contrastive()(two_points, torch.tensor([0, 0])).item(), 4)  # half of the squared distance, 2
    1.0
    """

    def __init__(self, *, margin: float = 1.0) -> None:
        super().__init__()
        positive("Contrastive", "margin", margin, "0.5 to 1.5")
        self.margin = margin

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(n, d) embeddings, (n,) labels -> scalar."""
        n = expect(embeddings=(embeddings, "n d"), labels=(labels, "n"))["n"]
        labels, (vectors,) = class_names("Contrastive", labels), widened(embeddings)
        z = unit(vectors)
        with full_precision(z):
            d = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")  # (n, n), exactly zero for equal rows
        near, far = classmates(labels), labels.unsqueeze(0) != labels.unsqueeze(1)  # (n, n) twice
        costs = (d.square() * near + F.relu(self.margin - d).square() * far) / 2  # (n, n), each pair twice
        return costs.sum() / max(n * (n - 1), 1)
