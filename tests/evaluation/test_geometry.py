"""Geometry: against loops over the formulas, SciPy and shapes whose measures are known, in any blocks, at the edges."""

from __future__ import annotations

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.special import hyp0f1
from scipy.stats import entropy

from nearfar.errors import SettingError, ShapeError
from nearfar.evaluation import alignment, anisotropy, effective_rank, geometry, geometry_report, uniformity
from nearfar.evaluation import vectors as vectors_module
from nearfar.evaluation.geometry import cosine_counts


def vectors(rows: int, seed: int, width: int = 6) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@st.composite
def small_spaces(draw, least: int = 2) -> np.ndarray:
    """Up to nine vectors of small whole numbers: many are equal, opposite or zero."""
    rows, width = draw(st.integers(least, 9)), draw(st.integers(1, 5))
    source = np.random.default_rng(draw(st.integers(0, 2**16)))
    return source.integers(-1, 2, (rows, width)).astype(np.float32)


def directions(space) -> list[list[float]]:
    """Each vector over its length, and zero where that is zero."""
    return [[x / (math.hypot(*row) or 1.0) for x in row] for row in np.asarray(space, dtype=np.float64).tolist()]


def squared_distance(u, v) -> float:
    return sum((x - y) ** 2 for x, y in zip(u, v, strict=True))


def all_pairs(space) -> list[tuple[list[float], list[float]]]:
    u = directions(space)
    return [(u[i], u[j]) for i in range(len(u)) for j in range(i)]


def cosines(space) -> list[float]:
    return [sum(x * y for x, y in zip(u, v, strict=True)) for u, v in all_pairs(space)]


def uniformity_by_the_book(space) -> float:
    terms = [math.exp(-2 * squared_distance(u, v)) for u, v in all_pairs(space)]
    return math.log(sum(terms) / len(terms))


# against the formulas, and other libraries


@given(small_spaces())
def test_measures_of_pairs_match_the_formulas_written_as_loops(space):
    """Zero and equal vectors included, with every pair compared."""
    found = uniformity(space)

    assert found.value == pytest.approx(uniformity_by_the_book(space), abs=1e-12)
    assert (found.error, found.exact, found.pairs) == (0.0, True, len(all_pairs(space)))
    assert anisotropy(space) == pytest.approx(np.mean(cosines(space)), abs=1e-12)


@given(small_spaces(least=1), st.integers(0, 2**16), st.booleans())
def test_alignment_matches_its_formula_written_as_loops(left, seed, normalize):
    """Of directions, and of the vectors as they are."""
    right = np.random.default_rng(seed).integers(-1, 2, left.shape).astype(np.float32)
    sides = (directions(left), directions(right)) if normalize else (left.tolist(), right.tolist())
    expected = np.mean([squared_distance(u, v) for u, v in zip(*sides, strict=True)])

    assert alignment(left, right, normalize=normalize) == pytest.approx(expected, abs=1e-12)


def test_measures_of_pairs_are_those_of_scipy():
    """On vectors of many lengths, all in one half of the space."""
    space = vectors(60, seed=1) * np.geomspace(1e-3, 1e3, 60, dtype=np.float32)[:, None] + 0.5
    cosine_distances = pdist(space.astype(np.float64), "cosine")

    assert anisotropy(space) == pytest.approx(1 - cosine_distances.mean(), abs=1e-12)
    assert uniformity(space).value == pytest.approx(np.log(np.exp(-4 * cosine_distances).mean()), abs=1e-12)


@pytest.mark.parametrize("normalize", [True, False])
def test_effective_rank_is_that_of_the_covariance_by_numpy_and_scipy(normalize):
    """The spread differs between directions, and the mean is far from zero."""
    space = vectors(80, seed=2) * np.array([3, 2, 1, 0.5, 0.1, 0.01], dtype=np.float32) + 4
    measured = np.array(directions(space)) if normalize else space.astype(np.float64)
    expected = np.exp(entropy(np.linalg.eigvalsh(np.cov(measured.T))))

    assert effective_rank(space, normalize=normalize) == pytest.approx(expected, rel=1e-9)


# closed forms


def test_one_direction_is_perfectly_alike_and_spreads_nowhere():
    """However long the vectors are: lengths are no part of a direction."""
    space = np.outer(np.arange(1, 8), [1.0, -2.0, 2.0]).astype(np.float32)

    assert alignment(space, space[::-1]) == pytest.approx(0, abs=1e-12)
    assert uniformity(space).value == pytest.approx(0, abs=1e-12)
    assert anisotropy(space) == pytest.approx(1)
    assert effective_rank(space) == 0.0
    assert effective_rank(space, normalize=False) == pytest.approx(1)


