"""Paired statistics: against SciPy, against the formulas by hand, and by simulation; and the sentences they end in."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nearfar import experiments
from nearfar.errors import SettingError
from nearfar.experiments import (
    ComparisonSettings,
    Interval,
    Summary,
    bootstrap_interval,
    compare_all,
    corrected_t_test,
    holm,
    overall,
    summarize,
    verdict,
    wilcoxon_p,
)

COARSE = st.integers(-4, 4).map(lambda step: step / 10)
FINE = st.integers(-(10**8), 10**8).map(lambda step: step / 10**6)


def runs(data="trec", folds=5, **scores):
    """Scores by contender, dealt out to seeds 2, 16, 128, ... and folds 0, 1, ... in turn."""
    seeds = (2, 16, 128, 2048, 4096)
    return {
        (data, name.replace("_", "-"), seeds[place // folds], place % folds): score
        for name, row in scores.items()
        for place, score in enumerate(row)
    }


def compare(records, *, data, contender, baseline, planned=(), **settings):
    """A comparison with its settings as keywords."""
    pair = {"data": data, "contender": contender, "baseline": baseline}
    return experiments.compare(records, **pair, planned=planned, settings=ComparisonSettings(**settings))


def between(a_scores, b_scores, folds=5, **settings):
    """Contender b beside baseline a."""
    return compare(runs(folds=folds, a=a_scores, b=b_scores), data="trec", contender="b", baseline="a", **settings)


def numbers(comparison):
    """Every float inside, however deep."""
    found, todo = [], [dataclasses.astuple(comparison)]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple):
            todo.extend(item)
        elif isinstance(item, int | float):
            found.append(item)
    return found


# The corrected resampled t-test


def test_the_corrected_t_test_is_that_of_the_worked_example():
    """1 to 5 in five folds: mean 3, variance 2.5, error sqrt((1/5 + 1/4) 2.5), so t = sqrt(8), four degrees of freedom."""
    test = corrected_t_test([1, 2, 3, 4, 5], test_to_train=1 / 4)
    root = math.sqrt(8)
    below = 1 / 2 + 3 / 8 * root / math.sqrt(1 + 8 / 4) * (1 - 8 / 12 / (1 + 8 / 4))  # t's distribution for 4 degrees
    reach = 2.7764451 * math.sqrt(1.125)

    assert test.t == pytest.approx(root)
    assert test.p == pytest.approx(2 * (1 - below))
    assert test.p == pytest.approx(0.0474207, abs=1e-7)
    assert test.interval == pytest.approx((3 - reach, 3 + reach), abs=1e-6)


@given(st.lists(FINE, min_size=2, max_size=30), st.sampled_from([0.5, 0.9, 0.95]))
def test_without_overlap_it_is_scipys_paired_t_test(differences, confidence):
    """No test texts per training text, no correction."""
    if np.ptp(differences) <= 1e-9 * np.abs(differences).max():
        return
    test = corrected_t_test(differences, test_to_train=0, confidence=confidence)
    expected = stats.ttest_1samp(differences, 0)

    assert test.t == pytest.approx(expected.statistic, rel=1e-6, abs=1e-9)
    assert test.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert test.interval == pytest.approx(expected.confidence_interval(confidence), rel=1e-6, abs=1e-6)


@given(st.lists(FINE, min_size=2, max_size=20), st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from([0.8, 0.95]))
def test_the_interval_holds_zero_exactly_when_p_is_not_significant(differences, ratio, confidence):
    """Interval and p-value never tell different stories."""
    test = corrected_t_test(differences, test_to_train=ratio, confidence=confidence)
    if test.t is None or abs(test.p - (1 - confidence)) < 1e-9:
        return

    assert (test.interval.low <= 0 <= test.interval.high) == (test.p >= 1 - confidence)


@pytest.mark.parametrize(
    ("differences", "p", "interval"),
    [
        ([0.7], 1.0, None),
        ([0.0], 1.0, None),
        ([0.0] * 6, 1.0, (0, 0)),
        ([0.3] * 2, 0.5, (0.3, 0.3)),
        ([-0.3] * 6, 1 / 32, (-0.3, -0.3)),
        ([0.1 + 0.2, 0.3, 0.3], 0.25, (0.3, 0.3)),
        ([1e-200, 2e-200, 3e-200], 1 - math.sqrt(4.8 / 6.8), (-1.9278e-200, 5.9278e-200)),  # t² = 4.8, two degrees
    ],
)
def test_without_spread_the_test_stays_finite_and_modest(differences, p, interval):
    """One difference proves nothing; equal ones are as good as a sign test, never a certainty of p 0."""
    test = corrected_t_test(differences, test_to_train=0.5)

    assert test.p == pytest.approx(p, abs=1e-4)
    assert test.t is None or math.isfinite(test.t)
    if interval is None:
        assert test.interval is None
    else:
        assert test.interval == pytest.approx(interval, rel=1e-4, abs=0)


def splits_of_folds(rng, n):
    """(20, n): the test texts of five folds, shuffled anew four times."""
    return np.concatenate([rng.permutation(n) % 5 == np.arange(5)[:, None] for _ in range(4)])


def splits_at_random(rng, n):
    """(20, n): a random fifth for testing, drawn twenty times."""
    return np.stack([rng.permutation(n) < n // 5 for _ in range(20)])


def rejections(splits, *, advantage, ratio, sets=400, n=60):
    """The share of drawn data sets on which a test at 5 % tells two learners apart.

    One regresses on the first feature, the other on the second; the features are alike but for the advantage.
    """
    rng = np.random.default_rng(16)
    count = 0
    for _ in range(sets):
        x = rng.standard_normal((n, 2))  # (n, 2)
        y = x @ [1 + advantage, 1] + rng.standard_normal(n)
        test = splits(rng, n)  # (20, n)
        slopes = ~test @ (x * y[:, None]) / (~test @ x**2)  # (20, 2)
        errors = (y[:, None] - slopes[:, None] * x) ** 2  # (20, n, 2)
        scores = -(errors * test[..., None]).sum(1) / test.sum(1, keepdims=True)  # (20, 2)
        count += corrected_t_test(scores[:, 0] - scores[:, 1], test_to_train=ratio).p < 0.05
    return count / sets


@pytest.mark.parametrize("splits", [splits_of_folds, splits_at_random])
def test_of_two_equal_learners_one_seldom_wins(splits):
    """Where the plain t-test is fooled by overlapping runs, the corrected one keeps to about 5 % false findings."""
    assert rejections(splits, advantage=0, ratio=0) > 0.2
    assert rejections(splits, advantage=0, ratio=1 / 4) < 0.08


def test_the_correction_is_no_more_than_is_needed():
    """On random splits, which it was made for, false findings are near 5 %; a real advantage is still found."""
    assert 0.025 < rejections(splits_at_random, advantage=0, ratio=1 / 4) < 0.08
    assert rejections(splits_of_folds, advantage=1.0, ratio=1 / 4) > 0.8


# Wilcoxon, bootstrap, Holm


def wilcoxon_by_enumeration(differences):
    """The p-value over all ways to sign the ranks."""
    sizes = [abs(d) for d in differences if d != 0]
    ranks = [sum(s < size for s in sizes) + (sum(s == size for s in sizes) + 1) / 2 for size in sizes]
    seen = sum(rank for rank, d in zip(ranks, (d for d in differences if d != 0), strict=True) if d > 0)
    sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product([0, 1], repeat=len(ranks))]
    tails = sum(s <= seen for s in sums), sum(s >= seen for s in sums)
    return min(1.0, 2 * min(tails) / len(sums))


@given(st.lists(COARSE | FINE, min_size=1, max_size=9))
def test_wilcoxon_is_exact_with_ties_and_zeros(differences):
    """Against all 2^n signs of the ranks; pairs without a difference do not count."""
    assert wilcoxon_p(differences) == pytest.approx(wilcoxon_by_enumeration(differences))


@pytest.mark.parametrize(("n", "method"), [(20, "exact"), (51, "exact"), (52, "asymptotic"), (200, "asymptotic")])
def test_wilcoxon_is_scipys(n, method):
    """Exact up to 50 differences that are not zero, approximate beyond."""
    d = np.random.default_rng(2).normal(0.2, 1, n)
    d[3] = 0

    assert wilcoxon_p(d) == pytest.approx(stats.wilcoxon(np.delete(d, 3), method=method).pvalue, rel=1e-9)


@pytest.mark.parametrize(("confidence", "expected"), [(0.95, (0, 5)), (0.9, (1 / 3, 11 / 3)), (0.6, (2 / 3, 10 / 3))])
def test_the_bootstrap_finds_the_quantiles_of_all_resamples(confidence, expected):
    """Of 0, 1 and 5 there are 27 resamples, whose means can be listed.

    1/27 have the mean 0, 3/27 1/3, 3/27 2/3, ..., and from above 1/27 5, 3/27 11/3, 3/27 10/3.
    """
    interval = bootstrap_interval([0, 1, 5], np.random.default_rng(2), confidence=confidence, resamples=40_000)

    assert interval == pytest.approx(expected)


def test_the_bootstrap_agrees_with_scipy():
    """Percentile intervals of the same differences, up to the noise of resampling."""
    d = np.random.default_rng(16).exponential(1, 20)
    expected = stats.bootstrap(
        (d,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(128)
    ).confidence_interval
    interval = bootstrap_interval(d, np.random.default_rng(2), resamples=20_000)

    assert interval == pytest.approx(expected, abs=0.02)


def test_many_differences_are_resampled_in_blocks():
    """Three blocks of resamples make one interval, which for so many differences is about the normal one."""
    d = np.random.default_rng(16).normal(0, 1, 3_000)
    low, high = bootstrap_interval(d, np.random.default_rng(2), resamples=1_000)

    assert (high - low) / 2 == pytest.approx(1.96 * d.std() / math.sqrt(3_000), rel=0.1)


def test_holm_is_that_of_the_worked_example():
    """0.01 x 4, 0.02 x 3, then 0.03 x 2 held up by the one before, 0.9 x 1 and never above 1; in the order given."""
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx((0.06, 0.04, 0.9, 0.06))
    assert holm([0.02, 0.011, 0.02]) == pytest.approx((0.04, 0.033, 0.04))
    assert holm([0.6, 0.7]) == (1.0, 1.0)
    assert holm([]) == ()


@given(st.lists(st.floats(0, 1), max_size=8), st.sampled_from([0.01, 0.05, 0.3]))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values, alpha):
    """Smallest first against alpha / m, alpha / (m - 1), ..., and stop at the first that fails."""
    rejected, m = set(), len(p_values)
    for step, place in enumerate(sorted(range(m), key=p_values.__getitem__)):
        if p_values[place] * (m - step) > alpha:
            break
        rejected.add(place)

    assert {place for place, p in enumerate(holm(p_values)) if p <= alpha} == rejected


# Comparisons


def test_a_comparison_is_made_of_its_parts():
    """Means and deviations over the pairs, and every test on the differences, seed by seed and fold by fold."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(80, 2, 20), rng.normal(81, 2, 20)
    comparison = between(a, b)
    plain = stats.ttest_rel(b, a)

    assert comparison.n == 20
    assert comparison.pairs[:6] == ((2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (16, 0))
    assert comparison.differences == pytest.approx(b - a)
    assert comparison.contender_scores == pytest.approx((20, b.mean(), b.std(ddof=1)))
    assert comparison.baseline_scores == pytest.approx((20, a.mean(), a.std(ddof=1)))
    assert comparison.difference == pytest.approx(b.mean() - a.mean())
    assert (comparison.wins, comparison.ties, comparison.losses) == ((b > a).sum(), 0, (b < a).sum())
    assert comparison.test_to_train == 1 / 4
    assert comparison.t == pytest.approx(plain.statistic * math.sqrt((1 / 20) / (1 / 20 + 1 / 4)))
    assert comparison.wilcoxon_p == pytest.approx(stats.wilcoxon(b, a).pvalue)
    assert comparison.bootstrap.low < comparison.difference < comparison.bootstrap.high
    assert comparison.missing == 0
    assert comparison.adjusted_p == comparison.p


def test_runs_are_matched_by_seed_and_fold_whatever_their_order():
    """The same records backwards give the same comparison, bootstrap included."""
    rng = np.random.default_rng(2)
    records = runs(a=rng.normal(80, 1, 20), b=rng.normal(81, 1, 20))
    backwards = dict(reversed(records.items()))
    settings = {"data": "trec", "contender": "b", "baseline": "a"}

    assert compare(records, **settings) == compare(backwards, **settings)
    assert compare(records, **settings).bootstrap != compare(records, **settings, seed=1).bootstrap


@given(st.lists(st.tuples(COARSE, COARSE), min_size=1, max_size=20), st.sampled_from([1, 2, 5]))
def test_every_number_is_finite_whatever_the_scores(scores, folds):
    """One run, equal runs, runs that never differ: no NaN, no infinity, no warning, and a sentence."""
    a, b = ([pair[side] for pair in scores][: 5 * folds] for side in (0, 1))
    comparison = between(a, b, folds=folds, resamples=50)

    assert all(math.isfinite(number) for number in numbers(comparison))
    assert 0 <= comparison.p <= 1
    assert 0 < comparison.wilcoxon_p <= 1
    assert comparison.wins + comparison.ties + comparison.losses == comparison.n == len(a)
    assert (comparison.interval is None) == (comparison.bootstrap is None) == (len(a) == 1)
    for words in (verdict(comparison), verdict(comparison, scale=100)):
        assert "nan" not in words
        assert "inf" not in words
        assert not re.search(r"-0\.0+(?!\d)", words)


@given(st.lists(st.tuples(COARSE, COARSE), min_size=2, max_size=20))
def test_changing_sides_changes_the_sign_only(scores):
    """Wins become losses, p-values stay; and where lower scores are better, wins become losses as well."""
    a, b = ([pair[side] for pair in scores] for side in (0, 1))
    one, other = between(a, b, resamples=50), between(b, a, resamples=50)
    lower = between(a, b, resamples=50, better="lower")

    assert other.difference == pytest.approx(-one.difference)
    assert (other.wins, other.ties, other.losses) == (one.losses, one.ties, one.wins)
    assert (lower.wins, lower.ties, lower.losses) == (one.losses, one.ties, one.wins)
    assert (other.p, other.wilcoxon_p) == pytest.approx((one.p, one.wilcoxon_p))
    assert other.interval == pytest.approx((-one.interval.high, -one.interval.low))
    assert (lower.p, lower.difference) == (one.p, one.difference)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0, 1e5])
