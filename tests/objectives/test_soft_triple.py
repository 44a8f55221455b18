"""SoftTriple: against its formula, another library and closed forms. (Laws shared by all: test_contract.py.)"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SoftTripleLoss
from pytorch_metric_learning.regularizers import SparseCentersRegularizer
from pytorch_metric_learning.utils import common_functions
from torch import Tensor, nn

from nearfar.errors import ShapeError
from nearfar.objectives import SoftTriple


def random_case(seed: int, **settings: Any) -> tuple[SoftTriple, Tensor, Tensor]:
    """A float64 objective of two to five classes and up to four centers, with one to nine embeddings."""
    source = torch.Generator().manual_seed(seed)
    n, d, c, k = (
        int(torch.randint(low, high, (), generator=source)) for low, high in ((1, 10), (2, 7), (2, 6), (1, 5))
    )
    objective = SoftTriple(c, d, centers=k, **settings).double()
    objective.centers.data = torch.randn(c, k, d, dtype=torch.float64, generator=source)
    embeddings = torch.randn(n, d, dtype=torch.float64, generator=source)
    return objective, embeddings, torch.randint(0, c, (n,), generator=source)


def unit(vector: list[float]) -> list[float]:
    return [x / math.hypot(*vector) for x in vector]


def dot(u: list[float], v: list[float]) -> float:
    return sum(x * y for x, y in zip(u, v, strict=True))


def by_the_book(
    embeddings: Tensor, labels: Tensor, centers: Tensor, gamma: float, scale: float, margin: float, spread: float
) -> float:
    """The docstring's equations, one loop per sum sign, no tensor tricks."""
    w = [[unit(center) for center in of_class] for of_class in centers.tolist()]
    costs = []
    for row, y in zip(embeddings.tolist(), labels.tolist(), strict=True):
        z = unit(row)
        own = []
        for of_class in w:
            total = sum(math.exp(dot(z, center) / gamma) for center in of_class)
            own.append(sum(math.exp(dot(z, center) / gamma) / total * dot(z, center) for center in of_class))
        right = math.exp(scale * (own[y] - margin))
        costs.append(-math.log(right / (right + sum(math.exp(scale * s) for j, s in enumerate(own) if j != y))))
    k = len(w[0])
    pairs = [
        math.sqrt(2 + 1e-5 - 2 * dot(of_class[i], of_class[j]))
        for of_class in w
        for i in range(k)
        for j in range(i + 1, k)
    ]
    return sum(costs) / len(costs) + (spread * sum(pairs) / (len(w) * k * (k - 1)) if pairs else 0.0)


@given(
    st.integers(0, 2**16), st.sampled_from([0.1, 1.0]), st.sampled_from([3.0, 20.0]), st.sampled_from([0.0, 0.01, 1.0]),
    st.sampled_from([0.0, 0.2, 2.0]),
)  # fmt: skip
def test_matches_the_formula_written_as_loops(seed, gamma, scale, margin, spread):
    """The vectorized and the literal version agree, with one center a class and with several."""
    objective, embeddings, labels = random_case(seed, gamma=gamma, scale=scale, margin=margin, spread=spread)
    expected = by_the_book(embeddings, labels, objective.centers, gamma, scale, margin, spread)

    assert objective(embeddings, labels).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_agrees_with_pytorch_metric_learning_in_value_and_gradients(monkeypatch):
    """Two hundred batches with and without the regularizer; gradients of embeddings and of centers."""
    monkeypatch.setattr(common_functions, "small_val", lambda _dtype: 1e-5)  # it has its own; the paper's code has this
    regularized = 0
    for seed in range(200):
        spread = (0.0, 0.2)[seed % 2]
        objective, embeddings, labels = random_case(seed, gamma=0.2, scale=5.0, margin=0.1, spread=spread)
        c, k, d = objective.centers.shape
        drawn = SparseCentersRegularizer(c, k) if spread and k > 1 else None
        regularized += drawn is not None
        other = SoftTripleLoss(
            c, d, centers_per_class=k, la=5.0, gamma=0.2, margin=0.1, weight_regularizer=drawn, weight_reg_weight=spread
        )  # fmt: skip
        other.fc = nn.Parameter(objective.centers.detach().reshape(c * k, d).T.clone())
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        found, expected = objective(ours, labels), other(theirs, labels)
        found.backward()
        expected.backward()

        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(objective.centers.grad, other.fc.grad.T.reshape(c, k, d), rtol=1e-8, atol=1e-10)
    assert regularized > 50


