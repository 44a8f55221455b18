"""Statistics of paired differences: corrected resampled t-test, Wilcoxon's test, bootstrap, Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nearfar.errors import SettingError

EQUAL = 12
"""Significant digits of a score: what differs further behind is rounding, and counts as equal."""
EXACT = 50
"""Differences up to which Wilcoxon's test goes through all signs."""
BLOCK = 2**20
"""Numbers the bootstrap draws at once."""
Vector = Sequence[float] | NDArray[np.float64]


class Summary(NamedTuple):
    """Some scores in short."""

    n: int
    mean: float
    sd: float
    """The sample's standard deviation (n - 1); 0 for one score."""


class Interval(NamedTuple):
    """From where to where."""

    low: float
    high: float


class TTest(NamedTuple):
    """What a t-test says about the mean of differences."""

    t: float | None
    """None where there is no spread to measure the mean by."""
    p: float
    """Two-sided."""
    interval: Interval | None
    """Of the mean difference; None for a single difference."""


def summarize(scores: Vector) -> Summary:
    """Number, mean and standard deviation.

    >>> summarize([1.0, 2.0, 3.0])
    Summary(n=3, mean=2.0, sd=1.0)
    """
    values = vector(scores)
    return Summary(len(values), float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0)


def corrected_t_test(differences: Vector, *, test_to_train: float, confidence: float = 0.95) -> TTest:
    r"""The corrected resampled t-test: Nadeau and Bengio 2003; for repeated folds, Bouckaert and Frank 2004.

    .. math:: t = \bar d \Big/ \sqrt{\left(\tfrac{1}{n} + \tfrac{n_{test}}{n_{train}}\right) s^2}, \quad n - 1
              \text{ degrees of freedom}

    for *n* differences, folds × seeds of them, with mean :math:`\bar d` and variance :math:`s^2`. Without the second
    summand it is the paired t-test, which takes runs with overlapping training texts for independent ones.

    A single difference has p 1. Where all differences are the same, *t* has no value: p is 1 if they are zero, and
    otherwise that of the sign test, :math:`2^{1-n}`, for coarse scores must not look like certainty.

    Args:
        differences: contender minus baseline, one for each pair of runs.
        test_to_train: texts tested on per text trained on: 1 / (k - 1) for k folds.
        confidence: of the interval.

    >>> test = corrected_t_test([1, 2, 3, 4, 5], test_to_train=1 / 4)
    >>> round(test.t, 4), round(test.p, 4)
    (2.8284, 0.0474)
    """
    _check_confidence(confidence)
    if not (test_to_train >= 0 and math.isfinite(test_to_train)):
        raise SettingError(f"test_to_train must be 0 or more, got {test_to_train}; 5 folds have 0.25.")
    d = vector(differences)
    n, mean = len(d), float(d.mean())
    if n == 1:
        return TTest(0.0 if mean == 0 else None, 1.0, None)
    if _same(d):
        if mean == 0:
            return TTest(0.0, 1.0, Interval(0.0, 0.0))
        return TTest(None, 2.0 ** (1 - n), Interval(mean, mean))
    unit = float(np.abs(d).max())  # squares of tiny differences would vanish
    error = unit * float((d / unit).std(ddof=1)) * math.sqrt(1 / n + test_to_train)
    t = mean / error
    reach = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * error
    return TTest(t, 2 * float(stats.t.sf(abs(t), n - 1)), Interval(mean - reach, mean + reach))


def wilcoxon_p(differences: Vector) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test, without the pairs that do not differ; 1 if none does.

    It is exact up to 50 differences, also where some are alike in size, and by the normal approximation beyond.

    >>> wilcoxon_p([0.1, 0.2, 0.3, 0.4, 0.5, 0.0])
    0.0625
    """
    d = vector(differences)
    d = d[d != 0]
    if len(d) > EXACT:
        return float(stats.wilcoxon(d, method="asymptotic").pvalue)
    ranks = np.rint(2 * stats.rankdata(np.abs(d))).astype(np.int64)  # doubled, for ranks that are shared end in a half
    chances = np.ones(1)  # of each sum of ranks above zero, if every sign is a fair draw
    for rank in ranks.tolist():
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    positive = int(ranks[d > 0].sum())
    return min(1.0, 2 * float(min(chances[: positive + 1].sum(), chances[positive:].sum())))


def bootstrap_interval(
    differences: Vector, rng: np.random.Generator, *, confidence: float = 0.95, resamples: int = 10_000
) -> Interval | None:
    """Percentile interval of the mean difference over resampled pairs; None for a single pair.

    Args:
        differences: contender minus baseline, one for each pair of runs.
        rng: where the resamples come from.
        confidence: how much of the resampled means lies inside, the same share on either side outside.
        resamples: how many.
    """
    _check_confidence(confidence)
    if resamples < 1:
        raise SettingError(f"resamples must be 1 or more, got {resamples}; 10,000 is usual.")
    d = vector(differences)
    n = len(d)
    if n == 1:
        return None
    if _same(d):
        return Interval(float(d.mean()), float(d.mean()))
    rows = max(1, BLOCK // n)
    sizes = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    means = np.concatenate([d[rng.integers(n, size=(size, n))].mean(axis=1) for size in sizes])
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    r"""Holm's step-down correction: adjusted p-values, in the order given.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min\left(1, (m - j + 1)\, p_{(j)}\right)

    over the *m* p-values in ascending order. Those below 0.05 keep the chance of even one false finding below 5 %.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    wrong = [p for p in p_values if not 0 <= p <= 1]
    if wrong:
        raise SettingError(f"p-values must be from 0 to 1, got {wrong[0]}.")
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return tuple(adjusted)


def vector(values: Vector) -> NDArray[np.float64]:
    """(n,) numbers; refused where there are none, or not in a row."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise SettingError(f"one number or more in a row is needed, got the shape {numbers.shape}.")
    return numbers


def _same(d: NDArray[np.float64]) -> bool:
    return bool(np.ptp(d) <= 10.0**-EQUAL * np.abs(d).max())


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise SettingError(f"confidence must be between 0 and 1, got {confidence}; 0.95 is usual.")
