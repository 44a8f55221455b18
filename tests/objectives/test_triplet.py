"""Triplet: against its formula, another library and closed forms. (Laws shared by all: test_contract.py.)"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import BatchHardMiner, TripletMarginMiner
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nearfar.objectives import Triplet
from nearfar.objectives.inputs import same_class

SELECTIONS = ("all", "hard", "semihard")
POWERS = {"euclidean": 1, "squared": 2}


def random_batch(seed: int, most: int = 10) -> tuple[Tensor, Tensor]:
    """One to nine float64 embeddings in up to four classes; anchors without a positive included."""
    source = torch.Generator().manual_seed(seed)
    n, d = (int(torch.randint(least, end, (), generator=source)) for least, end in ((1, most), (2, 7)))
    return torch.randn(n, d, dtype=torch.float64, generator=source), torch.randint(0, 4, (n,), generator=source)


def by_the_book(embeddings: Tensor, labels: Tensor, margin: float, select: str, power: int) -> float:
    """The docstring's equation, triplet by triplet, no tensor tricks."""
    z = [[x / math.hypot(*row) for x in row] for row in embeddings.tolist()]
    y = labels.tolist()
    d = [[math.dist(u, v) ** power for v in z] for u in z]
    costs = []
    for a in range(len(z)):
        positives = [p for p in range(len(z)) if p != a and y[p] == y[a]]
        negatives = [n for n in range(len(z)) if y[n] != y[a]]
        triplets = list(itertools.product(positives, negatives))
        if select == "hard" and triplets:
            triplets = [(max(positives, key=lambda p: d[a][p]), min(negatives, key=lambda n: d[a][n]))]
        elif select == "semihard":
            triplets = [(p, n) for p, n in triplets if d[a][p] < d[a][n] < d[a][p] + margin]
        costs += [max(0.0, margin + d[a][p] - d[a][n]) for p, n in triplets]
    costs = [cost for cost in costs if cost > 0]
    return sum(costs) / len(costs) if costs else 0.0


@given(
    st.integers(0, 2**16), st.sampled_from([0.1, 0.5, 3.0]), st.sampled_from(SELECTIONS), st.sampled_from(list(POWERS))
)
def test_matches_the_formula_written_as_loops(seed, margin, select, distance):
    """The counted and the literal version agree on every batch, anchors without a positive included."""
    embeddings, labels = random_batch(seed)
    expected = by_the_book(embeddings, labels, margin, select, POWERS[distance])
    found = Triplet(margin=margin, select=select, distance=distance)(embeddings, labels)

    assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("distance", POWERS)
@pytest.mark.parametrize("select", SELECTIONS)
def test_agrees_with_pytorch_metric_learning_in_value_and_gradient(select, distance):
    """Hundreds of batches, some with anchors without a positive, some without any triplet that costs."""
    unpaired = free = 0
    for seed in range(300):
        embeddings, labels = random_batch(seed, most=(10, 30)[seed % 2])
        margin = (0.1, 0.5, 1.0)[seed % 3]
        unpaired += not same_class(labels).any(dim=1).all()
        measure = LpDistance(power=POWERS[distance])
        theirs, ours = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        miner = {
            "all": lambda *_: None,
            "hard": BatchHardMiner(distance=measure),
            "semihard": TripletMarginMiner(margin=margin, type_of_triplets="semihard", distance=measure),
        }[select]
        chosen = miner(theirs, labels)
        expected = TripletMarginLoss(margin=margin, distance=measure)(theirs, labels, chosen)
        found = Triplet(margin=margin, select=select, distance=distance)(ours, labels)
        found.backward()
        expected.backward()
        free += not found

        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-9)
    assert unpaired > 100
    assert 20 < free < 150


@pytest.mark.parametrize(("select", "expected"), [
    ("all", (1.8 - math.sqrt(2) + 1.8 - 2 * math.sin(math.pi / 12) + 1.8 - math.sqrt(3)) / 3),
    ("hard", (1.8 - math.sqrt(2) + 1.8 - 2 * math.sin(math.pi / 12)) / 2),
    ("semihard", (1.8 - math.sqrt(2) + 1.8 - math.sqrt(3)) / 2),
])  # fmt: skip
def test_four_texts_on_a_circle_cost_what_is_computed_by_hand(select, expected):
    """Two positives a chord of 1 apart at 0 and 60 degrees, negatives at 90 and 180: only 180 is far enough from 0."""
    angles = torch.tensor([0.0, 60.0, 90.0, 180.0], dtype=torch.float64).deg2rad()
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1)
    found = Triplet(margin=0.8, select=select)(embeddings, torch.tensor([0, 0, 1, 2]))

    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize(("select", "expected"), [
    ("all", (0.8 + 0.8 + math.sqrt(2) - 2) / 2), ("hard", (0.8 + 0.8 + math.sqrt(2) - 2) / 2),
    ("semihard", 0.8 + math.sqrt(2) - 2),
])  # fmt: skip
def test_a_negative_exactly_as_far_as_a_positive_costs_the_margin_and_is_not_semihard(select, expected):
    """Seen from the anchor both are at a right angle; seen from the positive the negative is opposite."""
    embeddings = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    found = Triplet(margin=0.8, select=select)(embeddings, torch.tensor([0, 0, 1]))

    assert found.item() == pytest.approx(expected)


