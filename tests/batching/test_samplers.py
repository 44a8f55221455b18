"""Samplers: every row once, exact lengths, the same order for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.batching import (
    ClassBalanced,
    Clusters,
    EmbeddingSampler,
    FileOrder,
    NearestNeighbors,
    RandomOrder,
    Search,
    SharedNeighbors,
    ShingleSampler,
)
from nearfar.batching.samplers import even_sizes
from nearfar.errors import SettingError

APPROXIMATE = Search(exact_rows=0, list_rows=16, probes=2)


def vectors(rows):
    """The same vectors whenever asked, as from an encoder that does not learn."""
    return lambda: np.random.default_rng(rows).standard_normal((rows, 6), dtype=np.float32)


def texts(rows):
    words = np.array(["red", "green", "blue", "car", "house", "soup", "cat", "the", "of", "is"])
    return [" ".join(drawn) for drawn in words[np.random.default_rng(rows).integers(0, len(words), (rows, 3))]]


SAMPLERS: dict[str, Callable[..., Any]] = {
    "random": lambda rows, size, seed=3: RandomOrder(rows=rows, size=size, seed=seed),
    "file order": lambda rows, size, seed=3: FileOrder(rows=rows, size=size),
    "balanced": lambda rows, size, seed=3: ClassBalanced(
        labels=np.random.default_rng(rows).integers(0, 5, rows), size=size, seed=seed
    ),
    "neighbors": lambda rows, size, seed=3: EmbeddingSampler(
        rows=rows, size=size, seed=seed, vectors=vectors(rows), grouping=NearestNeighbors(group=2, candidates=5)
    ),
    "neighbors, approximate": lambda rows, size, seed=3: EmbeddingSampler(
        rows=rows, size=size, seed=seed, vectors=vectors(rows), grouping=NearestNeighbors(group=2, search=APPROXIMATE)
    ),
    "clusters": lambda rows, size, seed=3: EmbeddingSampler(
        rows=rows, size=size, seed=seed, vectors=vectors(rows), grouping=Clusters(group=2)
    ),
    "neighbor ids": lambda rows, size, seed=3: EmbeddingSampler(
        rows=rows, size=size, seed=seed, vectors=vectors(rows), grouping=SharedNeighbors(group=2)
    ),
    "neighbor ids, approximate": lambda rows, size, seed=3: EmbeddingSampler(
        rows=rows, size=size, seed=seed, vectors=vectors(rows), grouping=SharedNeighbors(group=2, search=APPROXIMATE)
    ),
    "words": lambda rows, size, seed=3: ShingleSampler(texts=texts(rows), size=size, seed=seed, group=2),
}
EVEN = ("random", "balanced")
"""Their batches have about the same size; the others fill each one before the next."""
DRAWN = [kind for kind in SAMPLERS if kind != "file order"]


@pytest.mark.parametrize("kind", SAMPLERS)
@given(st.integers(1, 200), st.integers(2, 50), st.integers(0, 5))
def test_every_row_exactly_once_and_the_length_is_exact(kind, rows, size, epoch):
    """The sampler's law: len(s) is the number of batches, and together they are the data set."""
    sampler = SAMPLERS[kind](rows, size)
    batches = sampler.batches(epoch)

    assert len(batches) == len(sampler)
    assert sorted(np.concatenate(batches).tolist()) == list(range(rows))
    assert all(1 <= len(batch) <= size for batch in batches)
    if kind not in EVEN:
        assert all(len(batch) == size for batch in batches[:-1])
    assert all(batch.dtype == np.int64 for batch in batches)


@given(st.integers(1, 500), st.integers(1, 70), st.integers(1, 6))
def test_even_sizes_are_few_and_differ_by_less_than_they_are_multiples_of(rows, size, multiple):
    """As few batches as possible, none too large; all but the last differ by one multiple at most."""
    sizes = even_sizes(rows, size, multiple)
    step = multiple if size % multiple == 0 else 1

    assert sum(sizes) == rows
    assert len(sizes) == -(-rows // size)
    assert all(0 < each <= size for each in sizes)
    assert max(sizes[:-1], default=0) - min(sizes[:-1], default=0) <= step
    assert max(sizes) - sizes[-1] < 2 * step


@pytest.mark.parametrize("kind", EVEN)
def test_no_batch_is_a_remainder_of_the_others(kind):
    """70 texts in batches of at most 64 are not 64 and 6."""
    assert [len(batch) for batch in SAMPLERS[kind](70, 64).batches(0)] in ([35, 35], [36, 34])


@pytest.mark.parametrize("kind", DRAWN)
def test_an_order_depends_on_seed_and_epoch_alone(kind):
    """Asked twice, or after another epoch, an epoch has the same batches; another seed or epoch has others."""
    sampler = SAMPLERS[kind](120, 8)
    first = np.concatenate(sampler.batches(1))
    sampler.batches(0)

    assert np.concatenate(sampler.batches(1)).tolist() == first.tolist()
    assert np.concatenate(sampler.batches(0)).tolist() != first.tolist()
    assert np.concatenate(SAMPLERS[kind](120, 8, seed=4).batches(1)).tolist() != first.tolist()


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_epoch_before_changes_nothing_where_each_epoch_is_drawn_anew(kind):
    """Only samplers that encode every few epochs look at the batches of the epoch before."""
    sampler = SAMPLERS[kind](50, 8)
    before = [np.arange(50)[::-1]]

    assert np.concatenate(sampler.batches(2, before)).tolist() == np.concatenate(sampler.batches(2)).tolist()


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize(("rows", "size"), [(0, 4), (4, 0)])
def test_impossible_settings_are_refused(kind, rows, size):
    """No rows, or batches of nothing."""
    with pytest.raises(SettingError):
        SAMPLERS[kind](rows, size)
