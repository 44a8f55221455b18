"""SupCon: texts of one class cling together, all the others split away."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nearfar.objectives.bounds import positive
from nearfar.objectives.labels import class_names
from nearfar.objectives.masks import classmates, itself
from nearfar.objectives.pair_inputs import unit
from nearfar.objectives.precision import full_precision, widened
from nearfar.shapes import expect


class SupCon(nn.Module):
    r"""Supervised contrastive objective: Khosla et al. 2020, arXiv:2004.11362, eq. 2.

    Anchor *i* has classmates P(i) and a field A(i), everyone in the batch but itself:

    .. math:: \ell_i = -\frac{1}{|P(i)|} \sum_{p \in P(i)}
              \log \frac{\exp(s_{ip} / \tau)}{\sum_{a \in A(i)} \exp(s_{ia} / \tau)}

    with *s* the cosine similarity. The value is the mean over anchors that have a classmate.
    With none it is exactly zero, so one badly drawn batch cannot fill a run with NaN.

    Reads:    single texts, one class each
    Batches:  two or more texts of a class
    Related:  :class:`SoftTriple`, whose centers make it independent of the batch
    Paper:    Gunel et al. 2021, arXiv:2011.01403, blend it with cross-entropy (weight 0.9, temperature 0.3)

    Args:
        temperature: tau above. Lower listens more to the nearest wrong texts; the paper takes 0.1.

    >>> one_point = torch.ones(4, 2)
    >>> round(SupCon()(one_point, torch.tensor([0, 0, 1, 1])).item(), 4)  # log(4 - 1)
    1.0986
    """

    def __init__(self, *, temperature: float = 0.1) -> None:
        super().__init__()
        positive("SupCon", "temperature", temperature, "0.05 to 0.5")
        self.temperature = temperature

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(n, d) embeddings, (n,) labels -> scalar."""
        n = expect(embeddings=(embeddings, "n d"), labels=(labels, "n"))["n"]
        labels, (vectors,) = class_names("SupCon", labels), widened(embeddings)
        z = unit(vectors)
        with full_precision(z):
            logits = z @ z.T / self.temperature  # (n, n): s / tau
        positive = classmates(labels)  # (n, n): P(i) as rows
        if n < 2:
            return (logits * 0).sum()
        field = logits.masked_fill(itself(n, z.device), -torch.inf).logsumexp(dim=1, keepdim=True)  # (n, 1)
        per_anchor = -(logits - field).masked_fill(~positive, 0).sum(1) / positive.sum(1).clamp(min=1)  # (n,)
        return per_anchor.sum() / positive.any(1).sum().clamp(min=1)
