"""The training loop: one function, read from top to bottom."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from nearfar.batching import Rows
from nearfar.errors import CheckpointError, Interrupted, SettingError
from nearfar.recipe import Training
from nearfar.seeds import stream
from nearfar.training.checkpoints import Checkpoint, CheckpointStore
from nearfar.training.feed import Feed
from nearfar.training.gather import same_start
from nearfar.training.journal import Journal
from nearfar.training.lazy_adamw import lazy_rows
from nearfar.training.loss_module import Learner
from nearfar.training.optimizer import (
    Part,
    build_optimizer,
    factor,
    optimizer_tensors,
    parameter_groups,
    restore_optimizer,
    set_rates,
)
from nearfar.training.step import StepResult, take_step

Scores = dict[str, float]
PATIENCE = 1.0
"""Seconds after which a second Ctrl-C is meant as one."""


class Listener(Protocol):
    """Whoever watches a run: a progress bar, a log, a test."""

    def step(self, entry: dict[str, Any]) -> None:
        """A step was taken."""

    def evaluation(self, entry: dict[str, Any]) -> None:
        """The dev data was evaluated."""

    def notice(self, text: str) -> None:
        """Something the user must be told."""


@dataclass
class Progress:
    """Where a run stands; all of it is in every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """The next batch of the epoch."""
    best: dict[str, Any] | None = None
    """Step, scores and the stored weights of the best evaluation."""
    stale: int = 0
    """Evaluations since the best one."""
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    texts: int = 0
    stopped: bool = False
    """Whether early stopping has ended the run."""


@dataclass(frozen=True)
class Plan:
    """How long a run will be."""

    rows: int
    batches: int
    steps_per_epoch: int
    steps: int


