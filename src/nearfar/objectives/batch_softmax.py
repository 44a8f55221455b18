"""Batch softmax (InfoNCE): each text should be nearest to its positive among all texts of the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nearfar.errors import SettingError, ShapeError
from nearfar.objectives.inputs import finite, minmax, one_of, positive, unit
from nearfar.objectives.pair_objective import PairObjective, Pairs

NORMALIZE = ("row", "coordinate", "minmax", "none")
REDUCTION = ("positives", "all")

BLOCK = 512
"""Rows of the similarity matrix computed at once."""


class BatchSoftmax(PairObjective):
    r"""Batch-Softmax Contrastive objective of Chernyavskiy et al. 2022, eq. 1 to 5; also known as InfoNCE or MNRL.

    Row *i* of the left side, :math:`q_i`, and row *i* of the right side, :math:`a_i`, are a pair; the other rows of the
    right side, extra ones included, are in-batch negatives. With :math:`s_{ij} = q_i^\top a_j / \tau` and all pairs
    positive,

    .. math:: L_0 = -\frac{1}{b} \sum_i \log \frac{\exp s_{ii}}{\sum_j \exp s_{ij}}, \qquad L = L_0 + L_1

    where :math:`L_1` is the same for each :math:`a_i` among all :math:`q_j`. The sum is twice the usual average of the
    two directions, and so are its gradients: as if plain gradient descent had twice the learning rate, or this part of
    a blend twice the weight. (AdamW alone divides the factor out.)

    **Labeled negatives** (eq. 5). A pair with target 0 stays in the softmax as a negative for the others, but its own
    two terms are dropped. The value is the mean over the remaining pairs, zero if there are none.

    **Groups** (eq. 3 and 4). Where ids on both sides are equal, both texts are known positives of each other. With
    P(i) the right rows of group *i*, its own partner among them, and N(i) all others,

    .. math:: \ell_i = -\frac{1}{|P(i)|} \sum_{p \in P(i)}
              \log \frac{\exp s_{ip}}{\exp s_{ip} + \sum_{n \in N(i)} \exp s_{in}}

    so positives are averaged outside the logarithm as in the paper and, other than there, never count as negatives
    of each other. ``masked`` holds how many such terms the last call left out of its sums, in both directions. A label
    outranks a group: the right side of a labeled negative whose two ids are equal is not a positive of any row.

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
        self,
        *,
        temperature: float = 0.1,
        trainable: bool = False,
        symmetric: bool = True,
        normalize: str = "row",
        threshold: float | None = None,
        reduction: str = "positives",
        hard_negative_weight: float = 0.0,
    ) -> None:
        super().__init__()
        positive("BatchSoftmax", "temperature", temperature, "0.05 to 0.5")
        for name, flag in (("trainable", trainable), ("symmetric", symmetric)):
            if not isinstance(flag, bool):
                raise SettingError(f"BatchSoftmax: {name} must be True or False, got {flag}.")
        one_of("BatchSoftmax", "normalize", normalize, NORMALIZE)
        one_of("BatchSoftmax", "reduction", reduction, REDUCTION)
        finite("BatchSoftmax", "threshold", threshold, 0.5)
        finite("BatchSoftmax", "hard_negative_weight", hard_negative_weight, 0)
        self.trainable, self.symmetric, self.normalize = trainable, symmetric, normalize
        self.threshold, self.reduction, self.hard_negative_weight = threshold, reduction, hard_negative_weight
        self.masked = torch.zeros((), dtype=torch.long)
        self._fixed = temperature
        if trainable:
            self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    @property
    def temperature(self) -> float:
        """The current tau."""
        return math.exp(self.log_temperature.item()) if self.trainable else self._fixed

    def loss(self, pairs: Pairs) -> Tensor:
        """The value of a batch."""
        b, m = len(pairs), len(pairs.right)
        if self.hard_negative_weight and m != 2 * b:
            raise ShapeError(
                f"right must have {2 * b} rows, a partner and a hard negative for each row of left, got {m}; "
                "give one extra row a pair or set hard_negative_weight to 0"
            )
        if b == 0:
            self.masked = torch.zeros((), dtype=torch.long)
            return pairs.zero()
        counts = pairs.positive(threshold=self.threshold)  # (b,)
        shared = pairs.same_group(counts)  # (b, b + extra)
        row = column = torch.arange(b, device=counts.device)  # (p,) each: where the positives are, here the diagonal
        if shared is not None:
            row, column = shared.fill_diagonal_(fill_value=True).nonzero(as_tuple=True)
        scaled = self._scaled(pairs.left) * self._inverse_temperature()
        logits = scaled @ self._scaled(pairs.right).T  # (b, b + extra): s
        if self.hard_negative_weight:
            weight = logits.new_full((b,), self.hard_negative_weight)
            if shared is not None:
                weight.masked_fill_(shared.diagonal(b), 0)  # a known positive is no hard negative
            with torch.no_grad():  # a constant has no gradient to keep
                logits.diagonal(b).add_(weight)
        columns = b if self.symmetric else 0
        picked, by_row, by_column = LogNegatives.apply(logits, row, column, columns)  # type: ignore[no-untyped-call]
        costs = _mean_cost(picked, by_row, row)  # (b,)
        self.masked = counts[row].sum() - counts.sum()
        if self.symmetric:
            inside = column < b  # extra rows are candidates only, no anchors
            costs = costs + _mean_cost(picked[inside], by_column, column[inside])
            self.masked = self.masked + counts[column[inside]].sum() - counts.sum()
        rows = counts.sum().clamp(min=1) if self.reduction == "positives" else max(b, 1)
        return costs.masked_fill(~counts, 0).sum() / rows

    def _scaled(self, vectors: Tensor) -> Tensor:
        if self.normalize == "none":
            return vectors
        return minmax(vectors) if self.normalize == "minmax" else unit(vectors, dim=int(self.normalize == "row"))

    def _inverse_temperature(self) -> Tensor | float:
        return self.log_temperature.neg().exp() if self.trainable else 1 / self._fixed


