"""The sampler that reads vectors: when it encodes, what it does in between, and resuming there."""

from __future__ import annotations

import numpy as np
import pytest

from nearfar.batching import Clusters, EmbeddingSampler, NearestNeighbors, SharedNeighbors
from nearfar.errors import SettingError, ShapeError

KINDS = [NearestNeighbors, Clusters, SharedNeighbors]


class Learning:
    """Vectors that are others each time, as from a model in training."""

    def __init__(self, rows=100):
        self.rows, self.times = rows, 0

    def __call__(self):
        self.times += 1
        return np.random.default_rng(self.times).standard_normal((self.rows, 8), dtype=np.float32)


def run(sampler, epochs, previous=None):
    plans = []
    for epoch in epochs:
        previous = sampler.batches(epoch, previous)
        plans.append([batch.tolist() for batch in previous])
    return plans


@pytest.mark.parametrize("kind", KINDS)
def test_every_few_epochs_means_that_often(kind):
    """Encoded in epochs 0, 3 and 6; in between the same batches in another order, and nothing to report."""
    vectors = Learning()
    sampler = EmbeddingSampler(rows=100, size=8, seed=1, vectors=vectors, grouping=kind(group=4), every=3)
    plans = run(sampler, range(7))

    assert vectors.times == 3
    assert sorted(plans[0]) == sorted(plans[1]) == sorted(plans[2]) != sorted(plans[3])
    assert len({str(plan) for plan in plans}) == 7
    assert all(len(plan) == len(sampler) for plan in plans)
    assert sampler.report is not None
    sampler.batches(1, [np.array(batch) for batch in plans[0]])
    assert sampler.report is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_resumed_in_between_goes_on_as_before(kind):
    """A new sampler, given the batches of the epoch before, makes the same next ones without encoding."""
    plans = run(
        EmbeddingSampler(rows=100, size=8, seed=1, vectors=Learning(), grouping=kind(group=4), every=4), range(4)
    )
    vectors = Learning()
    resumed = EmbeddingSampler(rows=100, size=8, seed=1, vectors=vectors, grouping=kind(group=4), every=4)

    assert run(resumed, [2, 3], [np.array(batch) for batch in plans[1]]) == plans[2:]
    assert vectors.times == 0


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_the_epoch_before_are_demanded_and_checked(kind):
    """None, those of other data, and those with a row twice."""
    sampler = EmbeddingSampler(rows=20, size=8, seed=1, vectors=Learning(20), grouping=kind(group=4), every=2)
    rows = np.arange(20)

    with pytest.raises(SettingError, match="epoch 1 takes the batches of the epoch before"):
        sampler.batches(1)
    for wrong in ([], [rows], [rows[:8], rows[8:16], rows[15:19]], [rows[:8], rows[8:16], np.arange(16, 21)]):
        with pytest.raises(SettingError, match="each of the 20 rows once in 3 batches"):
            sampler.batches(1, wrong)
    assert len(sampler.batches(1, [rows[:8], rows[8:16], rows[16:]])) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_of_other_rows_are_refused(kind):
    """One vector for each row."""
    with pytest.raises(ShapeError, match=r"\(rows, d\) with 30 rows, got shape \(29, 8\)"):
        EmbeddingSampler(rows=30, size=8, seed=1, vectors=Learning(29), grouping=kind()).batches(0)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_more_similar_than_random_ones(kind):
    """What all of them are for."""
    source = np.random.default_rng(1)
    centers = source.standard_normal((25, 12))
    vectors = (centers[source.integers(0, 25, 500)] + 0.2 * source.standard_normal((500, 12))).astype(np.float32)
    sampler = EmbeddingSampler(rows=500, size=16, seed=1, vectors=lambda: vectors, grouping=kind())
    sampler.batches(0)

    assert sampler.report is not None
    assert sampler.report.similarity > sampler.report.random + 0.05


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (NearestNeighbors, "candidates"),
        (Clusters, "clusters"),
        (SharedNeighbors, "neighbors"),
        (SharedNeighbors, "shingle_size"),
    ],
)
def test_settings_below_one_are_refused(kind, setting):
    """By name."""
    with pytest.raises(SettingError, match=rf"batches\.{setting} must be 1 or more, got 0"):
        kind(**{{"shingle_size": "shingle"}.get(setting, setting): 0})
    with pytest.raises(SettingError, match=r"batches\.refresh must be 1 or more, got 0"):
        EmbeddingSampler(rows=30, size=8, seed=1, vectors=Learning(), grouping=kind(), every=0)


def test_a_shingle_of_more_neighbors_than_looked_at_is_refused():
    """Before any vector is made."""
    with pytest.raises(SettingError, match=r"shingle_size is 6, but a row has only 5 neighbors"):
        SharedNeighbors(shingle=6)
