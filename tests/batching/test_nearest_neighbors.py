"""Neighbor groups: against Algorithm 1 written as loops, exact and approximate, and at their edges."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.batching import Clusters, NearestNeighbors, Search, SharedNeighbors
from nearfar.batching.nearest_neighbors import unit
from nearfar.errors import NotFiniteError, SettingError

ALL_LISTS = Search(exact_rows=0, list_rows=64, probes=1000)


def points(rows, d=8, seed=0):
    return unit(np.random.default_rng(seed).standard_normal((rows, d)).astype(np.float32))


def members(groups):
    return [groups.order[start:end].tolist() for start, end in zip(groups.bounds[:-1], groups.bounds[1:], strict=True)]


def algorithm_1(vectors, order, group, candidates, same=None):
    """The paper's listing, one row after the other; returns the groups in the order they are made."""
    used, result = set(), []
    similarities = vectors.astype(float) @ vectors.astype(float).T
    for row in order:
        if row in used:
            continue
        nearest = sorted((other for other in range(len(vectors)) if other != row), key=lambda o: -similarities[row, o])
        mine = [row]
        for other in nearest[:candidates]:
            fresh = same is None or all(same[other] != same[member] for member in mine)
            if other not in used and fresh and len(mine) < group:
                mine.append(other)
        used |= set(mine)
        result.append(mine)
    return result


@given(st.integers(1, 90), st.integers(2, 8), st.integers(1, 30), st.booleans(), st.integers(0, 99))
def test_exact_groups_are_those_of_algorithm_1(rows, group, candidates, filtered, seed):
    """The same groups in the same order, row by row, with and without identical rows filtered."""
    vectors = points(rows, seed=seed)
    same = np.random.default_rng(seed).integers(0, 10, rows) if filtered else None
    order = np.random.default_rng(seed).permutation(rows).tolist()  # the first thing drawn
    expected = algorithm_1(vectors, order, group, candidates, same)

    forward, backward = (
        NearestNeighbors(group=group, candidates=candidates, reverse=reverse).groups(
            vectors, np.random.default_rng(seed), same
        )
        for reverse in (False, True)
    )

    assert members(forward) == expected
    assert backward.order.tolist() == forward.order[::-1].tolist()
    assert members(backward) == [rows[::-1] for rows in reversed(expected)]


def test_more_rows_than_a_block_still_follow_the_algorithm():
    """Rows are searched a thousand at once, and used ones passed over: nothing of that shows in the result."""
    vectors = points(2500, d=24)
    order = np.random.default_rng(5).permutation(2500).tolist()
    groups = NearestNeighbors(candidates=40, reverse=False).groups(vectors, np.random.default_rng(5))

    assert members(groups) == algorithm_1(vectors, order, 8, 40)


@pytest.mark.parametrize("filtered", [False, True])
def test_approximate_groups_hold_near_rows_only_once(filtered):
    """Looking into all lists, the approximate search is nearly exact: nearly as similar, and fewer groups of one row."""
    vectors = points(3000, d=6)
    same = np.random.default_rng(1).integers(0, 400, 3000) if filtered else None

    def similarity(groups):
        return np.mean([(vectors[rows] @ vectors[rows].T).mean() for rows in members(groups) if len(rows) > 1])

    exact = NearestNeighbors().groups(vectors, np.random.default_rng(1), same)
    near = NearestNeighbors(search=ALL_LISTS).groups(vectors, np.random.default_rng(1), same)
    random = [
        np.mean(vectors[rows] @ vectors[rows].T) for rows in np.random.default_rng(1).permutation(3000).reshape(-1, 8)
    ]

    assert (exact.exact, near.exact, exact.recall) == (True, False, None)
    assert sorted(near.order.tolist()) == list(range(3000))
    assert near.recall > 0.97
    assert similarity(near) > similarity(exact) - 0.05 > np.mean(random) + 0.3
    assert len(members(near)) <= len(members(exact))
    if same is not None:
        assert all(len(set(same[rows].tolist())) == len(rows) for rows in members(near))


def test_recall_is_measured_and_grows_with_the_lists_looked_into():
    """In points without structure a single list holds few of the nearest; more lists hold more of them."""
    vectors = points(4000, d=24)
    recalls = [
        NearestNeighbors(search=Search(exact_rows=0, list_rows=40, probes=probes))
        .groups(vectors, np.random.default_rng(1))
        .recall
        for probes in (1, 10, 100)
    ]

    assert recalls == sorted(recalls)
    assert 0.02 < recalls[0] < 0.5
    assert recalls[-1] > 0.97


def test_recall_is_one_where_everybody_is_found():
    """Five rows, some of them opposite: all four others are the nearest, and a row is no neighbor of itself."""
    groups = NearestNeighbors(search=ALL_LISTS).groups(points(5, d=3), np.random.default_rng(1))

    assert groups.recall == 1.0


