"""The training loop: one function, read from top to bottom."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from nearfar.batching import Rows
from nearfar.errors import CheckpointError, Interrupted, SettingError, counted
from nearfar.recipe import Training
from nearfar.seeds import stream
from nearfar.training.checkpoints import Checkpoint, CheckpointStore, Journal, tracker_values
from nearfar.training.contracts import BatchLoader, Best, Callback, Evaluate, Evaluated, EvaluationEntry, StepEntry
from nearfar.training.loss_module import LossModule, same_start
from nearfar.training.optimizer import (
    Part,
    build_optimizer,
    factor,
    lazy_rows,
    optimizer_tensors,
    parameter_groups,
    restore_optimizer,
    set_rates,
)
from nearfar.training.pcgrad import Combine
from nearfar.training.precision import bf16_units
from nearfar.training.step import OptimizerStep, StepResult, StepSettings

FORMAT = 2
"""Of checkpoints: one of another format is refused, not misread."""
PATIENCE = 1.0
"""Seconds after which a second Ctrl-C is meant as one."""


@dataclass
class Progress:
    """The state of a run; all of it is in every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """The next batch of the epoch."""
    best: Best | None = None
    stale: int = 0
    """Evaluations since the best one."""
    evaluations: list[Evaluated] = field(default_factory=list)
    seconds: float = 0.0
    texts: int = 0
    stopped: bool = False
    """Whether early stopping has ended the run."""
    interrupted: bool = False
    """Whether a request to stop has ended the run with the weights so far."""
    kept: int | None = None
    """The step of the weights that a finished run has kept."""


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How to train.

    Args:
        training: the table of the recipe, with nothing left open.
        rates: the highest learning rate of each part.
        seed: of dropout and of PCGrad.
        chunk: the rows of a batch that have a graph at a time (GradCache); None for all.
        pcgrad: how the gradients of the tasks of a step are combined after PCGrad; None trains without it.
        evaluate_at_start: whether the weights are evaluated before the first step, too; with
            ``training.keep_untrained`` they are kept if none are better.
    """

    training: Training
    rates: dict[Part, float]
    seed: int
    chunk: int | None = None
    pcgrad: Combine | None = None
    evaluate_at_start: bool = False


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Where a run is stored, and what is to be continued.

    Args:
        store: the checkpoints.
        journal: one entry for each step and evaluation.
        identity: names the run: a checkpoint of another one is refused.
        resume: whether to continue from the newest whole checkpoint.
        followed: whether another training follows: then a request to stop counts even in the last step.
        finish: whether a request to stop ends the training with the best weights so far; else a checkpoint is left to
            resume from.
    """

    store: CheckpointStore
    journal: Journal
    identity: str = ""
    resume: bool = False
    followed: bool = False
    finish: bool = False


@dataclass(frozen=True)
class Plan:
    """How long a run will be."""

    rows: int
    batches: int
    steps_per_epoch: int
    steps: int


