r"""PCGrad (gradient surgery): conflicting gradients of tasks are projected onto each other's normal plane.

Yu et al. 2020, arXiv:2001.06782, algorithm 1. The gradient :math:`g_i` of each task, all shared weights as one long
vector, is compared with the others in random order; where it conflicts with one, it is projected:

.. math:: g_i \leftarrow g_i - \frac{g_i \cdot g_j}{\lVert g_j \rVert^2}\, g_j \quad\text{if } g_i \cdot g_j < 0

with the original :math:`g_j`. The projected gradients of all tasks are summed or averaged.

Every :math:`g_i` stays a sum :math:`\sum_k c_{ik} g_k` of the original gradients, so the algorithm
needs nothing of them but their dot products: it is run on the coefficients c, and the result is one weighted sum of the
original gradients. No projected copy of them is ever made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nearfar.errors import SettingError, ShapeError
from nearfar.training.contracts import ConflictEntry

Combine = Literal["mean", "sum"]
Matrix = list[list[float]]
Slot = Sequence[Tensor | None]
"""The gradients of one weight, one of each task."""
PIECE = 2**16
"""So many numbers are multiplied and added up in single precision before their sum goes on in double precision."""


@dataclass(frozen=True, kw_only=True)
class PairConflicts:
    """Conflict statistics of two tasks."""

    steps: int = 0
    """How often both had a gradient that is not zero."""
    conflicts: int = 0
    """How often the dot product of their original gradients was below zero."""
    cosines: float = 0.0
    """The sum of their cosines."""

    @property
    def cosine(self) -> float:
        """The mean cosine; NaN where they never shared a step."""
        return self.cosines / self.steps if self.steps else math.nan

    def __add__(self, other: PairConflicts) -> PairConflicts:
        return PairConflicts(
            steps=self.steps + other.steps,
            conflicts=self.conflicts + other.conflicts,
            cosines=self.cosines + other.cosines,
        )


@dataclass(frozen=True, kw_only=True)
class Conflicts:
    """Conflict statistics of all tasks, in one step or, added up, in many.

    >>> one = Conflicts(tasks=("a", "b"), pairs={("a", "b"): PairConflicts(steps=1, conflicts=1, cosines=-0.5)})
    >>> two = Conflicts(tasks=("b", "c"), pairs={("b", "c"): PairConflicts(steps=1, cosines=0.25)})
    >>> (one + two + one).counts
    ((0, 2, 0), (2, 0, 0), (0, 0, 0))
    >>> (one + two).entry()["a / b"]
    {'steps': 1, 'conflicts': 1, 'cosine': -0.5}
    """

    tasks: tuple[str, ...]
    pairs: dict[tuple[str, str], PairConflicts]
    """Of each two tasks that were in a step together, named in alphabetical order."""

    def between(self, one: str, other: str) -> PairConflicts:
        """Of two tasks, in any order."""
        return self.pairs.get(_pair(one, other), PairConflicts())

    @property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """(t, t) how often each two tasks conflicted."""
        return tuple(tuple(self.between(one, other).conflicts for other in self.tasks) for one in self.tasks)

    @property
    def cosines(self) -> tuple[tuple[float, ...], ...]:
        """(t, t) mean cosines of each two tasks; 1 with itself, NaN for tasks that never shared a step."""
        return tuple(
            tuple(1.0 if one == other else self.between(one, other).cosine for other in self.tasks)
            for one in self.tasks
        )

    def entry(self) -> dict[str, ConflictEntry]:
        """For the journal: steps, conflicts and mean cosine of each two tasks."""
        return {
            f"{one} / {other}": {"steps": own.steps, "conflicts": own.conflicts, "cosine": own.cosine}
            for (one, other), own in self.pairs.items()
        }

    def __add__(self, other: Conflicts) -> Conflicts:
        names = dict.fromkeys([*self.pairs, *other.pairs])
        return Conflicts(
            tasks=tuple(dict.fromkeys([*self.tasks, *other.tasks])),
            pairs={pair: self.between(*pair) + other.between(*pair) for pair in names},
        )


@torch.no_grad()
def project(
    gradients: Sequence[Sequence[Tensor | None]], *, seed: int, combine: Combine, tasks: Sequence[str] | None = None
) -> tuple[list[Tensor | None], Conflicts]:
    """PCGrad on the gradients of several tasks, which stay as they are.

    Beside them it holds one result. A gradient of zeros conflicts with no other.

    Args:
        gradients: for each task, the gradient of each shared weight; None is a gradient of zeros. Sparse gradients
            stay sparse where all tasks have them so.
        seed: of the order in which each task is compared with the others, drawn for each task.
        combine: "mean" divides the sum by the number of tasks.
        tasks: their names in the conflicts; none for their numbers.

    Returns:
        The combined gradient of each weight, None where no task has one; and the conflict statistics.

    >>> one, other = [torch.tensor([1.0, 1.0])], [torch.tensor([-1.0, 0.0])]
    >>> combined, conflicts = project([one, other], seed=0, combine="sum")  # (0, 1) + (-1/2, 1/2)
    >>> combined, conflicts.counts
    ([tensor([-0.5000,  1.5000])], ((0, 1), (1, 0)))
    """
    slots = _slots(gradients)
    weights, conflicts = _combine_weights(
        slots, len(gradients), seed, [*map(str, range(len(gradients)))] if tasks is None else tasks
    )
    share = _share(combine, len(gradients))
    return [_weighted(slot, weights, share, spend=False) for slot in slots], conflicts


class PCGrad:
    """Collects the gradients of one task after the other, and puts the combined gradients back.

    After a task's backward pass, :meth:`take` takes its gradients off the weights. The task's graph is gone by then, so
    that one graph is alive at a time, and the next task's backward pass finds no gradients to add to. :meth:`finish`
    leaves the combined gradients where an optimizer, or clipping, expects them. A task may be taken several times in a
    step; its gradients add up. Until :meth:`finish`, one set of gradients of the shared weights is held for each task
    and one of the other weights: T - 1 sets more than plain training. They are used up weight by weight.

    In several processes, average the gradients before they are taken, and finish with the same seed in each.

    Args:
        shared: weights that several tasks train; their gradients are projected.
        own: weights that belong to one task each: their gradients are only summed or averaged, as the shared ones, so
            that "mean" is the gradient of the mean of the tasks' losses where there is no conflict.
        combine: "mean" divides the sum by the number of tasks that were taken.
    """

    def __init__(self, *, shared: Iterable[Tensor], own: Iterable[Tensor] = (), combine: Combine = "mean") -> None:
        self.shared = list(shared)
        self.own = list(own)
        self.combine = combine
        _share(combine, 1)
        if len({id(weight) for weight in [*self.shared, *self.own]}) < len(self.shared) + len(self.own):
            raise SettingError("a weight was given to PCGrad twice; it is either shared or a task's own.")
        self._forget()

    @torch.no_grad()
    def take(self, task: str) -> None:
        """Take the gradients off all weights: they are this task's."""
        held = self._held.setdefault(task, [None] * len(self.shared))
        for place, weight in enumerate(self.shared):
            held[place] = _added(held[place], _taken(weight))
        for place, weight in enumerate(self.own):
            self._passing[place] = _added(self._passing[place], _taken(weight))

    @torch.no_grad()
    def finish(self, seed: int) -> Conflicts:
        """Leave the combined gradients on the weights; a weight that no task has a gradient for keeps none."""
        slots = _slots(list(self._held.values()))
        count = len(self._held)
        weights, conflicts = _combine_weights(slots, count, seed, list(self._held))
        share, passing = _share(self.combine, count), self._passing
        self._forget()  # from here on, slots and passing alone hold the gradients
        for place, weight in enumerate(self.shared):
            weight.grad = _weighted(slots[place], weights, share, spend=True)
            slots[place] = []
        for place, weight in enumerate(self.own):
            weight.grad = _weighted([passing[place]], [1.0], share, spend=True)
        return conflicts

    def _forget(self) -> None:
        self._held: dict[str, list[Tensor | None]] = {}
        self._passing: list[Tensor | None] = [None] * len(self.own)