def test_rounding_is_no_difference(scale):
    """0.1 + 0.2 ties with 0.3, and 0.3 - 0.2 is as large as 0.2 - 0.1, on whatever scale."""
    comparison = between([scale * 0.3, scale * 0.2, scale * 0.1], [scale * (0.1 + 0.2), scale * 0.3, scale * 0.2])

    assert (comparison.wins, comparison.ties, comparison.losses) == (2, 1, 0)
    assert len(set(comparison.differences)) == 2
    assert comparison.wilcoxon_p == 0.5


def test_scores_next_to_nothing_are_compared_like_any_others():
    """Where rounding to so many digits would leave the numbers there are."""
    comparison = between([1e-300, 2e-300, 3e-300], [3e-300, 5e-300, 4e-300])

    assert (comparison.wins, comparison.ties, comparison.losses) == (3, 0, 0)
    assert comparison.differences == pytest.approx((2e-300, 3e-300, 1e-300), rel=1e-9, abs=0)


def test_a_summary_of_one_score_has_no_spread():
    """Nothing else is known about it."""
    assert summarize([0.9]) == Summary(1, 0.9, 0.0)


def test_missing_runs_are_counted_and_named():
    """Whoever lacks a run, by comparison with the other, with a third contender, and with the plan."""
    records = runs(a=[1.0] * 10, b=[2.0, 3.0] * 5, c=[0.0] * 10)
    for key in [("b", 2, 1), ("b", 16, 0), ("a", 16, 4), ("a", 2, 3), ("b", 2, 3)]:
        del records["trec", *key]
    comparison = compare(records, data="trec", contender="b", baseline="a", planned=[(2, 0), (128, 0)])

    assert comparison.n == 6
    assert comparison.without_contender == ((2, 1), (16, 0))
    assert comparison.without_baseline == ((16, 4),)
    assert comparison.without_either == ((2, 3), (128, 0))
    assert comparison.missing == 5
    assert comparison.baseline_scores.n == comparison.contender_scores.n == 6
    assert verdict(comparison).endswith(
        "; 5 of 11 pairs of runs missing: 2 without a score of b, 1 without a score of a, 2 without a score of either"
    )