def plan_run(feed: Feed, settings: Training) -> Plan:
    """Count batches and steps before anything is computed."""
    batches = len(feed.sampler)
    per_epoch = -(-batches // settings.accumulate)
    if settings.epochs is None:
        raise SettingError("training.epochs has not been chosen yet.")
    steps = per_epoch * settings.epochs
    return Plan(len(feed), batches, per_epoch, min(steps, settings.max_steps or steps))


def fit(
    learner: Learner,
    feed: Feed,
    settings: Training,
    *,
    rates: dict[Part, float],
    seed: int,
    chunk: int | None = None,
    accelerator: Accelerator,
    store: CheckpointStore,
    journal: Journal,
    listeners: Sequence[Listener] = (),
    evaluate: Callable[[], Scores] | None = None,
    identity: str = "",
    resume: bool = False,
    at_start: bool = False,
    followed: bool = False,
    take: Callable[..., StepResult] = take_step,
) -> Progress:
    """Train, and leave the best weights (without dev data: the last ones) in the learner.

    ``chunk`` bounds how many rows of a batch have a graph at a time. ``identity`` names the run: a checkpoint of
    another one is refused. With ``at_start`` the weights are evaluated before the first step, too, and are kept if no
    later ones are better. A run that is ``followed`` by another stops when it is asked to, even in its last step.
    ``take`` takes a step; it has the arguments of :func:`take_step`. Randomness is drawn from
    streams named by step and process, so that a resumed run needs no generator states to go on with the same bits.
    """
    plan = plan_run(feed, settings)
    learner.to(accelerator.device)
    same_start(list(learner.parameters()))
    optimizer = build_optimizer(parameter_groups(learner, rates, settings.weight_decay))
    progress = Progress()
    order: list[Rows] | None = None
    previous: list[Rows] | None = None
    if resume:
        progress, order = _resume(learner, optimizer, store, journal, identity, listeners)
        if progress.batch == 0:  # the stored order is that of the epoch before
            previous, order = order, None
    rank, world = accelerator.process_index, accelerator.num_processes
    saver, clock = _Saver(accelerator, learner, optimizer, store, journal, identity), _Clock(accelerator)

    if at_start and evaluate is not None and progress.step == 0:
        _evaluate(evaluate, progress, settings, saver, journal, accelerator, listeners)
    with _stop_signals() as asked_to_stop, lazy_rows(learner, optimizer, world=world) as lazy:
        while progress.step < plan.steps and not progress.stopped:
            if order is None:
                if feed.sampler.reads_model:
                    for rows in lazy:
                        rows.current()
                order = _next_order(feed, progress, previous, journal, listeners)
            while progress.batch < len(order) and progress.step < plan.steps and not progress.stopped:
                began = time.perf_counter()
                members = order[progress.batch : progress.batch + settings.accumulate]
                multiplier = factor(settings.schedule, progress.step, total=plan.steps, warmup=settings.warmup)
                current = set_rates(optimizer, multiplier)
                torch.manual_seed(stream(seed, "dropout", progress.step, rank))
                result = take(
                    accelerator, learner, optimizer, feed, members,
                    clip=settings.clip, chunk=chunk, rank=rank, world=world, step=progress.step + 1, rates=current,
                    lazy=lazy,
                )  # fmt: skip
                progress.step += 1
                progress.batch += len(members)
                epoch_done = progress.batch >= len(order)
                elapsed = time.perf_counter() - began
                progress.seconds += elapsed
                progress.texts += result.texts
                entry = _entry(progress, plan, result, current, elapsed)
                journal.write(entry)
                accelerator.log(_flat(entry), step=progress.step)
                for listener in listeners:
                    listener.step(entry)

                last = progress.step == plan.steps
                if evaluate is not None and (
                    _due(settings.evaluate_every, progress.step, epoch_done=epoch_done) or last
                ):
                    for rows in lazy:
                        rows.current()
                    _evaluate(evaluate, progress, settings, saver, journal, accelerator, listeners)
                if epoch_done:
                    progress.epoch, progress.batch = progress.epoch + 1, 0
                stop = _any_process(accelerator, asked=bool(asked_to_stop))
                if stop or clock.due(settings.checkpoint_every, progress.step, epoch_done=epoch_done, last=last):
                    saver.checkpoint(progress, order)
                    clock.reset()
                if stop and (followed or not (last or progress.stopped)):
                    raise Interrupted(f"stopped after step {progress.step} of {plan.steps}; continue with --resume.")
                if epoch_done:
                    break
            previous, order = order, None

    if progress.best is not None:
        _load(learner, saver.best_weights(progress))
    return progress


def _next_order(
    feed: Feed, progress: Progress, previous: list[Rows] | None, journal: Journal, listeners: Sequence[Listener]
) -> list[Rows]:
    """The batches of the coming epoch, and what is to be known about how they were put together."""
    order = feed.sampler.batches(progress.epoch, previous)
    report = getattr(feed.sampler, "report", None)
    if report is not None:
        journal.write({"kind": "batches", "epoch": progress.epoch + 1, **asdict(report)})
        for listener in listeners:
            listener.notice(f"epoch {progress.epoch + 1}: {report}")
    return order


def _evaluate(
    evaluate: Callable[[], Scores], progress: Progress, settings: Training, saver: _Saver, journal: Journal,
    accelerator: Accelerator, listeners: Sequence[Listener],
) -> None:  # fmt: skip
    scores = evaluate()
    value = scores[settings.metric]
    better = progress.best is None or value > progress.best["scores"][settings.metric]
    if better:
        progress.best = {"step": progress.step, "scores": scores, "weights": saver.best(progress.step)}
        progress.stale = 0
    else:
        progress.stale += 1
        progress.stopped = settings.patience is not None and progress.stale >= settings.patience
    entry = {"kind": "evaluation", "step": progress.step, "epoch": progress.epoch + 1, "scores": scores, "best": better,
             "metric": settings.metric, "stopped": progress.stopped}  # fmt: skip
    progress.evaluations.append({"step": progress.step, "scores": scores})
    journal.write(entry)
    accelerator.log({f"dev/{name}": score for name, score in scores.items()}, step=progress.step)
    for listener in listeners:
        listener.evaluation(entry)


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


@dataclass(frozen=True)
class _Saver:
    """Writes from the first process only; the others wait for it."""

    accelerator: Accelerator
    learner: Learner
    optimizer: torch.optim.Optimizer
    store: CheckpointStore
    journal: Journal
    identity: str

    def checkpoint(self, progress: Progress, order: list[Rows]) -> None:
        if self.accelerator.is_main_process:
            state = {**vars(progress), "identity": self.identity, "journal": self.journal.size(),
                     "precision": self.learner.precision}  # fmt: skip
            tensors = {"model": dict(self.learner.state_dict()), "optimizer": optimizer_tensors(self.optimizer)}
            if order:
                tensors["order"] = {
                    "rows": torch.from_numpy(np.concatenate(order)),
                    "sizes": torch.tensor([len(rows) for rows in order]),
                }
            self.store.write(progress.step, state, tensors)
        self.accelerator.wait_for_everyone()

    def best(self, step: int) -> str:
        name = f"best-{step:08d}"
        if self.accelerator.is_main_process:
            name = self.store.write_best(step, dict(self.learner.state_dict()))
        self.accelerator.wait_for_everyone()
        return name

    def best_weights(self, progress: Progress) -> dict[str, Tensor]:
        assert progress.best is not None
        return self.store.read_best(progress.best["weights"])


def _resume(
    learner: Learner, optimizer: torch.optim.Optimizer, store: CheckpointStore, journal: Journal, identity: str,
    listeners: Sequence[Listener],
) -> tuple[Progress, list[Rows] | None]:  # fmt: skip
    checkpoint, warnings = store.newest()
    for listener in listeners:
        for warning in warnings:
            listener.notice(warning)
    if checkpoint is None:
        for listener in listeners:
            listener.notice("there is no whole checkpoint to resume from, so the run starts at its beginning")
        journal.rewind(0)
        return Progress(), None
    state = dict(checkpoint.state)
    if state.pop("identity") != identity:
        raise CheckpointError(
            f"{checkpoint.path}: this checkpoint belongs to a run with another recipe or other data. "
            "Resume with what it was started with, or start over with --overwrite."
        )
    journal.rewind(state.pop("journal"))
    learner.precision = state.pop("precision", learner.precision)  # measured anew, it might come out otherwise
    _load(learner, checkpoint.tensors["model"])
    restore_optimizer(optimizer, checkpoint.tensors.get("optimizer", {}))
    progress = Progress(**state)
    for listener in listeners:
        listener.notice(f"resuming after step {progress.step}, from {checkpoint.path.name}")
    return progress, _order(checkpoint)


def _order(checkpoint: Checkpoint) -> list[Rows] | None:
    stored = checkpoint.tensors.get("order")
    if stored is None:
        return None
    cuts = np.cumsum(stored["sizes"].numpy())[:-1]
    return list(np.split(stored["rows"].numpy(), cuts))


def _load(learner: Learner, tensors: dict[str, Tensor]) -> None:
    try:
        learner.load_state_dict(tensors)
    except RuntimeError as cause:
        raise CheckpointError(f"the checkpoint does not fit the model: {str(cause).splitlines()[0]}") from cause


def _due(every: int | str, step: int, *, epoch_done: bool) -> bool:
    return epoch_done if every == "epoch" else step % int(every) == 0


def _entry(
    progress: Progress, plan: Plan, result: StepResult, rates: dict[str, float], elapsed: float
) -> dict[str, Any]:
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
        **result.more,
    }


def _flat(entry: dict[str, Any]) -> dict[str, float]:
    flat = {f"train/{key}": entry[key] for key in ("loss", "gradient_norm", "texts_per_second", "epoch")}
    flat |= {f"train/parts/{name}": value for name, value in entry["parts"].items()}
    for kind in ("temperatures", "masked"):
        flat |= {f"train/{kind}/{name}": value for name, value in entry.get(kind, {}).items()}
    flat |= {f"train/tasks/{name}": own["loss"] for name, own in entry.get("tasks", {}).items()}
    flat |= {f"train/cosine/{pair}": own["cosine"] for pair, own in entry.get("surgery", {}).items() if own["steps"]}
    flat |= {f"train/task_weight/{name}": value for name, value in entry.get("task_weights", {}).items()}
    return flat | {f"train/learning_rate/{name}": value for name, value in entry["learning_rates"].items()}


def _any_process(accelerator: Accelerator, *, asked: bool) -> bool:
    if accelerator.num_processes == 1:
        return asked
    flag = torch.tensor([float(asked)], device=accelerator.device)
    return bool(accelerator.reduce(flag, "sum").item() > 0)


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
