"""PairTriplet: against its formula, another library and closed forms. (Laws shared by all: test_pair_contract.py.)"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from sentence_transformers.sentence_transformer.losses import TripletDistanceMetric, TripletLoss
from torch import Tensor

from nearfar.errors import SettingError
from nearfar.objectives import PairTriplet

Batch = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


def random_batch(seed: int) -> Batch:
    """One to seven pairs, with no, own or common extra rows, some with labels, some with groups."""
    source = torch.Generator().manual_seed(seed)
    b, d = (int(torch.randint(least, most, (), generator=source)) for least, most in ((1, 8), (2, 6)))
    extra = (0, b, 3, 0)[seed % 4]
    left, right = (torch.randn(n, d, dtype=torch.float64, generator=source) for n in (b, b + extra))
    targets = torch.randint(0, 2, (b,), generator=source) if seed % 3 else None
    if seed % 5 < 2:
        return left, right, targets, None, None
    left_groups, right_groups = (torch.randint(0, 4, (n,), generator=source) for n in (b, b + extra))
    if seed % 2:
        right_groups[:b] = left_groups  # as from one id a pair
    return left, right, targets, left_groups, right_groups


def by_the_book(batch: Batch, margin: float, distance: str) -> tuple[float, int]:
    """The docstring's equation and its three kinds of negatives, in loops; and how many triplets there are."""
    left, right, targets, left_groups, right_groups = batch
    q, a = ([[x / math.hypot(*row) for x in row] for row in side.tolist()] for side in (left, right))
    b, n = len(q), len(a)
    labels = [1] * b if targets is None else targets.tolist()

    def apart(i: int, j: int) -> float:
        squared = sum((x - y) ** 2 for x, y in zip(q[i], a[j], strict=True))
        return {"euclidean": math.sqrt(squared), "squared": squared, "cosine": squared / 2}[distance]

    def may_be_negative(i: int, j: int) -> bool:
        if i == j:
            return False
        if left_groups is None or right_groups is None or left_groups[i] != right_groups[j]:
            return True
        return j < b and labels[j] == 0 and bool(left_groups[j] == right_groups[j])  # its label says so

    costs = []
    for i in range(b):
        if labels[i] == 0:
            continue
        if n == b:
            others = sorted((j for j in range(b) if may_be_negative(i, j)), key=lambda j: apart(i, j))[:1]
        elif n == 2 * b:
            others = [b + i] if may_be_negative(i, b + i) else []
        else:
            others = [j for j in range(b, n) if may_be_negative(i, j)]
        costs += [max(0.0, apart(i, i) - apart(i, j) + margin) for j in others]
    return (sum(costs) / len(costs) if costs else 0.0), len(costs)


@pytest.mark.parametrize("distance", ["euclidean", "squared", "cosine"])
def test_matches_the_formula_written_as_loops(distance):
    """Hundreds of batches with every kind of negatives; some have no triplet at all."""
    without = many = 0
    for seed in range(300):
        batch, margin = random_batch(seed), (0.0, 0.5, 3.0)[seed % 3]
        left, right, targets, left_groups, right_groups = batch
        found = PairTriplet(margin=margin, distance=distance)(
            left, right, targets, left_groups=left_groups, right_groups=right_groups
        )
        expected, triplets = by_the_book(batch, margin, distance)

        assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12), seed
        without += triplets == 0
        many += triplets > len(left)
    assert without > 10
    assert many > 20


@pytest.mark.parametrize(
    ("distance", "metric", "tolerance"),
    [("cosine", TripletDistanceMetric.COSINE, 1e-9), ("euclidean", TripletDistanceMetric.EUCLIDEAN, 1e-4)],
)
def test_triplets_agree_with_sentence_transformers_in_value_and_gradient(distance, metric, tolerance):
    """On vectors of length 1; its Euclidean distance adds a millionth to every coordinate."""
    theirs = TripletLoss(model=None, distance_metric=metric, triplet_margin=0.5)
    for seed in range(100):
        source = torch.Generator().manual_seed(seed)
        sides = [torch.randn(6, 4, dtype=torch.float64, generator=source).requires_grad_() for _ in range(3)]
        found = PairTriplet(distance=distance)(sides[0], torch.cat(sides[1:]))
        expected = theirs.compute_loss_from_embeddings([F.normalize(side) for side in sides], None)

        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(
            torch.autograd.grad(found, sides), torch.autograd.grad(expected, sides), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("distance", ["euclidean", "squared", "cosine"])
def test_gradients_are_those_of_the_value(distance):
    """Central differences, for every kind of negatives."""
    moved = 0
    for seed in range(24):
        left, right, targets, left_groups, right_groups = random_batch(seed)
        objective = PairTriplet(margin=0.7, distance=distance)

        def value(left: Tensor, right: Tensor) -> Tensor:
            return objective(left, right, targets, left_groups=left_groups, right_groups=right_groups)  # noqa: B023

        assert torch.autograd.gradcheck(value, (left.requires_grad_(), right.requires_grad_()))
        moved += bool(torch.autograd.grad(value(left, right), left)[0].abs().sum() > 0)
    assert moved > 8


def test_a_labeled_negative_of_the_same_question_is_the_hardest_one():
    """One id a pair: the label decides that its right side is a negative, the id that the other answer is not."""
    left = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    right = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    targets, ids = torch.tensor([1, 1, 0, 0]), torch.tensor([4, 4, 4, 9])
    loss = PairTriplet(margin=0.5, distance="cosine")(left, right, targets, left_groups=ids, right_groups=ids)

    assert loss.item() == pytest.approx(0.5 - (1 - 0.6))


@pytest.mark.parametrize("distance", ["euclidean", "squared", "cosine"])
@pytest.mark.parametrize("extra", [0, 4, 7])
def test_one_point_for_all_costs_the_margin_and_has_finite_gradients(distance, extra):
    """The distance of a point to itself has no direction."""
    left, right = torch.ones(4, 3, requires_grad=True), torch.ones(4 + extra, 3, requires_grad=True)
    loss = PairTriplet(margin=0.3, distance=distance)(left, right)

    assert loss.item() == pytest.approx(0.3, abs=1e-6)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, (left, right)))


@pytest.mark.parametrize("value", [0.5, 2.0, math.nan])
def test_targets_that_are_neither_0_nor_1_are_refused(value):
    """The message names row, value and remedy."""
    with pytest.raises(SettingError, match=rf"^PairTriplet: targets must be 0 or 1, got {value} in row 1; binarize"):
        PairTriplet()(torch.ones(3, 2), torch.ones(3, 2), torch.tensor([0.0, value, 1.0]))
