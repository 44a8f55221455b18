"""What every run begins with: messages, the device, the encoder."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from nearfar.encoding import Built, EncoderNoise, build
from nearfar.errors import SettingError
from nearfar.recipe import Encoder
from nearfar.training import Callback

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


def open_encoder(settings: Encoder, *, classes: Sequence[str] | None, seed: int, name: str | None = None) -> Built:
    """The encoder of a recipe, or the one called ``name`` under the same settings."""
    return build(
        name or settings.name,
        classes=classes,
        seed=seed,
        pooling=settings.pooling,
        max_length=settings.max_length,
        dropout=settings.dropout,
        fast=settings.fast,
        noise=EncoderNoise(drophead=settings.drophead, cutoff=settings.cutoff),
    )


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
        raise SettingError(
            f"training.trackers names {tracker}, which is not installed: pip install 'nearfar[{tracker}]'."
        )
    return tracker
