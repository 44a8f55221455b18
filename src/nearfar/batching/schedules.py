"""Task schedules: which task each training step of a multi-task run takes its batch from.

A schedule is a value: ``batches(epoch)`` depends on its settings, its seed and the epoch, never on earlier calls. Its
length and the steps of each task are exact and known before the epoch begins.

Passes over a task's batches continue from epoch to epoch: no batch of a task comes again before all its others have
come, even in a schedule that gives the task fewer steps an epoch than it has batches.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from nearfar.errors import SettingError, counted, did_you_mean
from nearfar.seeds import generator

Share = Literal["proportional", "square-root", "temperature", "weights"]
EXPONENTS = {"proportional": 1.0, "square-root": 0.5, "weights": 0.0}
"""To which power a task's number of batches counts; "temperature" has its own."""


class TaskBatch(NamedTuple):
    """One step of a schedule: a batch of a task."""

    task: int
    """Index of the task."""
    batch: int
    """Which batch of the task's current pass, from 0."""
    task_epoch: int
    """Passes over the task's batches before this one, over all epochs of the schedule: the epoch of its sampler."""


class Schedule(Protocol):
    """The order in which several tasks train one model."""

    @property
    def tasks(self) -> Mapping[str, int]:
        """Name and number of batches of each task."""

    def __len__(self) -> int:
        """Steps of every epoch."""

    def batches(self, epoch: int) -> list[TaskBatch]:
        """The steps of an epoch; the first epoch is 0."""

    def steps_per_task(self, epoch: int) -> dict[str, int]:
        """How many steps of an epoch each task has."""

    def task_weights(self, epoch: int) -> dict[str, float]:
        """The weight of each task where a step has one gradient of each, as in PCGrad: its share, 1 on average."""