@pytest.mark.parametrize("c", [2, 7])
def test_equal_centers_cost_the_log_of_the_number_of_classes(c):
    """Without a margin every class is a fair draw, however many centers it has."""
    objective = SoftTriple(c, 3, margin=0.0)
    nn.init.ones_(objective.centers)

    assert objective(torch.randn(5, 3), torch.arange(5) % c).item() == pytest.approx(math.log(c), rel=1e-5)


def test_a_margin_costs_as_if_the_own_class_stood_that_much_farther():
    """With equal centers: log(1 + (c - 1) exp(scale * margin))."""
    objective = SoftTriple(4, 3, margin=0.5, scale=2.0)
    nn.init.ones_(objective.centers)

    assert objective(torch.ones(2, 3), torch.tensor([0, 3])).item() == pytest.approx(math.log1p(3 * math.e), rel=1e-5)


def test_one_center_a_class_is_a_normalized_softmax():
    """The assignment disappears: cross-entropy of scaled cosine similarities."""
    source = torch.Generator().manual_seed(0)
    objective = SoftTriple(3, 4, centers=1, margin=0.0, scale=7.0, spread=0.2)
    embeddings, labels = torch.randn(6, 4, generator=source), torch.tensor([0, 1, 2, 2, 1, 0])
    cosine = torch.cosine_similarity(embeddings.unsqueeze(1), objective.centers.squeeze(1).unsqueeze(0), dim=2)

    torch.testing.assert_close(objective(embeddings, labels), nn.functional.cross_entropy(7.0 * cosine, labels))


def test_opposite_centers_pay_half_their_distance():
    """Two centers a class, 2 apart: the regularizer is 2 / (2 * 1), times its weight."""
    centers = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]] * 3, dtype=torch.float64)
    embeddings, labels = torch.ones(1, 2, dtype=torch.float64), torch.tensor([1])
    values = []
    for spread in (0.0, 0.7):
        objective = SoftTriple(3, 2, centers=2, spread=spread).double()
        objective.centers.data = centers
        values.append(objective(embeddings, labels).item())

    assert values[1] - values[0] == pytest.approx(0.7, rel=1e-5)


@pytest.mark.parametrize("autocast", [False, True])
def test_centers_that_coincide_keep_a_finite_gradient(autocast):
    """The regularizer draws centers together, so they may meet; the square root must survive that."""
    objective = SoftTriple(3, 64, centers=4, spread=0.2)
    objective.centers.data = torch.randn(3, 1, 64, generator=torch.Generator().manual_seed(0)).expand(3, 4, 64).clone()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = objective(torch.ones(2, 64), torch.tensor([0, 2]))
    loss.backward()

    assert loss.isfinite()
    assert objective.centers.grad.isfinite().all()


def test_embeddings_of_another_width_than_the_centers_are_refused():
    """The message names the centers and the embeddings."""
    with pytest.raises(
        ShapeError, match=r"centers must be \(c, k, d\) with d = 5 as in embeddings, got shape \(3, 10, 4\)"
    ):
        SoftTriple(3, 4)(torch.zeros(2, 5), torch.tensor([0, 1]))


def test_centers_follow_the_seed_and_lie_within_the_bound():
    """Drawn evenly within one over the root of their number, from torch's generator."""
    drawn = []
    for _ in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            drawn.append(SoftTriple(8, 50, centers=2).centers.detach())

    assert torch.equal(*drawn)
    assert drawn[0].abs().max() <= 0.25
    assert drawn[0].abs().max() > 0.24
