"""Is a contender better than a baseline, or luckier? Paired comparisons, and what they allow to be said."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError, counted, did_you_mean
from nearfar.experiments.statistics import (
    EQUAL,
    Interval,
    Summary,
    bootstrap_interval,
    corrected_t_test,
    holm,
    summarize,
    vector,
    wilcoxon_p,
)
from nearfar.seeds import generator

DECIMALS = 6
"""More are never shown."""


def verdict(comparison: Comparison, *, scale: float = 1.0, least: int = 1, doubts: Sequence[str] = ()) -> str:
    """One sentence, without a full stop: better, worse, no significant difference, or too few runs to tell.

    Args:
        comparison: what is judged, by its adjusted p-value.
        scale: what differences are multiplied by: 100 says fractions in points.
        least: decimals that differences have at least, such as those of a table above the sentence.
        doubts: what is known against the comparison, which comes first: a contender that did not train, say.
    """
    one, other, data = comparison.contender, comparison.baseline, comparison.data
    flip = -1 if comparison.significant and comparison.difference < 0 else 1  # "by" how much has no sign
    difference = flip * scale * comparison.difference
    interval = None
    if comparison.interval is not None:
        low, high = sorted(flip * scale * end for end in comparison.interval)
        interval = Interval(low, high)
    decimals = max(least, _decimals(difference, interval))
    amount, evidence = _number(difference, decimals), _evidence(comparison, interval, decimals)
    if not comparison.enough:
        sentence = (
            f"too few runs to tell {one} from {other} on {data}: {counted(comparison.n, 'pair')} of runs, "
            f"{FEWEST} or more are needed (difference {amount})"
        )
    elif comparison.significant:
        word = "better" if _gains(comparison) else "worse"
        sentence = f"{one} is {word} than {other} on {data} by {amount} ({evidence})"
    else:
        sentence = f"no significant difference between {one} and {other} on {data} (difference {amount}, {evidence})"
    sentence = "; ".join([sentence, *_reservations(comparison)])
    return f"flagged ({', '.join(doubts)}): {sentence}" if doubts else sentence


def overall(family: Family, flagged: Sequence[str] = ()) -> str:
    """One sentence over all data sets, without a full stop: on how many the contender is better, worse, or neither.

    Args:
        family: a contender beside the baseline.
        flagged: data sets on which one of the two did not train well, which are named first.
    """
    one, other = family.contender, family.baseline
    judged = [comparison for comparison in family.comparisons if comparison.enough]
    significant = [comparison for comparison in judged if comparison.significant]
    better = sum(_gains(comparison) for comparison in significant)
    parts = []
    if judged:
        parts.append(
            f"of {counted(len(judged), 'data set')}, {one} is better than {other} on {better}, worse on "
            f"{len(significant) - better}, and on {len(judged) - len(significant)} there is no significant difference"
        )
    few = len(family.comparisons) - len(judged)
    if few or not judged:
        parts.append(f"too few runs to tell {one} from {other}" + (f" on {counted(few, 'data set')}" if few else ""))
    sentence = "; ".join([*parts, *family.refused])
    return f"flagged on {', '.join(flagged)}: {sentence}" if flagged else sentence


def _gains(comparison: Comparison) -> bool:
    return (comparison.difference > 0) == (comparison.better == "higher")


def _evidence(comparison: Comparison, interval: Interval | None, decimals: int) -> str:
    parts = []
    if interval is not None:
        low, high = (_number(end, decimals) for end in interval)
        parts.append(f"{100 * comparison.confidence:g} % interval {low} to {high}")
    test = "corrected" if comparison.test_to_train else "paired"
    parts.append(f"{test} p {_p(comparison.adjusted_p, comparison.alpha)}")
    if comparison.family > 1:
        parts.append(f"Holm over {comparison.family} data sets")
    return ", ".join(parts)


def _reservations(comparison: Comparison) -> list[str]:
    """What the reader has to know beside the verdict."""
    sentences = []
    if comparison.missing:
        lacking = [
            (comparison.without_contender, f"without a score of {comparison.contender}"),
            (comparison.without_baseline, f"without a score of {comparison.baseline}"),
            (comparison.without_either, "without a score of either"),
        ]
        planned = counted(comparison.n + comparison.missing, "pair")
        kinds = ", ".join(f"{len(pairs):,} {what}" for pairs, what in lacking if pairs)
        sentences.append(f"{comparison.missing:,} of {planned} of runs missing: {kinds}")
    if len({fold for _, fold in comparison.pairs}) == 1:
        plain = comparison.n > 1 and not comparison.test_to_train
        test = ": a paired t-test, which says nothing about other texts" if plain else ""
        sentences.append(f"all runs are of one fold, so only the seed varies{test}")
    return sentences


def _decimals(difference: float, interval: Interval | None) -> int:
    """The fewest, from one, that show nothing as zero that is not zero."""
    values = [difference] if interval is None else [difference, *interval, interval.high - interval.low]
    shown = [value for value in values if round(value, DECIMALS)]
    return next(places for places in range(1, DECIMALS + 1) if all(round(value, places) for value in shown))


def _number(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:.{decimals}f}"  # + 0.0: no minus before a zero


def _p(p: float, alpha: float) -> str:
    """Three decimals, or as many as keep it on its side of the level of significance."""
    if p < 0.001 < alpha:
        return "below 0.001"
    fits = (places for places in range(3, DECIMALS) if (round(p, places) < alpha) == (p < alpha))
    return f"{p:.{next(fits, DECIMALS)}f}"


FEWEST = 5
"""Pairs of runs below which nothing is called better, worse or no different."""
FINEST = 300
"""Decimals that can be rounded to."""
Pair: TypeAlias = tuple[int, int]
"""Seed and fold, which both contenders share."""
Scores: TypeAlias = Mapping[tuple[str, str, int, int], float]
"""(data set, contender, seed, fold) -> score."""
Better: TypeAlias = Literal["higher", "lower"]


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """How two contenders are compared."""

    test_to_train: float | None = None
    """Texts tested on per text trained on. None: 1 / (k - 1) for the k folds of the data set; 0 for a single fold,
    where only seeds vary and nothing is said about other splits."""
    better: Better = "higher"
    """Whether the higher or the lower score is better."""
    confidence: float = 0.95
    """Of the intervals; 1 minus it is the level of significance."""
    seed: int = 0
    """Of the bootstrap."""
    resamples: int = 10_000
    """Of the bootstrap."""


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


def compare(
    scores: Scores,
    *,
    data: str,
    contender: str,
    baseline: str,
    planned: Iterable[Pair] = (),
    settings: ComparisonSettings = ComparisonSettings(),  # noqa: B008  # frozen
) -> Comparison:
    """Compare two contenders on one data set, run by run.

    Args:
        scores: of all runs; those of other data sets are left aside.
        data: the data set.
        contender: who may be better.
        baseline: than whom.
        planned: seeds and folds there should be scores for, beside those that any contender has one for.
        settings: how they are compared.

    >>> runs = {("trec", name, 2, fold): score + fold for name, score in [("a", 1.0), ("b", 3.0)] for fold in range(5)}
    >>> compare(runs, data="trec", contender="b", baseline="a").difference
    2.0
    """
    if settings.better not in ("higher", "lower"):
        raise SettingError(f"better must be 'higher' or 'lower', got {settings.better!r}.")
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
    left, right = vector([ours[pair] for pair in pairs]), vector([theirs[pair] for pair in pairs])
    d = _differences(left, right)
    ratio = settings.test_to_train
    if ratio is None:
        folds = len({fold for _, fold in everybody})
        ratio = 1 / (folds - 1) if folds > 1 else 0.0
    test = corrected_t_test(d, test_to_train=ratio, confidence=settings.confidence)
    rng = generator(settings.seed, "bootstrap", data, contender, baseline)
    gains = d if settings.better == "higher" else -d
    return Comparison(
        data=data,
        contender=contender,
        baseline=baseline,
        better=settings.better,
        confidence=settings.confidence,
        pairs=pairs,
        differences=tuple(d.tolist()),
        contender_scores=summarize(left),
        baseline_scores=summarize(right),
        difference=float(d.mean()),
        wins=int((gains > 0).sum()),
        ties=int((gains == 0).sum()),
        losses=int((gains < 0).sum()),
        test_to_train=ratio,
        t=test.t,
        p=test.p,
        interval=test.interval,
        wilcoxon_p=wilcoxon_p(d),
        bootstrap=bootstrap_interval(d, rng, confidence=settings.confidence, resamples=settings.resamples),
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
    settings: ComparisonSettings = ComparisonSettings(),  # noqa: B008  # frozen
) -> tuple[Family, ...]:
    """Compare every contender with the baseline on every data set, and correct each contender's p-values together.

    Contenders and data sets come in the order of their first score. Data sets on which a contender and the baseline
    have no run in common are named in ``refused``, and do not stop the others.

    Args:
        scores: of all runs.
        baseline: the contender that all others are compared with.
        planned: for data sets, the seeds and folds there should be scores for.
        settings: how they are compared.
    """
    runs: dict[tuple[str, str], set[Pair]] = {}
    for data, contender, seed, fold in scores:
        runs.setdefault((data, contender), set()).add((seed, fold))
    sets, contenders = tuple(dict.fromkeys(key[0] for key in scores)), tuple(dict.fromkeys(key[1] for key in scores))
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
        for data in sets:
            if not runs.get((data, contender), set()) & runs.get((data, baseline), set()):
                refused.append(f"{contender} and {baseline} have no run in common on {data}")
                continue
            pairs = (planned or {}).get(data, ())
            comparisons.append(
                compare(scores, data=data, contender=contender, baseline=baseline, planned=pairs, settings=settings)
            )
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


def _some(runs: Mapping[Pair, float]) -> str:
    """The first seeds and folds, as a message has them."""
    first = ", ".join(f"seed {seed} fold {fold}" for seed, fold in sorted(runs)[:3])
    return first if len(runs) <= 3 else f"{first}, ... {len(runs):,} in all"


def _names(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "nothing"
