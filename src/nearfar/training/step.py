"""One optimizer step: forward and backward over its batches or chunks of them, the checks, the update."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from torch import Tensor

from nearfar.batching import Rows
from nearfar.errors import NotFiniteError
from nearfar.objectives import BatchSoftmax
from nearfar.seeds import stream
from nearfar.training.contracts import BatchLoader, StepDetails
from nearfar.training.loss_module import Batch, LossModule, Pieces, average_gradients
from nearfar.training.optimizer import LazyRows, ids_of
from nearfar.training.pcgrad import Combine, PCGrad


def cached_backward(
    module: LossModule, chunks: Sequence[Batch], share: float, accept: Callable[[Tensor, dict[str, Tensor]], None]
) -> None:
    """Add the gradients of ``share`` times the loss of all chunks together.

    ``accept`` gets the loss and its parts before any gradient is formed, and may refuse them. Dropout is drawn from
    torch's generator: one seed for each chunk, used in both passes.
    """
    seeds = torch.randint(2**62, (len(chunks),)).tolist()
    leaves: list[Pieces] = []
    with torch.no_grad():
        for chunk, seed in zip(chunks, seeds, strict=True):
            torch.manual_seed(seed)
            pieces = module.represent(chunk)
            leaves.append({name: piece.requires_grad_(piece.is_floating_point()) for name, piece in pieces.items()})
    pieces = {name: torch.cat([leaf[name] for leaf in leaves]) for name in leaves[0]}
    total, parts = module.combine(pieces, chunks[0].task)
    accept(total, parts)
    (total * share).backward()  # type: ignore[no-untyped-call]
    for chunk, seed, leaf in zip(chunks, seeds, leaves, strict=True):
        torch.manual_seed(seed)
        pieces = module.represent(chunk)
        moved = [name for name, piece in leaf.items() if piece.grad is not None and pieces[name].requires_grad]
        torch.autograd.backward([pieces[name] for name in moved], [leaf[name].grad for name in moved])


@dataclass(frozen=True)
class StepResult:
    """What a step reports."""

    loss: float
    parts: dict[str, float]
    gradient_norm: float
    texts: int
    details: StepDetails = field(default_factory=StepDetails)
    """What else goes into the journal."""


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """How a step is computed.

    Args:
        clip: the largest norm of the gradient; 0 for none.
        chunk: the rows of a batch that have a graph at a time (GradCache); None for all.
        pcgrad: how the gradients of the tasks of a step are combined after PCGrad; None trains without it.
        seed: of the order in which PCGrad compares the tasks.
    """

    clip: float = 1.0
    chunk: int | None = None
    pcgrad: Combine | None = None
    seed: int = 0


@dataclass(frozen=True)
class OptimizerStep:
    """Takes a step over the batches that make it up, of one task or of several.

    Within a step, the loss of a task is the mean over its rows, and a task counts by its number of batches; the tasks
    of a mixed batch count alike. With PCGrad, a task counts by its share in the schedule; its gradient is taken off the
    weights before the graph of the next task is built, and the combined gradient is put back: clipping and whatever
    else follows sees one gradient. Weights that belong to one task only get the gradient of their task. The lazy rows
    are brought up to date before they are read, and updated with all other weights.
    """

    accelerator: Accelerator
    module: LossModule
    optimizer: torch.optim.Optimizer
    loader: BatchLoader
    settings: StepSettings
    lazy: Sequence[LazyRows] = ()

    def __call__(self, members: list[Rows], *, step: int, epoch: int, rates: dict[str, float]) -> StepResult:
        """Train on the ``members``, the batches that make up step number ``step``, at these learning rates.

        The first epoch is 0.
        """
        module, loader = self.module, self.loader
        module.train()
        batches: dict[str, list[Rows]] = {}
        counts: dict[str, float] = {}
        for member in members:
            parts_of = loader.by_task(member)
            for task, rows in parts_of.items():
                batches.setdefault(task, []).append(rows)
                counts[task] = counts.get(task, 0.0) + 1 / len(parts_of)
        pcgrad = self._pcgrad() if len(batches) > 1 else None
        shares = loader.task_weights(epoch)
        temperatures, masked = self._temperatures(), Counter[str]()
        losses = dict.fromkeys(batches, 0.0)
        parts: dict[str, float] = {}
        for task, of_task in batches.items():
            weight, texts = counts[task] / len(members) if pcgrad is None else shares[task], sum(map(len, of_task))
            for rows in of_task:
                share = len(rows) / texts
                value, values = self._backward(rows, weight * share, step, rates)
                losses[task] += share * value
                for name, part in values.items():
                    parts[name] = parts.get(name, 0.0) + share * part
                masked.update(self._masked(task))
            if pcgrad is not None:
                self._average_gradients()
                pcgrad.take(task)
        details = StepDetails()
        if temperatures:
            details["temperatures"] = temperatures
        if masked:
            details["masked"] = dict(masked)
        if len(module.tasks) > 1 or "" not in module.tasks:
            details["tasks"] = {
                name: {"loss": losses[name], "rows": sum(map(len, of_task))} for name, of_task in batches.items()
            }
        if pcgrad is None:
            self._average_gradients()
            total = sum(counts[name] / len(members) * loss for name, loss in losses.items())
        else:
            conflicts = pcgrad.finish(stream(self.settings.seed, "surgery", step) % 2**62)
            details["surgery"] = conflicts.entry()
            total = sum(shares[name] * loss for name, loss in losses.items())
            total /= len(batches) if self.settings.pcgrad == "mean" else 1
        if learned := module.learned_weights():
            details["task_weights"] = learned
        norm = self._update(parts, loader.place(members[0]), step, rates)
        return StepResult(total, parts, norm, sum(map(len, members)), details)

    def _backward(self, rows: Rows, share: float, step: int, rates: dict[str, float]) -> tuple[float, dict[str, float]]:
        """Add the gradients of ``share`` times the loss of a batch; returns the loss and its parts."""
        value, values = 0.0, dict[str, float]()

        def accept(total: Tensor, pieces: dict[str, Tensor]) -> None:
            """Refuse a loss that is not finite before its gradients are formed."""
            nonlocal value, values
            value, values = total.item(), {name: piece.item() for name, piece in pieces.items()}
            if not math.isfinite(value):
                raise NotFiniteError(_reason("the loss", value, values, self.loader.place(rows), step, rates))

        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        chunks = self.loader.batches(self.module.model, rows, self.settings.chunk, rank=rank, world=world)
        chunks = [chunk.to(self.accelerator.device) for chunk in chunks]
        for embedding in self.lazy:
            embedding.catch_up(ids_of(chunks))
        if len(chunks) > 1:
            cached_backward(self.module, chunks, share, accept)
        else:
            loss, pieces = self.module(chunks[0])
            accept(loss, pieces)
            self.accelerator.backward(loss * share)
        return value, values

    def _update(self, parts: dict[str, float], place: str, step: int, rates: dict[str, float]) -> float:
        """Check, clip and apply the gradients of the weights; returns their norm before clipping."""
        gradients = [_values(weight) for weight in self.module.parameters() if weight.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not math.isfinite(norm):
            named = [(name, weight) for name, weight in self.module.named_parameters() if weight.grad is not None]
            broken = [name for name, weight in named if not _values(weight).isfinite().all()]
            where = f"{place}; first in {broken[0]}" if broken else place
            raise NotFiniteError(_reason("the gradient", norm, parts, where, step, rates))
        if 0 < self.settings.clip < norm:
            for gradient in gradients:
                gradient.mul_(self.settings.clip / norm)
        for embedding in self.lazy:
            embedding.step()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _average_gradients(self) -> None:
        average_gradients([weight for weight in self.module.parameters() if weight.grad is not None])

    def _pcgrad(self) -> PCGrad | None:
        if self.settings.pcgrad is None:
            return None
        module = self.module
        return PCGrad(shared=module.shared_weights(), own=module.task_weights(), combine=self.settings.pcgrad)

    def _temperatures(self) -> dict[str, float]:
        """The temperatures that are learned, by term."""
        return {
            term.name: term.objective.temperature
            for term in self.module.terms
            if isinstance(term.objective, BatchSoftmax) and term.objective.trainable
        }

    def _masked(self, task: str) -> dict[str, int]:
        """How many positives the last batch kept from being each other's negatives, by term of the task."""
        loss = self.module.tasks[task]
        return {
            loss.key(term.name): int(term.objective.masked)
            for term in loss.terms
            if isinstance(term.objective, BatchSoftmax) and term.view == "grouped-pairs"
        }


def _values(weight: Tensor) -> Tensor:
    """The values of a weight's gradient, to read and to change: of the rows it has, where it has only some."""
    assert weight.grad is not None
    if weight.grad.is_sparse:
        weight.grad = weight.grad.coalesce()
        return weight.grad.values()
    return weight.grad


def _reason(what: str, value: float, parts: dict[str, float], where: str, step: int, rates: dict[str, float]) -> str:
    """What a message says of numbers that are not finite, and what to try."""
    pieces = ", ".join(f"{name} {part:g}" for name, part in parts.items())
    speeds = ", ".join(f"{name} {rate:.2g}" for name, rate in rates.items())
    return (
        f"{what} is {value} at step {step} (parts: {pieces}; learning rates: {speeds}; batch: {where}). "
        "The run stops here; checkpoints that it has written hold the weights from before. "
        'Try a lower training.learning_rate or objective.learning_rate, or training.precision = "fp32".'
    )
