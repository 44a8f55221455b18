"""Groups by shingle, the similarity within batches, and the report about it."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.batching import EmbeddingSampler, NearestNeighbors
from nearfar.batching.groups import mean_cosine, shingle_groups
from nearfar.errors import SettingError, ShapeError


def members(groups):
    return [groups.order[start:end].tolist() for start, end in zip(groups.bounds[:-1], groups.bounds[1:], strict=True)]


shingles_and_ids = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=80)


@given(shingles_and_ids, st.integers(2, 8), st.integers(0, 99))
def test_runs_of_a_shingle_are_cut_into_groups(rows, group, seed):
    """Algorithm 2: groups of k of one shingle, and one smaller group of what is left of it."""
    shingles = np.array([shingle for shingle, _ in rows], dtype=np.uint64)
    groups = members(shingle_groups(shingles, group=group, source=np.random.default_rng(seed)))

    assert sorted(row for rows in groups for row in rows) == list(range(len(shingles)))
    for shingle, count in Counter(shingles.tolist()).items():
        mine = [rows for rows in groups if shingles[rows[0]] == shingle]
        assert all(shingles[row] == shingle for rows in mine for row in rows)
        left = [count % group] if count % group else []
        assert sorted(map(len, mine)) == sorted([group] * (count // group) + left)


@given(shingles_and_ids, st.integers(2, 8), st.integers(0, 99))
def test_rows_of_one_id_never_enter_one_group(rows, group, seed):
    """And no more groups are made than the ids and the size demand."""
    shingles, same = (np.array(column) for column in zip(*rows, strict=True))
    groups = members(
        shingle_groups(shingles.astype(np.uint64), group=group, source=np.random.default_rng(seed), same=same)
    )

    assert sorted(row for rows in groups for row in rows) == list(range(len(rows)))
    for rows_of_group in groups:
        assert len({int(same[row]) for row in rows_of_group}) == len(rows_of_group) <= group
        assert len({int(shingles[row]) for row in rows_of_group}) == 1
    for shingle, count in Counter(shingles.tolist()).items():
        most = max(Counter(same[shingles == shingle].tolist()).values())
        assert sum(shingles[rows[0]] == shingle for rows in groups) == max(-(-count // group), most)


def test_groups_come_in_random_order_and_rows_meet_at_random():
    """Shingles do not show in the order of the groups, nor row numbers in which rows share a group."""
    shingles = np.repeat(np.arange(50), 12).astype(np.uint64)
    source = np.random.default_rng(1)
    orders, met = [], set()
    for _ in range(40):
        groups = members(shingle_groups(shingles, group=4, source=source))
        orders.append([int(shingles[rows[0]]) for rows in groups])
        met |= set(next(rows for rows in groups if 0 in rows))

    assert len({tuple(order) for order in orders}) == 40
    assert abs(np.corrcoef(np.arange(150), np.mean(orders, axis=0))[0, 1]) < 0.5
    assert met == set(range(12))


def test_ids_meet_at_random_too():
    """Rows of neighboring ids are not kept apart for ever."""
    same = np.arange(12)
    source = np.random.default_rng(1)
    met = set()
    for _ in range(40):
        groups = members(shingle_groups(np.zeros(12, dtype=np.uint64), group=4, source=source, same=same))
        met |= set(next(rows for rows in groups if 0 in rows))

    assert met == set(same.tolist())


def test_mean_cosine_is_the_mean_over_all_pairs():
    """Against two loops; zero vectors are similar to none."""
    vectors = np.random.default_rng(1).standard_normal((9, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[3] = 0
    slow = [float(one.astype(float) @ two.astype(float)) for one, two in combinations(vectors, 2)]

    assert mean_cosine(vectors) == pytest.approx(np.mean(slow), abs=1e-7)


def blobs(rows=600, d=16):
    source = np.random.default_rng(1)
    centers = source.standard_normal((20, d))
    return (centers[source.integers(0, 20, rows)] + 0.1 * source.standard_normal((rows, d))).astype(np.float32)


def test_the_report_counts_and_compares():
    """Groups as they are in the batches, cosines as a loop finds them, random ones near the mean of all pairs."""
    vectors = blobs()
    sampler = EmbeddingSampler(rows=600, size=16, seed=1, vectors=lambda: vectors)
    batches = sampler.batches(0)
    report = sampler.report
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    slow = [np.mean([one @ two for one, two in combinations(unit[batch], 2)]) for batch in batches]

    assert report is not None
    assert (report.measure, report.exact, report.recall) == ("cosine", True, None)
    assert report.similarity == pytest.approx(np.mean(slow), abs=1e-6)
    assert report.random == pytest.approx(np.mean((unit @ unit.T)[np.triu_indices(600, 1)]), abs=0.03)
    assert report.similarity > report.random + 0.3
    assert 70 <= report.groups <= 100
    assert 8 * 70 <= report.rows_in_groups <= 600
    assert f"{report.groups} groups of {report.rows_in_groups} rows" in str(report)
    assert f"{report.similarity:.3f} (random {report.random:.3f})" in str(report)


def test_a_group_must_fit_into_a_batch():
    """Both settings are named, with what would fit."""
    with pytest.raises(
        SettingError, match=r"batches\.group is 8, but a batch has only 6 rows .*raise size to at least 8"
    ):
        EmbeddingSampler(rows=20, size=6, seed=1, vectors=blobs)
    with pytest.raises(SettingError, match=r"batches\.group must be 2 or more, got 1"):
        EmbeddingSampler(rows=20, size=6, seed=1, vectors=blobs, grouping=NearestNeighbors(group=1))


def test_ids_of_other_rows_are_refused():
    """One id for each row."""
    with pytest.raises(ShapeError, match=r"one id for each of the 20 rows, got shape \(19,\)"):
        EmbeddingSampler(rows=20, size=8, seed=1, vectors=blobs, same=np.arange(19))
