"""Is a contender better than a baseline, or luckier? Paired comparisons over seeds and folds.

A score belongs to a data set, a contender, a seed and a fold. Two contenders are compared run by run, where seed and
fold are the same. The runs of one data set are no independent samples: their training texts overlap, and repeated folds
test on the same texts again. So the verdict rests on the corrected resampled t-test; Wilcoxon's test and the bootstrap,
which take the runs to be independent, stand beside it and are too sure of themselves. Where there are no folds, as with
an official test set or plain texts, only seeds vary: the test is the paired t-test then, and says nothing about other
texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nearfar.errors import SettingError, did_you_mean
from nearfar.seeds import generator

FEWEST = 5
"""Pairs of runs below which nothing is called better, worse or no different."""

EQUAL = 12
"""Significant digits of a score: what differs further behind is rounding, and counts as equal."""

FINEST = 300
"""Decimals that can be rounded to."""

EXACT = 50
"""Differences up to which Wilcoxon's test goes through all signs."""

BLOCK = 2**20
"""Numbers the bootstrap draws at once."""

Pair = tuple[int, int]
"""Seed and fold, which both contenders share."""

Scores = Mapping[tuple[str, str, int, int], float]
"""(data set, contender, seed, fold) -> score."""

Better = Literal["higher", "lower"]

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


@dataclass(frozen=True)
class Comparison:
    """A contender beside a baseline on one data set. Every number is finite, whatever the scores."""

    data: str
    contender: str
    baseline: str
    better: Better
    confidence: float
    pairs: tuple[Pair, ...]
    """Seed and fold of the runs both have, in order."""
    differences: tuple[float, ...]
    """Contender minus baseline, pair by pair."""
    contender_scores: Summary
    """Over the pairs, like all that follows."""
    baseline_scores: Summary
    difference: float
    """The mean of the differences."""
    wins: int
    """Pairs the contender is better in."""
    ties: int
    losses: int
    test_to_train: float
    """Test texts per training text, as the correction takes it."""
    t: float | None
    p: float
    """Of the corrected resampled t-test."""
    interval: Interval | None
    """Of the corrected resampled t-test: without zero exactly where ``p`` is significant on its own, save where all
    differences are the same, which leave no width to it."""
    wilcoxon_p: float
    bootstrap: Interval | None
    without_contender: tuple[Pair, ...]
    """Pairs that only the baseline has a score for."""
    without_baseline: tuple[Pair, ...]
    """Pairs that only the contender has a score for."""
    without_either: tuple[Pair, ...]
    """Pairs that were planned, or run by a third contender, and that neither has a score for."""
    adjusted_p: float
    """``p`` after Holm's correction over the data sets of the family; ``p`` itself in a family of one."""
    family: int = 1
    """How many data sets the correction is over."""

    @property
    def n(self) -> int:
        """How many pairs of runs were compared."""
        return len(self.pairs)

    @property
    def missing(self) -> int:
        """How many pairs of runs could not be compared."""
        return len(self.without_contender) + len(self.without_baseline) + len(self.without_either)

    @property
    def alpha(self) -> float:
        """Below this an adjusted p-value is significant."""
        return round(1 - self.confidence, EQUAL)

    @property
    def enough(self) -> bool:
        """Whether there are pairs enough to say anything."""
        return self.n >= FEWEST

    @property
    def significant(self) -> bool:
        """Whether the contender is better or worse, and not only by chance."""
        return self.enough and self.adjusted_p < self.alpha


@dataclass(frozen=True)
class Family:
    """One contender beside the baseline on every data set, corrected together."""

    contender: str
    baseline: str
    comparisons: tuple[Comparison, ...]
    refused: tuple[str, ...]
    """A sentence for each data set on which there was nothing to compare."""


