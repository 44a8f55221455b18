"""BatchSoftmax: against its formula, another library and closed forms. (Laws shared by all: test_pair_contract.py.)"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

import nearfar.objectives.batch_softmax
from nearfar.errors import SettingError, ShapeError
from nearfar.objectives import BatchSoftmax
from nearfar.objectives.inputs import minmax, unit

Batch = tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]


def random_batch(seed: int) -> Batch:
    """One to seven pairs; some batches have extra rows, labels or groups, and some a constant coordinate."""
    source = torch.Generator().manual_seed(seed)
    b, d = (int(torch.randint(1, most, (), generator=source)) for most in (8, 6))
    extra = (0, 0, b, 3)[seed % 4]
    left, right = (torch.randn(n, d, dtype=torch.float64, generator=source) for n in (b, b + extra))
    if seed % 5 == 0:
        left[:, 0], right[:, -1] = 0.3, 0.0
    targets = torch.randint(0, 2, (b,), generator=source) if seed % 3 else None
    if seed % 7 < 3:
        return left, right, targets, None, None
    left_groups, right_groups = (torch.randint(0, 4, (n,), generator=source) for n in (b, b + extra))
    if seed % 2:
        right_groups[:b] = left_groups  # as from one id a pair
    return left, right, targets, left_groups, right_groups


def random_settings(seed: int) -> dict[str, Any]:
    """Every variation is combined with every other."""
    source = torch.Generator().manual_seed(seed + 10_000)

    def one_of(*choices: Any) -> Any:
        return choices[int(torch.randint(0, len(choices), (), generator=source))]

    return {
        "temperature": one_of(0.05, 0.3, 1.2),
        "trainable": one_of(True, False),
        "symmetric": one_of(True, False),
        "normalize": one_of("row", "coordinate", "minmax", "none"),
        "threshold": one_of(None, None, 0.5),
        "reduction": one_of("positives", "all"),
        "hard_negative_weight": one_of(0.0, 0.7, -1.0),
    }


def scaled_by_loops(rows: list[list[float]], normalize: str) -> list[list[float]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    if normalize == "row":
        return [[x / math.hypot(*row) if math.hypot(*row) else 0.0 for x in row] for row in rows]
    if normalize == "coordinate":
        scaled = [[x / math.hypot(*column) if math.hypot(*column) else 0.0 for x in column] for column in columns]
    elif normalize == "minmax":
        scaled = [
            [(x - min(column)) / (max(column) - min(column)) if max(column) > min(column) else 0.0 for x in column]
            for column in columns
        ]
    else:
        return rows
    return [list(row) for row in zip(*scaled, strict=True)]


def by_the_book(batch: Batch, settings: dict[str, Any]) -> tuple[float, int]:
    """The docstring's equations, one loop per sum sign, no tensor tricks; and how many terms were left out."""
    left, right, targets, left_groups, right_groups = batch
    q, a = (scaled_by_loops(side.tolist(), settings["normalize"]) for side in (left, right))
    b, n = len(q), len(a)
    threshold = settings["threshold"]
    labels = [1] * b if targets is None else targets.tolist()
    good = [label == 1 if threshold is None else label > threshold for label in labels]

    def together(i: int, j: int) -> bool:
        if i == j:
            return True
        if left_groups is None or right_groups is None:
            return False
        refused = j < b and not good[j] and left_groups[j] == right_groups[j]
        return bool(left_groups[i] == right_groups[j] and not refused)

    def logit(i: int, j: int) -> float:
        s = sum(x * y for x, y in zip(q[i], a[j], strict=True)) / settings["temperature"]
        return s + settings["hard_negative_weight"] if j == b + i and not together(i, j) else s

    total, masked = 0.0, 0
    for i in range(b):
        if not good[i]:
            continue
        looks = [[(logit(i, j), together(i, j)) for j in range(n)]]
        if settings["symmetric"]:
            looks.append([(logit(j, i), together(j, i)) for j in range(b)])
        for look in looks:
            field = [s for s, positive in look if not positive]
            positives = [s for s, positive in look if positive]
            for s in positives:
                most = max([s, *field])
                total += (most - s + math.log(sum(math.exp(x - most) for x in [s, *field]))) / len(positives)
            masked += len(positives) - 1
    rows = max(sum(good), 1) if settings["reduction"] == "positives" else b
    return total / rows, masked


