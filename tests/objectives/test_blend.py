"""Blend: a weighted sum, what it remembers, what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from nearfar.errors import SettingError
from nearfar.objectives import Blend, Contrastive, LabelAware, ProxyNCA, SoftTriple, SupCon


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(7, 3, dtype=torch.float64, generator=source), torch.arange(7) % 3


def blend() -> Blend:
    """Three parts, two of them with weights of their own, one that counts negatively."""
    return Blend({
        "soft-triple": (0.5, SoftTriple(3, 3, centers=2)), "supcon": (2, SupCon()), "proxies": (-0.1, ProxyNCA(3, 3)),
    }).double()  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_is_the_weighted_sum_of_its_parts_in_value_and_gradients(seed):
    """For the embeddings and for every weight of a part."""
    objective, (embeddings, labels) = blend(), batch(seed)
    one, two, three = (copy.deepcopy(part) for part in objective.objectives.values())
    ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    found = objective(ours, labels)
    expected = 0.5 * one(theirs, labels) + 2 * two(theirs, labels) - 0.1 * three(theirs, labels)
    found.backward()
    expected.backward()

    assert found.ndim == 0
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(objective.objectives["soft-triple"].centers.grad, one.centers.grad)
    torch.testing.assert_close(objective.objectives["proxies"].proxies.grad, three.proxies.grad)


def test_gradients_are_those_of_the_value():
    """Central differences agree."""
    objective, (embeddings, labels) = blend(), batch()

    assert torch.autograd.gradcheck(lambda z: objective(z, labels), (embeddings.requires_grad_(),))


def test_remembers_each_part_of_the_last_call_before_weighting_and_without_a_graph():
    """In the order they were given; nothing before the first call."""
    objective = blend()
    assert objective.parts == {}
    for seed in range(2):
        embeddings, labels = batch(seed)
        objective(embeddings.requires_grad_(), labels)

    assert list(objective.parts) == ["soft-triple", "supcon", "proxies"]
    for name, value in objective.parts.items():
        torch.testing.assert_close(value, objective.objectives[name](embeddings, labels).detach())
        assert not value.requires_grad


def test_hands_on_whatever_it_is_called_with():
    """More arguments than two, by place and by name."""
    embeddings, labels = batch()
    even = torch.full((7, 3), 1 / 3, dtype=torch.float64)
    objective = Blend({"label-aware": (3.0, LabelAware())})

    torch.testing.assert_close(objective(embeddings, labels, even), 3 * LabelAware()(embeddings, labels, even))
    torch.testing.assert_close(
        objective(embeddings, labels=labels, class_probabilities=even), 3 * LabelAware()(embeddings, labels, even)
    )


def test_a_blend_of_blends_is_a_blend():
    """Weights multiply."""
    embeddings, labels = batch()
    outer = Blend({"inner": (0.5, Blend({"a": (4.0, SupCon())})), "b": (1.0, Contrastive())})

    torch.testing.assert_close(
        outer(embeddings, labels), 2 * SupCon()(embeddings, labels) + Contrastive()(embeddings, labels)
    )


def test_a_part_of_weight_zero_is_remembered_but_moves_nothing():
    """It may be watched without being trained for."""
    embeddings, labels = batch()
    objective = Blend({"watched": (0.0, SupCon()), "trained": (1.0, Contrastive())})

    torch.testing.assert_close(objective(embeddings, labels), Contrastive()(embeddings, labels))
    assert objective.parts["watched"] > 0


def test_weights_of_the_parts_are_saved_and_moved_with_it():
    """By the names of the parts."""
    objective = blend()

    assert list(objective.state_dict()) == ["objectives.soft-triple.centers", "objectives.proxies.proxies"]
    assert {parameter.dtype for parameter in objective.float().parameters()} == {torch.float32}


@pytest.mark.parametrize(("parts", "message"), [
    ({}, r"^Blend: at least one part is needed"),
    ([(1.0, SupCon())], r"^Blend: parts must be named, got list; try"),
    ({"a": (1.0, SupCon()), "b": (float("nan"), SupCon())}, r"^Blend: weight of 'b' must be a finite number, got nan; try"),
    ({"b": (float("-inf"), SupCon())}, r"^Blend: weight of 'b' must be a finite number, got -inf; try"),
    ({"a": (0, SupCon()), "b": (0.0, SupCon())}, r"^Blend: a weight must be other than 0, got 0 for 'a', 'b'; try"),
    ({"b": SupCon()}, r"^Blend: 'b' must be \(weight, objective\), got SupCon\(\); try"),
    ({"b": (SupCon(), 1.0)}, r"^Blend: 'b' must be \(weight, objective\), got \(SupCon\(\), 1.0\); try"),
    ({"b": (1.0, SupCon)}, r"^Blend: 'b' must be \(weight, objective\), got .*; try"),
    ({"b": (1.0, SupCon(), 2)}, r"^Blend: 'b' must be \(weight, objective\), got .*; try"),
    ({"b.c": (1.0, SupCon())}, r"^Blend: a part cannot be named 'b\.c'"),
    ({"": (1.0, SupCon())}, r"^Blend: a part cannot be named ''"),
    ({"keys": (1.0, SupCon())}, r"^Blend: a part cannot be named 'keys'"),
])  # fmt: skip
def test_impossible_parts_are_refused_by_name(parts, message):
    """The message names the part, what came, and what to try."""
    with pytest.raises(SettingError, match=message):
        Blend(parts)


def test_a_part_that_is_not_finite_shows():
    """A weight of zero does not hide it."""

    class Broken(nn.Module):
        def forward(self, embeddings: Tensor, _labels: Tensor) -> Tensor:
            return embeddings.sum() * float("nan")

    assert Blend({"broken": (0.0, Broken()), "b": (1.0, SupCon())})(*batch()).isnan()
