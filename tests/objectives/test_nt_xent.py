"""NT-Xent: against its formula, another library and SupCon. (Laws shared by all pairs: test_pair_contract.py.)"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.losses import NTXentLoss
from torch import Tensor

from nearfar.objectives import BatchSoftmax, NTXent, SupCon


def views(seed: int, extra: int = 0) -> tuple[Tensor, Tensor]:
    """Two views of two to seven texts in float64, with extra rows on the right."""
    source = torch.Generator().manual_seed(seed)
    b, d = (int(torch.randint(low, high, (), generator=source)) for low, high in ((2, 8), (2, 6)))
    sides = torch.randn(2 * b + extra, d, dtype=torch.float64, generator=source)
    return sides[:b], sides[b:]


def by_the_book(left: Tensor, right: Tensor, tau: float) -> float:
    """The loss of Mirror-BERT's code: every view once, the other one of its text, 2N - 2 negatives of both views."""
    z = [[x / math.hypot(*row) for x in row] for row in torch.cat([left, right]).tolist()]
    n, costs = len(left), []
    for i in range(2 * n):
        partner = (i + n) % (2 * n)
        similar = [sum(x * y for x, y in zip(z[i], other, strict=True)) / tau for other in z]
        negatives = [math.exp(similar[k]) for k in range(len(z)) if k not in (i, partner)]
        assert len(negatives) == 2 * n - 2 + len(right) - n
        costs.append(-math.log(math.exp(similar[partner]) / (math.exp(similar[partner]) + sum(negatives))))
    return sum(costs) / len(costs)


@given(st.integers(0, 2**16), st.sampled_from([0.04, 0.2, 1.0]), st.sampled_from([0, 2]))
def test_matches_the_formula_written_as_loops(seed, tau, extra):
    """Both directions, both views; extra rows are negatives of all."""
    left, right = views(seed, extra)

    assert NTXent(temperature=tau)(left, right).item() == pytest.approx(by_the_book(left, right, tau), rel=1e-9)


def test_is_that_of_pytorch_metric_learning_which_the_authors_call():
    """Value and gradients, on the stacked views with the number of the text as its label."""
    for seed in range(100):
        left, right = views(seed)
        ours, theirs = torch.cat([left, right]).requires_grad_(), torch.cat([left, right]).requires_grad_()
        b = len(left)
        found = NTXent(temperature=0.2)(ours[:b], ours[b:])
        expected = NTXentLoss(temperature=0.2)(theirs, torch.arange(b).repeat(2))
        found.backward()
        expected.backward()

        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-9)


def test_is_supcon_whose_classes_are_single_texts():
    left, right = views(3)
    labels = torch.arange(len(left)).repeat(2)

    assert NTXent(temperature=0.1)(left, right).item() == pytest.approx(
        SupCon(temperature=0.1)(torch.cat([left, right]), labels).item()
    )


def test_is_not_one_direction_among_other_views():
    left, right = views(5)

    assert (
        abs(NTXent(temperature=0.2)(left, right) - BatchSoftmax(temperature=0.2, symmetric=False)(left, right)) > 1e-3
    )


def test_texts_of_one_group_are_no_negatives_of_each_other():
    """As if the views of the other text were not there; its own terms are the same the other way round."""
    left, right = views(11)
    b = len(left)
    groups = torch.arange(b)
    groups[1] = groups[0]
    z = torch.nn.functional.normalize(torch.cat([left, right]), dim=1)
    costs = []
    for i in range(2 * b):
        same = [k for k in range(2 * b) if groups[k % b] == groups[i % b]]
        partner = (i + b) % (2 * b)
        kept = [partner, *(k for k in range(2 * b) if k not in same)]
        costs.append(torch.logsumexp(z[i] @ z[kept].T / 0.2, 0) - z[i] @ z[partner] / 0.2)
    found = NTXent(temperature=0.2)(left, right, left_groups=groups, right_groups=groups)

    assert found.item() == pytest.approx(float(torch.stack(costs).mean()), rel=1e-9)


def test_gradients_are_those_of_differences():
    left, right = (side.requires_grad_() for side in views(2))

    assert torch.autograd.gradcheck(NTXent(temperature=0.5), (left, right))