@pytest.mark.parametrize(("here", "there"), [(1, 1), (4, 4), (7, 2)])
def test_two_opposite_clusters_lie_on_a_line(here, there):
    """Pairs in a cluster are at distance 0, pairs across at a squared distance of 4."""
    space = np.concatenate([np.full((here, 3), 2.0), np.full((there, 3), -0.5)]).astype(np.float32)
    across, every = here * there, math.comb(here + there, 2)

    assert alignment(space[:1], space[-1:]) == pytest.approx(4)
    assert uniformity(space).value == pytest.approx(math.log((every - across + across * math.exp(-8)) / every))
    assert anisotropy(space) == pytest.approx((every - 2 * across) / every)
    assert effective_rank(space) == pytest.approx(1)


@pytest.mark.parametrize("width", [2, 5, 40])
def test_the_corners_of_a_simplex_have_known_measures(width):
    """width + 1 directions, each at a cosine of -1 / width from all others, with equal spread."""
    corners = np.eye(width + 1) - 1 / (width + 1)  # on a plane of the right width
    space = np.concatenate([corners, np.zeros((width + 1, 1))], axis=1)

    assert anisotropy(space) == pytest.approx(-1 / width)
    assert uniformity(space).value == pytest.approx(-4 - 4 / width)
    assert effective_rank(space) == pytest.approx(width)


@pytest.mark.parametrize("width", [2, 3, 16, 256])
def test_even_directions_have_the_uniformity_of_the_sphere(width):
    """The expectation over the sphere is a Bessel function; from 2.4 above -4 in a plane it falls to 0.03 above."""
    space = vectors(2000, seed=3, width=width)
    expected = -4 + math.log(hyp0f1(width / 2, 4.0))

    assert uniformity(space).value == pytest.approx(expected, abs=5e-3)
    assert anisotropy(space) == pytest.approx(0, abs=2e-3)


def test_effective_rank_counts_directions_by_their_share_of_the_spread():
    """Points at +-s on each axis: the variances are in proportion to the squares of s."""
    lengths = np.array([3.0, 2.0, 1.0, 0.0])
    space = np.concatenate([np.diag(lengths), -np.diag(lengths)])
    shares = np.array([9, 4, 1]) / 14

    assert effective_rank(space, normalize=False) == pytest.approx(math.prod(share**-share for share in shares))
    assert effective_rank(space) == pytest.approx(3)


def test_vectors_that_differ_by_rounding_only_have_no_rank():
    """A collapsed model gives the same vector for all texts, but for the last bits."""
    noise = 1e-7 * vectors(50, seed=4, width=30)
    assert effective_rank(1 + noise) == 0.0
    assert effective_rank(1 + 1000 * noise) > 20


# random pairs


def test_a_sample_of_pairs_is_right_to_within_its_error():
    """Near the exact value, nearer with more pairs, and as far off as the standard error says."""
    space = vectors(300, seed=5) + 0.7
    exact = uniformity(space)
    found = [uniformity(space, pairs=400, seed=seed) for seed in range(300)]
    errors = np.array([one.error for one in found])
    away = np.array([one.value - exact.value for one in found])

    assert exact.exact
    assert not any(one.exact for one in found)
    assert {one.pairs for one in found} == {400}
    assert np.sqrt(np.mean((away / errors) ** 2)) == pytest.approx(1, abs=0.15)
    assert uniformity(space, pairs=40_000).error == pytest.approx(errors.mean() / 10, rel=0.1)


def test_every_pair_is_drawn_equally_often_and_no_vector_with_itself():
    """Four directions in a plane, whose six cosines are in six bins: 5,000 draws."""
    angles = np.radians([0, 25, 75, 170])
    space = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    drawn = np.zeros(40, dtype=int)
    for seed in range(1000):
        drawn += geometry_report(space, pairs=5, seed=seed).histogram.random
    expected = geometry_report(space).histogram.random

    assert sorted(expected) == [0] * 34 + [1] * 6
    assert (drawn > 0).tolist() == [count > 0 for count in expected]
    assert drawn[drawn > 0] == pytest.approx(5_000 / 6, abs=5 * math.sqrt(5_000 * 5 / 36))


def test_the_seed_decides_the_sample():
    """The same one gives the same value to the last bit, another one another."""
    space = vectors(100, seed=6)
    assert uniformity(space, pairs=50, seed=1) == uniformity(space, pairs=50, seed=1)
    assert uniformity(space, pairs=50, seed=1) != uniformity(space, pairs=50, seed=2)


