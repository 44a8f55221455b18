"""ProxyNCA: against its formula, another library and closed forms. (Laws shared by all: test_contract.py.)"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.losses import ProxyNCALoss
from torch import Tensor, nn

from nearfar.errors import SettingError, ShapeError
from nearfar.objectives import ProxyNCA


def random_case(seed: int, **settings: Any) -> tuple[ProxyNCA, Tensor, Tensor]:
    """A float64 objective of two to five classes, with one to nine embeddings; some classes have one text or none."""
    source = torch.Generator().manual_seed(seed)
    n, d, c = (int(torch.randint(low, high, (), generator=source)) for low, high in ((1, 10), (2, 7), (2, 6)))
    objective = ProxyNCA(c, d, **settings).double()
    objective.proxies.data = torch.randn(c, d, dtype=torch.float64, generator=source)
    embeddings = torch.randn(n, d, dtype=torch.float64, generator=source)
    return objective, embeddings, torch.randint(0, c, (n,), generator=source)


def by_the_book(embeddings: Tensor, labels: Tensor, proxies: Tensor, scale: float, power: int = 2) -> float:
    """The docstring's equations, one loop per sum sign, no tensor tricks."""
    z, p = ([[x / math.hypot(*row) for x in row] for row in rows.tolist()] for rows in (embeddings, proxies))
    costs = []
    for row, y in zip(z, labels.tolist(), strict=True):
        weights = [math.exp(-scale * math.dist(row, proxy) ** power) for proxy in p]
        costs.append(-math.log(weights[y] / sum(weight for c, weight in enumerate(weights) if c != y)))
    return sum(costs) / len(costs)


@given(st.integers(0, 2**16), st.sampled_from([0.3, 1.0, 8.0]), st.sampled_from(["squared", "euclidean"]))
def test_matches_the_formula_written_as_loops(seed, scale, distance):
    """Distances spelled out, the own proxy left out of the sum below; eq. 3 of TripleEntropy has no square."""
    objective, embeddings, labels = random_case(seed, scale=scale, distance=distance)
    expected = by_the_book(embeddings, labels, objective.proxies, scale, 2 if distance == "squared" else 1)

    assert objective(embeddings, labels).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_is_what_pytorch_metric_learning_takes_the_softplus_of():
    """It keeps the own proxy in the sum below: log(1 + exp) of each text's cost, in value and gradients."""
    for seed in range(200):
        scale = (0.5, 1.0, 4.0)[seed % 3]
        objective, embeddings, labels = random_case(seed, scale=scale)
        other = ProxyNCALoss(*objective.proxies.shape, softmax_scale=scale)
        other.proxies = nn.Parameter(objective.proxies.detach().clone())
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        costs = torch.stack([objective(ours[i : i + 1], labels[i : i + 1]) for i in range(len(labels))])
        found, expected = F.softplus(costs).mean(), other(theirs, labels)
        found.backward()
        expected.backward()

        torch.testing.assert_close(objective(ours, labels), costs.mean())
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(objective.proxies.grad, other.proxies.grad, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("c", [2, 3, 77])
def test_equal_proxies_cost_the_log_of_the_number_of_other_classes(c):
    """The classes cannot be distinguished."""
    objective = ProxyNCA(c, 3)
    nn.init.ones_(objective.proxies)

    assert objective(torch.randn(5, 3), torch.arange(5) % c).item() == pytest.approx(math.log(c - 1), abs=1e-5)


def test_a_text_at_its_proxy_and_opposite_the_other_costs_minus_four_times_the_scale():
    """The squared distance across the sphere is 4, and the least of all values."""
    objective = ProxyNCA(2, 2, scale=3.0)
    objective.proxies.data = torch.tensor([[5.0, 0.0], [-0.1, 0.0]])

    assert objective(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).item() == pytest.approx(-12.0)
    assert objective(torch.tensor([[2.0, 0.0]]), torch.tensor([1])).item() == pytest.approx(12.0)


def test_lengths_do_not_matter():
    """Neither those of embeddings nor those of proxies."""
    objective, embeddings, labels = random_case(3)
    before = objective(embeddings, labels)
    objective.proxies.data *= 7

    torch.testing.assert_close(objective(0.01 * embeddings, labels), before)


def test_a_high_scale_stays_finite():
    """At a scale of 1e4 exponentials overflow, their logarithms do not."""
    objective, embeddings, labels = random_case(1, scale=1e4)
    loss = objective.float()(embeddings.float(), labels)
    loss.backward()

    assert loss.isfinite()
    assert objective.proxies.grad.isfinite().all()


def test_proxies_start_in_any_direction_with_about_unit_length():
    """So that the learning rate means the same for any width; they are saved."""
    objective = ProxyNCA(200, 64)
    lengths = objective.proxies.detach().norm(dim=1)

    assert list(objective.state_dict()) == ["proxies"]
    assert lengths.min() > 0.5
    assert lengths.max() < 1.5
    assert F.normalize(objective.proxies.detach(), dim=1).mean(dim=0).norm() < 0.2


def test_embeddings_of_another_width_and_labels_outside_the_classes_are_refused():
    """A negative label too: no text is left out silently."""
    objective = ProxyNCA(3, 4)

    with pytest.raises(ShapeError, match=r"proxies must be \(c, d\) with d = 5 as in embeddings, got shape \(3, 4\)"):
        objective(torch.ones(2, 5), torch.tensor([0, 1]))
    for wrong in (3, -1, -100):
        with pytest.raises(SettingError, match="labels must be from 0 to 2"):
            objective(torch.ones(2, 4), torch.tensor([0, wrong]))
