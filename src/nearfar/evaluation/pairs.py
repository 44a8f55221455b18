"""Metrics of similarity scores: against graded scores, against binary labels, and within triplets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError, did_you_mean
from nearfar.evaluation.classification import ScoredReport
from nearfar.shapes import expect

Metric = Literal["f1", "accuracy"]
FLAT = 1e-12
"""Values that differ by less than this share of the largest are equal but for rounding."""


@dataclass(frozen=True)
class ScoreReport(ScoredReport):
    """How well predicted scores follow graded ones.

    ``scores`` holds ``spearman``, ``pearson`` and ``mse``; the correlations are 0 where a side is constant.
    """

    rows: int
    """How many pairs were evaluated."""
    constant: tuple[str, ...]
    """Which of ``truth`` and ``predicted`` has one value throughout, so that no correlation is defined."""


@dataclass(frozen=True)
class PairReport(ScoredReport):
    """How well a threshold on the scores separates positive from negative pairs.

    ``scores`` holds ``f1``, ``precision`` and ``recall`` at ``threshold``, ``accuracy`` at ``accuracy_threshold``, and
    ``average_precision`` and, where there are negative pairs, ``roc_auc``, which need no threshold.
    """

    threshold: float
    """The decision threshold: pairs with at least this score are predicted as positive."""
    accuracy_threshold: float
    """The decision threshold for the accuracy alone."""
    chosen_here: bool
    """Whether the thresholds are the best for these very pairs, which is optimistic: choose on dev, report on test."""
    rows: int
    """How many pairs were evaluated."""
    positives: int
    """How many of them are positive."""

    @property
    def thresholds(self) -> dict[str, float]:
        """Both, for other data: ``pair_report(truth, scores, **dev.thresholds)``."""
        return {"threshold": self.threshold, "accuracy_threshold": self.accuracy_threshold}


@dataclass(frozen=True)
class TripletReport(ScoredReport):
    """How often the positive is nearer to the anchor than the negative.

    ``scores`` holds ``accuracy``, and ``margin``, the mean difference of the two cosines.
    """

    rows: int


def score_report(
    truth: NDArray[np.floating], predicted: NDArray[np.floating], *, absolute: bool = False
) -> ScoreReport:
    """Spearman's and Pearson's correlation of predicted scores with the truth, and their mean squared difference.

    Spearman's is Pearson's of the ranks, equal values sharing their mean rank. A constant side has no correlation: it
    counts as 0, and ``constant`` names the side. Only ``mse`` depends on the range of the scores, and with ``absolute``
    ``mae``, the mean absolute difference.

    >>> score_report(np.array([0.0, 0.5, 1.0]), np.array([0.1, 0.2, 0.9])).scores["spearman"]
    1.0
    >>> score_report(np.array([0.0, 0.5, 1.0]), np.array([0.7, 0.7, 0.7])).constant
    ('predicted',)
    """
    n = _rows(truth=truth, predicted=predicted)
    x, y = finite("truth", truth), finite("predicted", predicted)
    constant = tuple(name for name, values in (("truth", x), ("predicted", y)) if _flat(values))
    scores = {
        "spearman": 0.0 if constant else _correlation(_ranks(x), _ranks(y)),
        "pearson": 0.0 if constant else _correlation(x, y),
        **({"mae": float(np.mean(np.abs(x - y)))} if absolute else {}),
        "mse": float(np.mean((x - y) ** 2)),
    }
    return ScoreReport(scores, n, constant)


def triplet_report(near: NDArray[np.floating], far: NDArray[np.floating]) -> TripletReport:
    """Cosines with the positive and with the negative to a report; equal cosines count as a mistake.

    >>> triplet_report(np.array([0.9, 0.1]), np.array([0.5, 0.1])).scores["accuracy"]
    0.5
    """
    n = _rows(near=near, far=far)
    near, far = finite("near", near), finite("far", far)
    return TripletReport({"accuracy": float(np.mean(near > far)), "margin": float(np.mean(near - far))}, n)


def pair_report(
    truth: NDArray[np.integer] | NDArray[np.bool_],
    scores: NDArray[np.floating],
    threshold: float | None = None,
    accuracy_threshold: float | None = None,
) -> PairReport:
    """F1, accuracy and average precision of scores that should be high where the truth is 1.

    Args:
        truth: (n,) 1 for positive pairs, 0 for negative pairs.
        scores: (n,) any finite numbers.
        threshold: the decision threshold, as chosen on other data; None: the one with the best F1 here.
        accuracy_threshold: the same for the accuracy; None: ``threshold`` where that is given, else the one with the
            best accuracy here.

    >>> dev = pair_report(np.array([1, 1, 0, 0]), np.array([0.9, 0.7, 0.5, 0.1]))
    >>> dev.chosen_here, round(dev.threshold, 4), dev.scores["f1"]
    (True, 0.6, 1.0)
    >>> test = pair_report(np.array([1, 0]), np.array([0.5, 0.4]), **dev.thresholds)
    >>> test.scores["f1"], test.scores["accuracy"], test.scores["average_precision"]
    (0.0, 0.5, 1.0)
    """
    positive, values = _checked(truth, scores)
    if not positive.any():
        raise SettingError(
            f"none of the {len(positive):,} pairs is labeled 1, so F1 and average precision have no meaning; "
            "evaluate on data with positive pairs."
        )
    if threshold is None and accuracy_threshold is not None:
        raise SettingError("accuracy_threshold needs threshold: give both, threshold alone, or neither.")
    chosen_here = threshold is None
    if threshold is None:
        threshold = best_threshold(truth, scores, "f1")
        accuracy_threshold = best_threshold(truth, scores, "accuracy")
    elif accuracy_threshold is None:
        accuracy_threshold = threshold
    for name, value in (("threshold", threshold), ("accuracy_threshold", accuracy_threshold)):
        if not np.isfinite(value):
            raise SettingError(f"{name} must be a finite number, got {value}.")
    predicted = values >= threshold
    hits, positives = int((predicted & positive).sum()), int(positive.sum())
    measured = {
        "f1": 2 * hits / float(predicted.sum() + positives),
        "precision": hits / float(max(predicted.sum(), 1)),
        "recall": hits / float(positives),
        "accuracy": float(((values >= accuracy_threshold) == positive).mean()),
        "average_precision": _average_precision(positive, values),
    }
    if not positive.all():
        measured["roc_auc"] = _roc_auc(positive, values)
    return PairReport(measured, float(threshold), float(accuracy_threshold), chosen_here, len(positive), positives)


def best_threshold(
    truth: NDArray[np.integer] | NDArray[np.bool_], scores: NDArray[np.floating], metric: Metric = "f1"
) -> float:
    """The decision threshold with the highest F1 or accuracy, found exactly: every cut of the sorted scores is tried.

    A cut lies midway between two neighboring scores, at the lowest score (all positive) or just above the highest
    (all negative). Where several cuts are equally good, the highest of them is taken.

    >>> best_threshold(np.array([1, 0, 1, 0]), np.array([0.8, 0.6, 0.4, 0.2]), "f1")
    0.30000000000000004
    """
    known = get_args(Metric)
    if metric not in known:
        raise SettingError(f"metric must be {' or '.join(known)}, got {metric!r}.{did_you_mean(metric, known)}")
    positive, values = _checked(truth, scores)
    if metric == "f1" and not positive.any():
        raise SettingError("no pair is labeled 1, so no threshold has an F1; choose it on data with positive pairs.")
    distinct, predicted, hits = _cuts(positive, values)
    quality = 2 * hits / (predicted + positive.sum()) if metric == "f1" else 2 * hits - predicted  # accuracy + constant
    index = int(quality.argmax())  # the first of equals: cuts run from the highest down
    if index == 0:
        return float(np.nextafter(distinct[0], np.inf))
    if index == len(distinct):
        return float(distinct[-1])
    above, below = distinct[index - 1], distinct[index]
    middle = above / 2 + below / 2
    return float(middle if middle > below else above)


def _cuts(
    positive: NDArray[np.bool_], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """(m,) distinct scores, falling; (m + 1,) how many scores are above each cut, and how many of them are positive."""
    order = np.argsort(-values, kind="stable")
    ranked, hits = values[order], np.cumsum(positive[order])
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)  # the last of each run of equals
    return ranked[last], np.append(0, last + 1), np.append(0, hits[last])


def _average_precision(positive: NDArray[np.bool_], values: NDArray[np.float64]) -> float:
    """The sum over the cuts of the gain in recall times the precision; equal scores enter together."""
    _, predicted, hits = _cuts(positive, values)
    return float(np.sum(np.diff(hits) * hits[1:] / predicted[1:]) / positive.sum())


def _roc_auc(positive: NDArray[np.bool_], values: NDArray[np.float64]) -> float:
    """The chance that a positive pair has a higher score than a negative one, an equal one counting half."""
    m, n = int(positive.sum()), int((~positive).sum())
    return float((_ranks(values)[positive].sum() - m * (m + 1) / 2) / (m * n))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """From 1 on, the mean rank for equal values.

    >>> _ranks(np.array([0.5, 0.1, 0.5])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (counts.cumsum() - (counts - 1) / 2)[place]
    return ranks


def _rows(**sides: NDArray[Any]) -> int:
    """The number of rows, which all sides share and which is not 0."""
    n = expect(**{name: (side, "n") for name, side in sides.items()})["n"]
    if n == 0:
        raise SettingError("there is nothing to evaluate: no rows.")
    return n


def _checked(
    truth: NDArray[np.integer] | NDArray[np.bool_], scores: NDArray[np.floating]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """(n,) which pairs are positive, and (n,) the scores."""
    _rows(truth=truth, scores=scores)
    odd = np.flatnonzero((truth != 0) & (truth != 1))
    if len(odd):
        raise SettingError(
            f"truth must be 0 or 1, got {truth[odd[0]]} in row {odd[0]}; compare graded scores with a limit first, "
            "or take score_report."
        )
    return truth.astype(np.bool_), finite("scores", scores)


def finite(name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    """The values in double precision; NaN and infinity are refused."""
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise SettingError(
            f"{name} must be finite, got {values[wrong[0]]} in row {wrong[0]} ({len(wrong):,} such rows); "
            "a model whose weights are NaN or infinite gives such scores."
        )
    return values.astype(np.float64)


def _flat(values: NDArray[np.float64]) -> bool:
    scaled = values / (np.abs(values).max() or 1.0)
    return bool(scaled.max() - scaled.min() <= FLAT)


def _correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Pearson's correlation; each side is scaled first, so that no square vanishes or overflows."""
    x, y = (side / np.abs(side).max() for side in (x, y))
    x, y = (side - side.mean() for side in (x, y))
    x, y = (side / np.abs(side).max() for side in (x, y))
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))
