"""Gradient surgery: against PCGrad written out in NumPy, its invariants, and what is left on the weights."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nearfar.errors import SettingError, ShapeError
from nearfar.training.pcgrad import Conflicts, PairConflicts, PCGrad, project

SHAPES = [(3, 2), (4,), (1, 2, 2)]


def by_the_book(gradients, orders):
    """Algorithm 1 with projected copies: one long vector a task, orders[i] is whom task i meets."""
    projected = []
    for own, order in zip(gradients, orders, strict=True):
        own = own.copy()
        for j in order:
            dot = float(own @ gradients[j])
            if dot < 0:
                own = own - dot / float(gradients[j] @ gradients[j]) * gradients[j]
        projected.append(own)
    return np.sum(projected, axis=0)


def orders_of(seed, tasks):
    """The orders as documented: one permutation for each task, drawn one after the other, without the task itself."""
    source = torch.Generator().manual_seed(seed)
    return [
        [j for j in torch.randperm(tasks, generator=source).tolist() if j != i] for i in range(tasks)
    ]  # fmt: skip


def random_gradients(seed, tasks, *, missing=0.0, dtype=torch.float64):
    """For each task a gradient of each weight, pulling apart more often than not; None for some."""
    source = np.random.default_rng(seed)
    return [
        [
            None if source.random() < missing else torch.from_numpy(source.standard_normal(shape)).to(dtype)
            for shape in SHAPES
        ]
        for _ in range(tasks)
    ]


def flat(gradients):
    """(n,) one vector, zeros where a weight has no gradient."""
    return np.concatenate(
        [
            np.zeros(math.prod(shape)) if own is None else own.double().to_dense().numpy().reshape(-1)
            for own, shape in zip(gradients, SHAPES, strict=True)
        ]
    )


@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([0.0, 0.4]), st.sampled_from(["sum", "mean"]))
def test_matches_pcgrad_written_out_in_numpy(seed, tasks, missing, combine):
    """All weights are one vector, and the projections are onto original gradients, in the drawn order."""
    gradients = random_gradients(seed, tasks, missing=missing)
    before = [flat(own) for own in gradients]
    combined, _ = project(gradients, seed=seed, combine=combine)
    expected = by_the_book(before, orders_of(seed, tasks)) / (tasks if combine == "mean" else 1)

    assert flat(combined) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert [own is None for own in combined] == [
        all(own is None for own in slot) for slot in zip(*gradients, strict=True)
    ]
    assert all(np.array_equal(flat(own), was) for own, was in zip(gradients, before, strict=True))


@given(st.integers(0, 2**32), st.integers(2, 5))
def test_conflicts_are_those_of_the_original_gradients(seed, tasks):
    """Signs and cosines against NumPy, for every two tasks."""
    gradients = random_gradients(seed, tasks)
    vectors = [flat(own) for own in gradients]
    _, conflicts = project(gradients, seed=seed, combine="sum")

    for i, j in itertools.product(range(tasks), repeat=2):
        cosine = vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
        assert conflicts.counts[i][j] == int(cosine < 0)
        assert conflicts.cosines[i][j] == pytest.approx(cosine)
        assert conflicts.between(str(i), str(j)) == conflicts.between(str(j), str(i))


def test_dot_products_are_over_all_weights_together():
    """A conflict in one weight does not matter where the vectors as a whole agree, and the other way round."""
    agree = [[torch.tensor([1.0]), torch.tensor([2.0])], [torch.tensor([-1.0]), torch.tensor([2.0])]]
    combined, conflicts = project(agree, seed=0, combine="sum")

    assert [own.item() for own in combined] == [0.0, 4.0]
    assert conflicts.counts == ((0, 0), (0, 0))

    differ = [[torch.tensor([2.0]), torch.tensor([1.0])], [torch.tensor([-2.0]), torch.tensor([1.0])]]
    combined, conflicts = project(differ, seed=0, combine="sum")

    assert [own.item() for own in combined] == [pytest.approx(0.0, abs=1e-6), pytest.approx(3.2)]
    assert conflicts.counts == ((0, 1), (1, 0))


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_without_a_conflict_it_is_the_plain_sum_or_mean(tasks, combine):
    """To the last bit, in single precision."""
    gradients = [[torch.rand(shape) for shape in SHAPES] for _ in range(tasks)]
    combined, conflicts = project(gradients, seed=3, combine=combine)

    for own, slot in zip(combined, zip(*gradients, strict=True), strict=True):
        plain = sum(slot[1:], slot[0])
        assert torch.equal(own, plain / tasks if combine == "mean" else plain)
    assert not np.any(conflicts.counts)


@pytest.mark.parametrize("scale", [1.0, 0.3, 1e-12, 1e12])
def test_two_opposite_gradients_leave_nothing(scale):
    """Each loses all of itself, however long the other is."""
    one = random_gradients(1, 1)[0]
    combined, conflicts = project([one, [-scale * own for own in one]], seed=0, combine="sum")

    assert flat(combined) == pytest.approx(np.zeros(14), abs=1e-14 * max(1, scale))
    assert conflicts.counts == ((0, 1), (1, 0))
    assert conflicts.cosines[0][1] == pytest.approx(-1)


@given(st.integers(0, 2**32))
def test_of_two_tasks_neither_is_set_back(seed):
    """The combined gradient points against none of the two."""
    gradients = random_gradients(seed, 2)
    combined, _ = project(gradients, seed=seed, combine="mean")

    for own in gradients:
        assert flat(combined) @ flat(own) > -1e-9


def test_each_task_meets_the_others_in_every_order():
    """Three tasks in conflict have 2 x 2 x 2 orders: seeds draw all of them, each task's apart from the others'."""
    vectors = [np.array([1.0, 0.1, 0.0]), np.array([-0.5, 1.0, 0.2]), np.array([-0.4, -0.8, 1.0])]
    assert all(vectors[i] @ vectors[j] < 0 for i, j in itertools.combinations(range(3), 2))
    possible = [
        by_the_book(vectors, orders) for orders in itertools.product([(1, 2), (2, 1)], [(0, 2), (2, 0)], [(0, 1), (1, 0)])
    ]  # fmt: skip
    assert min(np.abs(one - other).max() for one, other in itertools.combinations(possible, 2)) > 1e-3
    drawn = set()
    for seed in range(100):
        (combined,), _ = project([[torch.from_numpy(own)] for own in vectors], seed=seed, combine="sum")
        away = [np.abs(combined.numpy() - own).max() for own in possible]
        assert min(away) < 1e-12
        drawn.add(int(np.argmin(away)))

    assert drawn == set(range(8))


def test_the_order_depends_on_the_seed_alone():
    """Asked twice it is the same to the last bit, and the global generator is left as it was."""
    gradients = random_gradients(4, 5)
    state = torch.get_rng_state()
    first, _ = project(gradients, seed=9, combine="mean")
    torch.rand(3)
    second, _ = project(gradients, seed=9, combine="mean")
    others = [project(gradients, seed=seed, combine="mean")[0] for seed in range(20)]

    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert len({other[0].sum().item() for other in others}) > 3
    torch.set_rng_state(state)
    project(gradients, seed=9, combine="mean")
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("nothing", ["zeros", "none", "too small to square"])
def test_a_task_without_a_gradient_changes_nothing(nothing):
    """No division by zero: the others come out as without it, and it has met nobody."""
    two = random_gradients(2, 2, dtype=torch.float32)
    two[1] = [-own for own in two[0]]
    two[1][0] = two[1][0] * 2
    empty = {
        "zeros": [torch.zeros(shape) for shape in SHAPES],
        "none": [None] * len(SHAPES),
        "too small to square": [-1e-30 * own for own in two[0]],
    }[nothing]
    expected, _ = project(two, seed=0, combine="sum")
    combined, conflicts = project([*two, empty], seed=0, combine="sum")

    assert flat(combined) == pytest.approx(flat(expected), abs=1e-6)
    assert conflicts.counts == ((0, 1, 0), (1, 0, 0), (0, 0, 0))
    assert conflicts.between("0", "2") == PairConflicts()
    assert math.isnan(conflicts.cosines[1][2])


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_comes_out_as_not_finite(broken):
    """The step's own check finds it; the surgery neither hides it nor stumbles over it."""
    gradients = random_gradients(5, 3)
    gradients[1][0][0, 0] = broken
    gradients[2][1][0] = -broken
    combined, _ = project(gradients, seed=0, combine="mean")

    assert not np.isfinite(flat(combined)).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_numbers_are_summed_as_long_ones(dtype):
    """Result and gradients have the short type; only the result is rounded to it."""
    gradients = random_gradients(6, 4, dtype=dtype)
    combined, _ = project(gradients, seed=2, combine="mean")
    expected = by_the_book([flat(own) for own in gradients], orders_of(2, 4)) / 4
    rounded = torch.from_numpy(expected).to(dtype)

    assert all(own.dtype == dtype for own in combined)
    assert flat(combined) == pytest.approx(rounded.double().numpy(), rel=2 * torch.finfo(dtype).eps, abs=1e-5)


