"""Class heads that are fitted to the vectors of a trained encoder."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.encoding import CenterHead, Head, LogisticHead, NeighborHead, TextModel, TokenTable
from nearfar.evaluation import embed_table

FittedHead = Literal["logistic", "nearest-center", "neighbors"]
ABSENT = -1e4
"""The logit of a class that no training text has."""
STRENGTH = 10.0
"""Inverse of the logistic head's L2 penalty; docs/why/few-shot-defaults.md has the comparison."""


def fit_head(
    kind: FittedHead, model: TextModel, table: TokenTable, labels: NDArray[np.int64], classes: int, *,
    neighbors: int = 5, batch_size: int = 64,
) -> Head:  # fmt: skip
    """A head for the model as it is now, from the vectors of the training texts; classes without any are never it."""
    vectors = _normalized(embed_table(model, table, batch_size=batch_size))
    if kind == "logistic":
        return _logistic(vectors, labels, classes)
    if kind == "nearest-center":
        head = CenterHead(vectors.shape[1], classes)
        for number in np.unique(labels):
            head.centers[number] = torch.from_numpy(vectors[labels == number].mean(axis=0))
        return head
    votes = NeighborHead(vectors.shape[1], classes, rows=len(vectors), neighbors=neighbors)
    votes.vectors.copy_(torch.from_numpy(vectors))
    votes.labels.copy_(torch.from_numpy(labels))
    return votes


def _logistic(vectors: NDArray[np.float32], labels: NDArray[np.int64], classes: int) -> LogisticHead:
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=STRENGTH, max_iter=1_000).fit(vectors, labels)
    weight, bias = fitted.coef_, fitted.intercept_
    if len(fitted.classes_) == 2:  # one row for two classes: the first one's is zero
        weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
    head = LogisticHead(vectors.shape[1], classes)
    present = torch.from_numpy(fitted.classes_)
    head.bias.fill_(ABSENT)
    head.weight[present] = torch.from_numpy(weight).float()
    head.bias[present] = torch.from_numpy(bias).float()
    return head


def _normalized(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit
