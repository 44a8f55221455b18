"""Class heads that are fitted to the vectors of a trained encoder."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.encoding import CenterHead, Head, LogisticHead, NeighborHead, RidgeHead, TextModel, TokenTable
from nearfar.evaluation import embed_table
from nearfar.pipeline.objectives import class_weights
from nearfar.recipe.capabilities import ClassWeight
from nearfar.seeds import generator

FittedHead = Literal["logistic", "nearest-center", "neighbors", "ridge"]
ABSENT = -1e4
"""The logit of a class that no training text has."""
PENALTIES = tuple(float(penalty) for penalty in 10.0 ** np.arange(-3, 3.5, 0.5))
"""The L2 penalties that a ridge head chooses from."""
FOLDS = 5
"""Folds of the training texts that choose thresholds where there are no dev rows."""
NAME_WEIGHT = 4.0
"""The labeled texts that the name of a class counts as in its center; docs/why/class-names.md has the comparison."""
STRENGTH = 10.0
"""Inverse of the logistic head's L2 penalty; docs/why/few-shot-defaults.md has the comparison."""


@dataclass(frozen=True)
class TrainingRows:
    """The labeled texts that a head is fitted to."""

    table: TokenTable
    labels: NDArray[np.int64]
    """(n,) the class of each text, or (n, c) which labels apply to it."""
    classes: tuple[str, ...]
    class_weight: ClassWeight = "none"
    scores: NDArray[np.floating] | None = None
    """(n,) the score of each text, where texts have scores instead of classes."""
    weights: NDArray[np.float32] | None = None
    """(n,) how much each text counts; None: all the same."""
    names: int = 0
    """How many of the last texts are names of classes."""


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
    return fit_to_vectors(kind, unit_vectors(model, rows.table, batch_size=batch_size), rows, neighbors=neighbors)


def fit_to_vectors(kind: FittedHead, vectors: NDArray[np.float32], rows: TrainingRows, *, neighbors: int = 5) -> Head:
    """A head for (n, d) normalized vectors of the training texts."""
    if rows.weights is not None:  # those of names are above 0
        counts = rows.weights > 0
        vectors, rows = vectors[counts], replace(rows, labels=rows.labels[counts], weights=rows.weights[counts])
    return _FITS[kind](vectors, rows, neighbors)


def cross_validated(vectors: NDArray[np.float32], rows: TrainingRows, *, seed: int) -> tuple[NDArray[np.float32], int]:
    """(n, c) probabilities of the labels of each text by one-vs-rest heads that were fitted without it; the folds."""
    folds = min(FOLDS, len(vectors))
    fold_of = generator(seed, "thresholds").permutation(len(vectors)) % folds
    probabilities = np.zeros(rows.labels.shape, dtype=np.float32)
    for fold in range(folds):
        held = fold_of == fold
        head = _one_vs_rest(vectors[~held], replace(rows, labels=rows.labels[~held]))
        probabilities[held] = head(torch.from_numpy(vectors[held])).sigmoid().numpy()
    return probabilities, folds


def _centers(vectors: NDArray[np.float32], rows: TrainingRows, _neighbors: int) -> CenterHead:
    """Centers weigh all classes the same, as ``balanced`` asks for; a table of weights multiplies the odds."""
    weighted = isinstance(rows.class_weight, Mapping)
    head = CenterHead(vectors.shape[1], len(rows.classes), weighted=weighted)
    texts = len(rows.labels) - rows.names
    labels, of_texts = rows.labels[:texts], None if rows.weights is None else rows.weights[:texts]
    sizes = np.bincount(labels, weights=of_texts, minlength=len(rows.classes)).astype(np.float64)
    for number in np.unique(labels):
        own = labels == number
        weights = None if of_texts is None else of_texts[own]
        of_class = vectors[:texts][own]
        center = of_class.mean(axis=0) if weights is None else np.average(of_class, axis=0, weights=weights)
        head.centers[number] = torch.from_numpy(center.astype(np.float32))
    if rows.names:
        named = _named_centers(head.centers.numpy(), sizes, vectors[texts:], rows.labels[texts:])
        head.centers.copy_(torch.from_numpy(named))
    if head.bias is not None and isinstance(rows.class_weight, Mapping):
        weights = torch.tensor([rows.class_weight.get(name, 1.0) for name in rows.classes])
        head.bias.copy_(weights.log().clamp(min=ABSENT))
    return head


