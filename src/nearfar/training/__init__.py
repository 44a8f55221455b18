"""Numbers to weights: the learner, the loop, checkpoints and the journal."""

from nearfar.training.checkpoints import CheckpointStore
from nearfar.training.feed import Feed
from nearfar.training.journal import Journal, read_journal
from nearfar.training.loop import Listener, Plan, Progress, fit, plan_run
from nearfar.training.loss_module import Batch, Learner, Term, View
from nearfar.training.precision import choose_precision
from nearfar.training.progress import LiveBar, PlainLog, about, duration

__all__ = [
    "Batch",
    "CheckpointStore",
    "Feed",
    "Journal",
    "Learner",
    "Listener",
    "LiveBar",
    "PlainLog",
    "Plan",
    "Progress",
    "Term",
    "View",
    "about",
    "choose_precision",
    "duration",
    "fit",
    "plan_run",
    "read_journal",
]  # fmt: skip