def gradient_by_differences(objective: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
    left, right, targets, left_groups, right_groups = batch

    def value(left: Tensor, right: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip([name for name, _ in objective.named_parameters()], weights, strict=True))
        groups = {"left_groups": left_groups, "right_groups": right_groups}
        return torch.func.functional_call(objective, named, (left, right, targets), groups)

    inputs = (left.clone().requires_grad_(), right.clone().requires_grad_(), *objective.parameters())
    assert torch.autograd.gradcheck(value, inputs)
    return torch.autograd.grad(value(*inputs), inputs)


def test_every_variation_matches_the_formula_written_as_loops():
    """Hundreds of batches: extra rows, labels, groups and constant coordinates; all settings in all combinations."""
    dropped = grouped = refused = 0
    for seed in range(600):
        batch, settings = random_batch(seed), random_settings(seed)
        left, right, targets, left_groups, right_groups = batch
        if len(right) != 2 * len(left):
            settings["hard_negative_weight"] = 0.0
        objective = BatchSoftmax(**settings).double()
        if settings["trainable"]:
            objective.log_temperature.data.fill_(math.log(settings["temperature"]))  # as float64 has it
        found = objective(left, right, targets, left_groups=left_groups, right_groups=right_groups)
        expected, masked = by_the_book(batch, settings)

        assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12), (seed, settings)
        assert int(objective.masked) == masked
        dropped += targets is not None and 0 < targets.sum() < len(targets)
        grouped += masked > 0
        refused += bool(
            targets is not None
            and left_groups is not None
            and ((targets == 0) & (left_groups == right_groups[: len(left)])).any()
        )
    assert dropped > 200
    assert grouped > 100
    assert refused > 50


def test_gradients_of_every_variation_are_those_of_the_value():
    """Central differences for both sides and the temperature; minimum and maximum are smooth but for ties."""
    smooth = 0
    for seed in range(60):
        batch, settings = random_batch(seed), random_settings(seed)
        if len(batch[1]) != 2 * len(batch[0]):
            settings["hard_negative_weight"] = 0.0
        if settings["normalize"] in ("minmax", "coordinate") and seed % 5 == 0:
            continue  # a constant coordinate is a kink: see below
        if settings["normalize"] == "minmax" and len(batch[0]) == 1:
            continue
        if settings["normalize"] == "row" and batch[0].shape[1] == 1:
            continue  # of one coordinate only the sign is left
        gradients = gradient_by_differences(BatchSoftmax(**settings).double(), batch)
        smooth += any(gradient.abs().sum() > 0 for gradient in gradients)
    assert smooth > 25


def embedded(loss: nn.Module, *columns: Tensor) -> Tensor:
    """A loss of sentence-transformers on embeddings; it needs no model for that."""
    return loss.compute_loss_from_embeddings(list(columns), None)


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_one_direction_is_multiple_negatives_ranking(columns):
    """Value and gradients for hundreds of batches, with zero, one or two hard negatives a pair."""
    ours = BatchSoftmax(temperature=0.05, symmetric=False)
    theirs = MultipleNegativesRankingLoss(model=None, scale=20.0)
    for seed in range(100):
        source = torch.Generator().manual_seed(seed)
        b = 1 + seed % 9
        sides = [torch.randn(b, 5, dtype=torch.float64, generator=source).requires_grad_() for _ in range(columns)]
        found, expected = ours(sides[0], torch.cat(sides[1:])), embedded(theirs, *sides)

        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(
            torch.autograd.grad(found, sides), torch.autograd.grad(expected, sides), rtol=1e-7, atol=1e-10
        )


def test_both_directions_are_twice_their_average():
    """The paper's sum against the averaged form of sentence-transformers: twice the value, twice the gradients."""
    theirs = MultipleNegativesRankingLoss(
        model=None, scale=10.0, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
    )
    for seed in range(50):
        source = torch.Generator().manual_seed(seed)
        sides = [torch.randn(6, 4, dtype=torch.float64, generator=source).requires_grad_() for _ in range(2)]
        found, expected = BatchSoftmax()(*sides), 2 * embedded(theirs, *sides)

        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(torch.autograd.grad(found, sides), torch.autograd.grad(expected, sides))