def test_the_correction_goes_by_all_folds_unless_told():
    """A fold that neither has finished still makes the training sets overlap less; one fold does not overlap."""
    records = runs(a=[1.0] * 5, b=[2.0] * 5, c=[0.0] * 5)
    del records["trec", "b", 2, 4], records["trec", "a", 2, 4]
    settings = {"data": "trec", "contender": "b", "baseline": "a"}

    assert compare(records, **settings).test_to_train == 1 / 4
    assert compare(records, **settings, planned=[(2, 9)]).test_to_train == 1 / 5
    assert compare(records, **settings, test_to_train=0.1).test_to_train == 0.1
    assert between([1.0, 2.0], [2.0, 4.0], folds=1).test_to_train == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data": "trek"}, r"no scores on data set 'trek'; .* 'trec'\. Did you mean 'trec'\?"),
        ({"contender": "suppcon"}, r"'trec': no scores of 'suppcon'; .*Did you mean 'supcon'\?"),
        ({"contender": "plain"}, "'plain' cannot be compared with itself"),
        ({"contender": "late"}, r"'late' and 'plain' have no seed and fold in common \(seed 7 fold 0 against .*5 in all"),
        ({"contender": "broken"}, "'broken' at seed 2, fold 1 is nan; leave the score of a failed run out"),
        ({"confidence": 95}, "confidence must be between 0 and 1, got 95"),
        ({"test_to_train": -0.1}, "test_to_train must be 0 or more, got -0.1"),
        ({"test_to_train": math.inf}, "test_to_train must be 0 or more, got inf"),
        ({"resamples": 0}, "resamples must be 1 or more, got 0"),
        ({"better": "larger"}, "better must be 'higher' or 'lower', got 'larger'"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(settings, said):
    """With the value and what fits."""
    records = runs(plain=[1.0, 2.0, 3.0, 4.0, 5.0], supcon=[2.0, 2.0, 3.0, 4.0, 6.0], broken=[1.0, math.nan])
    records["trec", "late", 7, 0] = 1.0
    with pytest.raises(SettingError, match=said):
        compare(records, **{"data": "trec", "contender": "supcon", "baseline": "plain", **settings})


def test_other_wrong_numbers_are_refused():
    """No differences, tables of differences, p-values that are none."""
    with pytest.raises(SettingError, match="one number or more"):
        wilcoxon_p([])
    with pytest.raises(SettingError, match=r"the shape \(2, 2\)"):
        summarize(np.ones((2, 2)))
    for p in (-0.1, 1.1, math.nan):
        with pytest.raises(SettingError, match=f"from 0 to 1, got {p}"):
            holm([0.5, p])


def test_each_contender_is_corrected_over_its_data_sets():
    """Holm within a contender; a data set without common runs is named and stops nothing."""
    rng = np.random.default_rng(2)
    records = {}
    for data, gain in [("trec", 2.0), ("cr", 1.2), ("mr", 0.0)]:
        base = rng.normal(80, 1, 20)
        records |= runs(data, plain=base, supcon=base + rng.normal(gain, 1, 20), triplet=base + rng.normal(0, 1, 20))
    records |= runs("subj", plain=[1.0] * 5) | runs("mpqa", supcon=[1.0] * 5)
    supcon, triplet = compare_all(records, baseline="plain")

    assert (supcon.contender, triplet.contender, supcon.baseline) == ("supcon", "triplet", "plain")
    assert [comparison.data for comparison in supcon.comparisons] == ["trec", "cr", "mr"]
    for family in (supcon, triplet):
        assert [comparison.adjusted_p for comparison in family.comparisons] == list(
            holm([comparison.p for comparison in family.comparisons])
        )
        assert {comparison.family for comparison in family.comparisons} == {3}
    alone = compare(records, data="cr", contender="supcon", baseline="plain")
    assert dataclasses.replace(supcon.comparisons[1], adjusted_p=alone.p, family=1) == alone
    assert supcon.refused == (
        "supcon and plain have no run in common on subj",
        "supcon and plain have no run in common on mpqa",
    )
    with pytest.raises(SettingError, match=r"no scores of the baseline 'plane'; .*Did you mean 'plain'\?"):
        compare_all(records, baseline="plane")


def test_the_plan_reaches_every_data_set():
    """Planned runs that nobody has are missing in the comparison of their data set only."""
    records = runs("trec", a=[1.0] * 5, b=[2.0] * 5) | runs("cr", a=[1.0] * 5, b=[2.0] * 5)
    (family,) = compare_all(records, baseline="a", planned={"cr": [(2, 0), (16, 0)]})

    assert [comparison.without_either for comparison in family.comparisons] == [(), ((16, 0),)]


# Wording


def judged(**changes):
    """A comparison of twenty runs, with some of its numbers replaced."""
    comparison = compare(
        runs(cross_entropy=[80.0] * 20, triple_entropy=np.linspace(79, 82, 20)),
        data="trec", contender="triple-entropy", baseline="cross-entropy",
    )  # fmt: skip
    return dataclasses.replace(comparison, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"difference": 0.8, "interval": Interval(0.2, 1.4), "adjusted_p": 0.012},
            "triple-entropy is better than cross-entropy on trec by 0.8 (95 % interval 0.2 to 1.4, corrected p 0.012)",
        ),
        (
            {"difference": -0.8, "interval": Interval(-1.4, -0.2), "adjusted_p": 0.00001, "family": 6},
            "triple-entropy is worse than cross-entropy on trec by 0.8 (95 % interval 0.2 to 1.4, corrected p below 0.001, Holm over 6 data sets)",
        ),
        (
            {"difference": -0.8, "interval": Interval(-1.4, -0.04), "adjusted_p": 0.0497, "better": "lower"},
            "triple-entropy is better than cross-entropy on trec by 0.80 (95 % interval 0.04 to 1.40, corrected p 0.0497)",
        ),
        (
            {"difference": 0.8, "interval": Interval(0.2, 1.4), "adjusted_p": 0.012, "better": "lower"},
            "triple-entropy is worse than cross-entropy on trec by 0.8 (95 % interval 0.2 to 1.4, corrected p 0.012)",
        ),
        (
            {"difference": -0.1, "interval": Interval(-0.5, 0.3), "adjusted_p": 0.61},
            "no significant difference between triple-entropy and cross-entropy on trec (difference -0.1, 95 % interval -0.5 to 0.3, corrected p 0.610)",
        ),
        (
            {"difference": 0.8, "interval": Interval(0.2, 1.4), "adjusted_p": 0.05, "confidence": 0.95},
            "no significant difference between triple-entropy and cross-entropy on trec (difference 0.8, 95 % interval 0.2 to 1.4, corrected p 0.050)",
        ),
        (
            {"difference": 0.0, "interval": Interval(0.0, 0.0), "adjusted_p": 1.0, "confidence": 0.99},
            "no significant difference between triple-entropy and cross-entropy on trec (difference 0.0, 99 % interval 0.0 to 0.0, corrected p 1.000)",
        ),
    ],
)  # fmt: skip
def test_the_verdict_says_what_the_numbers_allow(changes, said):
    """Better, worse, or no significant difference, with as many decimals as it takes to show on which side of zero."""
    assert verdict(judged(**changes)) == said


