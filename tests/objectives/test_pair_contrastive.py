"""PairContrastive: against its formula, another library and closed forms. (Laws: test_pair_contract.py.)"""

from __future__ import annotations

import math

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import ContrastiveLoss
from torch import Tensor

from nearfar.errors import SettingError
from nearfar.objectives import PairContrastive


def random_batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """One to nine labeled pairs, some with extra rows on the right."""
    source = torch.Generator().manual_seed(seed)
    b, d = 1 + seed % 9, 1 + seed % 5
    left, right = (torch.randn(n, d, dtype=torch.float64, generator=source) for n in (b, b + seed % 3))
    return left, right, torch.randint(0, 2, (b,), generator=source)


def by_the_book(left: Tensor, right: Tensor, targets: Tensor, margin: float) -> float:
    """The docstring's equation, one loop per sum sign, no tensor tricks."""
    total = 0.0
    for q, a, y in zip(left.tolist(), right.tolist()[: len(left)], targets.tolist(), strict=True):
        d = 1 - sum(x * z for x, z in zip(q, a, strict=True)) / math.hypot(*q) / math.hypot(*a)
        total += y * d**2 + (1 - y) * max(0.0, margin - d) ** 2
    return total / 2 / len(left)


@pytest.mark.parametrize("margin", [0.1, 0.5, 1.5])
def test_matches_the_formula_and_sentence_transformers(margin):
    """Value for hundreds of batches, gradients too; the other one knows no extra rows."""
    theirs = ContrastiveLoss(model=None, margin=margin)
    for seed in range(150):
        left, right, targets = random_batch(seed)
        sides = (left.requires_grad_(), right[: len(left)].clone().requires_grad_())
        found = PairContrastive(margin=margin)(*sides, targets)
        expected = theirs.compute_loss_from_embeddings(list(sides), targets)

        assert found.item() == pytest.approx(by_the_book(left, right, targets, margin), rel=1e-9, abs=1e-12)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(torch.autograd.grad(found, sides), torch.autograd.grad(expected, sides))


@pytest.mark.parametrize(("turn", "target", "cost"), [(0, 1, 0), (90, 1, 0.5), (0, 0, 0.125), (90, 0, 0), (180, 1, 2)])
def test_a_pair_at_an_angle_costs_what_it_should(turn, target, cost):
    """Positives are pulled from anywhere, negatives are left alone beyond the margin."""
    angle = math.radians(turn)
    right = torch.tensor([[3 * math.cos(angle), 3 * math.sin(angle)]])
    loss = PairContrastive()(torch.tensor([[2.0, 0.0]]), right, torch.tensor([target]))

    assert loss.item() == pytest.approx(cost, abs=1e-6)


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, math.nan])
def test_targets_that_are_neither_0_nor_1_are_refused(value):
    """The message names row, value and remedy."""
    with pytest.raises(SettingError, match=rf"^PairContrastive: targets must be .*, got {value} in row 2; \w+"):
        PairContrastive()(torch.ones(3, 2), torch.ones(3, 2), torch.tensor([0.0, 1.0, value]))
