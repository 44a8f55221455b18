"""Samplers: every row once, exact lengths, the same order for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.batching import FileOrder, RandomOrder
from nearfar.errors import SettingError

SAMPLERS = {
    "random": lambda rows, size: RandomOrder(rows=rows, size=size, seed=3),
    "file order": lambda rows, size: FileOrder(rows=rows, size=size),
}


@pytest.mark.parametrize("kind", SAMPLERS)
@given(st.integers(1, 200), st.integers(1, 50), st.integers(0, 5))
def test_every_row_exactly_once_and_the_length_is_exact(kind, rows, size, epoch):
    """The sampler's law: len(s) is the number of batches, and together they are the data set."""
    sampler = SAMPLERS[kind](rows, size)
    batches = sampler.batches(epoch)

    assert len(batches) == len(sampler)
    assert sorted(np.concatenate(batches).tolist()) == list(range(rows))
    assert all(len(batch) == size for batch in batches[:-1])


def test_an_order_depends_on_seed_and_epoch_alone():
    """Asked twice, or after another epoch, an epoch has the same batches; another seed or epoch has others."""
    sampler = RandomOrder(rows=50, size=8, seed=3)
    first = np.concatenate(sampler.batches(1))
    sampler.batches(0)

    assert np.concatenate(sampler.batches(1)).tolist() == first.tolist()
    assert np.concatenate(sampler.batches(0)).tolist() != first.tolist()
    assert np.concatenate(RandomOrder(rows=50, size=8, seed=4).batches(1)).tolist() != first.tolist()


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize(("rows", "size"), [(0, 4), (4, 0)])
def test_impossible_settings_are_refused(kind, rows, size):
    """No rows, or batches of nothing."""
    with pytest.raises(SettingError):
        SAMPLERS[kind](rows, size)