class LogNegatives(torch.autograd.Function):
    """The logits of the positives, and for each row, and each of the first columns, the logsumexp of the negatives.

    In blocks of rows, so that value and gradients need the logits, their gradient and no further matrix of that size.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, row: Tensor, column: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor]:
        """(b, n) logits, (p,) places of positives, row by row -> (p,) their logits, (b,) and (columns,) logsumexp."""
        by_row, by_column = logits.new_empty(len(logits)), logits.new_full((columns,), -torch.inf)
        for at, here in _blocks(len(logits), row):
            block = logits[at].clone()
            block[row[here] - at.start, column[here]] = -torch.inf
            by_row[at] = block.logsumexp(dim=1)
            by_column = torch.logaddexp(by_column, block[:, :columns].logsumexp(dim=0))
        ctx.save_for_backward(logits, row, column, by_row, by_column)
        return logits[row, column], by_row, by_column

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, picked: Tensor, slope: Tensor, slope_back: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of a logsumexp is a softmax, that of a positive's logit is itself."""
        logits, row, column, by_row, by_column = ctx.saved_tensors
        grad, columns = torch.empty_like(logits), len(by_column)
        for at, here in _blocks(len(logits), row):
            block = grad[at]
            torch.sub(logits[at], by_row[at].unsqueeze(1), out=block).exp_().mul_(slope[at].unsqueeze(1))
            if columns:
                block[:, :columns] += (logits[at, :columns] - by_column).exp_().mul_(slope_back)
            block[row[here] - at.start, column[here]] = picked[here]  # instead of their value as negatives
        return grad, None, None, None


def _blocks(b: int, row: Tensor) -> Iterator[tuple[slice, slice]]:
    """Rows in blocks, and where the positives of each block are among the (p,) row numbers, which ascend."""
    starts = [*range(0, b, BLOCK), b]
    places = torch.searchsorted(row, torch.tensor(starts, device=row.device)).tolist()
    for i in range(len(starts) - 1):
        yield slice(starts[i], starts[i + 1]), slice(places[i], places[i + 1])


def _mean_cost(picked: Tensor, negatives: Tensor, anchor: Tensor) -> Tensor:
    """(p,) logits of positives, (b,) logsumexp of negatives, (p,) the anchor of each -> (b,) mean -log share."""
    gap = negatives[anchor] - picked
    cost = torch.logaddexp(gap, torch.zeros_like(gap))  # (p,)
    return torch.zeros_like(negatives).index_add(0, anchor, cost) / torch.bincount(anchor, minlength=len(negatives))
