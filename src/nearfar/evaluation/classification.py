"""What all reports have in common, and classification metrics: accuracy, F1 and confusion."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError
from nearfar.evaluation.calibration import calibration_error, log_loss
from nearfar.shapes import expect


@dataclass(frozen=True)
class ScoredReport:
    """Scores, and what else is known about an evaluation."""

    MEASURES: ClassVar[tuple[str, ...]] = ()
    """Scores that are None in JSON where they are not defined."""

    scores: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """All fields for JSON: the scores first, by their own names."""
        values = as_json(self)
        return {**dict.fromkeys(self.MEASURES), **values.pop("scores"), **values}


def as_json(value: Any) -> Any:
    """Dataclasses as dictionaries, tuples and arrays as lists; other values unchanged."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return list(value)
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    return value


@dataclass(frozen=True)
class ClassReport(ScoredReport):
    """How well classes are predicted.

    ``scores`` holds ``accuracy``, ``f1_macro`` and ``f1_weighted``, over the classes that occur as truth or prediction;
    where probabilities are known also ``ece``, the expected calibration error, and ``log_loss``.
    """

    per_class: dict[str, dict[str, float]]
    """Precision, recall, F1 and number of texts of each class."""
    confusion: NDArray[np.int64]
    """(c, c): rows are the truth, columns the prediction."""
    classes: tuple[str, ...]

    @property
    def rows(self) -> int:
        """How many texts were evaluated."""
        return int(self.confusion.sum())


def most_likely(chances: NDArray[np.floating]) -> NDArray[np.int64]:
    """(n, c) probabilities or logits -> (n,) the class with the highest, the first of equals; NaN is refused.

    >>> most_likely(np.array([[0.2, 0.8], [0.5, 0.5]])).tolist()
    [1, 0]
    """
    expect(chances=(chances, "n c"))
    wrong = np.flatnonzero(np.isnan(chances).any(axis=1))
    if len(wrong):
        raise SettingError(
            f"probabilities of classes must be numbers, got {chances[wrong[0]].tolist()} in row {wrong[0]} "
            f"({len(wrong):,} such rows); a model whose weights are NaN or infinite gives such probabilities."
        )
    highest: NDArray[np.int64] = chances.argmax(axis=1)
    return highest


def class_report(
    truth: NDArray[np.int64],
    predicted: NDArray[np.int64],
    classes: tuple[str, ...],
    probabilities: NDArray[np.floating] | None = None,
) -> ClassReport:
    """Accuracy, F1 and confusion of predicted classes; with (n, c) probabilities also how well these are calibrated.

    >>> report = class_report(np.array([0, 0, 1]), np.array([0, 1, 1]), ("ham", "spam"))
    >>> round(report.scores["accuracy"], 4), report.confusion.tolist()
    (0.6667, [[1, 1], [0, 1]])
    """
    n = expect(truth=(truth, "n"), predicted=(predicted, "n"))["n"]
    if n == 0:
        raise SettingError("there is nothing to evaluate: no rows.")
    confusion = confusion_of(truth, predicted, len(classes))
    occurring = np.union1d(truth, predicted)
    right, support, guesses = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    precision, recall, f1 = _share(right, guesses), _share(right, support), _share(2 * right, support + guesses)
    per_class = {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "texts": int(count)}
        for name, p, r, f, count in zip(classes, precision, recall, f1, support, strict=True)
    }
    scores = {
        "accuracy": float((truth == predicted).mean()),
        "f1_macro": float(f1[occurring].mean()),
        "f1_weighted": float(np.average(f1, weights=support)),
    }
    if probabilities is not None:
        scores |= {"ece": calibration_error(probabilities, truth), "log_loss": log_loss(probabilities, truth)}
    return ClassReport(scores, per_class, confusion, classes)


def confusion_of(truth: NDArray[np.int64], predicted: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """(c, c) how often each class was predicted for texts of each class: rows are the truth.

    >>> confusion_of(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    counts: NDArray[np.int64] = np.bincount(truth * classes + predicted, minlength=classes**2)
    return counts.reshape(classes, classes)


def _share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    """Zero where nothing is there."""
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)
