"""Metrics of texts with several labels: F1 over labels and texts, ranking of labels, and decision thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError
from nearfar.evaluation.classification import ScoredReport
from nearfar.evaluation.pairs import best_threshold, finite
from nearfar.shapes import expect

THRESHOLD = 0.5
"""The probability from which on a label applies, where no rows could choose another."""


@dataclass(frozen=True)
class MultiLabelReport(ScoredReport):
    """How well labels are predicted, of which a text has any number.

    ``scores`` holds ``f1_micro`` over all pairs of text and label, ``f1_macro`` over the labels that occur as truth or
    prediction, ``f1_samples`` over the texts (1 where a text has no label and none is predicted), ``lrap``, the label
    ranking average precision, which needs no threshold, and ``accuracy``, the share of texts with exactly the right
    labels (subset accuracy).
    """

    per_class: dict[str, dict[str, float]]
    """Precision, recall, F1 and number of texts of each label."""
    thresholds: dict[str, float]
    """The decision thresholds: a label with at least this probability is predicted."""
    chosen_here: bool
    """Whether the thresholds are the best for these very texts, which is optimistic: choose on dev, report on test."""
    rows: int
    """How many texts were evaluated."""
    classes: tuple[str, ...]


def multi_label_report(
    truth: NDArray[np.integer],
    probabilities: NDArray[np.floating],
    classes: tuple[str, ...],
    thresholds: Mapping[str, float] | None = None,
) -> MultiLabelReport:
    """F1, ranking and subset accuracy of the probabilities of labels.

    Args:
        truth: (n, c) 1 where a label applies to a text, else 0.
        probabilities: (n, c) of each label by itself.
        classes: the names of the labels.
        thresholds: that of each label, chosen on other texts; None: the one with the best micro F1 here.

    >>> truth = np.array([[1, 0], [1, 1], [0, 0]])
    >>> report = multi_label_report(truth, np.array([[0.9, 0.2], [0.6, 0.7], [0.4, 0.1]]), ("ham", "spam"))
    >>> report.scores["f1_micro"], report.scores["accuracy"], round(report.thresholds["ham"], 2)
    (1.0, 1.0, 0.5)
    """
    from sklearn.metrics import f1_score, label_ranking_average_precision_score, precision_recall_fscore_support

    n = expect(truth=(truth, "n c"), probabilities=(probabilities, "n c"))["n"]
    if n == 0:
        raise SettingError("there is nothing to evaluate: no rows.")
    finite("probabilities", probabilities.max(axis=1))
    chosen = thresholds or choose_thresholds(truth, probabilities, classes)
    predicted = apply_thresholds(probabilities, classes, chosen).astype(np.int64)
    precision, recall, f1, support = precision_recall_fscore_support(truth, predicted, average=None, zero_division=0.0)
    occurring = (truth.sum(axis=0) + predicted.sum(axis=0)) > 0
    per_class = {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "texts": int(count)}
        for name, p, r, f, count in zip(classes, precision, recall, f1, support, strict=True)
    }
    scores = {
        "f1_micro": float(f1_score(truth, predicted, average="micro", zero_division=0.0)),
        "f1_macro": float(f1[occurring].mean()) if occurring.any() else 0.0,
        "f1_samples": float(f1_score(truth, predicted, average="samples", zero_division=1.0)),
        "lrap": float(label_ranking_average_precision_score(truth, probabilities)),
        "accuracy": float((truth == predicted).all(axis=1).mean()),
    }
    return MultiLabelReport(scores, per_class, dict(chosen), thresholds is None, n, classes)


def choose_thresholds(
    truth: NDArray[np.integer], probabilities: NDArray[np.floating], classes: tuple[str, ...]
) -> dict[str, float]:
    """One threshold for all labels, with the best micro F1 of these texts; a half where no text has a label.

    >>> choose_thresholds(np.array([[1, 0]]), np.array([[0.4, 0.2]]), ("a", "b"))
    {'a': 0.30000000000000004, 'b': 0.30000000000000004}
    """
    shared = best_threshold(truth.ravel(), probabilities.ravel(), "f1") if truth.any() else THRESHOLD
    return dict.fromkeys(classes, shared)


def apply_thresholds(
    probabilities: NDArray[np.floating], classes: tuple[str, ...], thresholds: Mapping[str, float]
) -> NDArray[np.bool_]:
    """(n, c) probabilities -> (n, c) which labels apply."""
    least = np.array([thresholds.get(name, THRESHOLD) for name in classes])
    applies: NDArray[np.bool_] = probabilities.astype(np.float64) >= least
    return applies