def _combine_weights(
    slots: Sequence[Slot], count: int, seed: int, tasks: Sequence[str]
) -> tuple[list[float], Conflicts]:
    """How much of each task's original gradient is in the sum of all projected ones, and the conflict statistics."""
    if len(set(tasks)) != count:
        raise SettingError(f"{count} gradients need as many different names of tasks, got {', '.join(tasks)}.")
    products = _products(slots, count)
    rows = _projected(products, torch.Generator().manual_seed(seed))
    return [sum(column) for column in zip(*rows, strict=True)], _conflicts(products, tasks)


def _projected(products: Matrix, source: torch.Generator) -> Matrix:
    """(t, t) row i: the coefficients of the original gradients in task i's projected one."""
    count = len(products)
    rows = []
    for i in range(count):
        row = [float(k == i) for k in range(count)]
        for j in torch.randperm(count, generator=source).tolist():
            if j == i:
                continue
            dot = sum(c * products[k][j] for k, c in enumerate(row))
            if dot < 0 < products[j][j]:
                row[j] -= dot / products[j][j]
        rows.append(row)
    return rows


def _conflicts(products: Matrix, tasks: Sequence[str]) -> Conflicts:
    pairs = {}
    for i, one in enumerate(tasks):
        for j in range(i + 1, len(tasks)):
            size = math.sqrt(products[i][i]) * math.sqrt(products[j][j])
            dot = products[i][j]
            pairs[_pair(one, tasks[j])] = (
                PairConflicts(steps=1, conflicts=int(dot < 0), cosines=max(-1.0, min(1.0, dot / size)))
                if size > 0
                else PairConflicts()
            )
    return Conflicts(tasks=tuple(tasks), pairs=pairs)