def test_millions_of_numbers_are_added_up_without_loss():
    """A large embedding in single precision: cosine and projection are those of double precision."""
    source = torch.Generator().manual_seed(0)
    one, noise = torch.randn(2, 8_000_000, generator=source)
    other = 3 * noise - 0.05 * one
    (combined,), conflicts = project([[one], [other]], seed=0, combine="sum")
    vectors = [one.double().numpy(), other.double().numpy()]
    cosine = vectors[0] @ vectors[1] / np.linalg.norm(vectors[0]) / np.linalg.norm(vectors[1])
    expected = by_the_book(vectors, [[1], [0]])

    assert conflicts.cosines[0][1] == pytest.approx(cosine, rel=1e-5)
    assert np.abs(combined.numpy() - expected).max() < 2e-6


def rows_of(dense, rows):
    """A sparse gradient with these rows of a dense one; one of them in two pieces, as several batches leave it."""
    index = torch.tensor([*rows, rows[0]])
    values = dense[index].clone()
    values[0] /= 4
    values[-1] *= 3 / 4
    return torch.sparse_coo_tensor(index[None], values, dense.shape, check_invariants=True)


@pytest.mark.parametrize("layouts", ["sparse", "mixed"])
def test_rows_alone_are_as_good_as_whole_gradients(layouts):
    """Gradients of a word embedding: some rows, in any order, not yet coalesced; sparse in, sparse out."""
    source = torch.Generator().manual_seed(0)
    rows = [[5, 1, 7], [7, 2, 5], [8], [1, 5, 2, 0]]
    dense, sparse = [], []
    for place, own in enumerate(rows):
        words = torch.randn(9, 3, generator=source, dtype=torch.float64)
        other = torch.randn(4, generator=source, dtype=torch.float64)
        some = rows_of(words, own)
        dense.append([some.to_dense(), other])
        sparse.append([some.to_dense() if layouts == "mixed" and place == 2 else some, other])
    sparse.append([None, -sparse[0][1]])
    dense.append([torch.zeros(9, 3, dtype=torch.float64), -dense[0][1]])
    expected, expected_conflicts = project(dense, seed=1, combine="sum")
    combined, conflicts = project(sparse, seed=1, combine="sum")

    assert np.sum(expected_conflicts.counts) > 2
    assert combined[0].is_sparse == (layouts == "sparse")
    assert torch.allclose(combined[0].to_dense(), expected[0], rtol=1e-12, atol=1e-14)
    assert torch.allclose(combined[1], expected[1], rtol=1e-12, atol=1e-14)
    assert conflicts.counts == expected_conflicts.counts
    assert np.allclose(conflicts.cosines, expected_conflicts.cosines)


