"""Class-balanced batches: rows of a class share a batch, classes mix, and anchors have positives where possible."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.batching import ClassBalanced, count_without_positive
from nearfar.batching.samplers import even_sizes
from nearfar.errors import SettingError


@given(st.lists(st.integers(0, 6), min_size=1, max_size=150), st.integers(2, 20), st.integers(2, 6), st.integers(0, 3))
def test_any_classes_give_even_batches_of_every_row(labels, size, per_class, epoch):
    """Whatever the classes, the batches have the even sizes, and no row is missing or doubled."""
    per_class = min(per_class, size)
    sampler = ClassBalanced(labels=np.array(labels), size=size, per_class=per_class, seed=1)
    batches = sampler.batches(epoch)

    assert [len(batch) for batch in batches] == even_sizes(len(labels), size, per_class)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("per_class", [2, 4, 8])
@pytest.mark.parametrize("classes", [2, 5, 40])
def test_every_anchor_has_a_positive_where_runs_fill_the_batches(classes, per_class):
    """With counts and size in multiples of a run, every batch is made of whole runs."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), 16))
    batches = ClassBalanced(labels=labels, size=16, per_class=per_class, seed=1).batches(0)

    for batch in batches:
        assert all(count % per_class == 0 for count in Counter(labels[batch].tolist()).values())


@pytest.mark.parametrize("size", [15, 16, 31, 33])
@pytest.mark.parametrize("counts", [(101, 99, 57, 4), (3, 3, 3, 500), (7,) * 60, (33, 1, 1, 65)])
def test_few_anchors_have_no_positive(size, counts):
    """Odd sizes and odd classes: besides classes of one row, only ends of an epoch may leave an anchor without a positive."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))

    for epoch in range(10):
        alone = count_without_positive(labels, ClassBalanced(labels=labels, size=size, seed=1).batches(epoch))
        assert alone <= counts.count(1) + 2


@pytest.mark.parametrize(("size", "most"), [(9, 12), (15, 8), (33, 3)])
def test_runs_are_split_so_that_both_halves_keep_a_positive(size, most):
    """Pairs in batches of odd size: every second batch must split a pair, and hardly any anchor loses its positive."""
    labels = np.repeat(np.arange(20), 50)

    for epoch in range(5):
        assert count_without_positive(labels, ClassBalanced(labels=labels, size=size, seed=1).batches(epoch)) <= most


def test_random_batches_leave_many_anchors_without_a_positive():
    """What the sampler is for: with 60 classes in batches of 16, most rows drawn at random have no positive."""
    labels = np.repeat(np.arange(60), 8)
    shuffled = np.random.default_rng(0).permutation(480).reshape(-1, 16)

    assert count_without_positive(labels, list(shuffled)) > 300
    assert count_without_positive(labels, ClassBalanced(labels=labels, size=16, seed=1).batches(0)) == 0


def test_classes_are_spread_evenly_over_the_epoch():
    """A class of a quarter of the rows has about a quarter of every batch, early and late."""
    labels = np.repeat([0, 1], [100, 300])
    batches = ClassBalanced(labels=labels, size=40, seed=1).batches(0)

    assert all(8 <= int((labels[batch] == 0).sum()) <= 12 for batch in batches)


def test_rows_of_a_class_meet_others_in_every_epoch():
    """Runs are drawn anew: over epochs a row has many different neighbors."""
    labels = np.repeat(np.arange(4), 20)
    sampler = ClassBalanced(labels=labels, size=8, seed=1)
    partners = set()
    for epoch in range(30):
        batch = next(batch for batch in sampler.batches(epoch) if 0 in batch)
        partners |= {int(row) for row in batch if labels[row] == 0}

    assert len(partners) > 15


def test_anchors_without_a_positive_are_counted_like_a_loop():
    """Row by row, looking for another of its class in the batch."""
    source = np.random.default_rng(1)
    labels = source.integers(0, 9, 100)
    batches = np.array_split(source.permutation(100), 13)
    slow = sum(
        all(labels[row] != labels[other] for other in batch if other != row) for batch in batches for row in batch
    )

    assert slow > 0
    assert count_without_positive(labels, batches) == slow


def test_impossible_runs_are_refused_by_name():
    """One row a class has no positive, and a run must fit into a batch."""
    with pytest.raises(SettingError, match=r"per_class must be 2 or more, got 1"):
        ClassBalanced(labels=np.zeros(4, dtype=np.int64), size=4, per_class=1, seed=1)
    with pytest.raises(SettingError, match=r"per_class is 5, but a batch has only 4 rows"):
        ClassBalanced(labels=np.zeros(9, dtype=np.int64), size=4, per_class=5, seed=1)
