"""A training that can begin: loss module, batches and settings, tried out on a few rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from accelerate import Accelerator

from nearfar.pipeline.runtime import QUICK_STEPS
from nearfar.training import BatchLoader, FitSettings, Loader, LossModule, MultiTaskLoader, Plan, about, plan_run
from nearfar.training.contracts import Evaluate
from nearfar.training.optimizer import freeze, unused_weights


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
        return dict(loader.schedule.steps_per_task(0))
    return {"": len(loader.sampler)}


def _backward(
    module: LossModule, loader: BatchLoader, rows: np.ndarray[tuple[int], np.dtype[np.int64]], accelerator: Accelerator
) -> None:
    rank, world = accelerator.process_index, accelerator.num_processes
    for batch in loader.batches(module.encoder, rows, None, rank=rank, world=world):
        module(batch.to(accelerator.device))[0].backward()
