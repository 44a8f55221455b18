"""The loss module: model and objectives as one module, so every weight is saved, synchronized and resumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.encoding import Inputs, Output, TextModel
from nearfar.encoding.masked_lm import MaskedLMHead
from nearfar.encoding.task_model import HeadSet, TaskNetwork
from nearfar.errors import SettingError
from nearfar.training.precision import Precision


def gather_rows(tensor: Tensor) -> Tensor:
    """(n, ...) rows of this process -> rows of all processes, in the order of the processes.

    In one process it is the tensor itself. In several, each computes the same loss on all rows; the gradient that
    comes back to a process's own rows is multiplied by the number of processes, because distributed training divides
    the sum of gradients by it. An objective's own weights need no such factor: they see the same gradient everywhere.
    """
    if not _several():
        return tensor
    gathered: Tensor = _Gather.apply(tensor)  # type: ignore[no-untyped-call]
    return gathered


def average_gradients(weights: Sequence[Tensor]) -> None:
    """Replace each gradient by its mean over all processes: one exchange a step, whatever led to the gradients."""
    if not _several():
        return
    for start, stop in _buckets([weight.numel() for weight in weights]):
        gradients = [_gradient(weight) for weight in weights[start:stop]]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, piece in zip(
            gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True
        ):
            gradient.copy_(piece.view_as(gradient))


def same_start(weights: Sequence[Tensor]) -> None:
    """Give every process the weights of the first one."""
    if _several():
        for weight in weights:
            dist.broadcast(weight.detach(), 0)


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _gradient(weight: Tensor) -> Tensor:
    assert weight.grad is not None
    return weight.grad


def _buckets(sizes: list[int], limit: int = 8_000_000) -> list[tuple[int, int]]:
    """Runs of neighbors with at most ``limit`` numbers together: no second copy of all gradients is made."""
    runs, start, total = [], 0, 0
    for place, size in enumerate(sizes):
        if place > start and total + size > limit:
            runs.append((start, place))
            start, total = place, 0
        total += size
    return [*runs, (start, len(sizes))] if sizes else []


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        world, rank = dist.get_world_size(), dist.get_rank()
        sizes = [torch.zeros(1, dtype=torch.long, device=tensor.device) for _ in range(world)]
        dist.all_gather(sizes, torch.tensor([len(tensor)], device=tensor.device))
        counts = [int(size) for size in sizes]
        padded = tensor.new_zeros((max(counts), *tensor.shape[1:]))
        padded[: len(tensor)] = tensor
        pieces = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(pieces, padded)
        ctx.world, ctx.start, ctx.count = world, sum(counts[:rank]), counts[rank]
        return torch.cat([piece[:count] for piece, count in zip(pieces, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        own: Tensor = gradients[0][ctx.start : ctx.start + ctx.count] * ctx.world
        return own


class ScoreError(nn.Module):
    r"""The mean squared error of a head's scores in units of a scale, :math:`\frac1b \sum_i ((s_i - y_i) / u)^2`.

    Reads:    texts or pairs of texts, a score each
    Batches:  any
    Related:  :class:`nearfar.objectives.CosineMSE`, which needs no head

    Args:
        unit: u above, so that the range of the scores does not change the size of the gradients.

    >>> ScoreError(unit=2.0)(torch.tensor([[3.0], [5.0]]), torch.tensor([1.0, 5.0])).item()
    0.5
    """

    def __init__(self, *, unit: float = 1.0) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(b, 1) outputs of a head, (b,) targets -> scalar."""
        error = outputs[:, 0] - targets.to(outputs.dtype)
        return (error if self.unit == 1 else error / self.unit).square().mean()


