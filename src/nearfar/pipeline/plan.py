"""From a recipe to a plan and a training that can begin: everything read, chosen and tried out; nothing is written."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from accelerate import Accelerator

from nearfar.data import Records
from nearfar.encoding import Built, EncoderNoise, build
from nearfar.encoding.pretrained import class_token
from nearfar.errors import SettingError
from nearfar.evaluation import Report
from nearfar.pipeline.output import Reports
from nearfar.recipe import Encoder, Recipe, Training
from nearfar.training import (
    BatchLoader,
    Callback,
    FitSettings,
    Loader,
    LossModule,
    MultiTaskLoader,
    Plan,
    about,
    plan_run,
)
from nearfar.training.contracts import Evaluate, Scores
from nearfar.training.optimizer import freeze, unused_weights
from nearfar.training.precision import Precision

logger = logging.getLogger(__name__)

QUICK_STEPS = 30
"""A run of so few steps begins at once, without a batch to estimate its time by."""


class Messages:
    """Lines for the user: to the callbacks and to the log of Python; nothing in a process that is ``quiet``."""

    def __init__(self, callbacks: Sequence[Callback], *, quiet: bool) -> None:
        self.callbacks = () if quiet else tuple(callbacks)
        self.quiet = quiet

    def __call__(self, text: str) -> None:
        """Report a line."""
        if not self.quiet:
            logger.info(text)
        for callback in self.callbacks:
            callback.message(text)

    def notes(self, notes: Sequence[str]) -> None:
        """Report what the user should know."""
        for note in notes:
            self(f"note: {note}")


def open_accelerator(out: Path, trackers: Sequence[str] = ()) -> Accelerator:
    """The device, the other processes and the trackers of a run."""
    return Accelerator(
        mixed_precision="no",  # the loss module sets the precision itself: runs of one process may differ in it
        cpu=not (torch.cuda.is_available() or torch.backends.mps.is_available()),
        log_with=[_available(tracker) for tracker in trackers] or None,
        project_dir=str(out),
    )


def open_encoder(
    settings: Encoder, *, classes: Sequence[str] | None, seed: int, name: str | None = None, one_vector: bool = False
) -> Built:
    """The encoder of a recipe, or the one called ``name`` under the same settings.

    With ``one_vector``, text vectors that are compared are those that the class head reads: the class token under the
    architecture's own head.
    """
    built = build(
        name or settings.name,
        classes=classes,
        seed=seed,
        pooling=settings.pooling,
        max_length=settings.max_length,
        dropout=settings.dropout,
        fast=settings.fast,
        noise=EncoderNoise(drophead=settings.drophead, cutoff=settings.cutoff),
    )
    if one_vector and built.model.native:
        built.model.pooling = class_token(built.tokenizer)
    return built


def decided(training: Training) -> Precision:
    """The precision of a plan that has been told it; fp32 before."""
    return "bf16" if training.precision == "bf16" else "fp32"


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings as trackers take them: dotted keys to numbers and words.

    >>> flat({"training": {"epochs": 2, "metric": None}})
    {'training.epochs': 2, 'training.metric': 'None'}
    """
    settings: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            settings |= flat(value, f"{prefix}{key}.")
        else:
            settings[f"{prefix}{key}"] = value if isinstance(value, int | float | str | bool) else str(value)
    return settings