def test_fractions_are_told_in_points_if_wished():
    """A hundred times the difference and the interval, and the same p."""
    comparison = judged(difference=0.008, interval=Interval(0.002, 0.014), adjusted_p=0.012)

    assert "by 0.008 (95 % interval 0.002 to 0.014, corrected p 0.012)" in verdict(comparison)
    assert "by 0.8 (95 % interval 0.2 to 1.4, corrected p 0.012)" in verdict(comparison, scale=100)


def test_a_few_runs_are_too_few_however_clear_they_look():
    """Four pairs say nothing, five may; one fold only speaks of its seeds."""
    few = between([1.0, 1.1, 1.2, 1.3], [2.0, 2.1, 2.3, 2.5])
    enough = between([1.0, 1.1, 1.2, 1.3, 1.4], [2.0, 2.1, 2.3, 2.4, 2.4])

    assert few.p < 0.05
    assert not few.significant
    assert (
        verdict(few) == "too few runs to tell b from a on trec: 4 pairs of runs, 5 or more are needed (difference 1.1)"
    )
    assert enough.significant
    assert verdict(enough).startswith("b is better than a on trec by 1.0 (95 % interval 0.9 to 1.1, corrected p below")
    assert verdict(between([1.0], [2.0])) == (
        "too few runs to tell b from a on trec: 1 pair of runs, 5 or more are needed (difference 1.0); "
        "all runs are of one fold, so only the seed varies"
    )


