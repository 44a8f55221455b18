"""Contrastive: against its formula, another library and closed forms. (Laws shared by all: test_contract.py.)"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.losses import ContrastiveLoss
from pytorch_metric_learning.reducers import DoNothingReducer
from torch import Tensor

from nearfar.objectives import Contrastive
from nearfar.objectives.inputs import same_class


def random_batch(seed: int) -> tuple[Tensor, Tensor]:
    """One to nine float64 embeddings in up to four classes; anchors without a positive included."""
    source = torch.Generator().manual_seed(seed)
    n, d = (int(torch.randint(least, most, (), generator=source)) for least, most in ((1, 10), (2, 7)))
    return torch.randn(n, d, dtype=torch.float64, generator=source), torch.randint(0, 4, (n,), generator=source)


def by_the_book(embeddings: Tensor, labels: Tensor, margin: float) -> float:
    """The docstring's equation, one loop per pair, no tensor tricks."""
    z = [[x / math.hypot(*row) for x in row] for row in embeddings.tolist()]
    costs = []
    for i in range(len(z)):
        for j in range(i + 1, len(z)):
            d = math.dist(z[i], z[j])
            costs.append(d**2 / 2 if labels[i] == labels[j] else max(0.0, margin - d) ** 2 / 2)
    return sum(costs) / len(costs) if costs else 0.0


@given(st.integers(0, 2**16), st.sampled_from([0.3, 1.0, 1.9]))
def test_matches_the_formula_written_as_loops(seed, margin):
    """The vectorized and the literal version agree on every batch, anchors without a positive included."""
    embeddings, labels = random_batch(seed)
    expected = by_the_book(embeddings, labels, margin)

    assert Contrastive(margin=margin)(embeddings, labels).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_agrees_with_pytorch_metric_learning_in_value_and_gradient():
    """It has the distances and the hinges; their half squares and the mean over all ordered pairs are added here."""
    unpaired = 0
    for seed in range(300):
        embeddings, labels = random_batch(seed)
        n = len(labels)
        if n == 1:
            continue
        margin = (0.5, 1.0, 1.6)[seed % 3]
        unpaired += not same_class(labels).any(dim=1).all()
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        hinges = ContrastiveLoss(pos_margin=0, neg_margin=margin, reducer=DoNothingReducer())(theirs, labels)
        pairs = [torch.as_tensor(hinges[side]["losses"]) for side in ("pos_loss", "neg_loss")]
        assert sum(costs.numel() for costs in pairs if costs.ndim) == n * (n - 1)
        found = Contrastive(margin=margin)(ours, labels)
        expected = sum(costs.square().sum() / 2 for costs in pairs) / (n * (n - 1))
        found.backward()
        expected.backward()

        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-10)
    assert unpaired > 100


@pytest.mark.parametrize(("degrees", "labels", "expected"), [
    (90, [0, 0], 1.0),  # half of 2
    (180, [0, 0], 2.0),  # half of 4
    (60, [0, 1], 0.125),  # 1 apart: half of (1.5 - 1) squared
    (180, [0, 1], 0.0),  # far enough
    (0, [0, 1], 1.125),  # half of 1.5 squared
])  # fmt: skip
def test_a_single_pair_costs_what_its_angle_says(degrees, labels, expected):
    """With a margin of 1.5."""
    angle = math.radians(degrees)
    embeddings = torch.tensor([[2.0, 0.0], [math.cos(angle), math.sin(angle)]], dtype=torch.float64)

    assert Contrastive(margin=1.5)(embeddings, torch.tensor(labels)).item() == pytest.approx(expected, abs=1e-12)


def test_pairs_that_cost_nothing_count_in_the_mean():
    """One pair of positives at a right angle, and two texts opposite of everything else."""
    embeddings = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    loss = Contrastive()(embeddings, torch.tensor([0, 0, 1]))

    assert loss.item() == pytest.approx(1 / 3)


def test_one_text_costs_nothing_and_moves_nothing():
    """Exactly zero with a zero gradient, never NaN."""
    embeddings = torch.ones(1, 3, requires_grad=True)
    loss = Contrastive()(embeddings, torch.tensor([0]))
    loss.backward()

    assert loss.item() == 0.0
    assert torch.equal(embeddings.grad, torch.zeros(1, 3))


def test_texts_of_two_classes_at_one_place_cost_their_margin_but_stay():
    """There is no direction to part in, and no infinite gradient either."""
    embeddings = torch.ones(2, 3, requires_grad=True)
    loss = Contrastive()(embeddings, torch.tensor([0, 1]))
    loss.backward()

    assert loss.item() == pytest.approx(0.5)
    assert torch.equal(embeddings.grad, torch.zeros(2, 3))


def test_near_texts_keep_their_distance_in_fp32():
    """1e-4 apart: the square of it is lost where distances come from products."""
    embeddings = torch.tensor([[1.0, 0.0]]).repeat(40, 1)
    embeddings[1::2, 1] = 1e-4
    loss = Contrastive()(embeddings, torch.zeros(40, dtype=torch.long))

    assert loss.item() == pytest.approx(1e-8 / 2 * 20 * 20 / (40 * 39 / 2), rel=1e-3)


def test_lengths_of_embeddings_do_not_matter():
    """Only directions count."""
    embeddings, labels = random_batch(5)

    torch.testing.assert_close(Contrastive()(30 * embeddings, labels), Contrastive()(embeddings, labels))