def _named_centers(
    centers: NDArray[np.float32], sizes: NDArray[np.floating], names: NDArray[np.float32], labels: NDArray[np.int64]
) -> NDArray[np.float32]:
    """(c, d) centers with the names of classes as ``NAME_WEIGHT`` more texts of each.

    Names are short, so all of them are far from all texts. What counts is how they differ from each other: they are
    moved so that their mean is that of the centers. A class without a name gets that mean.
    """
    numbers = np.unique(labels)
    if len(numbers) < 2:
        return centers
    mean = centers[sizes > 0].mean(axis=0)
    of_class = np.stack([names[labels == number].mean(axis=0) for number in numbers])
    moved = np.tile(mean, (len(centers), 1))
    moved[numbers] += of_class - of_class.mean(axis=0)
    counts = sizes[:, None]
    joined = (counts * centers + NAME_WEIGHT * moved) / (counts + NAME_WEIGHT)
    known = (sizes > 0) | np.isin(np.arange(len(centers)), numbers)
    return np.where(known[:, None], joined, centers).astype(np.float32)


def _votes(vectors: NDArray[np.float32], rows: TrainingRows, neighbors: int) -> NeighborHead:
    head = NeighborHead(vectors.shape[1], len(rows.classes), rows=len(vectors), neighbors=neighbors)
    head.vectors.copy_(torch.from_numpy(vectors))
    head.labels.copy_(torch.from_numpy(rows.labels))
    return head


def _logistic(vectors: NDArray[np.float32], rows: TrainingRows, _neighbors: int) -> LogisticHead:
    from sklearn.linear_model import LogisticRegression

    if rows.labels.ndim == 2:
        return _one_vs_rest(vectors, rows)
    counts = np.bincount(rows.labels, minlength=len(rows.classes))
    weights = class_weights(rows.class_weight, rows.classes, counts)
    of_rows = None if weights is None else weights.numpy()[rows.labels]
    if rows.weights is not None:
        of_rows = rows.weights if of_rows is None else of_rows * rows.weights
    with warnings.catch_warnings():  # with one text per class, scikit-learn guesses that labels are scores
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        fitted = LogisticRegression(C=STRENGTH, max_iter=1_000).fit(vectors, rows.labels, sample_weight=of_rows)
    weight, bias = fitted.coef_, fitted.intercept_
    if len(fitted.classes_) == 2:  # one row for two classes: the first one's is zero
        weight, bias = np.concatenate([0 * weight, weight]), np.concatenate([0 * bias, bias])
    head = LogisticHead(vectors.shape[1], len(rows.classes))
    present = torch.from_numpy(fitted.classes_)
    head.bias.fill_(ABSENT)
    head.weight[present] = torch.from_numpy(weight).float()
    head.bias[present] = torch.from_numpy(bias).float()
    return head


def _one_vs_rest(vectors: NDArray[np.float32], rows: TrainingRows) -> LogisticHead:
    """A logistic regression for each label; a label that all or no texts have is a constant."""
    from sklearn.linear_model import LogisticRegression

    weights = class_weights(rows.class_weight, rows.classes, rows.labels.sum(axis=0), rows=len(rows.labels))
    head = LogisticHead(vectors.shape[1], len(rows.classes))
    for number, applies in enumerate(rows.labels.T):
        if applies.all() or not applies.any():
            head.bias[number] = -ABSENT if applies.all() else ABSENT
            continue
        of_label = None if weights is None else {0: 1.0, 1: float(weights[number])}
        fitted = LogisticRegression(C=STRENGTH, max_iter=1_000, class_weight=of_label).fit(vectors, applies)
        head.weight[number] = torch.from_numpy(fitted.coef_[0]).float()
        head.bias[number] = float(fitted.intercept_[0])
    return head


def _ridge(vectors: NDArray[np.float32], rows: TrainingRows, _neighbors: int) -> RidgeHead:
    """The penalty is chosen by leave-one-out cross-validation of the training texts."""
    from sklearn.linear_model import RidgeCV

    assert rows.scores is not None
    scores = rows.scores.astype(np.float64)
    fitted = RidgeCV(alphas=PENALTIES).fit(vectors.astype(np.float64), scores)
    head = RidgeHead(vectors.shape[1])
    head.weight[0] = torch.from_numpy(fitted.coef_).float()
    head.bias[0] = float(fitted.intercept_)
    return head


def unit_vectors(model: TextModel, table: TokenTable, *, batch_size: int = 64) -> NDArray[np.float32]:
    """(n, d) L2-normalized vectors of texts, which fitted heads read."""
    vectors = embed_table(model, table, batch_size=batch_size)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit


_FITS: dict[FittedHead, Callable[[NDArray[np.float32], TrainingRows, int], Head]] = {
    "logistic": _logistic,
    "nearest-center": _centers,
    "neighbors": _votes,
    "ridge": _ridge,
}
