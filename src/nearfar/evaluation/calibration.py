"""Calibration of class probabilities: expected calibration error, reliability bins, log-loss, temperature scaling.

Guo, Pleiss, Sun and Weinberger (2017): On Calibration of Modern Neural Networks, https://arxiv.org/abs/1706.04599.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.shapes import expect

BINS = 15
"""Bins of equal width, as in the paper."""
LEAST = 1e-12
"""The lowest probability of the true class, so that the logarithm is finite."""
LIMITS = -5.0, 5.0
"""The range of the logarithm of a temperature."""


class Bin(NamedTuple):
    """The texts whose predicted class has a probability in one range."""

    confidence: float
    """The mean probability of the predicted class."""
    accuracy: float
    texts: int


def reliability(probabilities: NDArray[np.floating], truth: NDArray[np.int64], *, bins: int = BINS) -> list[Bin]:
    """A reliability diagram: the bins of confidence that have texts, the lowest first.

    >>> reliability(np.array([[0.9, 0.1], [0.9, 0.1], [0.45, 0.55]]), np.array([0, 1, 1]), bins=2)
    [Bin(confidence=0.7833..., accuracy=0.6666..., texts=3)]
    """
    expect(probabilities=(probabilities, "n c"), truth=(truth, "n"))
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == truth
    places = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    inside = [places == number for number in range(bins)]
    return [
        Bin(float(confidence[rows].mean(dtype=np.float64)), float(correct[rows].mean()), int(rows.sum()))
        for rows in inside
        if rows.any()
    ]


def calibration_error(probabilities: NDArray[np.floating], truth: NDArray[np.int64], *, bins: int = BINS) -> float:
    """Expected calibration error (ECE): the mean distance of confidence and accuracy over the bins, by their texts.

    >>> calibration_error(np.array([[0.75, 0.25]] * 4), np.array([0, 0, 0, 1]))
    0.0
    """
    parts = reliability(probabilities, truth, bins=bins)
    return sum(part.texts * abs(part.confidence - part.accuracy) for part in parts) / len(truth)


def log_loss(probabilities: NDArray[np.floating], truth: NDArray[np.int64]) -> float:
    """The mean negative logarithm of the true class's probability.

    >>> round(log_loss(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 0])), 4)
    1.0397
    """
    expect(probabilities=(probabilities, "n c"), truth=(truth, "n"))
    chances = probabilities[np.arange(len(truth)), truth].astype(np.float64)
    return float(-np.log(np.maximum(chances, LEAST)).mean())


@dataclass(frozen=True)
class TemperaturePrior:
    """A normal distribution of the logarithm of a temperature, before any text has been seen."""

    mean: float
    deviation: float


def fit_temperature(
    logits: NDArray[np.floating], truth: NDArray[np.int64], prior: TemperaturePrior | None = None
) -> float:
    """The temperature T for which softmax(logits / T) has the lowest log-loss, or with a prior the highest posterior.

    Dividing by a temperature never changes which class has the highest logit.

    Args:
        logits: (n, c) of texts that the model has not been trained on.
        truth: (n,) their classes.
        prior: keeps the temperature of few texts from the extremes.

    >>> logits = np.array([[8.0, 0.0]] * 4)
    >>> round(float(fit_temperature(logits, np.array([0, 0, 0, 1])) * np.log(3)), 3)
    8.0
    """
    from scipy.optimize import minimize_scalar

    expect(logits=(logits, "n c"), truth=(truth, "n"))
    values = logits.astype(np.float64)
    values -= values[np.arange(len(truth)), truth][:, None]  # that of the true class is zero

    def cost(logarithm: float) -> float:
        scaled = values / math.exp(logarithm)
        top = scaled.max(axis=1)
        loss = float((top + np.log(np.exp(scaled - top[:, None]).sum(axis=1))).sum())
        return loss if prior is None else loss + ((logarithm - prior.mean) / prior.deviation) ** 2 / 2

    return math.exp(float(minimize_scalar(cost, bounds=LIMITS, method="bounded", options={"xatol": 1e-6}).x))
