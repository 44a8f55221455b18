"""How typical a text is of the classes of a model, so that a text of none of them can be rejected."""

from __future__ import annotations

from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.errors import SettingError
from nearfar.shapes import expect

NO_SCOPE = (
    "this model cannot reject texts: it holds no class centers. Train it on texts with one label each, with dev rows "
    "or fewer than 1,000 texts, and without --no-estimate."
)


class Scope(nn.Module):
    """Class centers, and how near to them texts lie that belong to a class.

    The score of a text falls with the distance of its vector to the nearest class center. Its *typicality* is the share
    of in-scope texts with a lower score: the chance that a text of the classes is as far from them as this one.

    Args:
        centers: (c, d) the mean of the L2-normalized vectors of each class; zeros for a class without texts.
        counts: (c,) the texts of each class.
        reference: (m,) scores of texts of the classes that the model was not trained on.
        vectors: (n, d) the L2-normalized vectors of all training texts, where the user wanted them kept.
        labels: (n,) their classes.
    """

    centers: Tensor
    counts: Tensor
    reference: Tensor
    vectors: Tensor | None
    labels: Tensor | None

    def __init__(
        self,
        centers: Tensor,
        counts: Tensor,
        reference: Tensor,
        vectors: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> None:
        super().__init__()
        expect(centers=(centers, "c d"), counts=(counts, "c"), reference=(reference, "m"))
        if not len(reference):
            raise SettingError("Scope: the reference scores are empty; give those of held-out texts.")
        self.register_buffer("centers", centers.detach().float())
        self.register_buffer("counts", counts.detach().float())
        self.register_buffer("reference", reference.detach().float().sort().values)
        self.register_buffer("vectors", vectors)
        self.register_buffer("labels", labels)

    def scores(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b,) minus half the squared distance to the nearest center."""
        return nearest_center(vectors, self.centers)

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b,) the typicality, from 0 to 1."""
        return self.typicality(self.scores(vectors))

    def typicality(self, scores: Tensor) -> Tensor:
        """(b,) scores -> (b,) the share of in-scope texts below, between two of them by linear interpolation.

        Below the lowest of m reference scores it falls off exponentially from 1 / 2m.
        """
        reference = self.reference.double()
        m, values = len(reference), scores.double()
        shares = (torch.arange(m, dtype=torch.float64, device=values.device) + 0.5) / m
        right = torch.searchsorted(reference, values).clamp(1, max(m - 1, 1))
        if m == 1:
            return (values >= reference[0]).float()
        low, high = reference[right - 1], reference[right]
        inner = ((values - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
        result = shares[right - 1] + inner * (shares[right] - shares[right - 1])
        spread = (reference - reference[0]).mean().clamp(min=1e-6)
        below = shares[0] * ((values - reference[0]) / spread).clamp(max=0).exp()
        result = torch.where(values < reference[0], below, result)
        return torch.where(values > reference[-1], torch.ones_like(result), result).float()


def check_level(level: object) -> None:
    """Refuse a level of rejection that is no share.

    >>> check_level(0.05)
    """
    if isinstance(level, bool) or not isinstance(level, Real) or not 0 <= float(level) <= 1:
        raise SettingError(f"reject is a share of texts from 0 to 1, got {level!r}; try 0.05.")


def nearest_center(vectors: Tensor, centers: Tensor) -> Tensor:
    """(b, d) vectors, (c, d) centers -> (b,) minus half the squared distance of the normalized vector to the nearest.

    Centers of zeros, those of classes without texts, do not count.

    >>> nearest_center(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0], [0.5, 0.5], [0.0, 0.0]])).tolist()
    [-0.25]
    """
    products = F.normalize(vectors.float(), dim=1) @ centers.T - (1 + centers.square().sum(dim=1)) / 2
    return products.masked_fill(~centers.any(dim=1), -2).max(dim=1).values
