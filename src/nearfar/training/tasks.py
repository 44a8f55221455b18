"""Several tasks over one encoder: what they learn from, in whose turn, and how a step of them is taken.

The rows of all tasks are numbered through, task after task, so that a batch is an array of rows as in any other run and
says itself whose it is. Sampler, loop and checkpoints need to know nothing of tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from nearfar.batching import Rows
from nearfar.batching.schedules import Schedule
from nearfar.encoding import Inputs, Output
from nearfar.encoding.task_model import TaskNetwork
from nearfar.errors import NotFiniteError, SettingError
from nearfar.seeds import stream
from nearfar.training.feed import Feed
from nearfar.training.gather import average_gradients, gather_rows
from nearfar.training.lazy_adamw import LazyRows
from nearfar.training.loss_module import Batch, Pieces, Term
from nearfar.training.pcgrad import Combine, Conflicts, Surgeon
from nearfar.training.precision import Precision
from nearfar.training.step import StepResult, backward, left_out, reason, seen_within, temperatures, update

UNCERTAINTY = "uncertainty"
"""The name of the log-variance among a task's objectives."""
VIEWS = ("logits", "text", "tokens", "pairs", "grouped-pairs")
"""What the terms of a task may look at; "logits" are the outputs of its head, whatever they are."""


class ScoreError(nn.Module):
    r"""The mean squared error of a head's scores, :math:`\frac1b \sum_i (s_i - y_i)^2`.

    Reads:    pairs of texts, a score from 0 to 1 each
    Batches:  any
    Related:  :class:`nearfar.objectives.CosineMSE`, which needs no head
    """

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(b, 1) outputs of a head, (b,) targets -> scalar."""
        return (outputs[:, 0] - targets.to(outputs.dtype)).square().mean()


class Uncertainty(nn.Module):
    r"""The weight of a task's loss, learned: Kendall, Gal and Cipolla 2018, arXiv:1705.07115, section 3.

    .. math:: e^{-s} L + \tfrac12 s, \qquad \tfrac12 e^{-s} L + \tfrac12 s \text{ for a squared error}

    with s the log-variance of the task, which begins at zero. A task that stays uncertain counts less.

    Args:
        squared: whether the loss is a squared error.

    >>> round(Uncertainty(squared=True)(torch.tensor(4.0)).item(), 4)
    2.0
    """

    def __init__(self, *, squared: bool) -> None:
        super().__init__()
        self.log_variance = nn.Parameter(torch.zeros(()))
        self.factor = 0.5 if squared else 1.0

    @property
    def weight(self) -> float:
        """What the loss counts now."""
        return self.factor * math.exp(-self.log_variance.item())

    def forward(self, loss: Tensor) -> Tensor:
        """A scalar -> the weighted scalar."""
        weighted: Tensor = self.factor * torch.exp(-self.log_variance) * loss + self.log_variance / 2
        return weighted


@dataclass(frozen=True)
class Aim:
    """What one task is trained for."""

    name: str
    terms: tuple[Term, ...]
    head_columns: int
    """How many columns of a batch, the first ones, the head stands on: 1 for texts, 2 for pairs."""
    apart: int | None = None
    """Where the two columns begin that pair objectives compare; None where there are none."""
    weight: float = 1.0
    graded: bool = False
    """Whether the head's outputs are compared with targets instead of classes."""


@dataclass(frozen=True)
class TaskBatch:
    """A batch of one task."""

    task: str
    batch: Batch

    @property
    def inputs(self) -> Inputs:
        """What the encoder reads."""
        return self.batch.inputs

    def to(self, device: torch.device) -> TaskBatch:
        """The same batch on a device."""
        return TaskBatch(self.task, self.batch.to(device))