def summarize(scores: Vector) -> Summary:
    """Number, mean and standard deviation.

    >>> summarize([1.0, 2.0, 3.0])
    Summary(n=3, mean=2.0, sd=1.0)
    """
    values = _vector(scores)
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
    d = _vector(differences)
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
    d = _vector(differences)
    d = d[d != 0]
    if len(d) > EXACT:
        return float(stats.wilcoxon(d, method="asymptotic").pvalue)
    ranks = np.rint(2 * stats.rankdata(np.abs(d))).astype(np.int64)  # doubled, for ranks that are shared end in a half
    chances = np.ones(1)  # of each sum of ranks above zero, if every sign is a fair draw
    for rank in ranks.tolist():
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    seen = int(ranks[d > 0].sum())
    return min(1.0, 2 * float(min(chances[: seen + 1].sum(), chances[seen:].sum())))


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
    d = _vector(differences)
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


def compare(
    scores: Scores,
    *,
    data: str,
    contender: str,
    baseline: str,
    planned: Iterable[Pair] = (),
    test_to_train: float | None = None,
    better: Better = "higher",
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 10_000,
) -> Comparison:
    """Compare two contenders on one data set, run by run.

    Args:
        scores: of all runs; those of other data sets are left aside.
        data: the data set.
        contender: who may be better.
        baseline: than whom.
        planned: seeds and folds there should be scores for, beside those that any contender has one for.
        test_to_train: texts tested on per text trained on. None: 1 / (k - 1) for the k folds of the data set; 0 for a
            single fold, where only seeds vary and nothing is said about other splits.
        better: whether the higher or the lower score is better.
        confidence: of the intervals; 1 minus it is the level of significance.
        seed: of the bootstrap.
        resamples: of the bootstrap.

    >>> runs = {("trec", name, 2, fold): score + fold for name, score in [("a", 1.0), ("b", 3.0)] for fold in range(5)}
    >>> compare(runs, data="trec", contender="b", baseline="a").difference
    2.0
    """
    if better not in ("higher", "lower"):
        raise SettingError(f"better must be 'higher' or 'lower', got {better!r}.")
    if contender == baseline:
        raise SettingError(f"{contender!r} cannot be compared with itself; name another baseline.")
    ours, theirs = _runs(scores, data, contender), _runs(scores, data, baseline)
    everybody = {*planned, *((key[2], key[3]) for key in scores if key[0] == data)}
    pairs = tuple(sorted(ours.keys() & theirs.keys()))
    if not pairs:
        raise SettingError(
            f"data set {data!r}: {contender!r} and {baseline!r} have no seed and fold in common "
            f"({_some(ours)} against {_some(theirs)}); run both with the same seeds and folds."
        )
    left, right = _vector([ours[pair] for pair in pairs]), _vector([theirs[pair] for pair in pairs])
    d = _differences(left, right)
    if test_to_train is None:
        folds = len({fold for _, fold in everybody})
        test_to_train = 1 / (folds - 1) if folds > 1 else 0.0
    test = corrected_t_test(d, test_to_train=test_to_train, confidence=confidence)
    gains = d if better == "higher" else -d
    return Comparison(
        data=data,
        contender=contender,
        baseline=baseline,
        better=better,
        confidence=confidence,
        pairs=pairs,
        differences=tuple(d.tolist()),
        contender_scores=summarize(left),
        baseline_scores=summarize(right),
        difference=float(d.mean()),
        wins=int((gains > 0).sum()),
        ties=int((gains == 0).sum()),
        losses=int((gains < 0).sum()),
        test_to_train=test_to_train,
        t=test.t,
        p=test.p,
        interval=test.interval,
        wilcoxon_p=wilcoxon_p(d),
        bootstrap=bootstrap_interval(
            d, generator(seed, "bootstrap", data, contender, baseline), confidence=confidence, resamples=resamples
        ),
        without_contender=tuple(sorted(theirs.keys() - ours.keys())),
        without_baseline=tuple(sorted(ours.keys() - theirs.keys())),
        without_either=tuple(sorted(everybody - ours.keys() - theirs.keys())),
        adjusted_p=test.p,
    )


