"""Heads on two vectors: against their formulas written as loops, their symmetries, and their gradients."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nearfar.encoding.pair_heads import ConcatHead, CosineHead, JointHead, SharedLayer, make_pair_head
from nearfar.errors import SettingError, ShapeError

SYMMETRIC = [
    {"kind": "joint"},
    {"kind": "joint-difference"},
    {"kind": "joint-difference-activated"},
    {"kind": "cosine"},
]
OTHERS = [
    {"kind": "concat"},
    {"kind": "concat", "difference": True, "product": True},
    {"kind": "joint", "symmetric": False},
    {"kind": "joint-difference-activated", "symmetric": False},
]


def made(description: dict[str, Any], dim: int = 3, outputs: int = 2) -> Any:
    torch.manual_seed(5)
    return make_pair_head(description, dim, outputs).double().eval()


def vectors(seed: int, rows: int = 4, dim: int = 3) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    one, other = torch.randn(2, rows, dim, dtype=torch.float64, generator=source)
    return one, other


def layer(linear: Any, values: list[float]) -> list[float]:
    """W x + b, number by number."""
    return [
        sum(w * x for w, x in zip(row, values, strict=True)) + b
        for row, b in zip(linear.weight.tolist(), linear.bias.tolist(), strict=True)
    ]


def by_the_book(head: Any, u: list[float], v: list[float]) -> list[float]:
    """The formulas of the docstrings for one pair."""
    if isinstance(head, CosineHead):
        dot = sum(x * y for x, y in zip(u, v, strict=True))
        return [dot / (math.hypot(*u) * math.hypot(*v))]
    if isinstance(head, ConcatHead):
        seen = u + v
        seen += [abs(x - y) for x, y in zip(u, v, strict=True)] if head.difference else []
        seen += [x * y for x, y in zip(u, v, strict=True)] if head.product else []
        return layer(head.linear, seen)
    bend = math.tanh if head.activated else float
    difference = [x - y for x, y in zip(u, v, strict=True)]
    one = [bend(x) for x in layer(head.order, u)]
    two = [bend(x) for x in layer(head.order if head.symmetric else head.swapped, v)]
    seen = [(x + y) / 2 for x, y in zip(one, two, strict=True)] if head.symmetric else one + two
    if head.difference is not None:
        apart = [abs(x) for x in difference] if head.symmetric else difference
        seen += [bend(x) for x in layer(head.difference, apart)]
    return seen if head.combine is None else layer(head.combine, seen)


@pytest.mark.parametrize("description", SYMMETRIC + OTHERS, ids=str)
@given(seed=st.integers(0, 2**16))
def test_the_head_is_its_formula(description, seed):
    """Batched and literal version agree for every kind and setting."""
    head = made(description)
    one, other = vectors(seed)
    expected = [by_the_book(head, u, v) for u, v in zip(one.tolist(), other.tolist(), strict=True)]

    torch.testing.assert_close(head(one, other), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("description", SYMMETRIC, ids=str)
def test_swapping_the_texts_swaps_nothing(description):
    """Bit for bit, for the heads that promise it."""
    head, (one, other) = made(description), vectors(1)

    assert torch.equal(head(one, other), head(other, one))


@pytest.mark.parametrize("description", OTHERS, ids=str)
def test_the_other_heads_know_left_from_right(description):
    """What is not promised is not there by accident: the test above could fail."""
    head, (one, other) = made(description), vectors(1)

    assert (head(one, other) - head(other, one)).abs().max() > 1e-3


@pytest.mark.parametrize("description", SYMMETRIC + OTHERS, ids=str)
def test_gradients_are_right(description):
    head, (one, other) = made(description), vectors(2)

    assert torch.autograd.gradcheck(head, (one.requires_grad_(), other.requires_grad_()))


@pytest.mark.parametrize("description", SYMMETRIC + OTHERS, ids=str)
def test_a_head_describes_itself(description):
    """An equal head can be made from what the card says."""
    head = made(description)
    again = make_pair_head(head.describe(), 3, head.outputs).double().eval()
    again.load_state_dict(head.state_dict())
    one, other = vectors(3)

    assert torch.equal(again(one, other), head(one, other))
    assert head.describe()["kind"] == description["kind"]


def test_the_activation_and_the_difference_matter():
    """Three kinds with the same weights answer differently."""
    one, other = vectors(4)
    answers = []
    for description in SYMMETRIC[:3]:
        head = made(description)
        head.load_state_dict({name: torch.full_like(weight, 0.3) for name, weight in head.state_dict().items()})
        answers.append(head(one, other))

    assert all((left - right).abs().max() > 1e-3 for left, right in pairwise(answers))


def test_dropout_is_there_while_training_only():
    head, (one, other) = JointHead(3, 1, dropout=0.5).double(), vectors(5, rows=50)

    assert not torch.equal(head.train()(one, other), head(one, other))
    assert torch.equal(head.eval()(one, other), head(one, other))


def test_the_shared_layer_is_a_tanh_of_a_linear_layer():
    shared, (one, _) = SharedLayer(3).double(), vectors(6)
    expected = [[math.tanh(x) for x in layer(shared.linear, row)] for row in one.tolist()]

    torch.testing.assert_close(shared(one), torch.tensor(expected, dtype=torch.float64))


def test_dropout_stands_in_front_of_the_shared_layer_or_inside_it():
    """By its definition: dropped coordinates are zero, the others are divided by what is kept; never in inference."""
    ones = torch.ones(400, 3, dtype=torch.float64)
    front, inside = SharedLayer(3, before=0.25).double(), SharedLayer(3, inside=0.25).double()
    seen = []
    front.linear.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    front.train()(ones)
    assert seen[0].unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert 0.18 < float((seen[0] == 0).double().mean()) < 0.32
    outputs, plain = inside.train()(ones), inside.linear(ones)
    dropped = outputs == 0
    assert 0.18 < float(dropped.double().mean()) < 0.32
    torch.testing.assert_close(outputs[~dropped], torch.tanh(plain / 0.75)[~dropped])
    for layer_ in (front, inside):
        torch.testing.assert_close(layer_.eval()(ones), torch.tanh(layer_.linear(ones)))


def test_impossible_heads_are_refused():
    with pytest.raises(SettingError, match="SharedLayer: dropout must be at least 0 and below 1, got 1"):
        SharedLayer(3, inside=1)
    with pytest.raises(SettingError, match="set difference=True"):
        JointHead(3, 1, activated=True)
    with pytest.raises(SettingError, match="outputs must be 1 or more, got 0"):
        ConcatHead(3, 0)
    with pytest.raises(SettingError, match="below 1, got 1"):
        ConcatHead(3, 1, dropout=1)
    with pytest.raises(ValueError, match="unknown pair head 'joined'"):
        make_pair_head({"kind": "joined"}, 3, 1)
    with pytest.raises(ShapeError):
        CosineHead()(torch.zeros(2, 3), torch.zeros(3, 3))
