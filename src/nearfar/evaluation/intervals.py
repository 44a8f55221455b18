"""Intervals around a score that was measured on few rows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nearfar.seeds import generator

Z = 1.959963984540054
"""The standard normal quantile of a two-sided 95 % interval."""
DRAWS = 1_000


def wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share of ``n`` rows; unlike the normal one it is never empty or outside [0, 1].

    >>> [round(end, 3) for end in wilson(0.8, 10)], [round(end, 3) for end in wilson(1.0, 10)]
    ([0.49, 0.943], [0.722, 1.0])
    """
    middle = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(score: Callable[[NDArray[np.int64]], float], n: int, *, seed: int) -> tuple[float, float]:
    """The 95 % percentile interval of a score over samples of ``n`` rows with replacement.

    >>> values = np.arange(100.0)
    >>> low, high = bootstrap(lambda rows: float(values[rows].mean()), 100, seed=0)
    >>> 40 < low < 49.5 < high < 60
    True
    """
    draws = generator(seed, "bootstrap").integers(n, size=(DRAWS, n))
    low, high = np.quantile([score(rows) for rows in draws], [0.025, 0.975])
    return float(low), float(high)
