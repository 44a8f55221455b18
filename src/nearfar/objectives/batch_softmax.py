"""Batch softmax: each text should find its partner among everybody else's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nearfar.errors import SettingError, ShapeError
from nearfar.objectives.pair_inputs import minmax, pair_sizes, positive_pairs, same_group, unit
from nearfar.objectives.precision import full_precision, widened

NORMALIZE = ("row", "coordinate", "minmax", "none")
REDUCTION = ("positives", "all")

BLOCK = 512
"""Rows of the similarity matrix reckoned at once."""


class BatchSoftmax(nn.Module):
    r"""Batch-Softmax Contrastive objective of Chernyavskiy et al. 2022, eq. 1 to 5; also known as InfoNCE or MNRL.

    Row *i* of the left side, :math:`q_i`, belongs to row *i* of the right side, :math:`a_i`; extra rows on the right
    are further negatives. With :math:`s_{ij} = q_i^\top a_j / \tau` and everything positive,

    .. math:: L_0 = -\frac{1}{b} \sum_i \log \frac{\exp s_{ii}}{\sum_j \exp s_{ij}}, \qquad L = L_0 + L_1

    where :math:`L_1` is the same for each :math:`a_i` among all :math:`q_j`. The sum is twice the average that others
    take of the two directions, and so are its gradients: as if plain gradient descent had twice the learning rate, or
    this part of a blend twice the weight. (AdamW alone divides the factor out.)

    **Labeled negatives** (eq. 5). A pair with target 0 stays in the softmax as a negative for the others, but its own
    two terms are dropped. The value is the mean over the pairs that are left, zero if there are none.

    **Groups** (eq. 3 and 4). Where ids on both sides are equal, both texts are known to belong together. With
    P(i) the right rows of group *i*, its own partner among them, and N(i) all others,

    .. math:: \ell_i = -\frac{1}{|P(i)|} \sum_{p \in P(i)}
              \log \frac{\exp s_{ip}}{\exp s_{ip} + \sum_{n \in N(i)} \exp s_{in}}

    so positives are averaged outside the logarithm as in the paper and, other than there, never count as negatives
    of each other. ``masked`` holds how many terms the last call left out of its sums for it, each direction counted.
    A label outranks a group: the right side of a labeled negative whose two ids are equal is nobody's positive.

    Reads:    pairs of texts; targets 0 or 1, graded ones with a threshold, or none
    Batches:  large ones, or ones with near neighbors: all other pairs of the batch are the negatives
    Related:  :class:`CosineMSE` and :class:`Pearson` for graded pairs, to be blended with it or to follow it
    Paper:    Chernyavskiy et al. 2022, arXiv:2110.15725; Henderson et al. 2017, arXiv:1705.00652 (one direction)

    Args:
        temperature: tau above. About 0.1 fits rows of length 1; 1 to 3 fits coordinates and min-max.
        trainable: learn the temperature too, as the weight ``log_temperature``, so that it stays positive.
        symmetric: add L_1; without it, without targets and at 0.05, the value is that of MNRL with scale 20.
        normalize: ``row`` for cosine; ``coordinate`` divides each coordinate by its L2 length over the batch,
            ``minmax`` moves it to 0..1 over the batch, each side on its own; ``none``.
        threshold: pairs with a target above it are positive.
        reduction: mean over the ``positives``, or over ``all`` pairs with the dropped ones as zeros.
        hard_negative_weight: log alpha of SimCSE, added to the logit of row *i*'s own hard negative, which is extra
            row *i*; 0 changes nothing, log 2 counts it twice. Needs exactly as many extra rows as pairs.

    >>> one_point = torch.ones(4, 2)
    >>> round(BatchSoftmax()(one_point, one_point).item(), 4)  # 2 log(4)
    2.7726
    """

    log_temperature: Tensor

    def __init__(
        self, *, temperature: float = 0.1, trainable: bool = False, symmetric: bool = True, normalize: str = "row",
        threshold: float | None = None, reduction: str = "positives", hard_negative_weight: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if not 0 < temperature < math.inf:
            raise SettingError(f"BatchSoftmax: temperature must be above 0, got {temperature}; try 0.05 to 0.5.")
        for name, flag in (("trainable", trainable), ("symmetric", symmetric)):
            if not isinstance(flag, bool):
                raise SettingError(f"BatchSoftmax: {name} must be True or False, got {flag}.")
        for name, choice, known in (("normalize", normalize, NORMALIZE), ("reduction", reduction, REDUCTION)):
            if choice not in known:
                raise SettingError(f"BatchSoftmax: {name} must be one of {', '.join(known)}, got {choice}.")
        if threshold is not None and not math.isfinite(threshold):
            raise SettingError(f"BatchSoftmax: threshold must be a finite number, got {threshold}; try 0.5.")
        if not math.isfinite(hard_negative_weight):
            raise SettingError(
                f"BatchSoftmax: hard_negative_weight must be a finite number, got {hard_negative_weight}; try 0."
            )
        self.trainable, self.symmetric, self.normalize = trainable, symmetric, normalize
        self.threshold, self.reduction, self.hard_negative_weight = threshold, reduction, hard_negative_weight
        self.masked = torch.zeros((), dtype=torch.long)
        self._fixed = temperature
        if trainable:
            self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    @property
    def temperature(self) -> float:
        """Tau, as it is now."""
        return math.exp(self.log_temperature.item()) if self.trainable else self._fixed

    def forward(
        self, left: Tensor, right: Tensor, targets: Tensor | None = None, *, left_groups: Tensor | None = None,
        right_groups: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """(b, d) left, (b + extra, d) right, (b,) targets, (b,) and (b + extra,) group ids -> scalar."""
        b, extra = pair_sizes(left, right, targets, left_groups, right_groups)
        left, right = widened(left, right)
        if self.hard_negative_weight and extra != b:
            raise ShapeError(
                f"right must have {2 * b} rows, a partner and a hard negative for each row of left, got {b + extra}; "
                "give one extra row a pair or set hard_negative_weight to 0"
            )
        if b == 0:
            self.masked = torch.zeros((), dtype=torch.long)
            return (left.sum() + right.sum()) * 0
        counts = positive_pairs("BatchSoftmax", left, targets, threshold=self.threshold)  # (b,)
        shared = None
        row = column = torch.arange(b, device=left.device)  # (p,) each: where the positives are, here on the diagonal
        if left_groups is not None and right_groups is not None:
            shared = same_group(counts, left_groups, right_groups).fill_diagonal_(fill_value=True)  # (b, b + extra)
            row, column = shared.nonzero(as_tuple=True)
        with full_precision(left):
            logits = self._scaled(left) * self._inverse_temperature() @ self._scaled(right).T  # (b, b + extra): s
            if self.hard_negative_weight:
                weight = logits.new_full((b,), self.hard_negative_weight)
                if shared is not None:
                    weight.masked_fill_(shared.diagonal(b), 0)  # a known positive is no hard negative
                with torch.no_grad():  # a constant has no gradient to keep
                    logits.diagonal(b).add_(weight)
            picked, field, field_back = Fields.apply(logits, row, column, b if self.symmetric else 0)  # type: ignore[no-untyped-call]
            costs = _mean_cost(picked, field, row)  # (b,)
            self.masked = counts[row].sum() - counts.sum()
            if self.symmetric:
                inside = column < b  # extra rows are only looked for, they do not look
                costs = costs + _mean_cost(picked[inside], field_back, column[inside])
                self.masked = self.masked + counts[column[inside]].sum() - counts.sum()
            rows = counts.sum().clamp(min=1) if self.reduction == "positives" else max(b, 1)
            return costs.masked_fill(~counts, 0).sum() / rows

    def _scaled(self, vectors: Tensor) -> Tensor:
        if self.normalize == "none":
            return vectors
        return minmax(vectors) if self.normalize == "minmax" else unit(vectors, dim=int(self.normalize == "row"))

    def _inverse_temperature(self) -> Tensor | float:
        return self.log_temperature.neg().exp() if self.trainable else 1 / self._fixed


class Fields(torch.autograd.Function):
    """The logits of the positives, and for each row, and each of the first columns, what the negatives come to.

    In blocks of rows, so that value and gradients need the logits, their gradient and no further matrix of that size.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, row: Tensor, column: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
        """(b, n) logits, (p,) places of positives, row by row -> (p,) their logits, (b,) and (columns,) fields."""
        field, field_back = logits.new_empty(len(logits)), logits.new_full((columns,), -torch.inf)
        for at, here in _blocks(len(logits), row):
            block = logits[at].clone()
            block[row[here] - at.start, column[here]] = -torch.inf
            field[at] = block.logsumexp(dim=1)
            field_back = torch.logaddexp(field_back, block[:, :columns].logsumexp(dim=0))
        ctx.save_for_backward(logits, row, column, field, field_back)
        return logits[row, column], field, field_back

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, picked: Tensor, slope: Tensor, slope_back: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of a logsumexp is a softmax, that of a positive's logit is itself."""
        logits, row, column, field, field_back = ctx.saved_tensors
        grad = torch.empty_like(logits)
        for at, here in _blocks(len(logits), row):
            block = grad[at]
            torch.sub(logits[at], field[at].unsqueeze(1), out=block).exp_().mul_(slope[at].unsqueeze(1))
            if len(field_back):
                block[:, : len(field_back)] += (logits[at, : len(field_back)] - field_back).exp_().mul_(slope_back)
            block[row[here] - at.start, column[here]] = picked[here]  # instead of what they got as if negatives
        return grad, None, None, None


def _blocks(b: int, row: Tensor) -> Iterator[tuple[slice, slice]]:
    """Rows in blocks, and where the positives of each block are among the (p,) row numbers, which ascend."""
    starts = [*range(0, b, BLOCK), b]
    places = torch.searchsorted(row, torch.tensor(starts, device=row.device)).tolist()
    for i in range(len(starts) - 1):
        yield slice(starts[i], starts[i + 1]), slice(places[i], places[i + 1])


def _mean_cost(picked: Tensor, field: Tensor, owner: Tensor) -> Tensor:
    """(p,) logits of positives, (b,) fields, (p,) whose each positive is -> (b,): mean of -log of their shares."""
    gap = field[owner] - picked
    cost = torch.logaddexp(gap, torch.zeros_like(gap))  # (p,)
    return torch.zeros_like(field).index_add(0, owner, cost) / torch.bincount(owner, minlength=len(field))