def test_conflicts_of_many_steps_add_up():
    """Over steps with different tasks: how often each two met, how often in conflict, and the mean cosine."""
    steps = [(11, ("a", "b", "c")), (12, ("c", "a")), (13, ("b", "a", "d"))]
    found, cosines = Conflicts(tasks=(), pairs={}), {}
    for seed, names in steps:
        gradients = random_gradients(seed, len(names))
        found += project(gradients, seed=seed, combine="mean", tasks=names)[1]
        for (one, left), (other, right) in itertools.combinations(zip(names, gradients, strict=True), 2):
            left, right = flat(left), flat(right)
            cosine = left @ right / np.linalg.norm(left) / np.linalg.norm(right)
            cosines.setdefault(" / ".join(sorted([one, other])), []).append(cosine)

    assert found.tasks == ("a", "b", "c", "d")
    assert found.entry() == {
        pair: {"steps": len(own), "conflicts": sum(x < 0 for x in own), "cosine": pytest.approx(np.mean(own))}
        for pair, own in cosines.items()
    }
    assert found.counts[0][1] == found.entry()["a / b"]["conflicts"]
    assert math.isnan(found.cosines[2][3])


class TwoHeads(nn.Module):
    """Words and a layer that both tasks share, and a head for each."""

    def __init__(self, *, sparse):
        super().__init__()
        self.words = nn.Embedding(20, 6, sparse=sparse)
        self.layer = nn.Linear(6, 6)
        self.heads = nn.ModuleDict({"a": nn.Linear(6, 2), "b": nn.Linear(6, 3)})
        self.idle = nn.Parameter(torch.ones(2))

    def shared(self):
        return [*self.words.parameters(), *self.layer.parameters(), self.idle]

    def loss(self, task, seed):
        """What pulls the shared layer up for one task and down for the other."""
        ids = torch.randint(20, (8,), generator=torch.Generator().manual_seed(seed))
        hidden = torch.tanh(self.layer(self.words(ids)))
        return self.heads[task](hidden).logsumexp(1).mean() + (3 if task == "a" else -3) * hidden.mean()