def test_only_so_many_candidates_may_join_even_among_copies():
    """Of equal rows the search may leave out the row itself: still no more than the candidates join."""
    groups = NearestNeighbors(candidates=2).groups(np.ones((60, 1), dtype=np.float32), np.random.default_rng(1))

    assert max(map(len, members(groups))) == 3


def test_clusters_are_found():
    """Well separated blobs: no group has rows of two blobs, and groups are nearly full."""
    blob = np.random.default_rng(1).integers(0, 12, 960)
    vectors = unit((points(12, d=16)[blob] + 0.02 * points(960, d=16, seed=2)).astype(np.float32))
    groups = members(Clusters(group=4, clusters=60).groups(vectors, np.random.default_rng(1)))

    assert all(len(set(blob[rows].tolist())) == 1 for rows in groups)
    assert max(map(len, groups)) == 4
    assert np.mean([len(rows) for rows in groups]) > 3


def test_more_clusters_than_groups_are_not_made():
    """300 clusters of 40 rows would give groups of one row; five hold a group each."""
    groups = members(Clusters().groups(points(40), np.random.default_rng(1)))

    assert np.mean([len(rows) for rows in groups]) > 2.5


@pytest.mark.parametrize("search", [Search(), ALL_LISTS])
def test_rows_of_a_group_share_a_neighbor(search):
    """Every two rows of a group have the drawn ids among their nearest, themselves included."""
    vectors = points(800)
    nearest = np.argsort(-(vectors @ vectors.T), axis=1)[:, :6]
    for shingle in (1, 2):
        groups = members(
            SharedNeighbors(group=4, neighbors=6, shingle=shingle, search=search).groups(
                vectors, np.random.default_rng(1)
            )
        )
        met = [(one, two) for rows in groups for one in rows for two in rows if one < two]
        shared = [len(set(nearest[one]) & set(nearest[two])) for one, two in met]

        assert len(met) > (100 if shingle == 1 else 20)
        assert np.mean([number >= shingle for number in shared]) > (0.999 if search.exact_rows else 0.95)


def test_neighbor_ids_are_drawn_from_all_neighbors():
    """Three pairs of twins: with two neighbors each, twins share a group about every second time (the same of two ids)."""
    vectors = unit(
        np.repeat(np.eye(3), 2, axis=0).astype(np.float32) + np.linspace(0, 0.01, 6, dtype=np.float32)[:, None]
    )
    source = np.random.default_rng(1)
    met = [
        [0, 1] in map(sorted, members(SharedNeighbors(group=2, neighbors=2).groups(vectors, source)))
        for _ in range(400)
    ]

    assert 0.4 < np.mean(met) < 0.6


def test_unit_vectors_are_made_in_place_and_zero_stays_zero():
    """No second copy, unless the array may not be written to."""
    vectors = np.random.default_rng(1).standard_normal((40_000, 3)).astype(np.float32)
    vectors[17] = 0
    frozen = vectors.copy()
    frozen.setflags(write=False)
    expected = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)

    assert unit(vectors) is vectors
    np.testing.assert_allclose(vectors, expected, rtol=1e-5)
    np.testing.assert_array_equal(unit(frozen), vectors)


@pytest.mark.parametrize("search", [Search(), ALL_LISTS])
@pytest.mark.parametrize("rows", [1, 2, 7, 300])
def test_identical_vectors_are_grouped_all_the_same(rows, search):
    """No distances to go by, and all-zero vectors: still every row exactly once."""
    for vectors in (np.ones((rows, 4), dtype=np.float32) / 2, np.zeros((rows, 4), dtype=np.float32)):
        source = np.random.default_rng(1)
        for groups in (
            NearestNeighbors(group=4, search=search).groups(vectors, source),
            SharedNeighbors(group=4, search=search).groups(vectors, source),
            Clusters(group=4).groups(vectors, source),
        ):
            assert sorted(groups.order.tolist()) == list(range(rows))


def test_a_vector_that_is_not_finite_is_refused_with_its_row():
    """Anywhere in the array, not only in the first chunk."""
    vectors = np.ones((20_000, 3), dtype=np.float32)
    vectors[18_001, 2] = np.nan

    with pytest.raises(NotFiniteError, match="row 18001 is not finite"):
        unit(vectors)


def test_too_large_a_shingle_is_refused():
    """More neighbors in common than there are rows."""
    with pytest.raises(SettingError, match=r"from 1 to the number of rows \(3\), got 4"):
        SharedNeighbors(group=2, shingle=4).groups(points(3), np.random.default_rng(1))


def test_without_faiss_the_extra_is_named(monkeypatch):
    """Installed separately: the message says how."""
    monkeypatch.setitem(sys.modules, "faiss", None)

    with pytest.raises(SettingError, match=r"pip install faiss-cpu"):
        NearestNeighbors(group=2).groups(points(9), np.random.default_rng(1))
