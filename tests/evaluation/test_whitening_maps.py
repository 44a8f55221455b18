"""Whitening and all-but-the-top: what they promise of the vectors, other libraries, composition and the edges."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from nearfar.errors import SettingError, ShapeError
from nearfar.evaluation import Affine, AllButTheTop, Whitening, anisotropy, effective_rank, vectors


def lopsided(rows: int, width: int = 6, seed: int = 1) -> np.ndarray:
    """Correlated coordinates of very different spread, around a point far from zero."""
    source = np.random.default_rng(seed)
    mixed = source.standard_normal((rows, width)) * np.geomspace(3, 0.1, width) @ source.standard_normal((width, width))
    return (mixed + 4).astype(np.float32)


def covariance(vectors: np.ndarray) -> np.ndarray:
    return np.atleast_2d(np.cov(vectors.T.astype(np.float64), bias=True))


# whitening


@given(st.integers(8, 60), st.integers(1, 7), st.integers(0, 2**16))
def test_whitened_vectors_have_zero_mean_and_the_identity_as_covariance(rows, width, seed):
    """Whatever the spread and the mean of the vectors were."""
    space = lopsided(rows, width, seed)
    whitened = Whitening.fit(space).apply(space)

    assert whitened.dtype == np.float32
    np.testing.assert_allclose(whitened.mean(axis=0, dtype=np.float64), np.zeros(width), atol=1e-5)
    np.testing.assert_allclose(covariance(whitened), np.eye(width), atol=1e-4)


def test_whitening_is_that_of_scikit_learn_but_for_the_signs():
    """Which divides by n - 1 where we divide by n."""
    space, others = lopsided(50), lopsided(9, seed=2)
    found = Whitening.fit(space).apply(others)
    expected = PCA(whiten=True).fit(space.astype(np.float64)).transform(others.astype(np.float64)) * (50 / 49) ** 0.5

    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-4, atol=1e-4)


def test_fewer_dimensions_are_the_widest_ones():
    """The first columns of the whole map, which begin with the direction of the largest spread."""
    space = np.diag([1.0, 5.0, 3.0]).repeat(2, axis=0) * np.tile([[1.0], [-1.0]], (3, 1))
    whole, part = Whitening.fit(space), Whitening.fit(space, dims=2)

    assert whole.weight.argmax(axis=0).tolist() == [1, 2, 0]
    np.testing.assert_allclose(part.weight, whole.weight[:, :2])
    np.testing.assert_allclose(part.bias, whole.bias[:2])
    assert part.apply(space).shape == (6, 2)


@pytest.mark.parametrize(
    ("space", "rank"),
    [
        (lopsided(5, width=9), 4),
        (lopsided(40, width=3) @ lopsided(3, width=12, seed=2), 3),
        (np.concatenate([lopsided(30), lopsided(30)], axis=1), 6),
        (np.concatenate([lopsided(30), np.full((30, 1), 1e3)], axis=1).astype(np.float32), 6),
        (np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), 1),
    ],
    ids=[
        "fewer vectors than dimensions",
        "low rank",
        "every coordinate twice",
        "one coordinate the same",
        "two vectors",
    ],
)
@pytest.mark.parametrize("asked", [None, "width"])
def test_directions_that_do_not_exist_are_left_out(space, rank, asked):
    """Rounding is not blown up to a spread of 1, even where all dimensions are asked for."""
    whitening = Whitening.fit(space, dims=None if asked is None else space.shape[1])

    assert whitening.weight.shape == (space.shape[1], rank)
    np.testing.assert_allclose(covariance(whitening.apply(space)), np.eye(rank), atol=1e-3)


def test_whitening_gives_every_direction_the_same_share():
    """What the measures of the geometry say before and after."""
    space = lopsided(500)
    whitened = Whitening.fit(space).apply(space)

    assert effective_rank(whitened, normalize=False) == pytest.approx(6)
    assert effective_rank(space, normalize=False) < 4
    assert abs(anisotropy(whitened)) < 0.01 < 0.1 < anisotropy(space)


@pytest.mark.parametrize("fit", [Whitening.fit, AllButTheTop.fit])
def test_the_order_of_the_vectors_does_not_matter(fit):
    """Signs are settled, so that two fits give one map."""
    space = lopsided(50)
    here, there = fit(space), fit(space[::-1])

    np.testing.assert_allclose(here.weight, there.weight, atol=1e-8)
    np.testing.assert_allclose(here.bias, there.bias, atol=1e-8)


def test_the_largest_coordinate_of_each_direction_is_above_zero():
    """As no library of linear algebra promises by itself."""
    for seed in range(20):
        weight = Whitening.fit(lopsided(30, seed=seed)).weight
        assert (np.take_along_axis(weight, np.abs(weight).argmax(axis=0)[None], axis=0) > 0).all()


# all but the top


@pytest.mark.parametrize("remove", [0, 1, 3])
def test_the_mean_and_the_widest_directions_are_taken_away(remove):
    """Against the formula written as loops, with directions from a singular value decomposition."""
    space, others = lopsided(50), lopsided(9, seed=2)
    mean = space.astype(np.float64).mean(axis=0)
    _, _, axes = np.linalg.svd(space - mean)
    expected = []
    for x in others.astype(np.float64):
        rest = x - mean
        for u in axes[:remove]:
            rest = rest - np.dot(x - mean, u) * u
        expected.append(rest)

    np.testing.assert_allclose(AllButTheTop.fit(space, remove=remove).apply(others), expected, atol=1e-4)


@pytest.mark.parametrize(("width", "removed"), [(1, None), (2, 1), (40, 1), (149, 1), (300, 3), (384, 4)])
def test_a_hundredth_of_the_directions_is_removed_unless_told_otherwise(width, removed):
    """At least one, and never all of them."""
    space = np.random.default_rng(3).standard_normal((2 * width + 2, width)).astype(np.float32)
    if removed is None:
        with pytest.raises(SettingError, match="without 1 of them nothing is left"):
            AllButTheTop.fit(space)
    else:
        assert np.linalg.matrix_rank(AllButTheTop.fit(space).weight) == width - removed


# maps


def test_one_map_after_the_other_is_one_map():
    """All but the top, then whitening of what is left: from the first vectors to the last in one step."""
    space, others = lopsided(80), lopsided(9, seed=2)
    first = AllButTheTop.fit(space, remove=2)
    second = Whitening.fit(first.apply(space))
    both = first.then(second)

    assert both.weight.shape == (6, 4)
    np.testing.assert_allclose(both.apply(others), second.apply(first.apply(others)), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(covariance(both.apply(space)), np.eye(4), atol=1e-3)


def test_maps_may_be_grouped_as_one_likes():
    """(a, b), c and a, (b, c)."""
    source = np.random.default_rng(5)
    a, b, c = (
        Affine(source.standard_normal(shape), source.standard_normal(shape[1])) for shape in [(2, 3), (3, 5), (5, 4)]
    )
    left, right = a.then(b).then(c), a.then(b.then(c))

    np.testing.assert_allclose(left.weight, right.weight)
    np.testing.assert_allclose(left.bias, right.bias)
    np.testing.assert_allclose(left.apply(np.ones((1, 2))), c.apply(b.apply(a.apply(np.ones((1, 2))))), rtol=1e-4)


def test_a_linear_layer_does_the_same():
    """As torch reads it: a weight of (new width, old width) and a bias, in single precision."""
    space = lopsided(50)
    whitening = Whitening.fit(space, dims=4)
    weight, bias = whitening.layer()
    found = F.linear(torch.from_numpy(space), torch.from_numpy(weight), torch.from_numpy(bias))

    assert (weight.shape, weight.dtype, bias.dtype) == ((4, 6), np.float32, np.float32)
    assert weight.flags.c_contiguous
    np.testing.assert_allclose(found.numpy(), whitening.apply(space), atol=1e-3)


def test_nothing_is_mapped_to_nothing():
    """An empty result of the right width."""
    assert Whitening.fit(lopsided(50), dims=4).apply(np.zeros((0, 6))).shape == (0, 4)


# blocks and memory


@pytest.mark.parametrize("numbers", [1, 7, 50, 241])
@pytest.mark.parametrize("fit", [Whitening.fit, AllButTheTop.fit])
def test_the_size_of_the_blocks_does_not_matter(monkeypatch, fit, numbers):
    """Neither for the fit nor for its use."""
    space = lopsided(40)
    expected = fit(space)
    monkeypatch.setattr(vectors, "NUMBERS", numbers)
    found = fit(space)

    np.testing.assert_allclose(found.weight, expected.weight, atol=1e-9)
    np.testing.assert_allclose(found.bias, expected.bias, atol=1e-9)
    np.testing.assert_allclose(found.apply(space), space.astype(np.float64) @ found.weight + found.bias, atol=1e-5)


def test_a_million_vectors_are_whitened_in_bounded_memory():
    """A million vectors of 128 MB that take up 4 MB; the result has 16 MB."""
    row = np.random.default_rng(14).standard_normal(1_000_031).astype(np.float32)
    space = np.lib.stride_tricks.sliding_window_view(row, 32)
    tracemalloc.start()
    try:
        whitened = Whitening.fit(space, dims=4).apply(space)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 64e6
    np.testing.assert_allclose(covariance(whitened), np.eye(4), atol=1e-4)


# refusals


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: Whitening.fit(lopsided(9), dims=0), "dims must be between 1 and 6, the width of the vectors, got 0"),
        (lambda: Whitening.fit(lopsided(9), dims=7), "dims must be between 1 and 6, the width of the vectors, got 7"),
        (lambda: Whitening.fit(lopsided(1)), "Whitening needs two vectors or more to fit, got 1"),
        (lambda: Whitening.fit(np.ones((3, 2))), "Whitening needs vectors that differ: the 3 given are all the same"),
        (lambda: Whitening.fit(np.zeros((3, 2))), "Whitening needs vectors that differ"),
        (lambda: Whitening.fit(lopsided(3) * [[1], [np.nan], [1]]), "vectors must be finite, row 1 is not"),
        (lambda: Whitening.fit(np.ones((3, 0))), "vectors must have a width of 1 or more, got 0"),
        (lambda: AllButTheTop.fit(lopsided(0)), "AllButTheTop needs two vectors or more to fit, got 0"),
        (lambda: AllButTheTop.fit(lopsided(9), remove=-1), "remove must be 0 or more, got -1; try 1"),
        (lambda: AllButTheTop.fit(lopsided(9), remove=6), "spread in 6 directions only, and without 6 of them"),
        (lambda: AllButTheTop.fit(lopsided(3), remove=2), "spread in 2 directions only, and without 2 of them"),
        (lambda: Whitening.fit(lopsided(9)).apply(np.full((1, 6), np.inf)), "vectors must be finite, row 0 is not"),
    ],
)
def test_what_cannot_be_fitted_is_refused(fit, message):
    """What came, and what fits."""
    with pytest.raises(SettingError, match=message):
        fit()


@pytest.mark.parametrize(
    "use",
    [
        lambda: Affine(np.ones((2, 3)), np.ones(2)),
        lambda: Affine(np.ones((2, 3)), np.ones(3)).apply(np.ones((4, 3))),
        lambda: Affine(np.ones((2, 3)), np.ones(3)).then(Affine(np.ones((2, 3)), np.ones(3))),
    ],
    ids=["weight and bias", "map and vectors", "map and map"],
)
def test_widths_that_do_not_fit_are_refused(use):
    """Before anything is multiplied."""
    with pytest.raises(ShapeError):
        use()


def test_directions_narrower_than_asked_are_left_out():
    """By their spread as a part of the length of the vectors, their mean included."""
    source = np.random.default_rng(2)
    vectors = source.standard_normal((500, 3)) * [1.0, 1e-2, 1e-5] + [3.0, 0.0, 0.0]

    widths = [Whitening.fit(vectors, narrowest=part).weight.shape[1] for part in (1e-6, 1e-4, 1e-2)]

    assert widths == [3, 2, 1]
