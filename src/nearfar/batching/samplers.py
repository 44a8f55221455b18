"""Samplers: which rows share a batch, and the order of the batches in an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError
from nearfar.seeds import generator

Rows = NDArray[np.int64]


class Sampler(Protocol):
    """Cuts the rows of a data set into batches, anew in each epoch."""

    @property
    def reads_model(self) -> bool:
        """Whether ``batches`` encodes texts with the model in training, whose weights must then be up to date."""

    def __len__(self) -> int:
        """How many batches every epoch has."""

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:
        """The batches of an epoch; the first epoch is 0.

        Args:
            epoch: its index.
            previous: the batches of the epoch before. Samplers that encode only every few epochs need them in the
                epochs between; the others ignore them.
        """


@dataclass(frozen=True, kw_only=True)
class RandomOrder:
    """Every row exactly once an epoch, in an order drawn for that epoch, in batches of about the same size.

    >>> sampler = RandomOrder(rows=70, size=64, seed=1)
    >>> len(sampler), [len(batch) for batch in sampler.batches(0)]
    (2, [35, 35])
    """

    reads_model: ClassVar[bool] = False

    rows: int
    size: int
    seed: int

    def __post_init__(self) -> None:
        check(self.rows, self.size)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:  # noqa: ARG002 - as all samplers
        """The epoch's permutation, cut into batches."""
        order = generator(self.seed, "shuffle", epoch).permutation(self.rows)
        return np.split(order, np.cumsum(even_sizes(self.rows, self.size))[:-1])


@dataclass(frozen=True, kw_only=True)
class FileOrder:
    """Every row exactly once an epoch, in the order of the file.

    >>> FileOrder(rows=3, size=2).batches(7)
    [array([0, 1]), array([2])]
    """

    reads_model: ClassVar[bool] = False

    rows: int
    size: int

    def __post_init__(self) -> None:
        check(self.rows, self.size)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:  # noqa: ARG002 - as all samplers
        """The same batches in every epoch."""
        return cut(np.arange(self.rows), self.size)