@pytest.mark.parametrize("select", SELECTIONS)
def test_a_negative_exactly_a_margin_farther_than_a_positive_does_not_count(select):
    """Two positives at one place, a negative opposite, 2 away, and another at a right angle that alone costs."""
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    found = Triplet(margin=2.0, select=select)(embeddings, torch.tensor([0, 0, 1, 2]))

    assert found.item() == pytest.approx(2 - math.sqrt(2))


def test_near_texts_keep_their_distances_in_fp32():
    """Mates 1e-4 apart and negatives 3e-4: such differences are lost where distances come from products."""
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 1e-4], [1.0, 4e-4], [1.0, 5e-4]])
    loss = Triplet(margin=1e-3, select="hard")(embeddings, torch.tensor([0, 0, 1, 1]))

    assert loss.item() == pytest.approx(1e-3 + 1e-4 - (4e-4 + 3e-4) / 2, rel=1e-3)


@pytest.mark.parametrize("select", SELECTIONS)
@pytest.mark.parametrize("labels", [[0], [0, 0, 0], [2, 1, 0]])
def test_a_batch_without_triplets_costs_nothing_and_moves_nothing(select, labels):
    """Exactly zero with a zero gradient, never NaN: the optimizer may step as if nothing happened."""
    embeddings = torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = Triplet(select=select)(embeddings, torch.tensor(labels))
    loss.backward()

    assert loss.item() == 0.0
    assert torch.equal(embeddings.grad, torch.zeros_like(embeddings))


@pytest.mark.parametrize("distance", POWERS)
@pytest.mark.parametrize(("select", "expected"), [("all", 0.7), ("hard", 0.7), ("semihard", 0.0)])
def test_one_point_for_all_costs_the_margin_but_moves_nothing(select, expected, distance):
    """There is no direction to part in, and no infinite gradient either; no negative is farther than a positive."""
    embeddings = torch.ones(6, 3, requires_grad=True)
    loss = Triplet(margin=0.7, select=select, distance=distance)(embeddings, torch.arange(6) % 2)
    loss.backward()

    assert loss.item() == pytest.approx(expected)
    assert torch.equal(embeddings.grad, torch.zeros_like(embeddings))


def test_a_text_written_twice_is_moved_by_all_the_others():
    """Its copies are at distance zero; the gradient is finite, and not zero."""
    embeddings = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))[[0, 0, 1, 2]].requires_grad_()
    Triplet(margin=2.0)(embeddings, torch.tensor([0, 0, 1, 1])).backward()

    assert embeddings.grad.isfinite().all()
    assert embeddings.grad.abs().sum(dim=1).min() > 0


@pytest.mark.parametrize("select", SELECTIONS)
def test_lengths_of_embeddings_do_not_matter(select):
    """Only directions count."""
    embeddings, labels = random_batch(5)
    found, expected = (Triplet(select=select)(factor * embeddings, labels) for factor in (30, 1))

    assert expected > 0
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("select", SELECTIONS)
def test_large_batches_agree_in_fp32_and_fp64(select):
    """Counts of millions of triplets do not wear the value out."""
    source = torch.Generator().manual_seed(0)
    embeddings = torch.randn(256, 16, dtype=torch.float64, generator=source)
    labels = torch.randint(0, 4, (256,), generator=source)
    found, expected = (Triplet(select=select)(vectors, labels) for vectors in (embeddings.float(), embeddings))

    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)


class Widest(TorchDispatchMode):
    """The most elements any tensor had."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.most = max(self.most, *(tensor.numel() for tensor in tensors), 0)
        return result


@pytest.mark.parametrize("select", SELECTIONS)
def test_no_tensor_holds_all_triplets(select):
    """Nothing is larger than a matrix of distances, forward and backward."""
    embeddings, labels = torch.randn(60, 4, requires_grad=True), torch.arange(60) % 3
    with Widest() as widest:
        Triplet(select=select)(embeddings, labels).backward()

    assert widest.most == 60 * 60
