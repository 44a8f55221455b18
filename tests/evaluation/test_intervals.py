"""Intervals: against published values, and how often they contain the truth."""

from __future__ import annotations

import numpy as np
import pytest

from nearfar.evaluation.intervals import bootstrap, wilson


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_is_that_of_newcombe_1998(right: int, n: int, low: float, high: float) -> None:
    assert wilson(right / n, n) == pytest.approx((low, high), abs=5e-5)


def test_the_bootstrap_contains_the_truth_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    inside = 0
    for seed in range(60):
        values = generator.normal(size=50)
        low, high = bootstrap(lambda rows, values=values: float(values[rows].mean()), 50, seed=seed)
        inside += low <= 0 <= high
    assert 50 <= inside <= 60


def test_the_bootstrap_is_the_same_for_the_same_seed() -> None:
    values = np.arange(30.0)

    def score(rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        return float(values[rows].mean())

    assert bootstrap(score, 30, seed=1) == bootstrap(score, 30, seed=1) != bootstrap(score, 30, seed=2)