def test_the_overall_sentence_counts_data_sets():
    """Better, worse, neither, too few runs, and nothing in common."""
    rng = np.random.default_rng(2)
    records = {}
    for data, gain in [("up", 3), ("down", -3), ("level", 0)]:
        records |= runs(data, a=[80.0] * 20, b=80 + gain + rng.normal(0, 0.5, 20))
    (clear,) = compare_all(records, baseline="a")
    (mixed,) = compare_all(records | runs("short", a=[1.0], b=[2.0]) | runs("lost", a=[1.0]), baseline="a")
    (none,) = compare_all(runs("lost", a=[1.0]) | runs("found", b=[1.0]), baseline="a")

    assert overall(clear) == (
        "of 3 data sets, b is better than a on 1, worse on 1, and on 1 there is no significant difference"
    )
    assert overall(mixed) == (
        f"{overall(clear)}; too few runs to tell b from a on 1 data set; b and a have no run in common on lost"
    )
    assert overall(none) == (
        "too few runs to tell b from a; b and a have no run in common on lost; b and a have no run in common on found"
    )


def test_statistics_need_no_torch():
    """Counting is done where nothing is trained: the import stays light."""
    code = "import sys, nearfar.experiments.statistics, nearfar.experiments.comparisons; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    assert done.stdout.strip() == "False", done.stderr
