"""Runs the trials of a plan in a folder: none of them twice, failed ones when asked for, stopped and continued.

A study, a tune and a table of several tasks each are a plan, and a policy that says which trials come next.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Literal, Protocol, TypeAlias, TypeVar

from nearfar.errors import Interrupted, OutputError, counted
from nearfar.experiments.records import STUDY, Record, cell_name, clear_leftovers, find_record, has_records, plan_text
from nearfar.experiments.trial import Planned, Rows, Trial
from nearfar.experiments.worker import LOG, SCRATCH
from nearfar.files import only_process, write_atomic

LOCK = ".lock"
Run = TypeVar("Run", bound=Hashable)
ATTEMPTS = 3
"""How often a trial is begun before its process is taken to die of it."""

Event: TypeAlias = Literal["started", "done", "failed", "lost"]
Report: TypeAlias = Callable[[Event, str], None]
"""Called with what happened and the name of the trial."""


@dataclass(frozen=True)
class Work:
    """Trials to run, in this order, and what running them needs."""

    trials: Sequence[Trial]
    folder: Path
    """Of the study, where each trial leaves its record."""
    total: int
    """Trials of the whole study."""
    rows: Mapping[str, Rows]
    """Those of each data set, for machines that cannot read the files."""


class Executor(Protocol):
    """Runs trials until all of them have a record; what was lost with a process or a machine is begun again."""

    def run(self, work: Work, report: Report) -> None:
        """Run all trials of the work, and report what happens to them."""


class Watcher(Protocol):
    """Shows the progress of trials."""

    def begin(self, done: int, total: int) -> None:
        """The trials begin; ``done`` of them have a record already."""

    def message(self, text: str) -> None:
        """Something to be known."""

    def trial(self, record: Record, done: int, total: int, left: float | None, leader: str | None) -> None:
        """A trial has finished or failed; ``left`` seconds remain, about."""

    def end(self) -> None:
        """Nothing more will come."""


class Policy(Protocol):
    """Which trials come next."""

    def next_trials(self) -> Sequence[Trial]:
        """The trials to run now; none ends the run."""

    def finished(self, record: Record) -> None:
        """One of them has finished or failed."""


class TrialRunner:
    """Runs trials of a plan by an executor, alone in the folder."""

    def __init__(self, folder: Path, planned: Planned, watcher: Watcher, executor: Executor) -> None:
        self.folder, self.planned, self.watcher, self.executor = folder, planned, watcher, executor

    @contextmanager
    def session(self) -> Iterator[None]:
        """Have the folder to oneself, with the plan in it and without what killed processes have left."""
        with exclusive(self.folder):
            write_atomic(self.folder / STUDY, plan_text(self.planned.plan), self.folder / f".{STUDY}")
            clear_leftovers(self.folder)
            self._clear_scratch()
            yield

    def run_all(self, *, retry_failed: bool) -> int:
        """Run all trials without a record, or also those that failed; returns how many."""
        states = self.planned.states(self.folder)  # another process may have ended since the plan was made
        if states.failed and not retry_failed:
            one = len(states.failed) == 1
            self.watcher.message(
                f"{counted(len(states.failed), 'trial')} failed before and {'stays' if one else 'stay'} so; "
                f"--retry-failed runs {'it' if one else 'them'} again"
            )
        wanted = set(states.to_run(retry_failed=retry_failed))
        trials = [trial for name, trial in self.planned.trials.items() if name in wanted]
        self.watcher.begin(len(self.planned.trials) - len(trials), len(self.planned.trials))
        self.run(AllTrials(self.folder, self.planned, self.watcher, trials))
        return len(trials)

    def run(self, policy: Policy) -> None:
        """Run what the policy asks for, until it asks for nothing more."""
        total = len(self.planned.trials)

        def report(event: Event, name: str) -> None:
            if event == "lost":
                title = self.planned.trials[name].title
                self.watcher.message(f"the process of {title} is gone; the trial is begun again")
            elif event != "started":
                record = find_record(self.folder, name)
                assert record is not None
                policy.finished(record)

        try:
            with interruptible():
                while trials := policy.next_trials():
                    self.executor.run(Work(trials, self.folder, total, self.planned.rows), report)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped: {self.done():,} of {counted(total, 'trial')} are in {self.folder}; the same command goes on "
                "with the others."
            ) from None
        finally:
            self.watcher.end()
            self._clear_scratch()

    def done(self) -> int:
        """How many trials have finished with scores."""
        return len(self.planned.states(self.folder).done)

    def _clear_scratch(self) -> None:
        shutil.rmtree(self.folder / SCRATCH, ignore_errors=True)


class AllTrials:
    """The policy of a study: some trials, all at once, with the time that is left and the leader on each data set."""

    def __init__(self, folder: Path, planned: Planned, watcher: Watcher, trials: Sequence[Trial]) -> None:
        self.planned, self.watcher, self.trials = planned, watcher, trials
        self.over, self.count, self.total = 0, len(trials), len(planned.trials)
        self.began = time.monotonic()
        self.cells: dict[str, list[tuple[str, str, tuple[int, int]]]] = {}
        """Trials to the data sets and contenders that they are part of, each with its seed and fold."""
        for cell in planned.plan.cells:
            place = (cell_name(cell.data, cell.limit), cell.contender, (cell.seed, cell.fold))
            self.cells.setdefault(cell.id, []).append(place)
        self.scores: dict[str, dict[str, dict[tuple[int, int], float]]] = {}
        """Of each data set, by contender."""
        for name in planned.trials:
            record = find_record(folder, name)
            if record is not None and record.done:
                self._enter(record)

    def next_trials(self) -> Sequence[Trial]:
        """All of them, once."""
        trials, self.trials = self.trials, ()
        return trials

    def finished(self, record: Record) -> None:
        """Show the trial, the time left and the leader on its data set."""
        self.over += 1
        if record.done:
            self._enter(record)
        rest = self.count - self.over
        left = (time.monotonic() - self.began) / self.over * rest if rest else None
        data = self.cells[record.id][0][0]
        best = leader(self.scores.get(data, {}))
        leads = None if best is None else f"{best[0]} leads on {data} with {best[1]:.4f}"
        self.watcher.trial(record, self.total - self.count + self.over, self.total, left, leads)

    def _enter(self, record: Record) -> None:
        for data, contender, run in self.cells[record.id]:
            scores = self.scores.setdefault(data, {}).setdefault(contender, {})
            scores[run] = record.scores[self.planned.plan.metric]


def leader(scores: Mapping[str, Mapping[Run, float]]) -> tuple[str, float, int] | None:
    """Who has the highest mean over the runs that all who have begun have, that mean, and the number of these runs.

    >>> leader({"a": {1: 0.5, 2: 0.9}, "b": {1: 0.6}})
    ('b', 0.6, 1)
    """
    common = set.intersection(*(set(runs) for runs in scores.values())) if scores else set()
    if len(scores) < 2 or not common:
        return None
    means = {name: fmean(runs[run] for run in common) for name, runs in scores.items()}
    best = max(means, key=lambda name: means[name])
    return best, means[best], len(common)


def check_folder(folder: Path) -> None:
    """Refuse a place that is no folder, or holds something else than a study."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: this is a file; give a folder for the study with --out.")
    if not folder.is_dir() or (folder / STUDY).is_file() or has_records(folder):
        return
    if any(entry.name not in (LOCK, SCRATCH, LOG, f".{STUDY}") for entry in folder.iterdir()):
        raise OutputError(f"{folder}: the folder holds something else than a study; choose another with --out.")


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep a second process from running the same study; the system lets go of the lock when we die."""
    with only_process(folder, LOCK, "another process runs this study; wait for it, or choose another --out."):
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Take a polite request to end like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before: Callable[[int, FrameType | None], object] | int | None = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
