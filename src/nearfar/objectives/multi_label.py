"""Objectives of texts that have any number of labels: binary cross-entropy, and SupCon by the overlap of labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.errors import SettingError
from nearfar.objectives.inputs import full_precision, positive, same_row, unit, widened
from nearfar.shapes import expect


class BinaryCrossEntropy(nn.Module):
    r"""The binary cross-entropy of each label: whether it applies to a text, independently of the others.

    .. math:: \ell = -\frac{1}{n\,C} \sum_i \sum_c \left[ w_c\, t_{ic} \log \sigma(x_{ic}) +
              (1 - t_{ic}) \log (1 - \sigma(x_{ic})) \right], \qquad
              t_{ic} = (1 - \epsilon)\, y_{ic} + \frac{\epsilon}{2}

    with *x* the logits, *y* 1 where the label applies, *w* the weights of the positives, all one if none are given, and
    :math:`\epsilon` the label smoothing. A text without a label is a negative of all of them.

    Reads:    single texts or joined pairs, any number of labels each
    Batches:  any
    Related:  :class:`CrossEntropy` for one class a text, :class:`MultiLabelSupCon` for few texts
    Paper:    the usual objective of multi-label fine-tuning, as ``BCEWithLogitsLoss`` of torch

    Args:
        label_smoothing: epsilon above.
        class_weights: (c,) w above, 0 or more; see :func:`positive_weights`.

    >>> round(BinaryCrossEntropy()(torch.zeros(2, 3), torch.tensor([[1, 0, 1], [0, 0, 0]])).item(), 4)  # log(2)
    0.6931
    """

    class_weights: Tensor | None

    def __init__(self, *, label_smoothing: float = 0.0, class_weights: Tensor | None = None) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise SettingError(
                f"BinaryCrossEntropy: label_smoothing must be at least 0 and below 1, got {label_smoothing}; try 0.1."
            )
        if class_weights is not None and not (class_weights.isfinite() & (class_weights >= 0)).all():
            raise SettingError(
                f"BinaryCrossEntropy: class_weights must be 0 or more and finite, got {class_weights.tolist()}; "
                "try positive_weights."
            )
        self.label_smoothing = label_smoothing
        self.register_buffer("class_weights", None if class_weights is None else widened(class_weights)[0])

    def forward(self, logits: Tensor, indicators: Tensor) -> Tensor:
        """(n, c) logits, (n, c) indicators of 0 and 1 -> scalar."""
        expect(logits=(logits, "n c"), indicators=(indicators, "n c"))
        if len(logits) == 0:
            return logits.sum()  # zero, with a zero gradient: the mean of nothing would be NaN
        (logits,) = widened(logits)
        targets = indicators.to(logits.dtype) * (1 - self.label_smoothing) + self.label_smoothing / 2
        weights = None if self.class_weights is None else self.class_weights.to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)


def positive_weights(counts: Tensor, rows: int) -> Tensor:
    """(c,) texts with each label, of so many -> (c,) weights by which its positives count as its negatives.

    >>> positive_weights(torch.tensor([1, 2]), 4)
    tensor([3., 1.])
    """
    return (rows - counts).clamp(min=1) / counts.clamp(min=1).float()


class MultiLabelSupCon(nn.Module):
    r"""SupCon whose positives share labels, weighted by how many.

    The weight of a positive is the Jaccard index of the label sets *Y* of two texts, and *A(i)* every other text of the
    batch:

    .. math:: w_{ip} = \frac{|Y_i \cap Y_p|}{|Y_i \cup Y_p|}, \qquad
              \ell_i = -\frac{1}{\sum_{p \neq i} w_{ip}} \sum_{p \neq i} w_{ip}
              \log \frac{\exp(s_{ip} / \tau)}{\sum_{a \in A(i)} \exp(s_{ia} / \tau)}

    with *s* the cosine similarity. The value is the mean over texts that share a label with another one; without any it
    is zero, with a zero gradient. With one label a text it is :class:`SupCon`. A text without labels has no positives,
    and is a negative of all others.

    Reads:    single texts or joined pairs, any number of labels each
    Batches:  two or more texts of a label
    Related:  :class:`SupCon` for one class a text, :class:`BinaryCrossEntropy`, which trains a head
    Paper:    Khosla et al. 2020, arXiv:2004.11362; Audibert et al. 2024, arXiv:2412.00101, compare multi-label losses

    Args:
        temperature: tau above; lower values weight the hardest negatives more.

    >>> one_point = torch.ones(4, 2)
    >>> labels = torch.tensor([[1, 0], [1, 1], [0, 1], [0, 0]])
    >>> round(MultiLabelSupCon()(one_point, labels).item(), 4)  # log(4 - 1)
    1.0986
    """

    def __init__(self, *, temperature: float = 0.1) -> None:
        super().__init__()
        positive("MultiLabelSupCon", "temperature", temperature, "0.05 to 0.5")
        self.temperature = temperature

    def forward(self, embeddings: Tensor, indicators: Tensor) -> Tensor:
        """(n, d) embeddings, (n, c) indicators of 0 and 1 -> scalar."""
        expect(embeddings=(embeddings, "n d"), indicators=(indicators, "n c"))
        z = unit(widened(embeddings)[0])
        with full_precision(z):
            logits = z @ z.T / self.temperature  # (n, n): s / tau
        if len(z) < 2:
            return (logits * 0).sum()
        log_sum = logits.masked_fill(same_row(len(z), z.device), -torch.inf).logsumexp(dim=1, keepdim=True)  # (n, 1)
        weights = label_overlap(indicators).to(z.dtype)  # (n, n): w
        total = weights.sum(1)
        costs = -((logits - log_sum) * weights).sum(1) / total.masked_fill(total == 0, 1)  # (n,)
        return costs.sum() / (total > 0).sum().clamp(min=1)


def label_overlap(indicators: Tensor) -> Tensor:
    """(n, c) indicators -> (n, n) the Jaccard index of the labels of two different texts; 0 where neither has any.

    >>> label_overlap(torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]))
    tensor([[0.0000, 0.5000, 0.0000],
            [0.5000, 0.0000, 0.0000],
            [0.0000, 0.0000, 0.0000]])
    """
    y = indicators.float()
    shared = y @ y.T
    sizes = y.sum(1)
    either = (sizes.unsqueeze(0) + sizes.unsqueeze(1) - shared).clamp(min=1)
    return (shared / either).masked_fill(same_row(len(y), y.device), 0)