@pytest.mark.parametrize("b", [1, 2, 17])
@pytest.mark.parametrize("extra", [0, 5])
def test_one_point_for_all_costs_the_log_of_the_field(b, extra):
    """With all similarities equal, finding the partner is a fair draw; extra rows are only found, they do not look."""
    loss = BatchSoftmax()(torch.ones(b, 3), torch.ones(b + extra, 3))

    assert loss.item() == pytest.approx(math.log(b + extra) + math.log(b), abs=1e-5)


def test_a_lone_pair_costs_nothing_and_moves_nothing():
    """Exactly zero, whatever the vectors."""
    left, right = torch.randn(2, 1, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = BatchSoftmax()(left, right)

    assert loss.item() == 0.0
    assert all(torch.equal(gradient, torch.zeros(1, 6)) for gradient in torch.autograd.grad(loss, (left, right)))


@pytest.mark.parametrize("reduction", ["positives", "all"])
def test_a_batch_without_a_positive_costs_nothing_and_moves_nothing(reduction):
    """Only labeled negatives: zero, with a graph."""
    left, right = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = BatchSoftmax(reduction=reduction)(left, right, torch.zeros(4))

    assert loss.item() == 0.0
    assert all(torch.equal(gradient, torch.zeros(4, 6)) for gradient in torch.autograd.grad(loss, (left, right)))


def test_the_mean_over_all_pairs_shrinks_with_the_share_of_positives():
    """One positive of four: a quarter of the mean over positives."""
    left, right = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 0, 0])

    torch.testing.assert_close(
        4 * BatchSoftmax(reduction="all")(left, right, targets), BatchSoftmax()(left, right, targets)
    )


def test_a_labeled_negative_is_still_a_negative_for_the_others():
    """Bringing it nearer to another anchor costs; its own two terms are gone."""
    left = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    far, near = torch.tensor([[1.0, 0.0], [0.0, -1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.1]])
    targets = torch.tensor([1, 0])
    objective = BatchSoftmax(temperature=1.0, symmetric=False)

    assert objective(left, far, targets).item() == pytest.approx(math.log(math.e + 1) - 1)
    assert objective(left, near, targets) > objective(left, far, targets)


def test_graded_targets_are_cut_above_the_threshold():
    """A target equal to the threshold is no positive."""
    left, right = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))
    graded = BatchSoftmax(threshold=3.0)(left, right, torch.tensor([3.0, 3.1, 0.0, 5.0]))

    torch.testing.assert_close(graded, BatchSoftmax()(left, right, torch.tensor([0, 1, 0, 1])))


def test_a_twin_of_the_partner_is_no_negative():
    """The same answer twice: without groups they can never be distinguished, with groups it costs nothing."""
    left = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    objective, ids = BatchSoftmax(), torch.tensor([5, 5])

    assert objective(left, left).item() == pytest.approx(2 * math.log(2))
    assert int(objective.masked) == 0
    assert objective(left, left, left_groups=ids, right_groups=ids).item() == 0.0
    assert int(objective.masked) == 4


def test_distinct_groups_change_nothing():
    """If no rows share an id, the value is that without groups."""
    left, right = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    objective = BatchSoftmax()

    torch.testing.assert_close(
        objective(left, right, left_groups=torch.arange(4), right_groups=torch.arange(4, 8)), objective(left, right)
    )


def test_the_weight_of_the_own_hard_negative_is_the_log_of_how_often_it_counts():
    """log 2 is the same as having it twice, for its own anchor only."""
    source = torch.Generator().manual_seed(0)
    left, right = torch.randn(1, 6, generator=source), torch.randn(2, 6, generator=source)
    once = BatchSoftmax(symmetric=False, hard_negative_weight=math.log(2))(left, right)
    twice = BatchSoftmax(symmetric=False)(left, right[[0, 1, 1]])

    torch.testing.assert_close(once, twice)


@pytest.mark.parametrize("extra", [0, 3, 5])
def test_a_weight_needs_one_hard_negative_a_pair(extra):
    """The message says how many rows fit and what to do."""
    with pytest.raises(ShapeError, match=rf"must have 8 rows.*got {4 + extra}; .*hard_negative_weight to 0"):
        BatchSoftmax(hard_negative_weight=0.5)(torch.ones(4, 2), torch.ones(4 + extra, 2))