@dataclass(frozen=True)
class TaskSampler:
    """The batches of all tasks in the order of a schedule; rows are numbered through the tasks.

    Args:
        feeds: the data of each task.
        schedule: whose turn it is, over the tasks in the order of ``feeds``.
    """

    feeds: Mapping[str, Feed]
    schedule: Schedule

    @property
    def reads_model(self) -> bool:
        """Whether the sampler of any task does."""
        return any(feed.sampler.reads_model for feed in self.feeds.values())

    def __len__(self) -> int:
        return len(self.schedule)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:  # noqa: ARG002 - as all samplers
        """The turns of an epoch; a task that is walked through twice is shuffled anew for each time."""
        laps: dict[tuple[int, int], list[Rows]] = {}
        names, starts = list(self.feeds), _starts(self.feeds)
        order = []
        for turn in self.schedule.turns(epoch):
            key = (turn.task, turn.lap)
            if key not in laps:
                laps[key] = self.feeds[names[turn.task]].sampler.batches(turn.lap)
            order.append(laps[key][turn.batch] + starts[turn.task])
        return order


@dataclass(frozen=True)
class TaskFeed:
    """The data of all tasks, ready to train on."""

    feeds: Mapping[str, Feed]
    schedule: Schedule

    @cached_property
    def sampler(self) -> TaskSampler:
        """Which rows come when."""
        return TaskSampler(self.feeds, self.schedule)

    def __len__(self) -> int:
        return sum(map(len, self.feeds.values()))

    def task_of(self, rows: Rows) -> str:
        """Whose batch this is."""
        return list(self.feeds)[self._place(rows)]

    def batches(
        self, model: TaskNetwork, rows: Rows, chunk: int | None, *, rank: int = 0, world: int = 1
    ) -> list[TaskBatch]:
        """This process's share of a task's batch, in chunks of at most so many rows (None: in one piece)."""
        task = self.task_of(rows)
        own = self.feeds[task].batches(model.encoder, self._own(rows), chunk, rank=rank, world=world)
        return [TaskBatch(task, batch) for batch in own]

    def place(self, rows: Rows) -> str:
        """Where the rows stand, as a message names them."""
        task = self.task_of(rows)
        return f"task {task}: {self.feeds[task].place(self._own(rows))}"

    def _place(self, rows: Rows) -> int:
        return int(np.searchsorted(_starts(self.feeds), rows[0], side="right")) - 1

    def _own(self, rows: Rows) -> Rows:
        own: Rows = rows - _starts(self.feeds)[self._place(rows)]
        return own


def _starts(feeds: Mapping[str, Feed]) -> Rows:
    starts: Rows = np.cumsum([0, *map(len, feeds.values())], dtype=np.int64)[:-1]
    return starts