@dataclass(frozen=True, kw_only=True)
class Sequential:
    """One task after the other: all epochs of the first, then all epochs of the second, and so on.

    Over the whole run every batch of every task comes exactly ``epochs`` times. An epoch is as long as all tasks
    together, so the first ones may hold the first task only. A baseline: the model is biased to its last task.

    Args:
        tasks: name and number of batches of each task.
        epochs: how many the run has.
        order: the tasks' names in the order to train them; none for the order of ``tasks``.

    >>> schedule = Sequential(tasks={"small": 1, "large": 3}, epochs=2)
    >>> len(schedule), [[step.task for step in schedule.batches(epoch)] for epoch in range(2)]
    (4, [[0, 0, 1, 1], [1, 1, 1, 1]])
    """

    tasks: Mapping[str, int]
    epochs: int
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_tasks(self.tasks)
        _check_epochs(self.epochs)
        _check_order(self.tasks, self.order)
        twice = [name for name, times in Counter(self.order).items() if times > 1]
        if twice:
            raise SettingError(f"a sequential order trains each task once, but {twice[0]!r} is in it twice; leave one.")

    def __len__(self) -> int:
        return sum(self.tasks.values())

    def batches(self, epoch: int) -> list[TaskBatch]:
        """The epoch's part of the whole run."""
        steps = self.steps_per_task(epoch)
        return _numbered(self, epoch, [name for name in self.order or self.tasks for _ in range(steps[name])])

    def steps_per_task(self, epoch: int) -> dict[str, int]:
        """The steps of each task in the epoch's part of the run."""
        _check_epoch(epoch, self.epochs, "a sequential")
        steps, start = dict.fromkeys(self.tasks, 0), -epoch * len(self)
        for name in self.order or self.tasks:
            stop = start + self.epochs * self.tasks[name]
            steps[name] = max(0, min(stop, len(self)) - max(start, 0))
            start = stop
        return steps

    def task_weights(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - as all schedules
        """All alike: a step has one task."""
        return dict.fromkeys(self.tasks, 1.0)


@dataclass(frozen=True, kw_only=True)
class BlockRoundRobin:
    """Blocks in a fixed order within every epoch; a block is one pass over the batches of its task.

    Mohammed and Sabane (CS224N report, section 4): "a fixed ordering of task inside a single epoch". A task that is
    named twice in the order has two passes an epoch, in two blocks.

    Args:
        tasks: name and number of batches of each task.
        order: the tasks' names in the order of the blocks, each at least once; none for the order of ``tasks``.

    >>> schedule = BlockRoundRobin(tasks={"small": 2, "large": 3}, order=("small", "large", "small"))
    >>> [(step.task, step.batch, step.task_epoch) for step in schedule.batches(0)]
    [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (1, 2, 0), (0, 0, 1), (0, 1, 1)]
    """

    tasks: Mapping[str, int]
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_tasks(self.tasks)
        _check_order(self.tasks, self.order)

    def __len__(self) -> int:
        return sum(self.tasks[name] for name in self.order or self.tasks)

    def batches(self, epoch: int) -> list[TaskBatch]:
        """Block after block."""
        return _numbered(self, epoch, [name for name in self.order or self.tasks for _ in range(self.tasks[name])])

    def steps_per_task(self, epoch: int) -> dict[str, int]:  # noqa: ARG002 - as all schedules
        """One pass for each time the task is named."""
        passes = Counter(self.order or self.tasks.keys())
        return {name: passes[name] * batches for name, batches in self.tasks.items()}

    def task_weights(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - as all schedules
        """All alike: a step has one task."""
        return dict.fromkeys(self.tasks, 1.0)


@dataclass(frozen=True, kw_only=True)
class RoundRobin:
    """Every task in turn, in a given order, until each has had at least one pass over its batches.

    An epoch has as many rounds as the task that needs most; the others begin another pass. With 4,423 batches of one
    task and 267 of another, an epoch has 16.6 passes over the second: :func:`describe` reports it. A task that is named
    twice in the order has two steps a round.

    Args:
        tasks: name and number of batches of each task.
        order: the tasks' names in the order of a round, each at least once; none for the order of ``tasks``.

    >>> schedule = RoundRobin(tasks={"small": 2, "large": 3})
    >>> [(step.task, step.batch) for step in schedule.batches(0)]
    [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (1, 2)]
    """

    tasks: Mapping[str, int]
    order: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_tasks(self.tasks)
        _check_order(self.tasks, self.order)

    def __len__(self) -> int:
        return self.rounds * len(self.order or self.tasks)

    @property
    def rounds(self) -> int:
        """How often an epoch goes through the order."""
        per_round = Counter(self.order or self.tasks.keys())
        return max(-(-batches // per_round[name]) for name, batches in self.tasks.items())

    def batches(self, epoch: int) -> list[TaskBatch]:
        """Round after round."""
        return _numbered(self, epoch, [*(self.order or self.tasks)] * self.rounds)

    def steps_per_task(self, epoch: int) -> dict[str, int]:  # noqa: ARG002 - as all schedules
        """One for each time the task is named in each round."""
        per_round = Counter(self.order or self.tasks.keys())
        return {name: self.rounds * per_round[name] for name in self.tasks}

    def task_weights(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - as all schedules
        """By how often the task is named in a round."""
        per_round = Counter(self.order or self.tasks.keys())
        return {name: len(self.tasks) * per_round[name] / per_round.total() for name in self.tasks}


@dataclass(frozen=True, kw_only=True)
class Annealing:
    r"""Proportional at first, nearly even in the end: Stickland and Murray 2019, arXiv:1902.02671, section 4.1.

    The exponent of :class:`Sampled` falls from epoch to epoch,

    .. math:: \alpha_e = 1 - 0.8\, \frac{e - 1}{E - 1}, \qquad e = 1 \dots E

    so that training does not end with the small tasks forgotten. A run of one epoch is proportional.

    Args:
        epochs: E above.
        drop: by how much the exponent falls until the last epoch: 0.8 in the paper.

    >>> schedule = Sampled(tasks={"small": 10, "large": 90}, seed=1, annealing=Annealing(epochs=3))
    >>> [schedule.steps_per_task(epoch)["small"] for epoch in range(3)]
    [10, 21, 39]
    """

    epochs: int
    drop: float = 0.8

    def __post_init__(self) -> None:
        _check_epochs(self.epochs)
        if not 0 <= self.drop <= 1:
            raise SettingError(
                f"the exponent of annealed tasks can drop by 0 (always proportional) to 1 (even in the end), "
                f"got {self.drop}; try 0.8."
            )

    def fallen(self, epoch: int) -> float:
        """By how much the exponent has fallen."""
        _check_epoch(epoch, self.epochs, "an annealed")
        return self.drop * epoch / max(self.epochs - 1, 1)


@dataclass(frozen=True, kw_only=True)
class Sampled:
    r"""Tasks in random order, each with its share of the steps: Liu et al. 2019, arXiv:1901.11504, algorithm 1.

    Task t with :math:`n_t` batches and weight :math:`w_t` has the share

    .. math:: p_t = \frac{w_t\, n_t^\alpha}{\sum_u w_u\, n_u^\alpha}

    of the steps, with α = 1 ("proportional"), 1/2 ("square-root"), 1/T ("temperature") or 0 ("weights"). The number of
    steps is not drawn but exact: the share, rounded so that the sum is right, and at least one step for every task
    whose weight is above zero. Only their order is drawn. Proportional shares without weights are MT-DNN: every batch
    of every task once an epoch, shuffled.

    Args:
        tasks: name and number of batches of each task.
        seed: of the order.
        by: how the number of batches counts.
        temperature: T above, for "temperature" only: 1 is proportional, 2 the square root, more is more even.
        weights: of tasks by name, 1 for those not named; 0 leaves a task out.
        steps: of an epoch; none for as many as all tasks that are not left out have batches.
        annealing: of the exponent; none for the same exponent in every epoch.

    >>> tasks = {"sentiment": 10, "paraphrase": 90}
    >>> Sampled(tasks=tasks, seed=1).steps_per_task(0)
    {'sentiment': 10, 'paraphrase': 90}
    >>> Sampled(tasks=tasks, seed=1, by="square-root").steps_per_task(0)
    {'sentiment': 25, 'paraphrase': 75}
    >>> Sampled(tasks=tasks, seed=1, by="weights", weights={"paraphrase": 3}, steps=12).steps_per_task(0)
    {'sentiment': 3, 'paraphrase': 9}
    """

    tasks: Mapping[str, int]
    seed: int
    by: Share = "proportional"
    temperature: float | None = None
    weights: Mapping[str, float] | None = None
    steps: int | None = None
    annealing: Annealing | None = None

    def __post_init__(self) -> None:
        _check_tasks(self.tasks)
        _check_shares(self.tasks, self.weights, self.steps)
        known = [*EXPONENTS, "temperature"]
        if self.by not in known:
            raise SettingError(
                f"tasks can be sampled by {', '.join(known)}, not by {self.by!r}.{did_you_mean(self.by, known)}"
            )
        if self.by != "temperature" and self.temperature is not None:
            raise SettingError(
                f"a temperature of {self.temperature} changes nothing in tasks that are sampled by {self.by!r}; "
                "leave it out, or sample by 'temperature'."
            )
        if self.by == "temperature" and not (self.temperature is not None and 0 < self.temperature < math.inf):
            raise SettingError(
                f"tasks sampled by temperature need one above 0, got {self.temperature}; try 2, or 1 for proportional."
            )

    def __len__(self) -> int:
        return sum(self.tasks[name] for name in self.trained) if self.steps is None else self.steps

    @property
    def trained(self) -> tuple[str, ...]:
        """The tasks that are not left out."""
        return tuple(name for name in self.tasks if (self.weights or {}).get(name, 1.0) > 0)

    def exponent(self, epoch: int) -> float:
        """The epoch's α; the first epoch is 0."""
        exponent = 1 / self.temperature if self.temperature is not None else EXPONENTS[self.by]
        return exponent if self.annealing is None else exponent - self.annealing.fallen(epoch)

    def batches(self, epoch: int) -> list[TaskBatch]:
        """The steps of all tasks, shuffled."""
        steps = self.steps_per_task(epoch)
        drawn = generator(self.seed, "tasks", epoch).permutation(np.repeat(np.arange(len(steps)), [*steps.values()]))
        names = list(self.tasks)
        return _numbered(self, epoch, [names[task] for task in drawn])

    def steps_per_task(self, epoch: int) -> dict[str, int]:
        """The epoch's shares, in whole steps."""
        return allot(len(self), shares(self.tasks, self.exponent(epoch), self.weights))

    def task_weights(self, epoch: int) -> dict[str, float]:
        """The epoch's shares."""
        share = shares(self.tasks, self.exponent(epoch), self.weights)
        total = math.fsum(share.values())
        return {name: len(self.trained) * value / total for name, value in share.items()}


@dataclass(frozen=True, kw_only=True)
class OneOfEach:
    """Sampled tasks for PCGrad: every optimizer step has batches of every task, and the shares become weights.

    PCGrad compares the gradients of all tasks in a step; of batches that are drawn one by one, most steps would lack
    a task, and a task with a share of two batches would count once. An epoch has as many batches as ``sampled``,
    rounded up to whole steps.

    Args:
        sampled: the shares, and the length of an epoch.
        repeat: batches of each task in a step.

    >>> twice = Sampled(tasks={"a": 2, "b": 4}, seed=1, by="weights", weights={"b": 2})
    >>> schedule = OneOfEach(sampled=twice)
    >>> [step.task for step in schedule.batches(0)], schedule.task_weights(0)
    ([0, 1, 0, 1, 0, 1], {'a': 0.6666666666666666, 'b': 1.3333333333333333})
    """

    sampled: Sampled
    repeat: int = 1

    @property
    def tasks(self) -> Mapping[str, int]:
        """Name and number of batches of each task."""
        return self.sampled.tasks

    def __len__(self) -> int:
        return self.steps * self.repeat * len(self.sampled.trained)

    @property
    def steps(self) -> int:
        """Optimizer steps of an epoch."""
        return -(-len(self.sampled) // (self.repeat * len(self.sampled.trained)))

    def batches(self, epoch: int) -> list[TaskBatch]:
        """Step after step, in the order of the tasks."""
        step = [name for name in self.sampled.trained for _ in range(self.repeat)]
        return _numbered(self, epoch, step * self.steps)

    def steps_per_task(self, epoch: int) -> dict[str, int]:  # noqa: ARG002 - as all schedules
        """The same for all tasks that are not left out."""
        count = self.steps * self.repeat
        return {name: count if name in self.sampled.trained else 0 for name in self.tasks}

    def task_weights(self, epoch: int) -> dict[str, float]:
        """The epoch's shares."""
        return self.sampled.task_weights(epoch)


def shares(tasks: Mapping[str, int], exponent: float, weights: Mapping[str, float] | None = None) -> dict[str, float]:
    """The relative share of each task: weight times number of batches to the power of ``exponent``.

    The largest is 1; zero is a task of weight zero, and nothing else.

    >>> shares({"a": 10, "b": 10, "c": 10}, 0.5, {"b": 0})
    {'a': 1.0, 'b': 0.0, 'c': 1.0}
    """
    by_name = {name: (weights or {}).get(name, 1.0) for name in tasks}
    logs = {name: exponent * math.log(tasks[name]) + math.log(weight) for name, weight in by_name.items() if weight > 0}
    most = max(logs.values())
    return {name: max(math.exp(logs[name] - most), sys.float_info.min) if name in logs else 0.0 for name in tasks}


def allot(steps: int, share: Mapping[str, float]) -> dict[str, int]:
    """Whole steps in proportion to the shares: largest remainders, and at least one step for a share above zero.

    >>> allot(10, {"a": 1.0, "b": 1.0, "c": 0.001, "d": 0.0})
    {'a': 5, 'b': 4, 'c': 1, 'd': 0}
    """
    total = math.fsum(share.values())
    quotas = {name: steps * (value / total) for name, value in share.items()}
    counts = {name: math.floor(quota) for name, quota in quotas.items()}
    by_rest = sorted(quotas, key=lambda name: counts[name] - quotas[name])  # stable: of equal ones, the first
    for name in by_rest[: steps - sum(counts.values())]:
        counts[name] += 1
    for name in [name for name, value in share.items() if value > 0 and counts[name] == 0]:
        largest = max(reversed(counts), key=lambda other: counts[other])  # of equal ones, the last
        counts[largest] -= 1
        counts[name] += 1
    return counts


def describe(schedule: Schedule, epoch: int) -> str:
    """The steps of an epoch in words, and the passes over each task.

    >>> describe(RoundRobin(tasks={"small": 2, "large": 3}), 0)
    '6 steps: small 3 (1.5 times its 2 batches), large 3 (1 times its 3 batches)'
    """
    parts = [
        f"{name} {steps:,} ({float(f'{steps / schedule.tasks[name]:.3g}'):g} times its "
        f"{counted(schedule.tasks[name], 'batch', 'batches')})"
        for name, steps in schedule.steps_per_task(epoch).items()
    ]
    return f"{counted(len(schedule), 'step')}: {', '.join(parts)}"


def _numbered(schedule: Schedule, epoch: int, names: Sequence[str]) -> list[TaskBatch]:
    """The next batch of each task in turn, after those of the earlier epochs."""
    earlier = [schedule.steps_per_task(before) for before in range(epoch)]
    done = {name: sum(steps[name] for steps in earlier) for name in schedule.tasks}
    index = {name: place for place, name in enumerate(schedule.tasks)}
    steps = []
    for name in names:
        task_epoch, batch = divmod(done[name], schedule.tasks[name])
        steps.append(TaskBatch(index[name], batch, task_epoch))
        done[name] += 1
    return steps


def _check_tasks(tasks: Mapping[str, object]) -> None:
    if not tasks:
        raise SettingError("there are no tasks to schedule; give at least one.")
    for name, batches in tasks.items():
        if not isinstance(batches, int) or batches < 1:
            raise SettingError(
                f"task {name!r}: its number of batches must be known and 1 or more to be scheduled, got {batches}; "
                "give it data whose rows can be counted."
            )


def _check_epochs(epochs: int) -> None:
    if epochs < 1:
        raise SettingError(f"a schedule needs 1 epoch or more, got {epochs}; try 3.")


def _check_epoch(epoch: int, epochs: int, kind: str) -> None:
    if not 0 <= epoch < epochs:
        raise SettingError(f"epoch {epoch} of {kind} schedule of {counted(epochs, 'epoch')} (from 0).")


def _check_order(tasks: Mapping[str, int], order: Sequence[str]) -> None:
    for name in order:
        if name not in tasks:
            raise SettingError(_unknown("the order of tasks", name, tasks))
    missing = [name for name in tasks if order and name not in order]
    if missing:
        raise SettingError(
            f"the order of tasks ({', '.join(order)}) leaves out {missing[0]!r}; add it, or remove the task."
        )


def _check_shares(tasks: Mapping[str, int], weights: Mapping[str, float] | None, steps: int | None) -> None:
    for name, weight in (weights or {}).items():
        if name not in tasks:
            raise SettingError(_unknown("the weights of tasks", name, tasks))
        if not 0 <= weight < math.inf:
            raise SettingError(f"task {name!r}: its weight must be 0 or more, got {weight}; try 1.")
    trained = [name for name in tasks if (weights or {}).get(name, 1.0) > 0]
    if not trained:
        raise SettingError(
            f"the weights of all tasks ({', '.join(tasks)}) sum to zero, so that none would be trained; "
            "give at least one a weight above 0."
        )
    if steps is not None and steps < len(trained):
        raise SettingError(
            f"an epoch of {counted(steps, 'step')} is too short for a step of each of {counted(len(trained), 'task')}; "
            f"raise it to at least {len(trained)}, or leave it out."
        )


def _unknown(what: str, name: str, tasks: Mapping[str, int]) -> str:
    known = list(tasks)
    return f"{what} names {name!r}, but the tasks are {', '.join(known)}.{did_you_mean(name, known)}"
