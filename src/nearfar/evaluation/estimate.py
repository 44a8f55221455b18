"""How good a model is on new texts: a score with its interval, beside those of simpler models."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.data.row_types import RowType
from nearfar.evaluation.intervals import bootstrap, wilson
from nearfar.evaluation.pairs import score_report

Predicted = NDArray[Any]
"""(n,) classes or scores, or (n, c) which labels apply."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How good a model is on texts that it was not trained on."""

    metric: str
    """``accuracy`` of classes, ``f1_micro`` of several labels, ``spearman`` of scores."""
    value: float
    low: float
    """The ends of the 95 % interval."""
    high: float
    rows: int
    """How many texts were predicted."""
    source: Literal["test", "dev", "cross-validation"]
    folds: int | None = None
    baselines: dict[str, float]
    """The same score of simpler models: the most frequent class, and the untrained encoder with a fitted head."""

    def __str__(self) -> str:
        """One line.

        >>> known = {"untrained encoder": 0.65}
        >>> str(Estimate(metric="accuracy", value=0.8, low=0.74, high=0.85, rows=200, source="test", baselines=known))
        'accuracy on 200 test rows: 0.80 (95 % interval 0.74 to 0.85); untrained encoder: 0.65'
        """
        name = NAMES[self.metric]
        interval = f"95 % interval {self.low:.2f} to {self.high:.2f}"
        beside = ", ".join(f"{known}: {value:.2f}" for known, value in self.baselines.items())
        where = f"{name} on {self.rows:,} {self.source} rows: {self.value:.2f} ({interval})"
        if self.folds is not None:
            where = (
                f"estimated {name} on new texts: {self.value:.2f} ({interval}; {self.folds}-fold cross-validation of "
                f"{self.rows:,} texts)"
            )
        return f"{where}; {beside}" if beside else where

    def to_dict(self) -> dict[str, Any]:
        """As ``metrics.json`` has it."""
        return asdict(self)


NAMES = {"accuracy": "accuracy", "f1_micro": "micro F1", "spearman": "Spearman correlation"}


@dataclass(frozen=True)
class Predictions:
    """Texts that were not trained on: what they are, and what models say."""

    row_type: RowType
    truth: Predicted
    predicted: Predicted
    baselines: dict[str, Predicted]

    @property
    def metric(self) -> str:
        """The score that they are measured by."""
        return "accuracy" if self.row_type is RowType.LABELED else self.row_type.metrics[0]

    def score(self, predicted: Predicted, rows: NDArray[np.int64] | None = None) -> float:
        """Of all texts, or of a sample of them."""
        truth, predicted = (self.truth, predicted) if rows is None else (self.truth[rows], predicted[rows])
        if self.row_type.has_text_scores:
            return float(score_report(truth, predicted).scores["spearman"])
        if self.row_type.multilabel:
            both = float((truth * predicted).sum())
            return 2 * both / max(float(truth.sum() + predicted.sum()), 1.0)
        return float((truth == predicted).mean())

    def estimate(self, source: Literal["test", "dev", "cross-validation"], seed: int) -> Estimate:
        """The score with its interval, and those of the baselines."""
        n, value = len(self.truth), self.score(self.predicted)
        by_share = self.row_type is RowType.LABELED
        low, high = (
            wilson(value, n) if by_share else bootstrap(lambda rows: self.score(self.predicted, rows), n, seed=seed)
        )
        beside = {name: self.score(predicted) for name, predicted in self.baselines.items()}
        return Estimate(
            metric=self.metric, value=value, low=low, high=high, rows=n, source=source, baselines=beside
        )  # fmt: skip