class Uncertainty(nn.Module):
    r"""The weight of a task's loss, learned: Kendall, Gal and Cipolla 2018, arXiv:1705.07115, section 3.

    .. math:: e^{-s} L + \tfrac12 s, \qquad \tfrac12 e^{-s} L + \tfrac12 s \text{ for a squared error}

    with s the log-variance of the task, which begins at zero. A task that stays uncertain gets a lower weight.

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
        """The present weight of the loss."""
        return self.factor * math.exp(-self.log_variance.item())

    def forward(self, loss: Tensor) -> Tensor:
        """A scalar -> the weighted scalar."""
        weighted: Tensor = self.factor * torch.exp(-self.log_variance) * loss + self.log_variance / 2
        return weighted


View = Literal[
    "logits", "text", "tokens", "padded-tokens", "weighted", "weighting", "pairs", "grouped-pairs", "masked-words"
]
TASK_VIEWS: tuple[View, ...] = ("logits", "text", "tokens", "pairs", "grouped-pairs")
"""What the terms of one of several tasks may read."""
UNCERTAINTY = "uncertainty"
"""The name of the log-variance among the objectives of a task."""
Pieces = dict[str, Tensor]
"""What terms read, by name. Every tensor has a first dimension that grows with the batch, so that the pieces of chunks
and of processes are put together by concatenation."""


@dataclass(frozen=True)
class Batch:
    """What one process computes of a batch: ``columns`` texts for each row, column after column."""

    inputs: Inputs
    labels: Tensor
    """(b,) class of each row, zeros where rows have none; (b, c) indicators where rows have several labels."""
    rows: NDArray[np.int64]
    """Which rows of the data set these are; empty when a small last batch leaves nothing for this process."""
    columns: int = 1
    """How many texts a row has: 2 for pairs or two views of a text, 3 with a negative."""
    targets: Tensor | None = None
    """(b,) graded or binary target of each pair."""
    groups: Tensor | None = None
    """(columns, b) ids; texts with the same id are positives of each other."""
    task: str = ""
    """The task of these rows, where there are several."""
    weights: Tensor | None = None
    """(b,) how much each row counts in a cross-entropy; None: all the same."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return replace(
            self,
            inputs=self.inputs.to(device),
            labels=self.labels.to(device),
            targets=None if self.targets is None else self.targets.to(device),
            groups=None if self.groups is None else self.groups.to(device),
            weights=None if self.weights is None else self.weights.to(device),
        )


@dataclass(frozen=True)
class Term:
    """One part of a loss: its name in the journal, its weight, its objective, and what the objective reads."""

    name: str
    weight: float
    objective: nn.Module
    view: View
    learning_rate: float | None = None
    """Of the objective's own weights; None for that of all objectives."""


@dataclass(frozen=True)
class TaskLoss:
    """The loss of one task."""

    terms: tuple[Term, ...]
    name: str = ""
    """Empty where the run has one task."""
    head_columns: int | None = None
    """How many columns of a batch, the first ones, the head reads: 1 for texts, 2 for pairs; None for all."""
    pair_columns: int = 0
    """The first of the columns that pair objectives compare."""
    weight: float = 1.0
    graded: bool = False
    """Whether the outputs of the head are compared with targets instead of classes."""

    def key(self, term: str) -> str:
        """The name of a term among all objectives."""
        return f"{self.name}/{term}" if self.name else term


