"""CosineMSE: against its formula, another library and closed forms. (Laws shared by all: test_pair_contract.py.)"""

from __future__ import annotations

import math

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from torch import Tensor

from nearfar.errors import SettingError
from nearfar.objectives import CosineMSE


def random_batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """One to nine scored pairs, some with extra rows on the right."""
    source = torch.Generator().manual_seed(seed)
    b, d = 1 + seed % 9, 1 + seed % 5
    left, right = (torch.randn(n, d, dtype=torch.float64, generator=source) for n in (b, b + seed % 3))
    return left, right, torch.rand(b, dtype=torch.float64, generator=source)


def by_the_book(left: Tensor, right: Tensor, targets: Tensor) -> float:
    """The docstring's equation, one loop per sum sign, no tensor tricks."""
    errors = []
    for q, a, y in zip(left.tolist(), right.tolist()[: len(left)], targets.tolist(), strict=True):
        cosine = sum(x * z for x, z in zip(q, a, strict=True)) / math.hypot(*q) / math.hypot(*a)
        errors.append((cosine - y) ** 2)
    return sum(errors) / len(errors)


def test_matches_the_formula_written_as_loops():
    """Hundreds of batches."""
    for seed in range(300):
        batch = random_batch(seed)

        assert CosineMSE()(*batch).item() == pytest.approx(by_the_book(*batch), rel=1e-9, abs=1e-12)


def test_agrees_with_sentence_transformers_in_value_and_gradient():
    """Hundreds of batches; it knows no extra rows."""
    theirs = CosineSimilarityLoss(model=None)
    for seed in range(200):
        left, right, targets = random_batch(seed)
        sides = (left.requires_grad_(), right[: len(left)].clone().requires_grad_())
        found = CosineMSE()(*sides, targets)
        expected = theirs.compute_loss_from_embeddings(list(sides), targets.float())  # it takes fp32 whatever comes

        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(
            torch.autograd.grad(found, sides), torch.autograd.grad(expected, sides), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    ("turn", "target", "cost"), [(0, 1, 0), (0, 0, 1), (90, 0, 0), (180, 0, 1), (60, 0.25, 0.0625)]
)
def test_the_cost_is_the_squared_gap(turn, target, cost):
    """One pair at a given angle."""
    angle = math.radians(turn)
    right = torch.tensor([[3 * math.cos(angle), 3 * math.sin(angle)]])
    loss = CosineMSE()(torch.tensor([[2.0, 0.0]]), right, torch.tensor([target]))

    assert loss.item() == pytest.approx(cost, abs=1e-6)


@pytest.mark.parametrize("value", [-0.01, 1.01, 5.0, math.nan, math.inf])
def test_targets_outside_0_to_1_are_refused(value):
    """The message names row, value and remedy."""
    targets = torch.tensor([0.0, 1.0, value], dtype=torch.float64)
    with pytest.raises(SettingError, match=rf"^CosineMSE: targets must be between 0 and 1, got {value} in row 2; map"):
        CosineMSE()(torch.ones(3, 2), torch.ones(3, 2), targets)
