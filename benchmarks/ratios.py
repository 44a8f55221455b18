"""How many times as fast: the median over rounds with its bootstrap interval, and whether it may be stated."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

WIDEST = 0.15
"""The widest interval, as a share of the median, with which a ratio is stated."""
FEWEST = 3
"""Rounds that a ratio needs."""
SEED = 1


class Ratio(NamedTuple):
    """The median of the ratios of the same round, and its 95 % interval."""

    median: float
    low: float
    high: float
    rounds: int

    @property
    def width(self) -> float:
        """Of the interval, as a share of the median."""
        return (self.high - self.low) / self.median

    @property
    def stated(self) -> bool:
        """Whether it is known well enough."""
        return self.rounds >= FEWEST and self.width <= WIDEST

    def value(self, unit: str = " x") -> str:
        """The median, if it may be stated."""
        return f"{self.median:.2f}{unit}" if self.stated else "not stated"

    def interval(self) -> str:
        """Both ends, and why nothing is stated where that is so."""
        ends = f"{self.low:.2f} to {self.high:.2f}"
        if self.stated:
            return ends
        fewer = f"{self.rounds} round{'s' if self.rounds > 1 else ''} only"
        return f"{ends}, {fewer if self.rounds < FEWEST else f'{self.width:.0%} wide'}"

    def __str__(self) -> str:
        return f"{self.value()} ({self.interval()})"


def ratio(above: Mapping[int, float | None], below: Mapping[int, float | None]) -> Ratio | None:
    """Of two contenders' values by round, over the rounds that both have; None if there is none."""
    pairs = [(value, below.get(number)) for number, value in sorted(above.items())]
    found = [top / bottom for top, bottom in pairs if top is not None and bottom]
    if not found:
        return None
    return Ratio(statistics.median(found), *interval(found), len(found))


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % percentile interval of the median over samples with replacement; the same for the same values."""
    from nearfar.evaluation.intervals import bootstrap  # here: it loads torch

    sample = np.asarray(values)
    return bootstrap(lambda rows: float(np.median(sample[rows])), len(sample), seed=SEED)
