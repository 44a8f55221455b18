"""What every run begins with: somebody who talks, the device, the encoder, and whoever watches."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from rich.console import Console

from nearfar.encoding import Built, build
from nearfar.errors import SettingError
from nearfar.recipe import Encoder
from nearfar.training import LiveBar, PlainLog

QUICK_STEPS = 30
"""A run of so few steps begins at once, without a batch to estimate its time by."""

Say = Callable[[str], None]


def sayer(console: Console, *, speak: bool) -> Say:
    """What tells the user a line; nothing in a process that is not to ``speak``."""

    def say(text: str) -> None:
        if speak:
            console.print(text, highlight=False, soft_wrap=True, markup=False)

    return say


def open_accelerator(out: Path, trackers: Sequence[str] = ()) -> Accelerator:
    """The device, the other processes and the trackers of a run."""
    return Accelerator(
        mixed_precision="no",  # the learner sets the precision itself, so that runs of one process may differ in it
        cpu=not (torch.cuda.is_available() or torch.backends.mps.is_available()),
        log_with=[_available(tracker) for tracker in trackers] or None,
        project_dir=str(out),
    )


def open_encoder(settings: Encoder, *, classes: Sequence[str] | None, seed: int, name: str | None = None) -> Built:
    """The encoder of a recipe, or the one called ``name`` under the same settings."""
    return build(
        name or settings.name, classes=classes, seed=seed, pooling=settings.pooling, max_length=settings.max_length,
        dropout=settings.dropout, fast=settings.fast, drophead=settings.drophead, cutoff=settings.cutoff,
    )  # fmt: skip


def watch(console: Console, steps: int, *, main: bool) -> LiveBar | PlainLog:
    """A bar on a terminal, lines elsewhere, nothing in a process that is not the main one."""
    kind = LiveBar if console.is_terminal and main else PlainLog
    return kind(console if main else Console(quiet=True), steps)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings as trackers take them: dotted keys to numbers and words.

    >>> flat({"training": {"epochs": 2, "metric": None}})
    {'training.epochs': 2, 'training.metric': 'None'}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, int | float | str | bool) else str(value)
    return found


def _available(tracker: str) -> str:
    package = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}[tracker]
    if importlib.util.find_spec(package) is None:
        raise SettingError(
            f"training.trackers names {tracker}, which is not installed: pip install 'nearfar[{tracker}]'."
        )
    return tracker
