"""Cross-entropy: the class of each text should be the most likely one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.errors import SettingError
from nearfar.objectives.inputs import class_indices, widened
from nearfar.shapes import expect


class CrossEntropy(nn.Module):
    r"""Cross-entropy of class logits.

    .. math:: \ell = -\frac{1}{\sum_i v_i w_{y_i}} \sum_i v_i w_{y_i} \sum_c t_{i,c} \log \mathrm{softmax}(x_i)_c,
              \qquad t_{i,c} = (1 - \epsilon)\, [c = y_i] + \frac{\epsilon}{C}

    with *x* the logits, *w* the weights of the classes and *v* those of the texts, all one if none are given, and
    :math:`\epsilon` the label smoothing. A weight applies to the texts of a class, not to the parts of their smoothed
    targets. (In torch it applies to both, which biases the targets to rare classes: with balanced weights, a smoothing
    of 0.1 and 97 % of the texts in one of two classes, the other is the most likely one for all texts.) A batch whose
    weights are all zero costs nothing.

    Reads:    single texts or joined pairs, one class each
    Batches:  any
    Related:  ``triple-entropy`` adds a metric on the token vectors, ``cross-entropy+supcon`` one on the texts
    Paper:    the usual objective of fine-tuning, e.g. Devlin et al. 2019, arXiv:1810.04805

    Args:
        label_smoothing: epsilon above, the share of the target that is distributed evenly over all classes.
        class_weights: one weight a class, 0 or more; see :func:`balanced_weights`.

    >>> round(CrossEntropy()(torch.zeros(3, 4), torch.tensor([0, 1, 3])).item(), 4)  # log(4)
    1.3863
    """

    class_weights: Tensor | None

    def __init__(self, *, label_smoothing: float = 0.0, class_weights: Tensor | None = None) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise SettingError(
                f"CrossEntropy: label_smoothing must be at least 0 and below 1, got {label_smoothing}; try 0.1."
            )
        self.label_smoothing = label_smoothing
        self.register_buffer("class_weights", None if class_weights is None else _checked(class_weights))

    def forward(self, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """(n, c) logits, (n,) labels, (n,) weights of the texts -> scalar."""
        shapes = {} if self.class_weights is None else {"class_weights": (self.class_weights, "c")}
        shapes |= {} if weights is None else {"weights": (weights, "n")}
        c = expect(logits=(logits, "n c"), labels=(labels, "n"), **shapes)["c"]
        labels = class_indices("CrossEntropy", labels, c, more="give logits of {} classes")
        if len(labels) == 0:
            return logits.sum()  # zero, with a zero gradient: the mean of nothing would be NaN
        if self.class_weights is None and weights is None:
            (logits,) = widened(logits)
            return F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing)
        given = torch.ones(c, device=logits.device) if self.class_weights is None else self.class_weights
        logits, w = widened(logits, given)
        per_text = w[labels] if weights is None else w[labels] * weights.to(w.dtype)  # (n,)
        costs = (
            per_text * F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing, reduction="none")
        ).sum()
        total = per_text.sum()
        return torch.where(total > 0, costs / total.clamp(min=torch.finfo(total.dtype).tiny), costs * 0)


def _checked(weights: Tensor) -> Tensor:
    if not isinstance(weights, Tensor):
        raise SettingError(
            f"CrossEntropy: class_weights must be a tensor, got {weights!r}; use torch.tensor with one weight a class."
        )
    if not (weights.isfinite() & (weights >= 0)).all() or not weights.any():
        raise SettingError(
            f"CrossEntropy: class_weights must be 0 or more and finite, and not all 0, got {weights.tolist()}; "
            "try balanced_weights."
        )
    return widened(weights)[0]


def balanced_weights(counts: Tensor) -> Tensor:
    """(c,) texts of each class -> (c,) weights by which every class counts the same, one on average over texts.

    >>> balanced_weights(torch.tensor([1, 3]))
    tensor([2.0000, 0.6667])
    """
    return counts.sum() / (len(counts) * counts.clamp(min=1).float())
