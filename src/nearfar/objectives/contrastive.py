"""Contrastive: pairs of one class are pulled together, pairs of two classes pushed apart up to a margin."""

from __future__ import annotations

import torch  # noqa: F401 - the examples below read it
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.objectives.inputs import labeled_directions, pair_distances, positive


class Contrastive(nn.Module):
    r"""Contrastive objective on all pairs of a batch: Hadsell et al. 2006, eq. 4.

    .. math:: \ell_{ij} = \begin{cases} \frac{1}{2} d_{ij}^2 & y_i = y_j \\
              \frac{1}{2} \max(0,\; m - d_{ij})^2 & y_i \neq y_j \end{cases}

    with *d* the Euclidean distance of L2-normalized embeddings, at most 2, so that a margin means the same whatever the
    encoder. The value is the mean over all :math:`n(n-1)/2` pairs of the batch, those that cost nothing included; a
    batch of one text has no pairs and costs zero. A pair of equal embeddings has no direction to be pushed in: it
    costs its margin, with a zero gradient.

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
        z, labels = labeled_directions("Contrastive", embeddings, labels)
        d, positives, negatives = pair_distances(z, labels)  # (n, n) each
        costs = (d.square() * positives + F.relu(self.margin - d).square() * negatives) / 2  # (n, n), each pair twice
        return costs.sum() / max(len(z) * (len(z) - 1), 1)
