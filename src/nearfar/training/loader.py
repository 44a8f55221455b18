"""From rows to batches of tensors: a tokenized data set, its labels, and the sampler that cuts it into batches.

The rows of several tasks are numbered through, task after task, so that a batch is an array of rows as in any other run
and says itself which tasks it belongs to. Sampler, loop and checkpoints need to know nothing of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.batching import Rows, Sampler, cut
from nearfar.batching.schedules import Schedule
from nearfar.encoding import TokenTable
from nearfar.errors import unit_of
from nearfar.training.contracts import InputModel
from nearfar.training.loss_module import Batch

Augment = Callable[[Rows, int], TokenTable]
"""Positions of texts in the table and a seed -> a table of these texts, changed."""


@dataclass(frozen=True)
class Loader:
    """The training rows of one task: a table of texts, and rows that point into it."""

    tokens: TokenTable
    labels: NDArray[np.int64]
    """(n,) class of each row, zeros where rows have none; (n, c) indicators where rows have several labels."""
    sampler: Sampler
    lines: Sequence[int]
    """Line of each row in its file, for messages."""
    source: str
    columns: tuple[NDArray[np.int64], ...] = ()
    """For each column of texts (n,) where in the table the text of a row is; none means row i is text i."""
    targets: NDArray[np.float32] | None = None
    """(n,) graded or binary target of each pair."""
    groups: tuple[NDArray[np.int64], ...] | None = None
    """For each column (n,) ids; texts with the same id are positives and never each other's negatives."""
    augment: Augment | None = None
    """Changes the texts of the last column before the encoder reads them."""
    weights: NDArray[np.float32] | None = None
    """(n,) how much each row counts in a cross-entropy; None: all the same."""

    def __len__(self) -> int:
        return len(self.labels)

    def by_task(self, rows: Rows) -> dict[str, Rows]:
        """There is one task, which needs no name."""
        return {"": rows}

    def task_weights(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - as all loaders
        """There is one task."""
        return {"": 1.0}

    def batches(
        self, model: InputModel, rows: Rows, chunk: int | None, *, rank: int = 0, world: int = 1
    ) -> list[Batch]:
        """The share of a batch that this process computes, in chunks of at most so many rows (None: in one piece)."""
        share = np.array_split(rows, world)[rank]
        if chunk is None or len(share) <= chunk:
            read = share if len(share) else rows[:1]  # an empty share still goes through the model, and counts nothing
            return [self._batch(model, read, share)]
        return [self._batch(model, piece, piece) for piece in cut(share, chunk)]

    def _batch(self, model: InputModel, read: Rows, counted: Rows) -> Batch:
        texts = [column[read] for column in self.columns] or [read]
        if self.augment is None:
            inputs = model.inputs(self.tokens, np.concatenate(texts))
        else:
            plain = self.tokens.take(np.concatenate(texts[:-1])) if len(texts) > 1 else None
            changed = self.augment(texts[-1], int(torch.randint(2**62, (1,))))
            table = changed if plain is None else plain.join(changed)
            inputs = model.inputs(table, np.arange(len(table)))
        return Batch(
            inputs=inputs,
            labels=torch.from_numpy(self.labels[read]),
            rows=counted,
            columns=len(texts),
            targets=None if self.targets is None else torch.from_numpy(self.targets[read]),
            groups=None if self.groups is None else torch.from_numpy(np.stack([ids[read] for ids in self.groups])),
            weights=None if self.weights is None else torch.from_numpy(self.weights[read]),
        )

    def place(self, rows: Rows, shown: int = 8) -> str:
        """Where the rows come from, for messages."""
        lines = ", ".join(str(self.lines[row]) for row in rows[:shown])
        more = f" and {len(rows) - shown} more" if len(rows) > shown else ""
        return f"{self.source} {unit_of(self.source)}s {lines}{more}"


@dataclass(frozen=True)
class TaskSampler:
    """The batches of all tasks in the order of a schedule; rows are numbered through the tasks."""

    loaders: Mapping[str, Loader]
    schedule: Schedule

    @property
    def reads_model(self) -> bool:
        """Whether the sampler of any task does."""
        return any(loader.sampler.reads_model for loader in self.loaders.values())

    def __len__(self) -> int:
        return len(self.schedule)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:  # noqa: ARG002 - as all samplers
        """The batches of an epoch; a task with several passes in an epoch is shuffled anew for each pass."""
        passes: dict[tuple[int, int], list[Rows]] = {}
        names, starts = list(self.loaders), _starts(self.loaders)
        order = []
        for task, batch, task_epoch in self.schedule.batches(epoch):
            key = (task, task_epoch)
            if key not in passes:
                passes[key] = self.loaders[names[task]].sampler.batches(task_epoch)
            order.append(passes[key][batch] + starts[task])
        return order


@dataclass(frozen=True)
class MixedSampler:
    """Batches of rows that are drawn at random from all tasks together.

    Args:
        loaders: the rows of each task.
        schedule: which task each row belongs to; it counts rows instead of batches.
        size: rows in a batch.
    """

    loaders: Mapping[str, Loader]
    schedule: Schedule
    size: int

    reads_model = False

    def __len__(self) -> int:
        return -(-len(self.schedule) // self.size)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:  # noqa: ARG002 - as all samplers
        """The batches of an epoch; a task with several passes in an epoch is shuffled anew for each pass."""
        passes: dict[tuple[int, int], Rows] = {}
        names, starts = list(self.loaders), _starts(self.loaders)
        order = np.empty(len(self.schedule), dtype=np.int64)
        for place, (task, row, task_epoch) in enumerate(self.schedule.batches(epoch)):
            key = (task, task_epoch)
            if key not in passes:
                passes[key] = np.concatenate(self.loaders[names[task]].sampler.batches(task_epoch)) + starts[task]
            order[place] = passes[key][row]
        return cut(order, self.size)


@dataclass(frozen=True)
class MultiTaskLoader:
    """The training rows of several tasks.

    Args:
        loaders: the rows of each task.
        schedule: which task each batch belongs to, over the tasks in the order of ``loaders``.
        mixed: the size of batches with rows of several tasks, for a schedule that counts rows; None for one task each.
    """

    loaders: Mapping[str, Loader]
    schedule: Schedule
    mixed: int | None = None

    @cached_property
    def sampler(self) -> TaskSampler | MixedSampler:
        """Which rows share a batch, and in which order the batches come."""
        if self.mixed is not None:
            return MixedSampler(self.loaders, self.schedule, self.mixed)
        return TaskSampler(self.loaders, self.schedule)

    def __len__(self) -> int:
        return sum(map(len, self.loaders.values()))

    def by_task(self, rows: Rows) -> dict[str, Rows]:
        """The rows of a batch by the task they belong to, in the order of the tasks."""
        numbers = np.searchsorted(_starts(self.loaders), rows, side="right") - 1
        names = list(self.loaders)
        return {names[number]: rows[numbers == number] for number in np.unique(numbers).tolist()}

    def task_weights(self, epoch: int) -> dict[str, float]:
        """The weight of each task's gradient where a step has one of each, as in PCGrad."""
        return self.schedule.task_weights(epoch)

    def batches(
        self, model: InputModel, rows: Rows, chunk: int | None, *, rank: int = 0, world: int = 1
    ) -> list[Batch]:
        """The share of a task's batch that this process computes, in chunks of at most so many rows."""
        ((task, own),) = self._within(rows).items()
        batches = self.loaders[task].batches(model, own, chunk, rank=rank, world=world)
        return [replace(batch, task=task) for batch in batches]

    def place(self, rows: Rows) -> str:
        """Where the rows come from, for messages."""
        return "; ".join(f"task {task}: {self.loaders[task].place(own)}" for task, own in self._within(rows).items())

    def _within(self, rows: Rows) -> dict[str, Rows]:
        """The same rows by their tasks, numbered within them."""
        starts = dict(zip(self.loaders, _starts(self.loaders), strict=True))
        return {task: own - starts[task] for task, own in self.by_task(rows).items()}


def _starts(loaders: Mapping[str, Loader]) -> Rows:
    starts: Rows = np.cumsum([0, *map(len, loaders.values())], dtype=np.int64)[:-1]
    return starts