def test_pairs_are_sampled_above_a_size_only(monkeypatch):
    """And never more of them than there are: then each is taken once."""
    monkeypatch.setattr(geometry, "EXACT_ROWS", 30)
    monkeypatch.setattr(geometry, "SAMPLED_PAIRS", 100)
    space = vectors(31, seed=7)
    reports = [uniformity(space[:30]), uniformity(space), uniformity(space, pairs=464), uniformity(space, pairs=465)]

    assert [(one.pairs, one.exact) for one in reports] == [(435, True), (100, False), (464, False), (465, True)]
    assert reports[3].value == pytest.approx(uniformity_by_the_book(space), abs=1e-12)
    assert uniformity(space, pairs=1).error is None


# the report


def test_the_report_holds_every_measure_and_both_histograms():
    """The same numbers as those of the functions, and cosines counted as NumPy counts them."""
    space, left, right = vectors(50, seed=8), vectors(20, seed=9), vectors(20, seed=10)
    right[:5] = 3 * left[:5]
    report = geometry_report(space, positives=(left, right), bins=8)
    near = [sum(np.multiply(u, v)) for u, v in zip(directions(left), directions(right), strict=True)]
    expected = [np.histogram(np.clip(values, -1, 1), bins=8, range=(-1, 1))[0] for values in (near, cosines(space))]

    assert report.scores == {
        "alignment": alignment(left, right),
        "uniformity": uniformity(space).value,
        "anisotropy": anisotropy(space),
        "effective_rank": effective_rank(space),
    }
    assert (report.rows, report.dim, report.zeros, report.positives, report.random_pairs) == (50, 6, 0, 20, 1225)
    assert report.exact
    assert report.histogram.edges == (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)
    assert [report.histogram.positive, report.histogram.random] == [tuple(counts) for counts in expected]
    assert report.histogram.positive[-1] >= 5
    assert sum(report.histogram.positive) == 20


def test_the_report_becomes_json():
    """All measures by name, the error and the seed next to them."""
    space = vectors(40, seed=11)
    report = geometry_report(space, positives=(space, space), pairs=99, seed=3)
    written = json.loads(json.dumps(report.to_dict(), allow_nan=False))

    assert written == report.to_dict()
    assert {name: written[name] for name in geometry.MEASURES} == report.scores
    assert written["uniformity"] == uniformity(space, pairs=99, seed=3).value
    assert written["uniformity_error"] == uniformity(space, pairs=99, seed=3).error
    assert (written["random_pairs"], written["exact"], written["seed"]) == (99, False, 3)
    assert sum(written["histogram"]["random"]) == 99


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (np.zeros((0, 3)), {}),
        (np.ones((1, 3)), {"effective_rank": 0}),
        (np.zeros((1, 3)), {"effective_rank": 0}),
        (np.ones((2, 3)), {"uniformity": 0, "anisotropy": 1, "effective_rank": 0}),
        (np.zeros((2, 3)), {"uniformity": 0, "anisotropy": 0, "effective_rank": 0}),
        (np.array([[0, 0], [0, 5]]), {"uniformity": -2, "anisotropy": 0, "effective_rank": 1}),
        (np.array([[3], [-5]]), {"uniformity": -8, "anisotropy": -1, "effective_rank": 1}),
    ],
)
@pytest.mark.parametrize("pairs", [None, 1])
def test_tiny_spaces_have_finite_measures_or_none(space, expected, pairs):
    """What needs more vectors is left out, and None in JSON."""
    report = geometry_report(space.astype(np.float32), pairs=pairs)

    assert report.scores == pytest.approx(expected, abs=1e-12)
    assert report.zeros == (~space.any(axis=1)).sum()
    written = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert {name for name in geometry.MEASURES if written[name] is None} == set(geometry.MEASURES) - set(expected)
    assert written["uniformity_error"] == (None if len(space) < 2 else 0)
    assert sum(written["histogram"]["random"]) == written["random_pairs"] == len(space) * (len(space) - 1) // 2
    assert alignment(space[:0], space[:0]) is None


def test_a_zero_vector_has_a_cosine_of_0_and_no_direction():
    """It takes part in all pairs, is counted, and is no NaN."""
    space = np.array([[0, 0], [4, 0], [0, 0.1], [0, 0]], dtype=np.float32)
    report = geometry_report(space, positives=(space, space[[1, 0, 2, 3]]), bins=2)

    assert report.zeros == 2
    assert report.scores["alignment"] == pytest.approx(0.5)
    assert report.scores["anisotropy"] == 0
    assert report.scores["uniformity"] == pytest.approx(math.log((1 + math.exp(-4) + 4 * math.exp(-2)) / 6))
    assert report.histogram.positive == (0, 4)


