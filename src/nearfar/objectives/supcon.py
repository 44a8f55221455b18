"""SupCon: supervised contrastive loss over all same-class pairs of a batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nearfar.objectives.inputs import full_precision, labeled_directions, positive, same_class, same_row


class SupCon(nn.Module):
    r"""Supervised contrastive objective: Khosla et al. 2020, arXiv:2004.11362, eq. 2.

    Anchor *i* has positives P(i), the other texts of its class, and candidates A(i), every other text of the batch:

    .. math:: \ell_i = -\frac{1}{|P(i)|} \sum_{p \in P(i)}
              \log \frac{\exp(s_{ip} / \tau)}{\sum_{a \in A(i)} \exp(s_{ia} / \tau)}

    with *s* the cosine similarity. The value is the mean over anchors that have a positive.
    Without any it is exactly zero, with a zero gradient, never NaN.

    Reads:    single texts, one class each
    Batches:  two or more texts of a class
    Related:  :class:`SoftTriple`, whose centers make it independent of the batch
    Paper:    Gunel et al. 2021, arXiv:2011.01403, blend it with cross-entropy (weight 0.9, temperature 0.3)

    Args:
        temperature: tau above; lower values weight the hardest negatives more. The paper takes 0.1.

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
        z, labels = labeled_directions("SupCon", embeddings, labels)
        with full_precision(z):
            logits = z @ z.T / self.temperature  # (n, n): s / tau
        if len(z) < 2:
            return (logits * 0).sum()
        log_sum = logits.masked_fill(same_row(len(z), z.device), -torch.inf).logsumexp(dim=1, keepdim=True)  # (n, 1)
        positives = same_class(labels)  # (n, n): P(i) as rows
        per_anchor = -(logits - log_sum).masked_fill(~positives, 0).sum(1) / positives.sum(1).clamp(min=1)  # (n,)
        return per_anchor.sum() / positives.any(1).sum().clamp(min=1)