def model_of(*, sparse=False):
    torch.manual_seed(0)
    return TwoHeads(sparse=sparse)


def whole(gradient):
    return None if gradient is None else gradient.to_dense()


def same(one, other):
    if one is None or other is None:
        return one is other
    return torch.allclose(whole(one), whole(other), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("combine", ["mean", "sum"])
def test_the_surgeon_leaves_what_project_gives(combine, sparse):
    """Shared weights are operated on, heads pass through with the same factor, idle weights keep no gradient."""
    model = model_of(sparse=sparse)
    pcgrad = PCGrad(shared=model.shared(), own=model.heads.parameters(), combine=combine)
    for task, seed in (("a", 1), ("b", 2)):
        model.loss(task, seed).backward()
        pcgrad.take(task)
        assert all(weight.grad is None for weight in model.parameters())
    conflicts = pcgrad.finish(seed=7)

    plain = model_of()
    weights = list(plain.shared())
    per_task = [
        torch.autograd.grad(plain.loss(task, seed), weights, allow_unused=True) for task, seed in (("a", 1), ("b", 2))
    ]
    expected, expected_conflicts = project(per_task, seed=7, combine=combine, tasks=("a", "b"))
    assert expected_conflicts.counts == conflicts.counts == ((0, 1), (1, 0))
    assert conflicts.tasks == ("a", "b")
    assert all(same(weight.grad, own) for weight, own in zip(model.shared(), expected, strict=True))
    assert model.idle.grad is None
    assert model.words.weight.grad.is_sparse == sparse
    for task, seed in (("a", 1), ("b", 2)):
        heads = list(plain.heads[task].parameters())
        for weight, own in zip(
            model.heads[task].parameters(), torch.autograd.grad(plain.loss(task, seed), heads), strict=True
        ):
            assert same(weight.grad, own / 2 if combine == "mean" else own)


@pytest.mark.parametrize("sparse", [False, True])
def test_batches_of_a_task_add_up_before_the_surgery(sparse):
    """Taken in between other tasks or accumulated by backward: a task has one gradient a step."""
    results = []
    for order in (("a1", "b2", "a3", "b4"), ("a1 a3", "b2 b4")):
        model = model_of(sparse=sparse)
        pcgrad = PCGrad(shared=model.shared(), own=model.heads.parameters())
        for batches in order:
            for batch in batches.split():
                model.loss(batch[0], int(batch[1])).backward()
            pcgrad.take(batches[0])
        conflicts = pcgrad.finish(seed=0)
        results.append([weight.grad for weight in model.parameters()])
        assert conflicts.between("a", "b").steps == 1

    assert all(same(one, other) for one, other in zip(*results, strict=True))
    assert sum(own is not None for own in results[0]) == 7


def test_rows_and_whole_gradients_of_one_task_add_up():
    """A task may leave some rows of a weight with one batch and all of them with the next."""
    some, everything = rows_of(torch.ones(4, 2), [1, 3]), torch.full((4, 2), 2.0)
    for first, second in ((some, everything), (everything, some)):
        weight = nn.Parameter(torch.zeros(4, 2))
        pcgrad = PCGrad(shared=[weight])
        for gradient in (first, second):
            weight.grad = gradient.clone()
            pcgrad.take("a")
        pcgrad.finish(seed=0)
        assert torch.equal(weight.grad, torch.tensor([[2.0, 2.0], [3.0, 3.0], [2.0, 2.0], [3.0, 3.0]]))


def test_one_task_alone_is_plain_training():
    """To the last bit, and the gradients are moved, not copied."""
    model, plain = model_of(), model_of()
    pcgrad = PCGrad(shared=model.shared(), own=model.heads.parameters())
    model.loss("a", 1).backward()
    plain.loss("a", 1).backward()
    places = [weight.grad.data_ptr() for weight in model.parameters() if weight.grad is not None]
    pcgrad.take("a")
    conflicts = pcgrad.finish(seed=0)

    assert conflicts == Conflicts(tasks=("a",), pairs={})
    assert [weight.grad.data_ptr() for weight in model.parameters() if weight.grad is not None] == places
    for weight, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert (weight.grad is None) == (other.grad is None)
        assert weight.grad is None or torch.equal(weight.grad, other.grad)


def test_steps_do_not_leak_into_each_other():
    """After it has finished, a pcgrad begins with nothing."""
    model = model_of()
    pcgrad = PCGrad(shared=model.shared(), own=model.heads.parameters())
    results = []
    for _ in range(2):
        for task, seed in (("a", 1), ("b", 2)):
            model.loss(task, seed).backward()
            pcgrad.take(task)
        pcgrad.finish(seed=0)
        results.append([weight.grad for weight in model.parameters()])
        model.zero_grad(set_to_none=True)

    assert all(one is other is None or torch.equal(one, other) for one, other in zip(*results, strict=True))
    with pytest.raises(SettingError, match="take those of at least one task first"):
        pcgrad.finish(seed=0)


def test_what_does_not_fit_together_is_refused():
    """Weights given twice, another way to combine, tasks of one name, gradients of other weights."""
    weight = nn.Parameter(torch.zeros(2))
    with pytest.raises(SettingError, match="given to PCGrad twice"):
        PCGrad(shared=[weight], own=[weight])
    with pytest.raises(SettingError, match="'mean' or 'sum', not by 'median'"):
        PCGrad(shared=[weight], combine="median")
    with pytest.raises(SettingError, match="'mean' or 'sum', not by 'median'"):
        project([[weight.data]], seed=0, combine="median")
    with pytest.raises(SettingError, match="2 gradients need as many different names of tasks, got a, a"):
        project([[weight.data]] * 2, seed=0, combine="sum", tasks=["a", "a"])
    with pytest.raises(SettingError, match="no gradients to combine"):
        project([], seed=0, combine="sum")
    with pytest.raises(ShapeError, match=r"got \[1, 2\] gradients"):
        project([[None], [None, None]], seed=0, combine="sum")
    with pytest.raises(ShapeError, match=r"weight 1 have different shapes: \[\(2,\), \(3,\)\]"):
        project([[None, torch.ones(2)], [None, torch.ones(3)]], seed=0, combine="sum")
