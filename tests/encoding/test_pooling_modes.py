"""Pooling: token vectors to a text vector, whatever stands in the padding."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nearfar.encoding import POOLINGS, pool
from nearfar.errors import SettingError, ShapeError


@st.composite
def padded_states(draw) -> tuple[Tensor, Tensor, list[range]]:
    """States of one to five texts, padded on one side, their mask, and where each text stands."""
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    left = draw(st.booleans())
    width = max(lengths) + draw(st.integers(0, 2))
    source = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    places = [range(width - length, width) if left else range(length) for length in lengths]
    mask = torch.tensor([[int(place in real) for place in range(width)] for real in places])
    return torch.randn(len(lengths), width, 3, dtype=torch.float64, generator=source), mask, places


@given(padded_states())
def test_mean_is_the_average_of_the_real_tokens(rows):
    """Against a loop over the real tokens of each text, padded left or right."""
    states, mask, places = rows
    expected = torch.stack([sum(states[row, place] for place in real) / len(real) for row, real in enumerate(places)])

    torch.testing.assert_close(pool("mean", states, mask), expected)


@given(padded_states())
def test_first_is_the_first_real_token(rows):
    """Also where the padding stands on the left."""
    states, mask, places = rows
    expected = torch.stack([states[row, real[0]] for row, real in enumerate(places)])

    assert torch.equal(pool("first", states, mask), expected)


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("junk", [1e30, float("inf"), float("nan")])
@given(padded_states())
def test_what_stands_in_the_padding_does_not_matter(pooling, junk, rows):
    """Not even infinity or NaN, which some attention kernels leave there; nor in the gradient."""
    states, mask, _ = rows
    spoiled = states.masked_fill(mask.unsqueeze(-1) == 0, junk).requires_grad_()
    vectors = pool(pooling, spoiled, mask)
    vectors.sum().backward()

    assert torch.equal(vectors, pool(pooling, states, mask))
    assert spoiled.grad.isfinite().all()
    assert (spoiled.grad[mask == 0] == 0).all()


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_row_of_padding_alone_stays_finite(pooling):
    """There is nothing to average, and nothing to divide by."""
    assert pool(pooling, torch.ones(1, 3, 2), torch.zeros(1, 3, dtype=torch.long)).isfinite().all()


def test_the_type_of_the_states_is_kept():
    """A mask of integers or booleans turns half precision into nothing else."""
    states = torch.ones(2, 3, 4, dtype=torch.bfloat16)

    for mask in (torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.bool)):
        assert [pool(pooling, states, mask).dtype for pooling in ("first", "mean")] == [torch.bfloat16] * 2


def test_pooler_is_what_the_encoder_made():
    """And an encoder without a pooler is refused."""
    states, mask, made = torch.zeros(2, 3, 4), torch.ones(2, 3), torch.ones(2, 4)

    assert pool("pooler", states, mask, made) is made
    with pytest.raises(SettingError, match=r"needs an encoder that has a pooler; use 'first' or 'mean'"):
        pool("pooler", states, mask)


def test_unknown_poolings_and_shapes_that_do_not_fit_are_refused():
    """The messages name what fits."""
    assert POOLINGS == ("first", "mean", "pooler", "last")
    with pytest.raises(SettingError, match="one of first, mean, pooler, last, got 'max'"):
        pool("max", torch.zeros(2, 3, 4), torch.ones(2, 3))
    with pytest.raises(ShapeError, match=r"mask must be \(b, l\) with l = 3 as in states, got shape \(2, 5\)"):
        pool("mean", torch.zeros(2, 3, 4), torch.ones(2, 5))