class LossModule(nn.Module):
    """A model under the losses of its tasks: batch of one task in, loss and its parts out.

    In several processes each term sees the rows of all of them, so that the loss, its in-batch comparisons and its
    gradients are those of one process with the whole batch.

    Args:
        model: the text model; with several tasks, encoder and heads.
        tasks: the loss of each task.
        precision: what the encoder computes in; objectives always compute in fp32, and weights always are fp32.
        weighting: a second model with a class head, for training only (label-aware contrastive).
        projection: a layer between the text vectors and the terms, for training only (SimCSE).
        masked: masks tokens and predicts them, for training only (masked language model beside SimCSE).
        uncertainty: whether the weight of each task's loss is learned, beside its fixed weight.
    """

    def __init__(
        self, model: TextModel | TaskNetwork, tasks: Sequence[TaskLoss], *, precision: Precision = "fp32",
        weighting: TextModel | None = None, projection: nn.Module | None = None, masked: MaskedLMHead | None = None,
        uncertainty: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if not tasks or not all(task.terms for task in tasks):
            raise SettingError("LossModule: at least one task with at least one term is needed.")
        self.precision: Precision = precision
        self.model = model
        self.tasks = {task.name: task for task in tasks}
        self.objectives = nn.ModuleDict({task.key(term.name): term.objective for task in tasks for term in task.terms})
        if uncertainty:
            for task in tasks:
                self.objectives[task.key(UNCERTAINTY)] = Uncertainty(squared=task.graded)
        self.weighting = weighting
        self.projection = projection
        self.masked = masked
        views = {term.view for task in tasks for term in task.terms}
        if self.heads is not None and not views.issubset(TASK_VIEWS):
            other = next(view for view in views if view not in TASK_VIEWS)
            raise SettingError(f"LossModule: the terms of several tasks read {', '.join(TASK_VIEWS)}, not {other}.")
        if weighting is None and views & {"weighted", "weighting"}:
            raise SettingError("LossModule: a label-aware term needs a weighting model.")
        if masked is None and "masked-words" in views:
            raise SettingError("LossModule: a term on masked tokens needs a head for them.")

    @property
    def heads(self) -> HeadSet | None:
        """The heads of several tasks; None where the model is one text model."""
        return self.model.head if isinstance(self.model, TaskNetwork) else None

    @property
    def encoder(self) -> TextModel:
        """The text model that all tasks share."""
        return self.model.encoder if isinstance(self.model, TaskNetwork) else self.model

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of all tasks, under their names in the journal."""
        return tuple(replace(term, name=task.key(term.name)) for task in self.tasks.values() for term in task.terms)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and each part before weighting."""
        return self.combine(self.represent(batch), batch.task)

    def represent(self, batch: Batch) -> Pieces:
        """What the terms read, for the rows of this process."""
        task = self.tasks[batch.task]
        only_logits = self.heads is None and all(term.view in ("logits", "weighting") for term in task.terms)
        with torch.autocast(batch.labels.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            output: Output = self.encoder(batch.inputs, logits_only=only_logits)
            vectors = output.embedding if self.projection is None else self.projection(output.embedding)
            weighting = None if self.weighting is None else self.weighting(batch.inputs, logits_only=True).logits
        encoded = _Encoded(batch, task, output, vectors.float(), weighting, self.heads)
        pieces: Pieces = {}
        for make in dict.fromkeys(_MAKERS[term.view] for term in task.terms):
            pieces |= make(encoded)
        if self.masked is not None:
            pieces |= self._masked(batch, self.masked)
        return pieces if len(batch.rows) else {name: piece[:0] for name, piece in pieces.items()}

    def _masked(self, batch: Batch, masked: MaskedLMHead) -> Pieces:
        """The states of masked tokens, from a pass of their own; drawn last, so that the other pieces stay the same."""
        hidden = masked.mask(batch.inputs)
        with torch.autocast(batch.labels.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            output: Output = self.encoder(hidden.inputs)
        states = output.states.flatten(0, -2)[hidden.places]
        return {"masked_states": states.float(), "masked_words": hidden.words}  # (m, d), (m,)

    def combine(self, pieces: Pieces, task: str = "") -> tuple[Tensor, dict[str, Tensor]]:
        """The terms of one task on the pieces of all processes."""
        loss = self.tasks[task]
        gathered = {name: gather_rows(piece) for name, piece in pieces.items()}
        total: Tensor | None = None
        parts: dict[str, Tensor] = {}
        for term in loss.terms:
            given, named = _ARGUMENTS[term.view](gathered)
            if self.masked is not None and term.view == "masked-words":
                given = (self.masked(given[0]), *given[1:])
            name = loss.key(term.name)
            part = self.objectives[name](*given, **named)
            parts[name] = part.detach()
            total = term.weight * part if total is None else total + term.weight * part
        assert total is not None
        if (learned := loss.key(UNCERTAINTY)) in self.objectives:
            total = self.objectives[learned](total)
        return total if loss.weight == 1 else loss.weight * total, parts

    def shared_weights(self) -> list[Tensor]:
        """The trained weights that several tasks share."""
        shared = self.model.shared_weights() if isinstance(self.model, TaskNetwork) else self.model.parameters()
        return [weight for weight in shared if weight.requires_grad]

    def task_weights(self) -> list[Tensor]:
        """The trained weights that belong to one task each."""
        shared = {id(weight) for weight in self.shared_weights()}
        return [weight for weight in self.parameters() if id(weight) not in shared and weight.requires_grad]

    def learned_weights(self) -> dict[str, float]:
        """The weight of each task's loss, where that is learned."""
        learned = {}
        for name, task in self.tasks.items():
            module = dict(self.objectives.items()).get(task.key(UNCERTAINTY))
            if isinstance(module, Uncertainty):
                learned[name] = task.weight * module.weight
        return learned


@dataclass(frozen=True)
class _Encoded:
    batch: Batch
    task: TaskLoss
    output: Output
    vectors: Tensor
    """(columns * b, d) text vectors, through the projection where there is one."""
    weighting: Tensor | None
    heads: HeadSet | None

    @property
    def head_columns(self) -> int:
        return self.task.head_columns or self.batch.columns

    @property
    def labels(self) -> Tensor:
        return tiled(self.batch.labels, self.head_columns)

    def column(self, place: int) -> Tensor:
        rows = len(self.batch.labels)
        return self.vectors[place * rows : (place + 1) * rows]


def tiled(labels: Tensor, times: int) -> Tensor:
    """The labels of all rows, so many times one after the other.

    >>> tiled(torch.tensor([[1, 0]]), 2).tolist(), tiled(torch.tensor([1, 0]), 2).tolist()
    ([[1, 0], [1, 0]], [1, 0, 1, 0])
    """
    return labels.repeat(times, *[1] * (labels.ndim - 1))


def _logits(encoded: _Encoded) -> Pieces:
    batch, task, logits = encoded.batch, encoded.task, encoded.output.logits
    if encoded.heads is not None:
        logits = encoded.heads(task.name, [encoded.column(place) for place in range(encoded.head_columns)])
    if logits is None:
        raise SettingError("this objective needs a class head, and the model has none.")
    targets = batch.targets if task.graded else tiled(batch.labels, len(logits) // len(batch.labels))
    assert targets is not None
    weights = batch.weights
    counts = {} if weights is None else {"row_weights": tiled(weights, len(logits) // len(weights))}
    return {"logits": logits.float(), "truth": targets, **counts}


def _text(encoded: _Encoded) -> Pieces:
    return {"text": encoded.vectors[: len(encoded.labels)], "labels": encoded.labels}


def _tokens(encoded: _Encoded) -> Pieces:
    states, owners = encoded.output.tokens()
    if encoded.head_columns < encoded.batch.columns:  # not the tokens of texts that only pair objectives read
        kept = owners < len(encoded.labels)
        states, owners = states[kept], owners[kept]
    return {"tokens": states.float(), "token_labels": encoded.labels[owners]}  # (t, d), (t,)


def _padded_tokens(encoded: _Encoded) -> Pieces:
    states = encoded.output.states
    if states.ndim != 3:
        raise SettingError("padding tokens exist only where batches are padded: set encoder.fast = false.")
    return {
        "padded_tokens": states.float().flatten(0, 1),
        "padded_labels": encoded.labels.repeat_interleave(len(states[0])),
    }


def _weighting(encoded: _Encoded) -> Pieces:
    assert encoded.weighting is not None
    return {"weighting": encoded.weighting.float(), "labels": encoded.labels}


def _weighted(encoded: _Encoded) -> Pieces:
    return _text(encoded) | _weighting(encoded)


def _pairs(encoded: _Encoded) -> Pieces:
    batch, first = encoded.batch, encoded.task.pair_columns
    if batch.columns < first + 2:
        raise SettingError("this objective compares pairs of texts, and the data has single ones.")
    pieces = {"left": encoded.column(first), "right": encoded.column(first + 1)}
    if batch.columns > first + 2:
        pieces["extra"] = encoded.column(first + 2)
    if batch.targets is not None:
        pieces["targets"] = batch.targets
    if batch.groups is not None:
        pieces |= dict(zip(("left_groups", "right_groups", "extra_groups"), batch.groups, strict=False))
    return pieces


_MAKERS: dict[View, Callable[[_Encoded], Pieces]] = {
    "logits": _logits,
    "text": _text,
    "tokens": _tokens,
    "padded-tokens": _padded_tokens,
    "weighted": _weighted,
    "weighting": _weighting,
    "pairs": _pairs,
    "grouped-pairs": _pairs,
    "masked-words": lambda _encoded: {},
}

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _stacked(pieces: Pieces, first: str, then: str) -> Tensor:
    return torch.cat([pieces[first], pieces[then]]) if then in pieces else pieces[first]


def _pair_arguments(pieces: Pieces) -> Arguments:
    return (pieces["left"], _stacked(pieces, "right", "extra"), pieces.get("targets")), {}


def _grouped_arguments(pieces: Pieces) -> Arguments:
    given, named = _pair_arguments(pieces)
    if "left_groups" in pieces:
        right = _stacked(pieces, "right_groups", "extra_groups")
        named = {"left_groups": pieces["left_groups"], "right_groups": right}
    return given, named


_ARGUMENTS: dict[View, Callable[[Pieces], Arguments]] = {
    "logits": lambda pieces: (
        (pieces["logits"], pieces["truth"]),
        {"weights": pieces["row_weights"]} if "row_weights" in pieces else {},
    ),
    "text": lambda pieces: ((pieces["text"], pieces["labels"]), {}),
    "tokens": lambda pieces: ((pieces["tokens"], pieces["token_labels"]), {}),
    "padded-tokens": lambda pieces: ((pieces["padded_tokens"], pieces["padded_labels"]), {}),
    "weighted": lambda pieces: ((pieces["text"], pieces["labels"], pieces["weighting"].softmax(dim=1)), {}),
    "weighting": lambda pieces: ((pieces["weighting"], pieces["labels"]), {}),
    "pairs": _pair_arguments,
    "grouped-pairs": _grouped_arguments,
    "masked-words": lambda pieces: ((pieces["masked_states"], pieces["masked_words"]), {}),
}
