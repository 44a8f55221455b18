"""Neighbors among vectors on disk: against all comparisons, in one cell and in many, in little memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nearfar.batching import Clusters, EmbeddingSampler, NearestNeighbors, Search, SharedNeighbors, VectorFile, centers
from nearfar.batching import cells as module
from nearfar.batching.cells import Cells
from nearfar.errors import NotFiniteError, SettingError

ONE = Search(exact_rows=10**9)
MANY = Search(list_rows=40, probes=2, recall=0.0)


def points(rows, d=12, seed=0, topics=30):
    source = np.random.default_rng(seed)
    centers = source.standard_normal((topics, d))
    return (centers[source.integers(0, topics, rows)] + 0.4 * source.standard_normal((rows, d))).astype(np.float32)


def stored(vectors):
    file = VectorFile(vectors.shape[1])
    for some in np.array_split(vectors, 3):
        file.append(some)
    return file


def all_of(file):
    return file.read(0, len(file))


def exact(queries, vectors, k):
    return np.argsort(-(queries.astype(np.float64) @ vectors.T.astype(np.float64)), axis=1, kind="stable")[:, :k]


def test_vectors_are_read_back_with_length_1():
    vectors = points(500)
    file = stored(vectors)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert file.shape == (500, 12)
    np.testing.assert_allclose(all_of(file), unit, atol=6e-4)
    rows = np.random.default_rng(1).permutation(500)
    assert np.array_equal(file.gather(rows), all_of(file)[rows])
    assert np.array_equal(file.gather(np.arange(7, 90)), all_of(file)[7:90])
    assert file.gather(np.zeros(0, dtype=np.int64)).shape == (0, 12)
    with pytest.raises(NotFiniteError, match="row 1 is not finite"):
        file.append(np.array([[1.0] * 12, [np.nan] * 12], dtype=np.float32))


@pytest.mark.parametrize("search", [ONE, replace(MANY, probes=1000), replace(MANY, recall=1.0)])
def test_all_cells_give_the_true_neighbors(search, monkeypatch):
    """With one cell, with all of many, and with as many as it takes; a block of queries at a time."""
    monkeypatch.setattr(module, "LEAST", 100)
    file, queries, source = stored(points(700)), stored(points(330, seed=1)), np.random.default_rng(5)
    cells = Cells(file, replace(search, memory=100_000), source)
    cells.probes = cells.cells if search.recall != 1.0 else cells.probes
    recall = cells.tune(file, 5, source, queries)
    blocks = list(cells.nearest(queries, 6))
    assert len(blocks) > 1
    order = np.argsort(np.concatenate([block.rows for block in blocks]))
    assert np.array_equal(np.sort(np.concatenate([block.rows for block in blocks])), np.arange(330))
    ids = np.concatenate([block.ids for block in blocks])[order]
    scores = np.concatenate([block.scores for block in blocks])[order]
    truth = exact(all_of(queries), all_of(file), 6)
    np.testing.assert_allclose(scores, np.einsum("qd,qkd->qk", all_of(queries), all_of(file)[ids]), atol=1e-5)
    assert recall == 1.0
    assert (ids == truth).mean() > 0.99


def test_cells_hold_every_vector_once():
    file = stored(points(700))
    cells = Cells(file, replace(MANY, memory=1), np.random.default_rng(1))
    assert cells.cells == 17
    assert np.array_equal(np.sort(cells.rows), np.arange(700))
    assert np.array_equal(all_of(cells.file), all_of(file)[cells.rows])
    own = [
        all_of(cells.file)[a:b] @ cells.centers.vectors.T for a, b in zip(cells.bounds, cells.bounds[1:], strict=False)
    ]
    assert all((part.argmax(axis=1) == cell).all() for cell, part in enumerate(own))


def test_many_centers_are_found_by_their_groups(monkeypatch):
    """All of them where all are asked for; else nearly those that a comparison with each gives."""
    monkeypatch.setattr(centers, "FLAT", 16)
    monkeypatch.setattr(centers, "GROUPS", 3)
    file = stored(points(4000, topics=200))
    cells = Cells(file, replace(MANY, memory=10**6), np.random.default_rng(1))
    assert 90 <= cells.cells <= 110
    assert np.array_equal(np.sort(cells.rows), np.arange(4000))
    queries = all_of(file)[:500]
    truth = exact(queries, cells.centers.vectors, 4)
    assert (cells.centers.nearest(queries, 1)[:, 0] == truth[:, 0]).mean() > 0.95
    every = cells.centers.nearest(queries, cells.cells)
    assert (np.sort(every, axis=1) == np.arange(cells.cells)).all()
    assert cells.tune(file, 5, np.random.default_rng(2)) > 0.5
    monkeypatch.setattr(module, "LEAST", 100)
    blocks = list(cells.nearest(None, 3))
    assert len(blocks) > 1
    assert np.array_equal(np.sort(np.concatenate([block.rows for block in blocks])), np.arange(4000))
    for block in blocks:
        np.testing.assert_allclose(block.scores[:, 0], 1, atol=1e-3)  # each is the nearest to itself
        assert (block.ids[:, 0] == block.rows).mean() > 0.99


def test_more_cells_are_compared_until_enough_is_found():
    file = stored(points(900, topics=900))
    few = Cells(file, MANY, np.random.default_rng(1))
    recall = few.tune(file, 7, np.random.default_rng(2))
    more = Cells(file, replace(MANY, recall=0.95), np.random.default_rng(1))
    assert recall < 0.9
    assert more.tune(file, 7, np.random.default_rng(2)) >= 0.95
    assert few.probes == 1 < more.probes
    truth = exact(all_of(file), all_of(file), 8)
    found = np.concatenate([block.ids for block in few.nearest(file, 8)])
    share = np.mean([len({*a[1:]} & {*b[1:]}) / 7 for a, b in zip(truth.tolist(), found.tolist(), strict=True)])
    assert share == pytest.approx(recall, abs=0.06)


@pytest.mark.parametrize("grouping", [NearestNeighbors(candidates=30), SharedNeighbors(neighbors=6)])
def test_groups_from_disk_are_those_from_memory(grouping):
    """Of the same numbers, in one cell."""
    file = stored(points(600))
    same = np.random.default_rng(9).integers(0, 200, 600)
    disk = grouping.groups(file, np.random.default_rng(3), same)
    memory = grouping.groups(all_of(file), np.random.default_rng(3), same)
    if isinstance(grouping, SharedNeighbors):  # whose shingles are drawn after the sample that measures the recall
        assert (np.diff(disk.bounds) > 1).mean() == pytest.approx((np.diff(memory.bounds) > 1).mean(), abs=0.1)
    else:
        assert np.array_equal(disk.order, memory.order)
        assert np.array_equal(disk.bounds, memory.bounds)
    assert (disk.recall, disk.exact) == (1.0, False)


def test_a_sampler_takes_vectors_on_disk():
    file = stored(points(600))
    sampler = EmbeddingSampler(rows=600, size=32, seed=3, vectors=lambda: file, grouping=NearestNeighbors(search=MANY))
    batches = sampler.batches(0)
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(600))
    assert all(np.array_equal(a, b) for a, b in zip(batches, sampler.batches(0), strict=True))
    assert sampler.report is not None
    assert sampler.report.similarity > sampler.report.random + 0.1
    assert 0.2 < sampler.report.recall <= 1
    assert "approximate search (recall" in str(sampler.report)
    with pytest.raises(SettingError, match=r'raise batches\.memory, or set batches\.shuffle = "neighbors"'):
        Clusters().groups(file, np.random.default_rng(1))