def compare_all(
    scores: Scores,
    *,
    baseline: str,
    planned: Mapping[str, Iterable[Pair]] | None = None,
    test_to_train: float | None = None,
    better: Better = "higher",
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = 10_000,
) -> tuple[Family, ...]:
    """Compare every contender with the baseline on every data set, and correct each contender's p-values together.

    Contenders and data sets come in the order of their first score. Data sets on which a contender and the baseline
    have no run in common are named in ``refused``, and do not stop the others.

    Args:
        scores: of all runs.
        baseline: whom everybody is compared with.
        planned: for data sets, the seeds and folds there should be scores for.
        test_to_train: as in :func:`compare`.
        better: as in :func:`compare`.
        confidence: as in :func:`compare`.
        seed: as in :func:`compare`.
        resamples: as in :func:`compare`.
    """
    contenders = tuple(dict.fromkeys(key[1] for key in scores))
    if baseline not in contenders:
        raise SettingError(
            f"no scores of the baseline {baseline!r}; there are some of {_names(contenders)}."
            f"{did_you_mean(baseline, contenders)}"
        )
    families = []
    for contender in contenders:
        if contender == baseline:
            continue
        comparisons, refused = [], []
        for data in dict.fromkeys(key[0] for key in scores):
            shared = {key[2:] for key in scores if key[:2] == (data, contender)} & {
                key[2:] for key in scores if key[:2] == (data, baseline)
            }
            if not shared:
                refused.append(f"{contender} and {baseline} have no run in common on {data}")
                continue
            comparisons.append(
                compare(
                    scores, data=data, contender=contender, baseline=baseline, planned=(planned or {}).get(data, ()),
                    test_to_train=test_to_train, better=better, confidence=confidence, seed=seed, resamples=resamples,
                )
            )  # fmt: skip
        adjusted = holm([comparison.p for comparison in comparisons])
        corrected = tuple(
            replace(comparison, adjusted_p=p, family=len(comparisons))
            for comparison, p in zip(comparisons, adjusted, strict=True)
        )
        families.append(Family(contender, baseline, corrected, tuple(refused)))
    return tuple(families)


def _runs(scores: Scores, data: str, contender: str) -> dict[Pair, float]:
    runs = {key[2:]: float(score) for key, score in scores.items() if key[:2] == (data, contender)}
    if not runs:
        sets = tuple(dict.fromkeys(key[0] for key in scores))
        if data not in sets:
            raise SettingError(
                f"no scores on data set {data!r}; there are some on {_names(sets)}.{did_you_mean(data, sets)}"
            )
        others = tuple(dict.fromkeys(key[1] for key in scores if key[0] == data))
        raise SettingError(
            f"data set {data!r}: no scores of {contender!r}; there are some of {_names(others)}."
            f"{did_you_mean(contender, others)}"
        )
    for (seed, fold), score in runs.items():
        if not math.isfinite(score):
            raise SettingError(
                f"data set {data!r}: the score of {contender!r} at seed {seed}, fold {fold} is {score}; "
                "leave the score of a failed run out, and it is counted as missing."
            )
    return runs


def _differences(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Left minus right, rounded to the digits a score has: 0.3 - 0.2 and 0.2 - 0.1 are the same."""
    largest = float(np.abs([left, right]).max())
    if largest == 0:
        return left - right
    return np.round(left - right, min(EQUAL - math.ceil(math.log10(largest)), FINEST))


def _vector(values: Vector) -> NDArray[np.float64]:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not len(vector):
        raise SettingError(f"one number or more in a row is needed, got the shape {vector.shape}.")
    return vector


def _same(d: NDArray[np.float64]) -> bool:
    return bool(np.ptp(d) <= 10.0**-EQUAL * np.abs(d).max())


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise SettingError(f"confidence must be between 0 and 1, got {confidence}; 0.95 is usual.")


def _some(runs: Mapping[Pair, float]) -> str:
    """The first seeds and folds, as a message has them."""
    first = ", ".join(f"seed {seed} fold {fold}" for seed, fold in sorted(runs)[:3])
    return first if len(runs) <= 3 else f"{first}, ... {len(runs):,} in all"


def _names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