# blocks and memory


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("numbers", [1, 7, 50, 240, 241])
def test_the_size_of_the_blocks_does_not_matter(monkeypatch, numbers, exact):
    """One vector at a time, or blocks that end unevenly: the pairs drawn are the same, all but the last bits too."""
    space, right = vectors(40, seed=12), vectors(40, seed=13)
    monkeypatch.setattr(geometry, "EXACT_ROWS", 40 if exact else 39)
    monkeypatch.setattr(geometry, "SAMPLED_PAIRS", 333)
    expected, raw = geometry_report(space, positives=(space, right)), effective_rank(space, normalize=False)
    monkeypatch.setattr(vectors_module, "NUMBERS", numbers)
    found = geometry_report(space, positives=(space, right))

    assert found.scores == pytest.approx(expected.scores, rel=1e-12, abs=1e-14)
    assert found.uniformity_error == pytest.approx(expected.uniformity_error, rel=1e-12)
    assert found.histogram == expected.histogram
    assert (found.random_pairs, found.exact) == ((780, True) if exact else (333, False))
    assert effective_rank(space, normalize=False) == pytest.approx(raw, rel=1e-12)


def test_a_million_vectors_need_bounded_memory():
    """Windows over one long row of numbers: a million vectors of 128 MB that take up 4 MB themselves."""
    row = np.random.default_rng(14).standard_normal(1_000_031).astype(np.float32)
    space = np.lib.stride_tricks.sliding_window_view(row, 32)
    tracemalloc.start()
    try:
        report = geometry_report(space, positives=(space[:-1], space[1:]), pairs=100_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 64e6
    assert (report.rows, report.positives, report.random_pairs, report.exact) == (1_000_000, 999_999, 100_000, False)
    assert report.scores["uniformity"] == pytest.approx(-4 + math.log(hyp0f1(16, 4.0)), abs=0.02)
    assert report.scores["anisotropy"] == pytest.approx(0, abs=1e-3)
    assert report.scores["effective_rank"] == pytest.approx(32, abs=0.1)
    assert report.scores["alignment"] == pytest.approx(2, abs=0.01)


def test_the_vectors_stay_as_they_are():
    """Double precision needs no conversion, and is not written to either."""
    space = vectors(9, seed=15).astype(np.float64)
    before = space.copy()
    geometry_report(space, positives=(space, space))
    assert (space == before).all()


# refusals


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda space: uniformity(space, pairs=0), "pairs must be 1 or more, got 0"),
        (lambda space: geometry_report(space, pairs=-1), "pairs must be 1 or more, got -1"),
        (lambda space: geometry_report(space, bins=0), "bins must be 1 or more, got 0"),
        (lambda space: cosine_counts(space, space, bins=0), "bins must be 1 or more, got 0"),
        (lambda space: uniformity(space[:, :0]), "vectors must have a width of 1 or more, got 0"),
        (lambda space: alignment(space, space * [[1], [1], [np.nan]]), "right must be finite, row 2 is not"),
        (lambda space: alignment(space * [[1], [np.inf], [1]], space), "left must be finite, row 1 is not"),
        (lambda space: cosine_counts(space, space * [[1], [1], [np.nan]]), "right must be finite, row 2 is not"),
        *(
            (
                lambda space, measure=measure: measure(space * [[1], [np.nan], [1]]),
                "vectors must be finite, row 1 is not",
            )
            for measure in (uniformity, anisotropy, effective_rank, geometry_report)
        ),
    ],
)
@pytest.mark.parametrize("numbers", [1, 1000])
def test_what_cannot_be_measured_is_refused(monkeypatch, numbers, call, message):
    """What came, and in which row, whatever the size of the blocks."""
    monkeypatch.setattr(vectors_module, "NUMBERS", numbers)
    with pytest.raises(SettingError, match=message):
        call(np.ones((3, 2)))


@pytest.mark.parametrize("measure", [alignment, cosine_counts, lambda x, y: geometry_report(x, positives=(y, y))])
def test_sides_of_different_widths_are_refused(measure):
    """Two models, or the wrong file."""
    with pytest.raises(ShapeError):
        measure(vectors(2, seed=1, width=4), vectors(2, seed=1, width=5))
