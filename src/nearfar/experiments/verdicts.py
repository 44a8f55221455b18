"""What the numbers allow to be said: one sentence, no more certain than the runs are."""

from __future__ import annotations

from nearfar.errors import counted
from nearfar.experiments.comparisons import FEWEST, Comparison, Family
from nearfar.experiments.statistics import Interval

DECIMALS = 6
"""More are never shown."""


def verdict(comparison: Comparison, *, scale: float = 1.0, least: int = 1) -> str:
    """One sentence, without a full stop: better, worse, no significant difference, or too few runs to tell.

    Args:
        comparison: what is judged, by its adjusted p-value.
        scale: what differences are multiplied by: 100 says fractions in points.
        least: decimals that differences have at least, such as those of a table above the sentence.
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
    return "; ".join([sentence, *_reservations(comparison)])


def overall(family: Family) -> str:
    """One sentence over all data sets, without a full stop: on how many the contender is better, worse, or neither."""
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
    return "; ".join([*parts, *family.refused])


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
