"""Laws that every pair objective keeps. A new one joins by one line in CASES."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nearfar.objectives
from nearfar.errors import SettingError, ShapeError
from nearfar.objectives import BatchSoftmax, Blend, CosineMSE, NTXent, PairContrastive, PairTriplet, Pearson

WIDTH = 4
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Case:
    """An objective under the laws: how to make it, and what it refuses and needs."""

    make: Callable[..., nn.Module]
    refused: dict[str, Sequence[Any]] = field(default_factory=dict)
    needs_targets: bool = False
    extra_ignored: bool = False


SOFTMAX: dict[str, Sequence[Any]] = {
    "temperature": (0, -0.1, NAN, INF),
    "trainable": (1, "yes"),
    "symmetric": (0, None),
    "normalize": ("rows", "", None),
    "threshold": (NAN, INF),
    "reduction": ("mean", "sum", None),
    "hard_negative_weight": (NAN, INF),
}
TRIPLET: dict[str, Sequence[Any]] = {"margin": (-0.1, NAN, INF), "distance": ("manhattan", ""), "threshold": (NAN, INF)}


def softmax(**fixed: Any) -> Case:
    return Case(lambda **settings: BatchSoftmax(**{**fixed, **settings}), SOFTMAX)


CASES = {
    "batch-softmax": softmax(),
    "batch-softmax, trainable": softmax(trainable=True),
    "batch-softmax, one direction": softmax(symmetric=False, temperature=0.05),
    "batch-softmax, coordinate": softmax(normalize="coordinate", temperature=1.2),
    "batch-softmax, minmax": softmax(normalize="minmax", temperature=1.2, reduction="all"),
    "batch-softmax, none": softmax(normalize="none", temperature=1.0),
    "nt-xent": Case(NTXent, {"temperature": (0, -0.1, NAN, INF)}),
    "cosine-mse": Case(CosineMSE, needs_targets=True, extra_ignored=True),
    "pearson": Case(Pearson, needs_targets=True, extra_ignored=True),
    "pair-triplet": Case(PairTriplet, TRIPLET),
    "pair-triplet, squared": Case(lambda **settings: PairTriplet(**{"distance": "squared", **settings}), TRIPLET),
    "pair-triplet, cosine": Case(lambda **settings: PairTriplet(**{"distance": "cosine", **settings}), TRIPLET),
    "pair-contrastive": Case(
        PairContrastive,
        {"margin": (0, -0.1, 2.1, NAN), "threshold": (NAN, INF)},
        needs_targets=True,
        extra_ignored=True,
    ),
}

every_objective = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_number_of_extra_rows = pytest.mark.parametrize("extra", [0, 3, 7])


@dataclass(frozen=True)
class Batch:
    """Pairs with labels and groups."""

    left: Tensor
    right: Tensor
    targets: Tensor
    left_groups: Tensor
    right_groups: Tensor

    def groups(self) -> dict[str, Tensor]:
        return {"left_groups": self.left_groups, "right_groups": self.right_groups}


def batch(b: int = 7, extra: int = 0, seed: int = 0, dtype: torch.dtype = torch.float64) -> Batch:
    """Random pairs, at least one of each label; some texts are known to belong to other pairs too."""
    source = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(n, WIDTH, dtype=dtype, generator=source) for n in (b, b + extra))
    targets = torch.randint(0, 2, (b,), generator=source)
    targets[:2] = torch.tensor([1, 0])[:b]
    ids = [torch.randint(0, 5, (n,), generator=source) for n in (b, b + extra)]
    return Batch(left, right, targets, *ids)


def value_and_gradients(objective: nn.Module, rows: Batch, *, autocast: bool = False) -> tuple[Tensor, list[Tensor]]:
    left, right = rows.left.clone().requires_grad_(), rows.right.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = objective(left, right, rows.targets, **rows.groups())
    return loss.detach(), list(torch.autograd.grad(loss, [left, right, *objective.parameters()]))


def test_every_pair_objective_is_under_these_laws():
    """Whatever the room exports and calls with left and right has its line in CASES."""
    exported = [getattr(nearfar.objectives, name) for name in nearfar.objectives.__all__]
    wanted = {
        part
        for part in exported
        if isinstance(part, type)
        and issubclass(part, nn.Module)
        and list(inspect.signature(part.forward).parameters)[1:3] == ["left", "right"]
    }

    assert wanted == {type(case.make()) for case in CASES.values()}
    assert len(wanted) == 6


@every_objective
def test_all_take_the_same_arguments(case):
    """So that they can be exchanged and blended."""
    arguments = list(inspect.signature(case.make().forward).parameters.values())

    assert [argument.name for argument in arguments] == ["left", "right", "targets", "left_groups", "right_groups"]
    assert all(argument.kind is argument.KEYWORD_ONLY for argument in arguments[3:])


@every_objective
@every_number_of_extra_rows
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_pairs_does_not_matter(case, extra, seed):
    """Value and gradients follow their rows; an own hard negative moves with its pair."""
    objective, rows = case.make().double(), batch(extra=extra, seed=seed)
    order = torch.randperm(len(rows.left), generator=torch.Generator().manual_seed(seed))
    rest = len(order) + (order if extra == len(order) else torch.arange(extra).flip(0))
    places = torch.cat([order, rest])
    loss, (left, right, *weights) = value_and_gradients(objective, rows)
    other, (moved_left, moved_right, *same) = value_and_gradients(
        objective,
        Batch(
            rows.left[order],
            rows.right[places],
            rows.targets[order],
            rows.left_groups[order],
            rows.right_groups[places],
        ),
    )

    assert loss.ndim == 0
    assert left.abs().sum() > 0
    torch.testing.assert_close(other, loss)
    torch.testing.assert_close(moved_left, left[order])
    torch.testing.assert_close(moved_right, right[places])
    torch.testing.assert_close(same, weights)


@every_objective
@every_number_of_extra_rows
def test_names_of_groups_do_not_matter(case, extra):
    """Ids are names and nothing else."""
    objective, rows = case.make().double(), batch(extra=extra)
    new = torch.tensor([70, -3, 0, 12, 5])
    renamed = objective(
        rows.left, rows.right, rows.targets, left_groups=new[rows.left_groups], right_groups=new[rows.right_groups]
    )

    torch.testing.assert_close(renamed, objective(rows.left, rows.right, rows.targets, **rows.groups()))


@every_objective
@every_number_of_extra_rows
@pytest.mark.parametrize("seed", range(2))
def test_gradients_are_those_of_the_value(case, extra, seed):
    """Central differences agree in float64, for both sides and for every weight of the objective."""
    objective, rows = case.make().double(), batch(extra=extra, seed=seed)
    names = [name for name, _ in objective.named_parameters()]

    def value(left: Tensor, right: Tensor, *weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(objective, named, (left, right, rows.targets), rows.groups())

    assert torch.autograd.gradcheck(
        value, (rows.left.requires_grad_(), rows.right.requires_grad_(), *objective.parameters())
    )


@every_objective
def test_extra_rows_are_looked_at_or_not_at_all(case):
    """Objectives of one pair at a time ignore them."""
    objective, rows, other = case.make().double(), batch(extra=3), batch(extra=3, seed=1)
    replaced = torch.cat([rows.right[:7], other.right[7:]])
    same = torch.equal(objective(rows.left, replaced, rows.targets), objective(rows.left, rows.right, rows.targets))

    assert same == case.extra_ignored


DEGENERATE: dict[str, Callable[[Batch], Batch]] = {
    "one pair": lambda rows: Batch(*(part[:1] for part in vars(rows).values())),
    "one pair with extra rows": lambda rows: Batch(
        rows.left[:1], rows.right, rows.targets[:1], rows.left_groups[:1], rows.right_groups
    ),
    "only negatives": lambda rows: Batch(**{**vars(rows), "targets": torch.zeros_like(rows.targets)}),
    "only positives": lambda rows: Batch(**{**vars(rows), "targets": torch.ones_like(rows.targets)}),
    "one group": lambda rows: Batch(rows.left, rows.right, rows.targets, 0 * rows.left_groups, 0 * rows.right_groups),
    "identical embeddings": lambda rows: Batch(
        **{**vars(rows), "left": rows.left[:1].expand(7, -1), "right": rows.left[:1].expand(len(rows.right), -1)}
    ),
    "zero vectors": lambda rows: Batch(**{**vars(rows), "left": 0 * rows.left, "right": 0 * rows.right}),
    "one zero vector": lambda rows: Batch(**{**vars(rows), "left": rows.left * (torch.arange(7) > 0).unsqueeze(1)}),
    "opposite embeddings": lambda rows: Batch(**{**vars(rows), "right": torch.cat([-rows.left, rows.right[7:]])}),
    "a constant coordinate": lambda rows: Batch(
        **{**vars(rows), "left": rows.left.index_fill(1, torch.tensor([1]), 0.3)}
    ),
    "a dead coordinate": lambda rows: Batch(**{**vars(rows), "right": rows.right * torch.tensor([1, 0, 1, 1])}),
    "huge embeddings": lambda rows: Batch(**{**vars(rows), "left": 1e8 * rows.left, "right": 1e8 * rows.right}),
    "tiny embeddings": lambda rows: Batch(**{**vars(rows), "left": 1e-20 * rows.left, "right": 1e-20 * rows.right}),
}


@every_objective
@every_number_of_extra_rows
@pytest.mark.parametrize("degenerate", DEGENERATE.values(), ids=DEGENERATE.keys())
def test_degenerate_batches_stay_finite(case, extra, degenerate):
    """One badly drawn batch must not fill a run with NaN, neither by its value nor by its gradients."""
    loss, gradients = value_and_gradients(case.make(), degenerate(batch(extra=extra, dtype=torch.float32)))

    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)


@every_objective
@every_number_of_extra_rows
def test_half_precision_of_the_encoder_is_not_that_of_the_objective(case, extra):
    """Under autocast the arithmetic stays in fp32: value and gradients are those without it."""
    objective, rows = case.make(), batch(extra=extra, dtype=torch.float32)

    torch.testing.assert_close(
        value_and_gradients(objective, rows, autocast=True), value_and_gradients(objective, rows)
    )


@every_objective
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_vectors_of_half_precision_are_computed_in_full(case, dtype):
    """The value is that of the same vectors in fp32, and gradients come back in the type that was given."""
    objective, rows = case.make(), batch(b=40, dtype=torch.float32)
    narrow, wide = (
        Batch(**{**vars(rows), "left": rows.left.to(dtype).to(kind), "right": rows.right.to(dtype).to(kind)})
        for kind in (dtype, torch.float32)
    )
    expected, (moved, other, *weights) = value_and_gradients(objective, wide)
    found, (left, right, *same) = value_and_gradients(objective, narrow)

    assert left.dtype == right.dtype == dtype
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(left, moved.to(dtype))
    torch.testing.assert_close(right, other.to(dtype))
    torch.testing.assert_close(same, weights)


@every_objective
def test_sides_of_two_precisions_are_computed_in_the_finer_one(case):
    """As where one side was stored and the other comes from the encoder."""
    objective, rows = case.make().double(), batch()
    mixed = objective(rows.left, rows.right.float(), rows.targets)

    assert mixed.dtype == torch.float64
    torch.testing.assert_close(mixed, objective(rows.left, rows.right.float().double(), rows.targets))


@every_objective
def test_targets_are_needed_or_every_pair_is_positive(case):
    """Without targets either a clear refusal or the value for ones."""
    objective, rows = case.make().double(), batch()
    if case.needs_targets:
        with pytest.raises(SettingError, match=r"^\w+: targets must be given"):
            objective(rows.left, rows.right)
    else:
        torch.testing.assert_close(
            objective(rows.left, rows.right), objective(rows.left, rows.right, torch.ones(7, dtype=torch.long))
        )


@every_objective
@pytest.mark.parametrize("kind", [torch.bool, torch.long, torch.float32, torch.float64])
def test_targets_may_be_of_any_kind(case, kind):
    """Labels come as integers, truth values or numbers, and change nothing but the value."""
    objective, rows = case.make(), batch(dtype=torch.float32)
    loss = objective(rows.left, rows.right, rows.targets.to(kind))

    assert loss.dtype is torch.float32
    torch.testing.assert_close(loss, objective(rows.left, rows.right, rows.targets.float()))


SHAPES = {
    "fewer on the right": (
        (6, 4),
        (5, 4),
        (6,),
        (6,),
        (5,),
        r"right must have a row for each of the 6 rows of left, got 5",
    ),
    "another width": ((6, 4), (6, 3), (6,), (6,), (6,), r"right must be \(m, d\) with d = 4 as in left"),
    "one axis": ((6,), (6, 4), (6,), (6,), (6,), r"left must have 2 axes"),
    "three axes": ((6, 4), (6, 4, 1), (6,), (6,), (6,), r"right must have 2 axes"),
    "targets too short": ((6, 4), (6, 4), (5,), (6,), (6,), r"targets must be \(b\) with b = 6 as in left"),
    "targets for extra rows": ((6, 4), (8, 4), (8,), (6,), (8,), r"targets must be \(b\) with b = 6 as in left"),
    "targets with an axis": ((6, 4), (6, 4), (6, 1), (6,), (6,), r"targets must have 1 axis"),
    "groups of the left": ((6, 4), (8, 4), (6,), (8,), (8,), r"left_groups must be \(b\) with b = 6 as in left"),
    "groups of the right": ((6, 4), (8, 4), (6,), (6,), (6,), r"right_groups must be \(m\) with m = 8 as in right"),
}


@every_objective
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
def test_tensors_that_do_not_fit_are_refused_naming_both_sides(case, shapes):
    """The message says what fits and what came."""
    *sizes, message = shapes
    left, right, targets, left_groups, right_groups = (torch.ones(size) for size in sizes)
    with pytest.raises(ShapeError, match=f"^{message}"):
        case.make()(left, right, targets, left_groups=left_groups, right_groups=right_groups)


@every_objective
@pytest.mark.parametrize("side", ["left", "right"])
def test_groups_of_one_side_only_are_refused(case, side):
    """Nobody can be compared with them."""
    with pytest.raises(ShapeError, match=rf"^{side}_groups came without \w+_groups; give both or none"):
        case.make()(torch.ones(3, 2), torch.ones(3, 2), torch.ones(3), **{f"{side}_groups": torch.ones(3)})


REFUSED = [
    pytest.param(case, setting, value, id=f"{name}, {setting} {value}")
    for name, case in CASES.items()
    for setting, values in case.refused.items()
    for value in values
]


@pytest.mark.parametrize(("case", "setting", "value"), REFUSED)
def test_impossible_settings_are_refused_by_name(case, setting, value):
    """The message names the part, the setting and the value that came."""
    with pytest.raises(SettingError, match=rf"^\w+: {setting} must be .*, got '?{value}"):
        case.make(**{setting: value})


@every_objective
def test_settings_of_every_objective_are_tried(case):
    """All settings of an objective are keyword-only and in its table of refused values."""
    part = type(case.make())
    own = part.__init__ is not nn.Module.__init__
    settings = list(inspect.signature(part.__init__).parameters.values())[1:] if own else []

    assert all(setting.kind is setting.KEYWORD_ONLY for setting in settings)
    assert set(case.refused) == {setting.name for setting in settings}


def test_a_blend_of_pair_objectives_is_their_weighted_sum():
    """The paper's combination, with groups and extra rows, which one of its parts ignores."""
    rows = batch(extra=3)
    parts = {"bsc": (0.1, BatchSoftmax()), "mse": (0.9, CosineMSE())}
    arguments = (rows.left, rows.right, rows.targets)

    torch.testing.assert_close(
        Blend(parts)(*arguments, **rows.groups()),
        sum(weight * part(*arguments, **rows.groups()) for weight, part in parts.values()),
    )
