"""Pearson: against its formula, SciPy and closed forms. (Laws shared by all: test_pair_contract.py.)"""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import pearsonr
from torch import Tensor

from nearfar.errors import SettingError
from nearfar.objectives import Pearson


def random_batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three to eleven scored pairs, some with extra rows on the right."""
    source = torch.Generator().manual_seed(seed)
    b, d = 3 + seed % 9, 2 + seed % 5
    left, right = (torch.randn(n, d, dtype=torch.float64, generator=source) for n in (b, b + seed % 3))
    return left, right, 5 * torch.rand(b, dtype=torch.float64, generator=source)


def cosines_by_loops(left: Tensor, right: Tensor) -> list[float]:
    return [
        sum(x * z for x, z in zip(q, a, strict=True)) / math.hypot(*q) / math.hypot(*a)
        for q, a in zip(left.tolist(), right.tolist()[: len(left)], strict=True)
    ]


def by_the_book(left: Tensor, right: Tensor, targets: Tensor) -> float:
    """The docstring's equation, one loop per sum sign, no tensor tricks."""
    c, y = cosines_by_loops(left, right), targets.tolist()
    c_mean, y_mean = sum(c) / len(c), sum(y) / len(y)
    above = sum((c[i] - c_mean) * (y[i] - y_mean) for i in range(len(c)))
    below = math.sqrt(sum((x - c_mean) ** 2 for x in c)) * math.sqrt(sum((x - y_mean) ** 2 for x in y))
    return 1 - above / below


def test_matches_the_formula_and_scipy():
    """Hundreds of batches."""
    for seed in range(300):
        left, right, targets = random_batch(seed)
        found = Pearson()(left, right, targets).item()

        assert found == pytest.approx(by_the_book(left, right, targets), rel=1e-9, abs=1e-12)
        assert found == pytest.approx(1 - pearsonr(cosines_by_loops(left, right), targets.tolist()).statistic)


def test_only_the_course_of_the_targets_matters():
    """Shifting and stretching them changes nothing; turning them round turns the correlation."""
    left, right, targets = random_batch(4)
    loss = Pearson()(left, right, targets)

    torch.testing.assert_close(Pearson()(left, right, 3 * targets - 7), loss)
    torch.testing.assert_close(Pearson()(left, right, -targets), 2 - loss)


def test_cosines_that_are_the_targets_cost_nothing():
    """A perfect correlation."""
    left, right, _ = random_batch(4)
    targets = torch.tensor(cosines_by_loops(left, right), dtype=torch.float64)

    assert Pearson()(left, right, targets).item() == pytest.approx(0, abs=1e-12)


CONSTANT = {
    "one pair": lambda left, right, targets: (left[:1], right[:1], targets[:1]),
    "equal targets": lambda left, right, targets: (left, right, torch.full_like(targets, 0.3)),
    "equal cosines": lambda left, _right, targets: (left, 2 * left, targets),
    "one point": lambda left, _right, targets: (
        left[:1].expand(len(left), -1),
        left[1:2].expand(len(left), -1),
        targets,
    ),
}


@pytest.mark.parametrize("constant", CONSTANT.values(), ids=CONSTANT.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_a_correlation_the_cost_is_one_and_nothing_moves(constant, dtype):
    """Neither NaN nor a gradient that is rounding, blown up."""
    for seed in range(0, 30, 3):
        left, right, targets = constant(*(part.to(dtype) for part in random_batch(seed)))
        sides = (left.clone().requires_grad_(), right.clone().requires_grad_())
        loss = Pearson()(*sides, targets)

        assert loss.item() == 1.0
        for gradient in torch.autograd.grad(loss, sides):
            assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_targets_that_are_not_finite_are_refused(value):
    """The message names row, value and remedy."""
    with pytest.raises(SettingError, match=rf"^Pearson: targets must be finite, got {value} in row 2; drop that pair"):
        Pearson()(torch.ones(3, 2), torch.ones(3, 2), torch.tensor([0.0, 1.0, value]))