def cut(order: Rows, size: int) -> list[Rows]:
    """An order of rows, cut into batches; the last one may be smaller."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def even_sizes(rows: int, size: int, multiple: int = 1) -> list[int]:
    """The sizes of as few batches as possible: the same for all of them but for what does not divide.

    A short last batch would count as much as the others, with a gradient of few rows. Sizes are multiples of
    ``multiple`` where ``size`` is one, again but for the last batch.

    >>> even_sizes(70, 64), even_sizes(70, 64, multiple=4), even_sizes(128, 64), even_sizes(5, 2)
    ([35, 35], [36, 34], [64, 64], [2, 2, 1])
    """
    batches = -(-rows // size)
    step = multiple if size % multiple == 0 else 1
    ends = [min(rows, -(-rows * number // (batches * step)) * step) for number in range(batches + 1)]
    return [end - start for start, end in pairwise(ends)]


def check(rows: int, size: int) -> None:
    """Refuse a data set without rows, and empty batches."""
    if rows < 1:
        raise SettingError("there are no rows to make batches of.")
    if size < 1:
        raise SettingError(f"batches.size must be 1 or more, got {size}; try 32.")


AHEAD = 256
"""How many of the next runs are searched for one that fits; keeps the cost of an epoch linear in the rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassBalanced:
    """Every row exactly once an epoch, with ``per_class`` rows of a class in the same batch.

    The rows of each class are shuffled and cut into runs of ``per_class``; a single row left over joins another run of
    its class. The runs of a class are spread evenly over the epoch, so that batches mix classes in the proportion they
    have in the data. All batches have about the same size, ``size`` rows at most. Where no run fits into the end of a
    batch, one is split, if possible so that both halves keep a positive: one half in a batch with rows of its class,
    the other with two rows or more, or joined to the next run of its class. With ``size`` a multiple of ``per_class``
    that is rare. Some anchors may still have no positive: rows of a class of one row, and a few where sizes do not
    divide, mostly in the last batches; :func:`count_without_positive` counts them.

    Args:
        labels: class number of each row.
        size: rows of a batch.
        per_class: rows of a run, at least 2.
        seed: of the order.

    >>> labels = np.array([0, 1, 0, 1, 1, 1])
    >>> sampler = ClassBalanced(labels=labels, size=4, per_class=2, seed=1)
    >>> len(sampler), count_without_positive(labels, sampler.batches(0))
    (2, 0)
    """

    reads_model: ClassVar[bool] = False

    labels: NDArray[np.int64]
    size: int
    seed: int
    per_class: int = 2

    def __post_init__(self) -> None:
        check(len(self.labels), self.size)
        if self.per_class < 2:
            raise SettingError(
                f"batches.per_class must be 2 or more, got {self.per_class}: with one row a class no row has a "
                "positive in its batch; try 2."
            )
        if self.per_class > self.size:
            raise SettingError(
                f"batches.per_class is {self.per_class}, but a batch has only {self.size} rows (batches.size); "
                f"lower per_class or raise size to at least {self.per_class}."
            )

    def __len__(self) -> int:
        return -(-len(self.labels) // self.size)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:  # noqa: ARG002 - as all samplers
        """The epoch's runs, packed into batches."""
        packing = _Packing(self._runs(generator(self.seed, "balanced", epoch)), self.labels)
        return [packing.batch(size) for size in even_sizes(len(self.labels), self.size, self.per_class)]

    def _runs(self, source: np.random.Generator) -> list[list[int]]:
        """All runs in the order of the epoch."""
        labels = np.asarray(self.labels)
        shuffled = source.permutation(len(labels))
        order = shuffled[np.argsort(labels[shuffled], kind="stable")]  # class by class, shuffled inside
        runs: list[list[int]] = []
        positions: list[NDArray[np.float64]] = []
        for members in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
            of_class = [run.tolist() for run in cut(members, self.per_class)]
            if len(of_class) > 1 and len(of_class[-1]) == 1:
                single = of_class.pop()
                of_class[-1] += single
            runs += of_class
            positions.append((source.permutation(len(of_class)) + source.random()) / len(of_class))
        return [runs[at] for at in np.argsort(np.concatenate(positions), kind="stable")]


class _Packing:
    """Runs that wait for a batch; every run is a list of rows of one class, emptied when it is in a batch."""

    def __init__(self, runs: list[list[int]], labels: NDArray[np.int64]) -> None:
        self.labels = labels
        self.waiting = runs[::-1]  # the next one last: taking it is cheap
        self.by_class: dict[int, list[list[int]]] = {}  # the runs of each class, the next one last
        for run in self.waiting:
            self.by_class.setdefault(int(labels[run[0]]), []).append(run)

    def batch(self, size: int) -> Rows:
        """The next rows, as many as fit."""
        rows: list[int] = []
        while self.waiting and len(rows) < size:
            space = size - len(rows)
            at = self._fitting(space)
            rows += self._take(at) if at is not None else self._split(space, {int(self.labels[row]) for row in rows})
        return np.array(rows, dtype=np.int64)

    def _ahead(self) -> range:
        last = len(self.waiting) - 1
        return range(last, max(-1, last - AHEAD), -1)

    def _fitting(self, space: int) -> int | None:
        """The next run that fits, if possible one that does not leave space for a single row."""
        first = None
        for at in self._ahead():
            left = space - len(self.waiting[at])
            if left == 0 or left > 1:
                return at
            if left == 1 and first is None:
                first = at
        return first

    def _take(self, at: int) -> list[int]:
        run = self.waiting.pop(at)
        rows = run.copy()
        run.clear()
        return rows

    def _split(self, space: int, present: set[int]) -> list[int]:
        """The first rows of a run that is longer than the space; the others stay in the queue."""
        at = next((at for at in self._ahead() if self._keeps_positives(self.waiting[at], space, present)), -1)
        run = self.waiting[at]
        other = self._next_of_class(run)
        rows = run[:space]
        del run[:space]
        if len(run) == 1 and other is not None:
            other += self._take(at)
        return rows

    def _keeps_positives(self, run: list[int], space: int, present: set[int]) -> bool:
        first_half = space >= 2 or int(self.labels[run[0]]) in present
        return first_half and (len(run) - space >= 2 or self._next_of_class(run) is not None)

    def _next_of_class(self, run: list[int]) -> list[int] | None:
        runs = self.by_class[int(self.labels[run[0]])]
        while runs and not runs[-1]:
            runs.pop()  # is in a batch
        return next((other for other in reversed(runs) if other and other is not run), None)


def count_without_positive(labels: NDArray[np.int64], batches: Sequence[Rows]) -> int:
    """How many rows have no other row of their class in their batch.

    >>> count_without_positive(np.array([0, 0, 1, 1]), [np.array([0, 1, 2]), np.array([3])])
    2
    """
    return sum(int((np.unique(labels[batch], return_counts=True)[1] == 1).sum()) for batch in batches)
