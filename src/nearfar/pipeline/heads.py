"""Class heads that are fitted to the vectors of a trained encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class TrainingRows:
    """The labeled texts that a head is fitted to."""

    table: TokenTable
    labels: NDArray[np.int64]
    classes: int


def fit_head(
    kind: FittedHead, model: TextModel, rows: TrainingRows, *, neighbors: int = 5, batch_size: int = 64
) -> Head:
    """A head for the present weights of a model; a class without training texts is never predicted.

    Args:
        kind: a logistic regression, the nearest class center (prototype), or the nearest neighbors.
        model: the encoder.
        rows: the training texts and their classes.
        neighbors: how many neighbors vote.
        batch_size: texts that are encoded together.
    """
    vectors = _normalized(embed_table(model, rows.table, batch_size=batch_size))
    return _FITS[kind](vectors, rows.labels, rows.classes, neighbors)


def _centers(vectors: NDArray[np.float32], labels: NDArray[np.int64], classes: int, _neighbors: int) -> CenterHead:
    head = CenterHead(vectors.shape[1], classes)
    for number in np.unique(labels):
        head.centers[number] = torch.from_numpy(vectors[labels == number].mean(axis=0))
    return head


def _votes(vectors: NDArray[np.float32], labels: NDArray[np.int64], classes: int, neighbors: int) -> NeighborHead:
    head = NeighborHead(vectors.shape[1], classes, rows=len(vectors), neighbors=neighbors)
    head.vectors.copy_(torch.from_numpy(vectors))
    head.labels.copy_(torch.from_numpy(labels))
    return head


def _logistic(vectors: NDArray[np.float32], labels: NDArray[np.int64], classes: int, _neighbors: int) -> LogisticHead:
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


_FITS: dict[FittedHead, Callable[[NDArray[np.float32], NDArray[np.int64], int, int], Head]] = {
    "logistic": _logistic,
    "nearest-center": _centers,
    "neighbors": _votes,
}