class TaskLearner(nn.Module):
    """An encoder under the heads and the objectives of several tasks: a batch of one task in, its loss out.

    It stands where :class:`nearfar.training.Learner` stands in a run of one task. In several processes each term sees
    the rows of all of them.

    Args:
        model: encoder and heads.
        aims: what each task is trained for.
        precision: what the encoder computes in; heads and objectives always compute in fp32.
        uncertainty: whether the weight of each task's loss is learned, beside its fixed weight.
    """

    weighting: None = None

    def __init__(
        self, model: TaskNetwork, aims: Sequence[Aim], *, precision: Precision = "fp32", uncertainty: bool = False
    ) -> None:
        super().__init__()
        if not aims:
            raise SettingError("TaskLearner: at least one task is needed.")
        self.precision: Precision = precision
        self.model = model
        self.aims = {aim.name: aim for aim in aims}
        self.objectives = nn.ModuleDict(
            {f"{aim.name}/{term.name}": term.objective for aim in aims for term in aim.terms}
        )
        if uncertainty:
            for aim in aims:
                self.objectives[f"{aim.name}/{UNCERTAINTY}"] = Uncertainty(squared=aim.graded)
        strange = [term.view for aim in aims for term in aim.terms if term.view not in VIEWS]
        if strange:
            raise SettingError(f"TaskLearner: a task's terms look at {', '.join(VIEWS)}, not at {strange[0]}.")

    def forward(self, batch: TaskBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """The total, and each part before weighting."""
        return self.combine(self.represent(batch))

    def represent(self, batch: TaskBatch) -> Pieces:
        """What the terms of the task look at, for the rows of this process; each name begins with the task's."""
        aim, own = self.aims[batch.task], batch.batch
        device = own.labels.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.precision == "bf16"):
            output: Output = self.model.encoder(own.inputs)
        vectors = output.embedding.float()
        b = len(own.labels)
        columns = [vectors[place * b : (place + 1) * b] for place in range(own.columns)]
        views = {term.view for term in aim.terms}
        pieces: Pieces = {"labels": own.labels}
        if own.targets is not None:
            pieces["targets"] = own.targets
        if "logits" in views:
            pieces["outputs"] = self.model.head(aim.name, columns[: aim.head_columns])
        if "text" in views:
            pieces["text"] = torch.cat(columns[: aim.head_columns])
            pieces["text_labels"] = own.labels.repeat(aim.head_columns)
        if "tokens" in views:
            states, owners = output.tokens()
            kept = owners < aim.head_columns * b  # not those of texts that are there for pair objectives
            pieces["tokens"] = states[kept].float()
            pieces["token_labels"] = own.labels.repeat(aim.head_columns)[owners[kept]]
        if aim.apart is not None:
            pieces["left"], pieces["right"] = columns[aim.apart : aim.apart + 2]
            if own.groups is not None:
                pieces["left_groups"], pieces["right_groups"] = own.groups
        if len(own.rows) == 0:
            pieces = {name: piece[:0] for name, piece in pieces.items()}
        return {f"{aim.name}/{name}": piece for name, piece in pieces.items()}

    def combine(self, pieces: Pieces) -> tuple[Tensor, dict[str, Tensor]]:
        """The terms of one task on the pieces of all processes."""
        task = next(iter(pieces)).partition("/")[0]
        aim = self.aims[task]
        seen = {name.partition("/")[2]: gather_rows(piece) for name, piece in pieces.items()}
        total: Tensor | None = None
        parts: dict[str, Tensor] = {}
        for term in aim.terms:
            given, named = _arguments(term.view, seen, graded=aim.graded)
            name = f"{task}/{term.name}"
            part = self.objectives[name](*given, **named)
            parts[name] = part.detach()
            total = term.weight * part if total is None else total + term.weight * part
        assert total is not None
        learned = f"{task}/{UNCERTAINTY}"
        if learned in self.objectives:
            total = self.objectives[learned](total)
        return aim.weight * total, parts

    @property
    def terms(self) -> tuple[Term, ...]:
        """The parts of all totals, under their names in the journal."""
        return tuple(replace(term, name=f"{aim.name}/{term.name}") for aim in self.aims.values() for term in aim.terms)

    def own_weights(self) -> list[Tensor]:
        """The weights that belong to one task each."""
        shared = {id(weight) for weight in self.model.shared_weights()}
        return [weight for weight in self.parameters() if id(weight) not in shared]

    def learned_weights(self) -> dict[str, float]:
        """What each task's loss counts, where that is learned."""
        found = {}
        for name, aim in self.aims.items():
            if f"{name}/{UNCERTAINTY}" in self.objectives:
                module: Any = self.objectives[f"{name}/{UNCERTAINTY}"]
                found[name] = aim.weight * module.weight
        return found


