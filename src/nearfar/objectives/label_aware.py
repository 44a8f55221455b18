"""Label-aware contrast: negatives of classes that are easily confused count most."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nearfar.errors import SettingError
from nearfar.objectives.inputs import class_indices, full_precision, positive, same_class, same_row, unit, widened
from nearfar.shapes import expect

ROUNDING = 1e-2
"""How far a probability may be beyond 0 or 1, in half precision as well."""


class LabelAware(nn.Module):
    r"""Label-aware contrastive objective: Suresh and Ong 2021, arXiv:2109.05427.

    A weighting network gives text *i* a probability :math:`w_{i,c}` of class *c*. Anchor *i* has positives P(i), and
    every other text counts by the probability of its class for *i*:

    .. math:: \ell_i = -\frac{w_{i,y_i}}{|P(i)|} \sum_{p \in P(i)}
              \log \frac{\exp(s_{ip} / \tau)}{\sum_{k \neq i} w_{i,y_k} \exp(s_{ik} / \tau)}

    with *s* the cosine similarity. The value is the mean over anchors that have a positive, exactly zero without any.
    It may be negative: with :math:`w = 1 / C` everywhere it is :math:`(\mathrm{SupCon} - \log C) / C`, and with
    :math:`w = 1` it is :class:`SupCon`. Gradients flow into the probabilities; they may underflow to zero.

    Reads:    single texts, one class each, and class probabilities from a second network
    Batches:  two or more texts of a class; two views of each text make sure of that
    Related:  :class:`SupCon`, where all classes count the same
    Paper:    the total there is half cross-entropy of both networks, half this, at temperature 0.3

    Args:
        temperature: tau above; lower values weight the hardest negatives more. The paper takes 0.3.

    >>> one_point, even = torch.ones(4, 2), torch.full((4, 2), 0.5)
    >>> round(LabelAware()(one_point, torch.tensor([0, 0, 1, 1]), even).item(), 4)  # (log(4 - 1) - log(2)) / 2
    0.2027
    """

    def __init__(self, *, temperature: float = 0.3) -> None:
        super().__init__()
        positive("LabelAware", "temperature", temperature, "0.1 to 0.5")
        self.temperature = temperature

    def forward(self, embeddings: Tensor, labels: Tensor, class_probabilities: Tensor) -> Tensor:
        """(n, d) embeddings, (n,) labels, (n, c) class probabilities, softmax applied -> scalar."""
        probabilities = {"class_probabilities": (class_probabilities, "n c")}
        sizes = expect(embeddings=(embeddings, "n d"), labels=(labels, "n"), **probabilities)
        labels = class_indices("LabelAware", labels, sizes["c"], more="give probabilities of {} classes")
        _check_probabilities(class_probabilities)
        vectors, weights = widened(embeddings, class_probabilities)
        z = unit(vectors)
        with full_precision(z):
            logits = z @ z.T / self.temperature  # (n, n): s / tau
        w = weights.index_select(1, labels)  # (n, n): the probability of k's class for i
        if len(z) < 2:
            return (logits * w * 0).sum()
        others = logits.masked_fill(same_row(len(z), z.device), -torch.inf)  # (n, n)
        top = others.detach().amax(dim=1, keepdim=True)  # (n, 1)
        total = (w * (others - top).exp()).sum(dim=1, keepdim=True)  # (n, 1): w itself, as its logarithm may be -inf
        log_sum = top + total.masked_fill(total == 0, torch.finfo(total.dtype).tiny).log()  # (n, 1)
        positives = same_class(labels)  # (n, n): P(i) as rows
        costs = ((log_sum - logits) * w).masked_fill(~positives, 0)  # (n, n): a positive has the class of i
        return (costs.sum(dim=1) / positives.sum(dim=1).clamp(min=1)).sum() / positives.any(dim=1).sum().clamp(min=1)


def _check_probabilities(probabilities: Tensor) -> None:
    """Refuse logits in place of probabilities; on an accelerator nothing is checked, to avoid waiting for it."""
    if probabilities.device.type != "cpu" or probabilities.numel() == 0:
        return
    low, high = (float(end) for end in probabilities.detach().aminmax())
    if low < -ROUNDING or high > 1 + ROUNDING:
        wrong = low if low < -ROUNDING else high
        raise SettingError(
            f"LabelAware: class_probabilities must be from 0 to 1, got {wrong:.4g}; use logits.softmax(dim=1)."
        )
