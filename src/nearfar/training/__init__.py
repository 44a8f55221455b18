"""Vectors to weights: the loss module, the training loop, checkpoints and the journal."""

from nearfar.errors import duration
from nearfar.training.checkpoints import CheckpointStore, Journal, Mirror, read_journal
from nearfar.training.contracts import BatchLoader, Callback, EvaluationEntry, Scores, StepEntry, about
from nearfar.training.loader import Loader, MultiTaskLoader
from nearfar.training.loop import FitSettings, Plan, Progress, RunFiles, fit, plan_run
from nearfar.training.loss_module import Batch, LossModule, TaskLoss, Term, View
from nearfar.training.precision import choose_precision
from nearfar.training.step import OptimizerStep, StepSettings

__all__ = [
    "Batch", "BatchLoader", "Callback", "CheckpointStore", "EvaluationEntry", "FitSettings", "Journal",
    "Loader", "LossModule", "Mirror", "MultiTaskLoader", "OptimizerStep", "Plan", "Progress", "RunFiles", "Scores",
    "StepEntry", "StepSettings", "TaskLoss", "Term", "View", "about", "choose_precision", "duration", "fit", "plan_run",
    "read_journal",
]  # fmt: skip
