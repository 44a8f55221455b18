"""What predictions and vectors tell beside the score: confidence, mistakes, neighbors, a flat map. No torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NEIGHBORS = 10
"""Texts around a text that may doubt its label."""

DOUBT = 0.7
"""Share of the neighbors with one and the same other label from which a label is suspected."""


@dataclass(frozen=True)
class Prediction:
    """One test row, as one run saw it."""

    row: int
    text: str
    label: str
    predicted: str
    probabilities: Mapping[str, float]

    @property
    def right(self) -> bool:
        """Whether the prediction is the label."""
        return self.predicted == self.label

    @property
    def confidence(self) -> float | None:
        """The probability of what was predicted; None where there are none."""
        return self.probabilities.get(self.predicted)


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction, and how sure the model was."""

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
    """Of the neighbors that have the suggested label."""
    said: int
    """Runs that predict the suggested label for the row."""
    tested: int


def entropy(probabilities: Sequence[float]) -> float:
    r"""How undecided a prediction is, in bits.

    .. math:: -\sum_k s_k \log_2 s_k

    >>> entropy([0.5, 0.5]), entropy([1.0, 0.0])
    (1.0, 0.0)
    """
    return -sum(share * math.log2(share) for share in probabilities if share > 0) + 0.0


def confident_mistakes(predictions: Sequence[Prediction], most: int = 10) -> list[Mistake]:
    """Wrong predictions of any number of runs, the surest first; a row with the same wrong label counts once."""
    tested = Counter(prediction.row for prediction in predictions)
    wrong: dict[tuple[int, str], list[Prediction]] = {}
    for prediction in predictions:
        if not prediction.right and prediction.confidence is not None:
            wrong.setdefault((prediction.row, prediction.predicted), []).append(prediction)
    found = [
        Mistake(
            group[0].text, group[0].label, predicted, float(np.mean([one.confidence for one in group])), len(group),
            tested[row],
        )
        for (row, predicted), group in wrong.items()
    ]  # fmt: skip
    return sorted(found, key=lambda mistake: (-mistake.confidence, -mistake.runs, mistake.text))[:most]


def principal_plane(vectors: NDArray[np.floating]) -> tuple[NDArray[np.float64], float]:
    """(n, 2) places on the two axes along which the vectors' directions spread most, and their share of the variance.

    An axis points to where its largest coordinate is positive, so that the map does not flip from run to run.
    """
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    centered = wide / np.where(lengths > 0, lengths, 1.0)
    centered -= centered.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    flat = np.zeros((len(wide), 2))
    for axis in range(min(2, len(sizes))):
        column = centered @ directions[axis]
        flat[:, axis] = column if column[np.abs(column).argmax()] >= 0 else -column
    total = float((sizes**2).sum())
    return flat, float((sizes[:2] ** 2).sum()) / total if total > 0 else 0.0


def nearest(vectors: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """(n, count) the rows with the highest cosine to each row, itself excluded, the nearest first."""
    wide = vectors.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    directions = wide / np.where(lengths > 0, lengths, 1.0)
    cosines = directions @ directions.T
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :count].astype(np.int64)


def agreement(vectors: NDArray[np.floating], labels: Sequence[str], neighbors: int = NEIGHBORS) -> float:
    """The mean share of each text's neighbors that have its label."""
    around = nearest(vectors, min(neighbors, len(labels) - 1))
    return float(np.mean([[labels[other] == labels[one] for other in row] for one, row in enumerate(around)]))


def suspects(
    vectors: NDArray[np.floating], rows: Sequence[int], texts: Sequence[str], labels: Sequence[str],
    predicted: Mapping[int, Sequence[str]], *, neighbors: int = NEIGHBORS, doubt: float = DOUBT, most: int = 20,
) -> list[Suspect]:  # fmt: skip
    """Texts most of whose neighbors share one other label, those with the most doubt first.

    Args:
        vectors: (n, d) of the texts.
        rows: of the texts in their file.
        texts: what they say.
        labels: what they are said to be.
        predicted: for rows, what runs that had not trained on them predict.
        neighbors: how many texts around each are asked; fewer where there are fewer.
        doubt: the share of them that must have the same other label.
        most: how many are returned at most.
    """
    found = []
    for one, around in enumerate(nearest(vectors, min(neighbors, len(rows) - 1))):
        other, count = Counter(labels[place] for place in around.tolist()).most_common(1)[0]
        share = count / len(around)
        if other == labels[one] or share < doubt:
            continue
        votes = predicted.get(rows[one], ())
        found.append(Suspect(rows[one], texts[one], labels[one], other, share, list(votes).count(other), len(votes)))
    return sorted(found, key=lambda one: (-one.share, -one.said / max(1, one.tested), one.row))[:most]


def hardest(confusion: Sequence[Sequence[int]], count: int = 4) -> list[int]:
    """The classes that are most taken for each other: the worst pair, then whoever is most confused with those."""
    table = np.asarray(confusion, dtype=np.float64)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    mixed = shares + shares.T
    np.fill_diagonal(mixed, 0)
    chosen = [int(place) for place in np.unravel_index(int(mixed.argmax()), mixed.shape)]
    while len(chosen) < min(count, len(table)):
        towards = mixed[:, chosen].sum(axis=1)
        towards[chosen] = -1
        chosen.append(int(towards.argmax()))
    return sorted(chosen)


def accuracy_within(predictions: Sequence[Prediction], labels: set[str]) -> tuple[float, int] | None:
    """Accuracy on the rows of these labels when no other label may be predicted, and their number."""
    rows = [one for one in predictions if one.label in labels and labels & one.probabilities.keys()]
    if not rows:
        return None
    right = [max(sorted(labels), key=lambda name: one.probabilities.get(name, 0.0)) == one.label for one in rows]
    return float(np.mean(right)), len(rows)


def mean_curve(curves: Sequence[Sequence[tuple[float, float]]], points: int = 60) -> list[tuple[float, float]]:
    """The mean of curves over the range they share, each read between its points along straight lines."""
    filled = [sorted(curve) for curve in curves if curve]
    if not filled:
        return []
    if len({tuple(x for x, _ in curve) for curve in filled}) == 1:
        places = [x for x, _ in filled[0]]
        if len(places) <= points:
            return [(x, float(np.mean([curve[at][1] for curve in filled]))) for at, x in enumerate(places)]
    low, high = max(curve[0][0] for curve in filled), min(curve[-1][0] for curve in filled)
    if not high > low:
        return []
    grid = np.linspace(low, high, points)
    values = np.mean([np.interp(grid, *np.array(curve).T) for curve in filled], axis=0)
    return list(zip(grid.tolist(), values.tolist(), strict=True))


def thinned(curve: Sequence[tuple[float, float]], points: int = 60) -> list[tuple[float, float]]:
    """A long curve as the means of ``points`` stretches; a short one as it is."""
    if len(curve) <= points:
        return list(curve)
    return [
        (float(np.mean([x for x, _ in part])), float(np.mean([y for _, y in part])))
        for part in (curve[len(curve) * at // points : len(curve) * (at + 1) // points] for at in range(points))
    ]