@pytest.mark.parametrize("blocks", [1, 2, 3, 100])
def test_the_size_of_blocks_does_not_matter(monkeypatch, blocks):
    """Rows computed one by one, or all at once."""
    batches = [random_batch(seed) for seed in range(60)]

    def everything() -> list[tuple[Tensor, ...]]:
        results = []
        for left, right, targets, left_groups, right_groups in batches:
            sides = (left.clone().requires_grad_(), right.clone().requires_grad_())
            loss = BatchSoftmax()(*sides, targets, left_groups=left_groups, right_groups=right_groups)
            results.append((loss.detach(), *torch.autograd.grad(loss, sides)))
        return results

    expected = everything()
    monkeypatch.setattr(nearfar.objectives.batch_softmax, "BLOCK", blocks)

    torch.testing.assert_close(everything(), expected)


def test_a_trainable_temperature_learns_stays_positive_and_is_saved():
    """Near pairs want it lower; however far it is pushed, it stays above zero."""
    objective = BatchSoftmax(temperature=0.5, trainable=True)
    assert objective.temperature == pytest.approx(0.5)
    optimizer = torch.optim.SGD(objective.parameters(), lr=50.0)
    left = torch.eye(4)
    for _ in range(5):
        optimizer.zero_grad()
        objective(left, left).backward()
        optimizer.step()
    learned = objective.temperature
    assert 0 < learned < 0.4
    other = BatchSoftmax(trainable=True)
    other.load_state_dict(objective.state_dict())
    assert other.temperature == learned


def test_a_fixed_temperature_has_no_weights():
    """Nothing to save, nothing to train."""
    objective = BatchSoftmax(temperature=0.07)

    assert objective.temperature == 0.07
    assert not list(objective.parameters())
    assert not objective.state_dict()


def test_a_low_temperature_stays_finite():
    """At a temperature of 0.0001 exponentials overflow, their logarithms do not."""
    sides = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(3)).requires_grad_()
    ids = torch.tensor([0, 0, 1, 2, 2])
    loss = BatchSoftmax(temperature=1e-4)(*sides, left_groups=ids, right_groups=ids)
    (gradient,) = torch.autograd.grad(loss, sides)

    assert loss > 0
    assert loss.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("constant", [0.0, 0.25])
@pytest.mark.parametrize("normalize", ["coordinate", "minmax"])
def test_constant_coordinates_stay_finite_and_do_not_explode(normalize, constant):
    """A dead coordinate must not outweigh the others by twelve orders of magnitude."""
    sides = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    sides[0, :, 1] = constant  # on the left only: the right side would pass on what it gets
    sides.requires_grad_()
    loss = BatchSoftmax(normalize=normalize, temperature=1.2)(*sides)
    (gradient,) = torch.autograd.grad(loss, sides)

    assert loss.isfinite()
    assert gradient.abs().max() < 100
    assert gradient[:, :, [0, 2]].abs().min() > 0
    if normalize == "minmax" or constant == 0:
        assert torch.equal(gradient[0, :, 1], torch.zeros(5))


def test_scales_do_what_they_say():
    """Lengths of rows and columns are 1, ranges are 0 to 1, and shifting a coordinate does not change its range."""
    vectors = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    torch.testing.assert_close(unit(vectors).norm(dim=1), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(unit(vectors, dim=0).norm(dim=0), torch.ones(4, dtype=torch.float64))
    assert minmax(vectors).amin(dim=0).tolist() == [0.0] * 4
    torch.testing.assert_close(minmax(vectors).amax(dim=0), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(minmax(3 * vectors + torch.arange(4)), minmax(vectors))


@pytest.mark.parametrize(("threshold", "value"), [(None, 0.5), (None, 2.0), (None, math.nan), (0.5, math.nan)])
def test_targets_that_are_neither_0_nor_1_are_refused(threshold, value):
    """The message names row, value and remedy."""
    objective = BatchSoftmax(threshold=threshold)
    with pytest.raises(SettingError, match=rf"^BatchSoftmax: targets must be .*, got {value} in row 1; "):
        objective(torch.ones(3, 2), torch.ones(3, 2), torch.tensor([1.0, value, 0.0]))