def plan_run(loader: BatchLoader, settings: Training) -> Plan:
    """Count batches and steps before anything is computed."""
    batches = len(loader.sampler)
    per_epoch = -(-batches // settings.accumulate)
    if settings.epochs is None:
        raise SettingError("training.epochs has not been chosen yet.")
    steps = per_epoch * settings.epochs
    return Plan(len(loader), batches, per_epoch, min(steps, settings.max_steps or steps))


def fit(
    module: LossModule,
    loader: BatchLoader,
    settings: FitSettings,
    files: RunFiles,
    *,
    accelerator: Accelerator,
    evaluate: Evaluate | None = None,
    callbacks: Sequence[Callback] = (),
) -> Progress:
    """Train, and leave the best weights (without dev rows, or to keep the last: the last ones) in the module.

    Randomness is drawn from streams named by step and process, so that a resumed run needs no generator states to
    continue with the same bits.
    """
    training, plan = settings.training, plan_run(loader, settings.training)
    module.to(accelerator.device)
    same_start(list(module.parameters()))
    groups = parameter_groups(module, settings.rates, training.weight_decay)
    optimizer = build_optimizer(groups, bias_correction=training.bias_correction)
    run = _Run(accelerator, module, optimizer, files, callbacks)
    progress = Progress()
    order: list[Rows] | None = None
    previous: list[Rows] | None = None
    if files.resume:
        progress, order = run.resume()
        if progress.batch == 0:  # the stored order is that of the epoch before
            previous, order = order, None
    rank, world = accelerator.process_index, accelerator.num_processes
    clock = _Clock(accelerator)

    if settings.evaluate_at_start and evaluate is not None and progress.step == 0:
        run.evaluate(evaluate, progress, training)
    with _stop_signals() as asked_to_stop, lazy_rows(module, optimizer, world=world) as lazy:
        steps = StepSettings(clip=training.clip, chunk=settings.chunk, pcgrad=settings.pcgrad, seed=settings.seed)
        take_step = OptimizerStep(accelerator, module, optimizer, loader, steps, lazy)
        while progress.step < plan.steps and not progress.stopped:
            if order is None:
                if loader.sampler.reads_model:
                    for embedding in lazy:
                        embedding.current()
                order = run.next_order(loader, progress, previous)
            while progress.batch < len(order) and progress.step < plan.steps and not progress.stopped:
                began = time.perf_counter()
                members = order[progress.batch : progress.batch + training.accumulate]
                multiplier = _multiplier(training, progress.step, plan.steps)
                rates = set_rates(optimizer, multiplier)
                torch.manual_seed(stream(settings.seed, "dropout", progress.step, rank))
                result = take_step(members, step=progress.step + 1, epoch=progress.epoch, rates=rates)
                progress.step += 1
                progress.batch += len(members)
                epoch_done = progress.batch >= len(order)
                elapsed = time.perf_counter() - began
                progress.seconds += elapsed
                progress.texts += result.texts
                with _interrupts(asked_to_stop, finish=files.finish):
                    run.report_step(_entry(progress, plan, result, rates, elapsed))

                last = progress.step == plan.steps
                if evaluate is not None and (
                    last or _due(training.evaluate_every, progress.step, epoch_done=epoch_done)
                ):
                    for embedding in lazy:
                        embedding.current()
                    with _interrupts(asked_to_stop, finish=files.finish):
                        run.evaluate(evaluate, progress, training)
                if epoch_done:
                    progress.epoch, progress.batch = progress.epoch + 1, 0
                stop = _any_process(accelerator, asked=bool(asked_to_stop))
                if stop and files.finish:
                    progress.stopped = progress.interrupted = files.followed or not last
                    break
                if stop or clock.due(training.checkpoint_every, progress.step, epoch_done=epoch_done, last=last):
                    run.checkpoint(progress, order)
                    clock.reset()
                if stop and (files.followed or not (last or progress.stopped)):
                    raise Interrupted(f"stopped after step {progress.step} of {plan.steps}; continue with --resume.")
                if epoch_done:
                    break
            previous, order = order, None

    progress.kept = progress.step
    if progress.best is not None and "weights" in progress.best:
        progress.kept = progress.best["step"]
        run.load(files.store.read_best(progress.best["weights"]))
    return progress


@dataclass(frozen=True)
class _Run:
    """The files and callbacks of a run. The first process writes; the others wait for it."""

    accelerator: Accelerator
    module: LossModule
    optimizer: torch.optim.Optimizer
    files: RunFiles
    callbacks: Sequence[Callback]

    def message(self, text: str) -> None:
        for callback in self.callbacks:
            callback.message(text)

    def next_order(self, loader: BatchLoader, progress: Progress, previous: list[Rows] | None) -> list[Rows]:
        """The batches of the coming epoch; samplers may report how these were composed."""
        order = loader.sampler.batches(progress.epoch, previous)
        report = getattr(loader.sampler, "report", None)
        if report is not None:
            self.files.journal.write({"kind": "batches", "epoch": progress.epoch + 1, **asdict(report)})
            self.message(f"epoch {progress.epoch + 1}: {report}")
        return order

    def report_step(self, entry: StepEntry) -> None:
        self.files.journal.write(entry)
        self.accelerator.log(tracker_values(entry), step=entry["step"])
        for callback in self.callbacks:
            callback.step(entry)

    def evaluate(self, evaluate: Evaluate, progress: Progress, training: Training) -> None:
        scores = evaluate()
        metric = training.metric
        eligible = progress.step > 0 or training.keep_untrained is True
        better = eligible and (progress.best is None or scores[metric] > progress.best["scores"][metric])
        if better:
            progress.best = {"step": progress.step, "scores": scores}
            if training.keep != "last":
                progress.best["weights"] = self.store_best(progress.step)
            progress.stale = 0
        elif eligible:
            progress.stale += 1
            progress.stopped = training.patience is not None and progress.stale >= training.patience
        entry = EvaluationEntry(
            kind="evaluation", step=progress.step, epoch=progress.epoch + 1, scores=scores, best=better, metric=metric,
            stopped=progress.stopped,
        )  # fmt: skip
        progress.evaluations.append({"step": progress.step, "scores": scores})
        self.files.journal.write(entry)
        self.accelerator.log({f"dev/{name}": score for name, score in scores.items()}, step=progress.step)
        for callback in self.callbacks:
            callback.evaluation(entry)

    def checkpoint(self, progress: Progress, order: list[Rows]) -> None:
        if self.accelerator.is_main_process:
            state = {
                **vars(progress), "format": FORMAT, "identity": self.files.identity,
                "journal": self.files.journal.size(), "precision": self.module.precision, "units": bf16_units(),
                "threads": torch.get_num_threads(),
            }  # fmt: skip
            tensors = {"model": dict(self.module.state_dict()), "optimizer": optimizer_tensors(self.optimizer)}
            if order:
                tensors["order"] = {
                    "rows": torch.from_numpy(np.concatenate(order)),
                    "sizes": torch.tensor([len(rows) for rows in order]),
                }
            self.files.store.write(progress.step, state, tensors)
        self.accelerator.wait_for_everyone()

    def store_best(self, step: int) -> str:
        name = f"best-{step:08d}"
        if self.accelerator.is_main_process:
            name = self.files.store.write_best(step, dict(self.module.state_dict()))
        self.accelerator.wait_for_everyone()
        return name

    def resume(self) -> tuple[Progress, list[Rows] | None]:
        """The progress of the newest whole checkpoint, and the order of its epoch; weights and optimizer are set."""
        checkpoint, warnings = self.files.store.newest()
        for warning in warnings:
            self.message(warning)
        if checkpoint is None:
            self.message("there is no whole checkpoint to resume from, so the run starts at its beginning")
            self.files.journal.rewind(0)
            return Progress(), None
        state = dict(checkpoint.state)
        if state.pop("format", None) != FORMAT:
            raise CheckpointError(
                f"{checkpoint.path}: this checkpoint was written by another version of nearfar, which stored runs in "
                "another way. Finish the run with that version, or start over with --overwrite."
            )
        if state.pop("identity") != self.files.identity:
            raise CheckpointError(
                f"{checkpoint.path}: this checkpoint belongs to a run with another recipe or other data. "
                "Resume with what it was started with, or start over with --overwrite."
            )
        self.files.journal.rewind(state.pop("journal"))
        self._keep_precision(checkpoint.path, state)
        self.load(checkpoint.tensors["model"])
        restore_optimizer(self.optimizer, checkpoint.tensors.get("optimizer", {}))
        progress = Progress(**state)
        self.message(f"resuming after step {progress.step}, from {checkpoint.path.name}")
        return progress, _order(checkpoint)

    def _keep_precision(self, path: Path, state: dict[str, Any]) -> None:
        """Go on in the precision of the checkpoint; an error where this machine has no units for it."""
        began = state.pop("precision", self.module.precision)
        units, threads = state.pop("units", None), state.pop("threads", None)
        if began == "bf16" and units is not None and bf16_units() is None:
            raise CheckpointError(
                f"{path}: this run computes in bf16 with {units}, and this machine has no bf16 units. Resume it where "
                "it was started, or on a machine with AMX, AVX512-BF16 or a GPU, or start over with --overwrite."
            )
        self.module.precision = began
        now = torch.get_num_threads()
        if threads is not None and threads != now:
            self.message(
                f"note: the run was computed by {counted(threads, 'thread')} and goes on with {now}, so its last "
                "digits may be others than without the interruption"
            )

    def load(self, tensors: dict[str, Tensor]) -> None:
        try:
            self.module.load_state_dict(tensors)
        except RuntimeError as cause:
            raise CheckpointError(f"the checkpoint does not fit the model: {str(cause).splitlines()[0]}") from cause


class _Clock:
    """When the next checkpoint is due. Checkpoints change nothing in a run, so these may follow the time of day."""

    SHORT, LONG = 60.0, 600.0
    """Seconds: with "auto", epochs' ends wait at least for the one and steps at most for the other."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.reset()

    def reset(self) -> None:
        """A checkpoint was written."""
        self.began = time.monotonic()

    def due(self, every: int | str, step: int, *, epoch_done: bool, last: bool) -> bool:
        """Whether to write one after this step; all processes say the same."""
        if every != "auto":
            return last or _due(every, step, epoch_done=epoch_done)
        passed = time.monotonic() - self.began
        wanted = (passed > self.SHORT and (epoch_done or last)) or passed > self.LONG
        return _any_process(self.accelerator, asked=wanted)


def _multiplier(training: Training, step: int, total: int) -> float:
    """The factor on all learning rates; what is left open is linear, with a warmup of 6 %."""
    schedule = "linear" if training.schedule == "auto" else training.schedule
    return factor(schedule, step, total=total, warmup=0.06 if training.warmup is None else training.warmup)


def _order(checkpoint: Checkpoint) -> list[Rows] | None:
    stored = checkpoint.tensors.get("order")
    if stored is None:
        return None
    cuts = np.cumsum(stored["sizes"].numpy())[:-1]
    return list(np.split(stored["rows"].numpy(), cuts))


def _due(every: int | str, step: int, *, epoch_done: bool) -> bool:
    return epoch_done if every == "epoch" else step % int(every) == 0


def _entry(progress: Progress, plan: Plan, result: StepResult, rates: dict[str, float], elapsed: float) -> StepEntry:
    return {
        "kind": "step",
        "step": progress.step,
        "steps": plan.steps,
        "epoch": progress.epoch + 1,
        "loss": result.loss,
        "parts": result.parts,
        "learning_rates": rates,
        "gradient_norm": result.gradient_norm,
        "texts_per_second": result.texts / elapsed,
        "seconds": progress.seconds,
        **result.details,
    }


def _any_process(accelerator: Accelerator, *, asked: bool) -> bool:
    if accelerator.num_processes == 1:
        return asked
    flag = torch.tensor([float(asked)], device=accelerator.device)
    return bool(accelerator.reduce(flag, "sum").item() > 0)


@contextmanager
def _interrupts(received: list[int], *, finish: bool) -> Iterator[None]:
    """With ``finish``, take a KeyboardInterrupt of a callback or an evaluation for a request to stop."""
    try:
        yield
    except KeyboardInterrupt:
        if not finish:
            raise
        received.append(signal.SIGINT)


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying in the middle of a step.

    A second Ctrl-C ends at once; launchers pass signals on, so one that comes together with the first does not count.
    """
    received: list[int] = []
    first = time.monotonic()
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, _frame: Any) -> None:
        nonlocal first
        if not received:
            first = time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - first > PATIENCE:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