def _available(tracker: str) -> str:
    package = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}[tracker]
    if importlib.util.find_spec(package) is None:
        raise SettingError(f"training.trackers names {tracker}, which is not installed: pip install {tracker}.")
    return tracker


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """One training with all that it needs."""

    module: LossModule
    loader: BatchLoader
    settings: FitSettings
    plan: Plan
    evaluate: Evaluate | None
    """Computes the dev scores; None without dev rows."""
    identity: str
    """What must be equal for a checkpoint to be continued."""
    lines: list[str]
    """What is trained, in words."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Trial:
    """What a few rows forward and backward have shown."""

    seconds: float | None
    """What the training will take, about; None where finding out would take a good part of it."""
    frozen: list[str]
    """The weights that no task uses; they are taken out of training."""

    @property
    def estimate(self) -> str:
        """The time in words, to end a sentence with."""
        return "" if self.seconds is None else f", {about(self.seconds)}"


def try_out(
    module: LossModule, loader: Loader | MultiTaskLoader, settings: FitSettings, sizes: Mapping[str, int],
    accelerator: Accelerator,
) -> Trial:  # fmt: skip
    """Two rows of each task forward and backward: which weights take part. In longer runs also a batch, for its time.

    Args:
        module: what is trained.
        loader: its batches.
        settings: how it is trained.
        sizes: the rows in a batch of each task.
        accelerator: the device and the other processes.
    """
    plan, world = plan_run(loader, settings.training), accelerator.num_processes
    loaders = loader.loaders if isinstance(loader, MultiTaskLoader) else {"": loader}
    module.train()
    chunk, total, start = settings.chunk, 0.0, 0
    spaced: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
    with torch.random.fork_rng(devices=[]):
        for name, of_task in loaders.items():
            rows = start + np.arange(len(of_task))
            start += len(of_task)
            _backward(module, loader, rows[:2], accelerator)
            size = min(sizes[name], chunk * world if chunk else len(rows))
            spaced[name] = rows[:: max(1, len(rows) // size)][:size]
        frozen = unused_weights(module)
        freeze(module, frozen)
        module.zero_grad(set_to_none=True)
        if plan.steps <= QUICK_STEPS:
            return Trial(None, frozen)
        for name, batches in batches_per_epoch(loader).items():
            began = time.perf_counter()
            _backward(module, loader, spaced[name], accelerator)
            per_row = (time.perf_counter() - began) / len(spaced[name])
            module.zero_grad(set_to_none=True)
            twice = (
                4 / 3 if chunk is not None and sizes[name] > chunk else 1.0
            )  # in chunks every text goes forward twice
            total += batches * sizes[name] * per_row * twice
    return Trial(total * plan.steps / plan.steps_per_epoch, frozen)


def batches_per_epoch(loader: Loader | MultiTaskLoader) -> dict[str, int]:
    """How many batches of each task the first epoch has."""
    if isinstance(loader, MultiTaskLoader):
        return {name: -(-steps // (loader.mixed or 1)) for name, steps in loader.schedule.steps_per_task(0).items()}
    return {"": len(loader.sampler)}


def _backward(
    module: LossModule, loader: BatchLoader, rows: np.ndarray[tuple[int], np.dtype[np.int64]], accelerator: Accelerator
) -> None:
    rank, world = accelerator.process_index, accelerator.num_processes
    for batch in loader.batches(module.encoder, rows, None, rank=rank, world=world):
        loss = module(batch.to(accelerator.device))[0]
        if not loss.requires_grad:
            task = f"task {batch.task}: " if batch.task else ""
            raise SettingError(
                f"{task}encoder.frozen is true, and there is no head to train, so nothing would be learned; remove "
                "encoder.frozen, or choose a head with weights of its own."
            )
        loss.backward()


class OpenRun(Protocol):
    """A run whose model is in memory."""

    @property
    def notes(self) -> list[str]:
        """What the user should know about model and data."""

    def opening(self, precision: str) -> str:
        """What is trained on what, in words."""

    def untrained_scores(self) -> dict[str, Scores]:
        """The scores of the untrained encoder on dev and test rows, where the model embeds texts and has test rows."""

    def prepare(self, number: int) -> Prepared:
        """The training of a stage, counted from 0; the weights are those that the stage before it left."""

    def fit_head(self) -> None:
        """Fit the class head to the trained encoder, where it is not trained with it."""

    def evaluators(self) -> dict[str, Callable[[], dict[str, Report]]]:
        """For dev and test rows, where there are some, what measures the tasks."""

    def save(self, out: Path, module: LossModule, reports: Reports, metrics: dict[str, Any]) -> None:
        """Write the model folder."""


class RunPlan(Protocol):
    """A run with nothing left open."""

    @property
    def notes(self) -> list[str]:
        """What the user should know about the data and what was chosen."""

    @property
    def training(self) -> Training:
        """The training table of the last stage."""

    @property
    def metrics(self) -> dict[str, str]:
        """The score of each task that picks the model."""

    @property
    def stages(self) -> int:
        """How many trainings follow each other on the same data."""

    @property
    def earlier(self) -> Sequence[Callable[[str | None], Recipe]]:
        """Trainings of the encoder on other data, before: the encoder they begin with to their recipe."""

    @property
    def domain(self) -> Records | None:
        """The texts of these trainings, where they are not those of a file."""

    @property
    def classifies(self) -> bool:
        """Whether the model predicts classes or scores; else it embeds texts."""

    def reads(self) -> list[object]:
        """The files and folders that the run reads, among other values."""

    def recipe_text(self) -> str:
        """The recipe as it is saved."""

    def config(self) -> dict[str, Any]:
        """The settings as trackers show them."""

    def journal(self, number: int) -> str:
        """The file of a stage's journal."""

    @property
    def encoder(self) -> str:
        """The name of the encoder that the first training begins with."""

    def in_precision(self, precision: Precision) -> Self:
        """The same with what was decided for ``training.precision``."""

    def open(self, accelerator: Accelerator, encoder: str | None = None) -> OpenRun:
        """Open the model; ``encoder`` takes the place of the recipe's."""
