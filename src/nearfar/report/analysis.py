"""Analysis of predictions and embeddings: confidence, mistakes, neighbors, projection, curves. No torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NEIGHBORS = 10
"""Nearest neighbors of a text that are compared with its label."""
DOUBT = 0.7
"""Share of the neighbors with one and the same other label from which a label is suspected."""

Curve = list[tuple[float, float]]


@dataclass(frozen=True)
class Prediction:
    """The prediction of one run for one test row."""

    row: int
    text: str
    label: str
    predicted: str
    probabilities: Mapping[str, float]
    typicality: float | None = None
    """How typical the text is of the classes, where the model says so."""

    @property
    def correct(self) -> bool:
        """Whether the prediction is the label."""
        return self.predicted == self.label

    @property
    def confidence(self) -> float | None:
        """The probability of the predicted label; None without probabilities."""
        return self.probabilities.get(self.predicted)


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction and its confidence."""

    text: str
    label: str
    predicted: str
    confidence: float
    runs: int
    """Runs that predict this wrong label for the row."""
    tested: int
    """Runs that tested the row."""


@dataclass(frozen=True)
class Suspect:
    """A text whose neighbors have another label."""

    row: int
    text: str
    label: str
    suggested: str
    share: float
    """Share of the neighbors that have the suggested label."""
    runs: int
    """Runs that predict the suggested label for the row."""
    tested: int
    """Runs that tested the row."""


def entropy(probabilities: Sequence[float]) -> float:
    r"""The entropy of a predicted distribution, in bits.

    .. math:: -\sum_k s_k \log_2 s_k

    >>> entropy([0.5, 0.5]), entropy([1.0, 0.0])
    (1.0, 0.0)
    """
    return -sum(share * math.log2(share) for share in probabilities if share > 0) + 0.0


def confident_mistakes(predictions: Sequence[Prediction], most: int = 10) -> list[Mistake]:
    """Wrong predictions of any number of runs, most confident first; a row with the same wrong label counts once."""
    tested = Counter(prediction.row for prediction in predictions)
    wrong: dict[tuple[int, str], list[Prediction]] = {}
    for prediction in predictions:
        if not prediction.correct and prediction.confidence is not None:
            wrong.setdefault((prediction.row, prediction.predicted), []).append(prediction)
    mistakes = []
    for (row, predicted), group in wrong.items():
        confidence = float(np.mean([one.confidence for one in group]))
        mistakes.append(Mistake(group[0].text, group[0].label, predicted, confidence, len(group), tested[row]))
    return sorted(mistakes, key=lambda mistake: (-mistake.confidence, -mistake.runs, mistake.text))[:most]


def principal_plane(vectors: NDArray[np.floating]) -> tuple[NDArray[np.float64], float]:
    """(n, 2) the first two principal components of the normalized vectors, and their share of the variance.

    The largest coordinate of an axis is positive, so the map does not flip from run to run.
    """
    centered = _normalized(vectors)
    centered -= centered.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    plane = np.zeros((len(centered), 2))
    for axis in range(min(2, len(sizes))):
        column = centered @ directions[axis]
        plane[:, axis] = column if column[np.abs(column).argmax()] >= 0 else -column
    total = float((sizes**2).sum())
    return plane, float((sizes[:2] ** 2).sum()) / total if total > 0 else 0.0


def nearest(vectors: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """(n, count) the rows with the highest cosine to each row, itself excluded, the nearest first."""
    directions = _normalized(vectors)
    cosines = directions @ directions.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :count].astype(np.int64)


def _normalized(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    normalized: NDArray[np.float64] = wide / np.where(lengths > 0, lengths, 1.0)
    return normalized


def neighbor_agreement(vectors: NDArray[np.floating], labels: Sequence[str], neighbors: int = NEIGHBORS) -> float:
    """The mean share of each text's neighbors that have its label."""
    around = nearest(vectors, min(neighbors, len(labels) - 1))
    return float(np.mean([[labels[other] == labels[row] for other in others] for row, others in enumerate(around)]))


def label_suspects(
    vectors: NDArray[np.floating],
    predictions: Sequence[Prediction],
    votes: Mapping[int, Sequence[str]],
    *,
    neighbors: int = NEIGHBORS,
    doubt: float = DOUBT,
    most: int = 20,
) -> list[Suspect]:
    """Texts most of whose neighbors share one other label, the most suspicious first.

    Args:
        vectors: (n, d) vectors of the texts.
        predictions: the texts with their labels, in the same order.
        votes: for each row, the predictions of runs that did not train on it.
        neighbors: nearest neighbors to compare with; fewer where there are fewer.
        doubt: the share of them that must have the same other label.
        most: the longest list to return.
    """
    suspects = []
    for one, around in zip(predictions, nearest(vectors, min(neighbors, len(predictions) - 1)), strict=True):
        other, count = Counter(predictions[index].label for index in around.tolist()).most_common(1)[0]
        share = count / len(around)
        if other != one.label and share >= doubt:
            cast = list(votes.get(one.row, ()))
            suspects.append(Suspect(one.row, one.text, one.label, other, share, cast.count(other), len(cast)))
    return sorted(suspects, key=lambda one: (-one.share, -one.runs / max(1, one.tested), one.row))[:most]


def most_confused(confusion: Sequence[Sequence[float]], count: int = 4) -> list[int]:
    """The classes that are confused most: the worst pair, then those most confused with the ones chosen so far."""
    table = np.asarray(confusion, dtype=np.float64)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    mixed = shares + shares.T
    np.fill_diagonal(mixed, 0)
    chosen = [int(index) for index in np.unravel_index(int(mixed.argmax()), mixed.shape)]
    while len(chosen) < min(count, len(table)):
        towards = mixed[:, chosen].sum(axis=1)
        towards[chosen] = -1
        chosen.append(int(towards.argmax()))
    return sorted(chosen)


def accuracy_within(predictions: Sequence[Prediction], labels: set[str]) -> float | None:
    """Accuracy on the rows of these labels when only they may be predicted; None without such rows."""
    rows = [one for one in predictions if one.label in labels and labels & one.probabilities.keys()]
    if not rows:
        return None
    best = [max(sorted(labels), key=lambda name: one.probabilities.get(name, 0.0)) for one in rows]
    return float(np.mean([predicted == one.label for predicted, one in zip(best, rows, strict=True)]))


def mean_curve(curves: Sequence[Curve], points: int = 60) -> Curve:
    """The mean of curves over the range they share, interpolated linearly."""
    known = [sorted(curve) for curve in curves if curve]
    if not known:
        return []
    steps = [x for x, _ in known[0]]
    if len(steps) <= points and all([x for x, _ in curve] == steps for curve in known):
        return [(x, float(np.mean([curve[index][1] for curve in known]))) for index, x in enumerate(steps)]
    low, high = max(curve[0][0] for curve in known), min(curve[-1][0] for curve in known)
    if not high > low:
        return []
    grid = np.linspace(low, high, points)
    values = np.mean([np.interp(grid, *np.array(curve).T) for curve in known], axis=0)
    return list(zip(grid.tolist(), values.tolist(), strict=True))


def thinned(curve: Curve, points: int = 60) -> Curve:
    """A long curve as the means of ``points`` stretches; a short one unchanged."""
    if len(curve) <= points:
        return list(curve)
    parts = [curve[len(curve) * index // points : len(curve) * (index + 1) // points] for index in range(points)]
    return [(float(np.mean([x for x, _ in part])), float(np.mean([y for _, y in part]))) for part in parts]