def _products(slots: Sequence[Slot], count: int) -> Matrix:
    """(t, t) the dot product of each two tasks' gradients, over all weights together."""
    products = [[0.0] * count for _ in range(count)]
    for i in range(count):
        for j in range(i, count):
            pieces = [piece for slot in slots for piece in _dots(slot[i], slot[j])]
            if pieces:
                products[i][j] = products[j][i] = sum(torch.stack(pieces).tolist())  # one transfer, not many
    return products


def _dots(one: Tensor | None, other: Tensor | None) -> list[Tensor]:
    """Dot products of short pieces: added up one by one, millions of numbers in single precision lose four digits."""
    if one is None or other is None:
        return []
    if one.is_sparse:
        one, other = _common_rows(one, other)
    wide = torch.promote_types(one.dtype, torch.float32)
    pieces = zip(torch.split(one.reshape(-1), PIECE), torch.split(other.reshape(-1), PIECE), strict=True)
    return [torch.dot(left.to(wide), right.to(wide)) for left, right in pieces]


def _common_rows(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """The values of two coalesced sparse gradients, of the rows that both have."""
    rows, others = one.indices()[0], other.indices()[0]
    return one.values()[torch.isin(rows, others)], other.values()[torch.isin(others, rows)]


def _weighted(slot: Slot, weights: Sequence[float], share: int, *, spend: bool) -> Tensor | None:
    """The weighted sum of a weight's gradients, by ``share``; may ``spend`` the first of them for it."""
    given = [(gradient, weight) for gradient, weight in zip(slot, weights, strict=True) if gradient is not None]
    if not given:
        return None
    (first, weight), *others = given
    wide = torch.promote_types(first.dtype, torch.float32)
    total = first.to(wide, copy=not spend).mul_(weight)
    for gradient, weight in others:
        total.add_(gradient.to(wide), alpha=weight)
    total.div_(share)
    return (total.coalesce() if total.is_sparse else total).to(first.dtype)


def _slots(gradients: Sequence[Slot]) -> list[Slot]:
    """The gradients of each weight instead of those of each task, in one layout."""
    if not gradients:
        raise SettingError("there are no gradients to combine; take those of at least one task first.")
    if len({len(own) for own in gradients}) > 1:
        raise ShapeError(
            f"all tasks share the same weights, got {[len(own) for own in gradients]} gradients of the tasks"
        )
    slots = [_one_layout(slot) for slot in zip(*gradients, strict=True)]
    for place, slot in enumerate(slots):
        shapes = {tuple(gradient.shape) for gradient in slot if gradient is not None}
        if len(shapes) > 1:
            raise ShapeError(f"the gradients of weight {place} have different shapes: {sorted(shapes)}")
    return slots


def _one_layout(slot: Slot) -> Slot:
    """All rows of their own and coalesced, or all dense."""
    if all(gradient is None or (gradient.is_sparse and gradient.sparse_dim() == 1) for gradient in slot):
        return [None if gradient is None else gradient.coalesce() for gradient in slot]
    return [gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient for gradient in slot]


def _taken(weight: Tensor) -> Tensor | None:
    gradient, weight.grad = weight.grad, None
    return gradient


def _added(held: Tensor | None, new: Tensor | None) -> Tensor | None:
    if held is None or new is None:
        return new if held is None else held
    if held.is_sparse and not new.is_sparse:
        held, new = new, held
    return held.add_(new)


def _share(combine: str, tasks: int) -> int:
    if combine not in ("mean", "sum"):
        raise SettingError(f"the gradients of tasks are combined by 'mean' or 'sum', not by {combine!r}.")
    return tasks if combine == "mean" else 1


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one <= other else (other, one)
