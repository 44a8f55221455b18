"""SupCon: against its formula, another library and closed forms. (Laws shared by all: test_contract.py.)"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor

from nearfar.objectives import SupCon
from nearfar.objectives.inputs import same_class, same_row


def random_batch(seed: int) -> tuple[Tensor, Tensor]:
    """Two to nine float64 embeddings in up to four classes; anchors without a positive included."""
    source = torch.Generator().manual_seed(seed)
    n, d = (int(torch.randint(2, most, (), generator=source)) for most in (10, 7))
    return torch.randn(n, d, dtype=torch.float64, generator=source), torch.randint(0, 4, (n,), generator=source)


@st.composite
def labeled_batches(draw) -> tuple[Tensor, Tensor]:
    """A random batch whose labels are drawn one by one, so that a failure shrinks to few classes."""
    embeddings, labels = random_batch(draw(st.integers(0, 2**16)))
    return embeddings, torch.tensor(draw(st.lists(st.integers(0, 3), min_size=len(labels), max_size=len(labels))))


def by_the_book(embeddings: Tensor, labels: Tensor, tau: float) -> float:
    """The docstring's equation, one loop per sum sign, no tensor tricks."""
    z = [[x / math.hypot(*row) for x in row] for row in embeddings.tolist()]
    s = [[sum(x * y for x, y in zip(u, v, strict=True)) for v in z] for u in z]
    costs = []
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        positives = [p for p in others if labels[p] == labels[i]]
        field = sum(math.exp(s[i][a] / tau) for a in others)
        if positives:
            costs.append(-sum(math.log(math.exp(s[i][p] / tau) / field) for p in positives) / len(positives))
    return sum(costs) / len(costs) if costs else 0.0


@given(labeled_batches(), st.sampled_from([0.07, 0.5, 2.0]))
def test_matches_the_formula_written_as_loops(batch, tau):
    """The vectorized and the literal version agree on every batch, anchors without a positive included."""
    expected = by_the_book(*batch, tau=tau)

    assert SupCon(temperature=tau)(*batch).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_agrees_with_pytorch_metric_learning_in_value_and_gradient():
    """Hundreds of batches, some with anchors without a positive, some without positives; it gives up on those of a single class."""
    unpaired = without = 0
    for seed in range(300):
        embeddings, labels = random_batch(seed)
        if len(labels.unique()) == 1:
            continue
        tau = (0.07, 0.3, 1.0)[seed % 3]
        positives = same_class(labels).any(dim=1)
        unpaired += bool(positives.any() and not positives.all())
        without += not positives.any()
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        found, expected = SupCon(temperature=tau)(ours, labels), SupConLoss(temperature=tau)(theirs, labels)
        found.backward()
        expected.backward()

        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-10)
    assert unpaired > 100
    assert without > 10


@pytest.mark.parametrize("n", [2, 3, 17])
def test_one_point_for_all_costs_the_log_of_the_field(n):
    """With all similarities equal, finding a positive is a fair draw among n - 1 texts."""
    loss = SupCon()(torch.ones(n, 5), torch.zeros(n, dtype=torch.long))

    assert loss.item() == pytest.approx(math.log(n - 1), abs=1e-5)


def test_two_tight_and_opposite_classes_of_two_cost_what_the_others_leave():
    """A positive at similarity 1 and two others at -1: log(1 + 2 exp(-2 / tau))."""
    embeddings = torch.tensor([[1.0, 0.0], [3.0, 0.0], [-1.0, 0.0], [-0.5, 0.0]], dtype=torch.float64)
    loss = SupCon(temperature=0.5)(embeddings, torch.tensor([7, 7, 2, 2]))

    assert loss.item() == pytest.approx(math.log1p(2 * math.exp(-4)))


@given(labeled_batches(), st.floats(0.01, 100))
def test_lengths_of_embeddings_do_not_matter(batch, factor):
    """Only directions count."""
    embeddings, labels = batch

    torch.testing.assert_close(SupCon()(factor * embeddings, labels), SupCon()(embeddings, labels))


@pytest.mark.parametrize("labels", [[0], [0, 1], [2, 1, 0]])
def test_a_batch_without_positives_costs_nothing_and_moves_nothing(labels):
    """Exactly zero with a zero gradient, never NaN: the optimizer may step as if nothing happened."""
    embeddings = torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = SupCon()(embeddings, torch.tensor(labels))
    loss.backward()

    assert loss.item() == 0.0
    assert torch.equal(embeddings.grad, torch.zeros_like(embeddings))


def test_a_low_temperature_stays_finite():
    """At a temperature of 0.001 exponentials overflow, their logarithms do not."""
    embeddings, labels = random_batch(1)
    loss = SupCon(temperature=0.001)(embeddings.float(), torch.zeros_like(labels))

    assert loss.isfinite()
    assert loss > 0


def test_masks_mark_positives():
    """No row is a positive of itself."""
    labels = torch.tensor([5, 5, -1, 5])

    assert same_class(labels).tolist() == [[i != j and labels[i] == labels[j] for j in range(4)] for i in range(4)]
    assert same_row(3, labels.device).tolist() == [[i == j for j in range(3)] for i in range(3)]
