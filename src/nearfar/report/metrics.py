"""Metrics and numbers as the page and the tables show them."""

from __future__ import annotations

from dataclasses import dataclass

from nearfar.experiments.comparisons import Better
from nearfar.experiments.statistics import Summary

TITLES = {
    "f1_weighted": "weighted F1", "f1_macro": "macro F1", "f1": "F1", "spearman": "Spearman’s ρ",
    "pearson": "Pearson’s r", "mse": "mean squared error", "map": "MAP", "mrr": "MRR",
    "average_precision": "average precision", "mean": "mean over the tasks", "ece": "expected calibration error",
    "log_loss": "log-loss",
}  # fmt: skip
"""Metrics in words; others are shown by their own name."""
UNSCALED = ("mse", "margin", "loss", "log_loss")
"""Metrics that are not multiplied by 100."""
LOWER = ("mse", "loss", "ece", "log_loss")
"""Metrics for which lower is better."""


@dataclass(frozen=True)
class Metric:
    """A metric, its words, and its scores as texts.

    >>> accuracy = Metric("accuracy")
    >>> accuracy.unit, Metric("mse").unit, Metric("has_positive@5").title
    ('accuracy × 100', 'mean squared error', 'has positive@5')
    >>> accuracy.shown(0.95123), accuracy.change(-0.0031), accuracy.change(-0.00001), accuracy.interval((-0.01, 0.02))
    ('95.12', '−0.31', '0.00', '−1.00 to +2.00')
    """

    name: str

    @property
    def title(self) -> str:
        """The metric in words."""
        return TITLES.get(self.name, self.name.replace("_", " "))

    @property
    def scale(self) -> float:
        """The factor that scores are multiplied by."""
        return 1.0 if self.name in UNSCALED else 100.0

    @property
    def unit(self) -> str:
        """The metric with its factor, for axes and captions."""
        return self.title if self.scale == 1 else f"{self.title} × 100"

    @property
    def better(self) -> Better:
        """Whether higher or lower scores are better."""
        return "lower" if self.name in LOWER else "higher"

    def shown(self, score: float | None) -> str:
        """A score; a dash where there is none."""
        return "–" if score is None else f"{round(score * self.scale, 2) + 0.0:.2f}".replace("-", "−")

    def change(self, difference: float) -> str:
        """A difference of scores with its sign."""
        shown = self.shown(difference)
        return f"+{shown}" if round(difference * self.scale, 2) > 0 else shown

    def interval(self, ends: tuple[float, float] | None) -> str:
        """A confidence interval of a difference; a dash where there is none."""
        return "–" if ends is None else f"{self.change(ends[0])} to {self.change(ends[1])}"

    def mean_sd(self, score: Summary | None) -> str:
        """Mean and standard deviation over runs."""
        if score is None or score.n == 1:
            return self.shown(score and score.mean)
        return f"{self.shown(score.mean)} ± {self.shown(score.sd)}"


def p_value(p: float) -> str:
    """A p-value.

    >>> p_value(0.0004), p_value(0.0312)
    ('< 0.001', '0.031')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def signed(value: float | None, form: str = "") -> str:
    """A number with three decimals and a typographic minus; a dash where there is none."""
    return "–" if value is None else f"{value:{form}.3f}".replace("-", "−")