def _arguments(view: str, seen: Pieces, *, graded: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if view == "logits":
        return (seen["outputs"], seen["targets" if graded else "labels"]), {}
    if view == "text":
        return (seen["text"], seen["text_labels"]), {}
    if view == "tokens":
        return (seen["tokens"], seen["token_labels"]), {}
    named = {}
    if view == "grouped-pairs" and "left_groups" in seen:
        named = {"left_groups": seen["left_groups"], "right_groups": seen["right_groups"]}
    return (seen["left"], seen["right"], seen.get("targets")), named


@dataclass
class TaskStep:
    """Takes a step over batches of several tasks: :func:`nearfar.training.step.take_step` for tasks.

    Within a step, a task's loss is the mean over its rows. Without surgery a task counts by its number of batches.
    With surgery, each task's gradient is taken off the weights before the next task's graph is built, and what gradient
    surgery makes of all of them is put back: clipping, and whatever else follows, sees one gradient. Weights of one
    task's own only get their task's gradient.

    Args:
        seed: of the order in which the tasks' gradients meet.
        surgery: whether gradients that are in conflict are operated on.
        combine: how the tasks' gradients become one, with surgery.
    """

    seed: int
    surgery: bool = False
    combine: Combine = "mean"

    def __call__(
        self, accelerator: Accelerator, learner: Any, optimizer: torch.optim.Optimizer, feed: Any, members: list[Rows],
        *, clip: float, chunk: int | None, rank: int, world: int, step: int, rates: dict[str, float],
        lazy: Sequence[LazyRows] = (),
    ) -> StepResult:  # fmt: skip
        """Train on the batches that make up one step."""
        learner.train()
        turns: dict[str, list[Rows]] = {}
        for rows in members:
            turns.setdefault(feed.task_of(rows), []).append(rows)
        surgeon = self._surgeon(learner) if len(turns) > 1 else None
        losses: dict[str, float] = {}
        parts: dict[str, float] = {}
        warm, masked = temperatures(learner.terms), Counter[str]()
        for task, batches in turns.items():
            of_task = 1.0 if surgeon is not None else len(batches) / len(members)
            loss = _Tally(parts, step, rates)
            for rows in batches:
                within = len(rows) / sum(map(len, batches))
                backward(
                    accelerator, learner, feed, rows, of_task * within, loss.accept(within, feed.place(rows)),
                    chunk=chunk, rank=rank, world=world, lazy=lazy,
                )  # fmt: skip
                masked.update(left_out(term for term in learner.terms if term.name.partition("/")[0] == task))
            losses[task] = loss.value
            if surgeon is not None:
                average_gradients([weight for weight in learner.parameters() if weight.grad is not None])
                surgeon.take(task)
        conflicts: Conflicts | None = None
        if surgeon is None:
            average_gradients([weight for weight in learner.parameters() if weight.grad is not None])
        else:
            conflicts = surgeon.finish(stream(self.seed, "surgery", step) % 2**62)
        more: dict[str, Any] = {
            "tasks": {name: {"loss": losses[name], "rows": sum(map(len, own))} for name, own in turns.items()},
            **seen_within(warm, masked),
        }
        if conflicts is not None:
            more["surgery"] = conflicts.entry()
        if learned := learner.learned_weights():
            more["task_weights"] = learned
        norm = update(
            learner, optimizer, clip=clip, parts=parts, place=feed.place(members[0]), step=step, rates=rates, lazy=lazy
        )
        if surgeon is None:
            total = sum(len(own) / len(members) * losses[name] for name, own in turns.items())
        else:
            total = sum(losses.values()) / (len(turns) if self.combine == "mean" else 1)
        return StepResult(total, parts, norm, sum(map(len, members)), more)

    def _surgeon(self, learner: TaskLearner) -> Surgeon | None:
        if not self.surgery:
            return None
        shared = [weight for weight in learner.model.shared_weights() if weight.requires_grad]
        own = [weight for weight in learner.own_weights() if weight.requires_grad]
        return Surgeon(shared=shared, own=own, combine=self.combine)


class _Tally:
    """Adds up the losses of a task's batches in a step, and refuses what is not finite."""

    def __init__(self, parts: dict[str, float], step: int, rates: dict[str, float]) -> None:
        self.parts, self.step, self.rates = parts, step, rates
        self.value = 0.0

    def accept(self, share: float, place: str) -> Any:
        """What looks at a batch's loss before its gradients are formed."""

        def look(total: Tensor, pieces: dict[str, Tensor]) -> None:
            value = total.item()
            values = {name: piece.item() for name, piece in pieces.items()}
            if not math.isfinite(value):
                raise NotFiniteError(reason("the loss", value, values, place, self.step, self.rates))
            self.value += share * value
            for name, part in values.items():
                self.parts[name] = self.parts.get(name, 0.0) + share * part

        return look
