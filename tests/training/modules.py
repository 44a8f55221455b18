"""Parts of a training for tests that need no recipe: a loss module, a step, a fit, a callback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelerate import Accelerator

from nearfar.training import FitSettings, LossModule, OptimizerStep, Progress, RunFiles, StepSettings, TaskLoss, Term
from nearfar.training.step import StepResult


class QuietCallback:
    """Follows a run and does nothing; tests override what they look at."""

    def message(self, text: str) -> None: ...
    def begin(self, steps: int) -> None: ...
    def step(self, entry: Any) -> None: ...
    def evaluation(self, entry: Any) -> None: ...
    def end(self) -> None: ...


def loss_module(model: Any, terms: Sequence[Term], **settings: Any) -> LossModule:
    """A model under the terms of one task."""
    return LossModule(model, [TaskLoss(tuple(terms))], **settings)


def step_with(
    module: LossModule, optimizer: Any, loader: Any, members: list[Any], *, step: int = 1, epoch: int = 0, lazy: Any = (),
    **settings: Any,
) -> StepResult:  # fmt: skip
    """One optimizer step in one process."""
    take = OptimizerStep(Accelerator(cpu=True), module, optimizer, loader, StepSettings(**settings), lazy)
    return take(members, step=step, epoch=epoch, rates={})


def fit_with(module: LossModule, loader: Any, training: Any, **settings: Any) -> Progress:
    """A fit in one process; settings are those of FitSettings, RunFiles and of fit itself."""
    own = {key: settings.pop(key) for key in ("evaluate", "callbacks") if key in settings}
    files = {
        key: settings.pop(key) for key in ("store", "journal", "identity", "resume", "followed") if key in settings
    }
    from nearfar.training import fit

    accelerator = Accelerator(cpu=True)
    chosen = FitSettings(training=training, **settings)
    return fit(module, loader, chosen, RunFiles(**files), accelerator=accelerator, **own)
