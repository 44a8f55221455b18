"""A whole study: read, planned, continued, and run to the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nearfar.errors import counted
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.plan import plan_study
from nearfar.experiments.records import STUDY, Plan, Record, cell_name, read_plan, read_records
from nearfar.experiments.search import require_optuna
from nearfar.experiments.study import read_study
from nearfar.experiments.trial import Planned, TrialStates
from nearfar.experiments.trial_runner import Executor, TrialRunner, Watcher, check_folder


@dataclass(frozen=True)
class StudyStatus:
    """A study, and what of it has run."""

    planned: Planned
    states: TrialStates
    notes: tuple[str, ...]
    """What should be known about the rows, what an edited file changes, and contenders that share trials."""


@dataclass(frozen=True)
class Outcome:
    """What became of a study."""

    ran: int
    """Trials that this call has run."""
    failed: tuple[Record, ...] = ()


def folder_of(path: Path, out: Path | None) -> Path:
    """Where the study of a file is kept: beside it, under its name, unless told otherwise."""
    if out is not None or not path.name:
        return out or Path("study")
    return path.with_suffix("") if path.suffix else path.with_name(f"{path.name}-study")


def study_status(path: Path, out: Path) -> StudyStatus:
    """Read and plan a study, and see which trials have run; nothing is written."""
    planned = plan_study(read_study(path))
    check_folder(out)
    before = read_plan(out) if (out / STUDY).is_file() else None
    states = planned.states(out)
    return StudyStatus(planned, states, (*planned.notes, *_sharing(planned), *_edits(planned, before, states)))


def run_study(
    path: Path, out: Path, watcher: Watcher, executor: Executor | None = None, *, retry_failed: bool = False
) -> Outcome:
    """Run what is left of a study.

    Args:
        path: the study file.
        out: the folder of the study.
        watcher: is told how it goes.
        executor: where trials run; None for the processes of this machine.
        retry_failed: run failed trials again, too.
    """
    status = study_status(path, out)
    if any(trial.search is not None for trial in status.planned.trials.values()):
        require_optuna()
    runner = TrialRunner(out, status.planned, watcher, executor or LocalExecutor())
    with runner.session():
        for note in status.notes:
            watcher.message(note)
        ran = runner.run_all(retry_failed=retry_failed)
    failed = {record.id: record for record in reversed(read_records(out)) if not record.done}
    return Outcome(ran, tuple(reversed(failed.values())))


def _sharing(planned: Planned) -> list[str]:
    spared = len(planned.plan.cells) - len(planned.trials)
    if not spared:
        return []
    needs = "needs" if spared == 1 else "need"
    return [f"{counted(spared, 'trial')} {needs} not run: contenders with the same recipe share theirs"]


def _edits(planned: Planned, before: Plan | None, states: TrialStates) -> list[str]:
    """What an edited study file changes in a study that was begun."""
    if before is None:
        return []
    old, new = {cell.id for cell in before.cells}, set(planned.trials)
    if old == new:
        return []
    kept, waiting = len(states.done), len(states.waiting)
    stay = "stays as it is" if kept == 1 else "stay as they are"
    notes = [
        f"the study was edited: {counted(kept, 'finished trial')} {stay}, {counted(waiting, 'trial')} "
        f"{'is' if waiting == 1 else 'are'} to run"
    ]
    changed = [name for name in states.waiting if name not in old]
    if changed:
        notes.append(f"new or changed: {_listed(planned, changed)}")
    gone = len(old - new)
    if gone:
        notes.append(
            f"{counted(gone, 'trial')} of before {'is' if gone == 1 else 'are'} no part of it any more; "
            f"{'its record is' if gone == 1 else 'their records are'} kept"
        )
    return notes


def _listed(planned: Planned, names: Sequence[str], most: int = 8) -> str:
    """Trials by contender and data set, with their number."""
    trials = [planned.trials[name] for name in names]
    counts = Counter(f"{trial.contender} on {cell_name(trial.source.name, trial.limit)}" for trial in trials)
    parts = [f"{name} ({number:,})" for name, number in counts.items()]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most:,} more" if len(parts) > most else "")
