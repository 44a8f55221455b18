"""What similarity scores of pairs are worth: against graded truth, and against yes or no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from nearfar.errors import SettingError, did_you_mean
from nearfar.shapes import expect

Metric = Literal["f1", "accuracy"]
FLAT = 1e-12
"""Values that differ by less than this part of the largest of them are one value and rounding."""


@dataclass(frozen=True)
class ScoreReport:
    """How well predicted scores follow graded ones."""

    rows: int
    """How many pairs were evaluated."""
    scores: dict[str, float]
    """``spearman``, ``pearson`` and ``mse``; the correlations are 0 where a side is constant."""
    constant: tuple[str, ...]
    """Which of ``truth`` and ``predicted`` has one value throughout, so that no correlation is defined."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {**self.scores, "rows": self.rows, "constant": list(self.constant)}


def score_report(truth: NDArray[np.floating], predicted: NDArray[np.floating]) -> ScoreReport:
    """Spearman's and Pearson's correlation of predicted scores with the truth, and their mean squared difference.

    Spearman's is Pearson's of the ranks, equal values sharing their mean rank. A side without any spread has no
    correlation: it counts as 0, and ``constant`` names the side. Only ``mse`` depends on the range of the scores.

    >>> score_report(np.array([0.0, 0.5, 1.0]), np.array([0.1, 0.2, 0.9])).scores["spearman"]
    1.0
    >>> score_report(np.array([0.0, 0.5, 1.0]), np.array([0.7, 0.7, 0.7])).constant
    ('predicted',)
    """
    n = expect(truth=(truth, "n"), predicted=(predicted, "n"))["n"]
    if n == 0:
        raise SettingError("there is nothing to evaluate: no rows.")
    sides = {"truth": finite("truth", truth), "predicted": finite("predicted", predicted)}
    constant = tuple(name for name, values in sides.items() if _flat(values))
    x, y = sides.values()
    scores = {
        "spearman": 0.0 if constant else _correlation(rankdata(x), rankdata(y)),
        "pearson": 0.0 if constant else _correlation(x, y),
        "mse": float(np.mean((x - y) ** 2)),
    }
    return ScoreReport(n, scores, constant)


@dataclass(frozen=True)
class PairReport:
    """How well a threshold on the scores tells pairs that belong together from others."""

    rows: int
    """How many pairs were evaluated."""
    positives: int
    """How many of them belong together."""
    scores: dict[str, float]
    """``f1``, ``precision``, ``recall`` at ``threshold``; ``accuracy`` at ``accuracy_threshold``;
    ``average_precision``, which needs no threshold."""
    threshold: float
    """A score of at least this much is a yes."""
    accuracy_threshold: float
    """The same for the accuracy alone."""
    chosen_here: bool
    """Whether the thresholds are the best of these very pairs, which flatters: choose on dev, report on test."""

    @property
    def thresholds(self) -> dict[str, float]:
        """Both, for other data: ``pair_report(truth, scores, **dev.thresholds)``."""
        return {"threshold": self.threshold, "accuracy_threshold": self.accuracy_threshold}

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            **self.scores,
            **self.thresholds,
            "chosen_here": self.chosen_here,
            "rows": self.rows,
            "positives": self.positives,
        }


def pair_report(
    truth: NDArray[np.integer] | NDArray[np.bool_],
    scores: NDArray[np.floating],
    threshold: float | None = None,
    accuracy_threshold: float | None = None,
) -> PairReport:
    """F1, accuracy and average precision of scores that should be high where the truth is 1.

    Args:
        truth: (n,) 1 for pairs that belong together, 0 for others.
        scores: (n,) any finite numbers.
        threshold: where a yes begins, as chosen on other data; None: the one with the best F1 here.
        accuracy_threshold: the same for the accuracy; None: ``threshold`` where that is given, else the one with the
            best accuracy here.

    >>> dev = pair_report(np.array([1, 1, 0, 0]), np.array([0.9, 0.7, 0.5, 0.1]))
    >>> dev.chosen_here, round(dev.threshold, 4), dev.scores["f1"]
    (True, 0.6, 1.0)
    >>> test = pair_report(np.array([1, 0]), np.array([0.5, 0.4]), **dev.thresholds)
    >>> test.scores["f1"], test.scores["accuracy"], test.scores["average_precision"]
    (0.0, 0.5, 1.0)
    """
    yes, values = _judged(truth, scores)
    if not yes.any():
        raise SettingError(
            f"none of the {len(yes):,} pairs is labelled 1, so F1 and average precision have no meaning; "
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
    said = values >= threshold
    right = int((said & yes).sum())
    found = {
        "f1": 2 * right / float(said.sum() + yes.sum()),
        "precision": right / float(max(said.sum(), 1)),
        "recall": right / float(yes.sum()),
        "accuracy": float(((values >= accuracy_threshold) == yes).mean()),
        "average_precision": _average_precision(yes, values),
    }
    return PairReport(
        len(yes), int(yes.sum()), found, float(threshold), float(accuracy_threshold), chosen_here=chosen_here
    )


def best_threshold(
    truth: NDArray[np.integer] | NDArray[np.bool_], scores: NDArray[np.floating], metric: Metric = "f1"
) -> float:
    """The threshold with the highest F1 or accuracy, found exactly: every way to cut the sorted scores is tried.

    A cut lies midway between two neighboring scores, at the lowest score (all yes) or just above the highest (all
    no). Where several cuts are equally good, the highest of them is taken.

    >>> best_threshold(np.array([1, 0, 1, 0]), np.array([0.8, 0.6, 0.4, 0.2]), "f1")
    0.30000000000000004
    """
    known = get_args(Metric)
    if metric not in known:
        raise SettingError(f"metric must be {' or '.join(known)}, got {metric!r}.{did_you_mean(metric, known)}")
    yes, values = _judged(truth, scores)
    if metric == "f1" and not yes.any():
        raise SettingError("no pair is labelled 1, so no threshold has an F1; choose it on data with positive pairs.")
    distinct, said, right = _cuts(yes, values)
    worth = 2 * right / (said + yes.sum()) if metric == "f1" else right - (said - right)  # accuracy but for a constant
    place = int(worth.argmax())  # the first of equals: cuts run from the highest down
    if place == 0:
        return float(np.nextafter(distinct[0], np.inf))
    if place == len(distinct):
        return float(distinct[-1])
    above, below = distinct[place - 1], distinct[place]
    middle = above / 2 + below / 2
    return float(middle if middle > below else above)


def _cuts(
    yes: NDArray[np.bool_], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """(m,) distinct scores, falling; (m + 1,) how many scores are a yes above each cut, and how many rightly so."""
    order = np.argsort(-values, kind="stable")
    ranked, hits = values[order], np.cumsum(yes[order])
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked) - 1)  # the last of each run of equals
    return ranked[last], np.append(0, last + 1), np.append(0, hits[last])


def _average_precision(yes: NDArray[np.bool_], values: NDArray[np.float64]) -> float:
    """Sum over the cuts of the gain in recall times the precision; equal scores enter together."""
    _, said, right = _cuts(yes, values)
    return float(np.sum(np.diff(right) * right[1:] / said[1:]) / yes.sum())


def _judged(
    truth: NDArray[np.integer] | NDArray[np.bool_], scores: NDArray[np.floating]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    n = expect(truth=(truth, "n"), scores=(scores, "n"))["n"]
    if n == 0:
        raise SettingError("there is nothing to evaluate: no rows.")
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
