"""A whole study: planned, continued where it stood, run to the end, and what to say on the way."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Literal, Protocol

from nearfar.errors import Interrupted, OutputError, counted
from nearfar.experiments.plan import Planned, plan_study
from nearfar.experiments.records import (
    STUDY,
    Plan,
    Record,
    clear_leftovers,
    find_record,
    has_records,
    plan_text,
    read_plan,
    read_records,
)
from nearfar.experiments.runs import Trial
from nearfar.experiments.search import require_optuna
from nearfar.experiments.study import read_study
from nearfar.experiments.worker import LOG, SCRATCH
from nearfar.files import only_process, write_atomic

LOCK = ".lock"


class Watcher(Protocol):
    """Whoever shows how a study goes."""

    def begin(self, done: int, total: int) -> None:
        """The study begins; ``done`` trials are there already."""

    def notice(self, text: str) -> None:
        """Something to be known."""

    def trial(self, record: Record, done: int, total: int, left: float | None, leader: str | None) -> None:
        """A trial has finished or failed; ``left`` seconds remain, about."""

    def end(self) -> None:
        """Nothing more will come."""


@dataclass(frozen=True)
class Standing:
    """Where a study stands before it goes on."""

    planned: Planned
    done: tuple[str, ...]
    failed: tuple[str, ...]
    """Trials with a reason in place of scores; they run again only when asked for."""
    waiting: tuple[str, ...]
    notes: tuple[str, ...]
    """What should be known about the rows, what an edited file changes, and contenders that share trials."""


@dataclass(frozen=True)
class Outcome:
    """What became of a study."""

    folder: Path
    plan: Plan
    ran: int
    failed: tuple[Record, ...] = field(default=())


def folder_of(path: Path, out: Path | None) -> Path:
    """Where the study of a file is kept: beside it, under its name, unless told otherwise."""
    if out is not None or not path.name:
        return out or Path("study")
    return path.with_suffix("") if path.suffix else path.with_name(f"{path.name}-study")


def stand(path: Path, out: Path) -> Standing:
    """Read and plan a study, and see what of it is there; nothing is written."""
    planned = plan_study(read_study(path))
    check_folder(out)
    before = read_plan(out) if (out / STUDY).is_file() else None
    done, failed, waiting = _sorted(planned, out)
    notes = [*planned.notes, *_sharing(planned), *_edits(planned, before, set(done), set(failed))]
    return Standing(planned, done, failed, waiting, tuple(notes))


def check_folder(out: Path) -> None:
    """Refuse a place that is no folder, or holds something else than a study."""
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out}: this is a file; give a folder for the study with --out.")
    if not out.is_dir() or (out / STUDY).is_file() or has_records(out):
        return
    if any(entry.name not in (LOCK, SCRATCH, LOG) for entry in out.iterdir()):
        raise OutputError(f"{out}: the folder holds something else than a study; choose another with --out.")


def _sorted(planned: Planned, out: Path) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Trials that are finished, that failed, and that are not there."""
    done, failed, waiting = list[str](), list[str](), list[str]()
    for name in planned.trials:
        record = find_record(out, name)
        (waiting if record is None else done if record.done else failed).append(name)
    return tuple(done), tuple(failed), tuple(waiting)


def run_study(
    path: Path,
    out: Path,
    watcher: Watcher,
    *,
    on: Literal["local", "ray"] = "local",
    workers: int | None = None,
    threads: int | None = None,
    retry_failed: bool = False,
    address: str = "auto",
    cpus: float = 1,
    gpus: float = 0,
) -> Outcome:
    """Run what is left of a study, on this machine or on a Ray cluster.

    Args:
        path: the study file.
        out: the folder of the study.
        watcher: is told how it goes.
        on: where trials run.
        workers: processes on this machine; None for as many as there are cores.
        threads: of each process on this machine; None for one, and more where there are fewer trials than cores.
        retry_failed: run failed trials again, too.
        address: of the Ray cluster.
        cpus: of each trial on Ray.
        gpus: of each trial on Ray.
    """
    standing = stand(path, out)
    planned = standing.planned
    if any(trial.search is not None for trial in planned.trials.values()):
        require_optuna()
    with alone(out):
        now = _sorted(planned, out)  # another process may have ended since
        standing = replace(standing, done=now[0], failed=now[1], waiting=now[2])
        write_atomic(out / STUDY, plan_text(planned.plan))
        clear_leftovers(out)
        shutil.rmtree(out / SCRATCH, ignore_errors=True)
        names = [
            name for name in planned.trials if name in standing.waiting or (retry_failed and name in standing.failed)
        ]
        for note in standing.notes:
            watcher.notice(note)
        if standing.failed and not retry_failed:
            one = len(standing.failed) == 1
            watcher.notice(
                f"{counted(len(standing.failed), 'trial')} failed before and {'stays' if one else 'stay'} so; "
                f"--retry-failed runs {'it' if one else 'them'} again"
            )
        trials = [planned.trials[name] for name in names]
        follower = _Follower(out, planned, watcher, trials, len(standing.done))
        watcher.begin(len(planned.trials) - len(trials), len(planned.trials))
        try:
            with interruptible():
                if not trials:
                    pass
                elif on == "ray":
                    from nearfar.experiments.ray_executor import run_on_ray

                    run_on_ray(trials, planned.rows, out, follower, address=address, cpus=cpus, gpus=gpus)
                else:
                    from nearfar.experiments.local_executor import run_local

                    run_local(trials, out, follower, workers=workers, threads=threads, total=len(planned.trials))
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped: {follower.done:,} of {counted(len(planned.trials), 'trial')} are in {out}; the same command "
                "goes on with the others."
            ) from None
        finally:
            watcher.end()
            shutil.rmtree(out / SCRATCH, ignore_errors=True)
    failed = {record.id: record for record in reversed(read_records(out)) if not record.done}
    return Outcome(out, planned.plan, len(trials), tuple(reversed(failed.values())))


class _Follower:
    """Turns what happens to trials into what a person wants to know."""

    def __init__(self, out: Path, planned: Planned, watcher: Watcher, trials: Sequence[Trial], done: int) -> None:
        self.out, self.planned, self.watcher = out, planned, watcher
        self.total, self.over, self.done, self.left = len(planned.trials), 0, done, len(trials)
        self.skipped = self.total - self.left
        self.began = time.monotonic()
        self.named: dict[str, list[tuple[tuple[str, str], tuple[int, int]]]] = {}
        """Trials to the data sets and contenders that they are part of, each with its seed and fold."""
        for cell in planned.plan.cells:
            place = cell.data if cell.limit is None else f"{cell.data} {cell.limit:,}"
            self.named.setdefault(cell.id, []).append(((place, cell.contender), (cell.seed, cell.fold)))
        self.scores: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
        for name in planned.trials:
            record = find_record(out, name)
            if record is not None and record.done:
                self._enter(record)

    def __call__(self, event: str, name: str) -> None:
        trial = self.planned.trials[name]
        if event == "started":
            return
        if event == "lost":
            self.watcher.notice(f"the process of {_title(trial)} is gone; the trial is begun again")
            return
        record = find_record(self.out, name)
        assert record is not None
        self.over += 1
        if record.done:
            self.done += 1
            self._enter(record)
        rest = self.left - self.over
        left = (time.monotonic() - self.began) / self.over * rest if rest else None
        self.watcher.trial(record, self.skipped + self.over, self.total, left, self._leader(name))

    def _enter(self, record: Record) -> None:
        for place, run in self.named[record.id]:
            self.scores.setdefault(place, {})[run] = record.scores[self.planned.plan.metric]

    def _leader(self, name: str) -> str | None:
        """Who has the highest mean on the data set of this trial, over the runs that all who have begun have."""
        (data, _), _ = self.named[name][0]
        found = {who: scores for (where, who), scores in self.scores.items() if where == data}
        common = set.intersection(*(set(scores) for scores in found.values())) if found else set()
        if len(found) < 2 or not common:
            return None
        means = {who: fmean(scores[run] for run in common) for who, scores in found.items()}
        first = max(means, key=lambda who: means[who])
        return f"{first} leads on {data} with {means[first]:.4f}"


def _title(trial: Trial) -> str:
    size = "" if trial.limit is None else f" {trial.limit:,}"
    return f"{trial.contender} on {trial.source.name}{size}, seed {trial.seed}, fold {trial.fold}"


def _sharing(planned: Planned) -> list[str]:
    spared = len(planned.plan.cells) - len(planned.trials)
    if not spared:
        return []
    needs = "needs" if spared == 1 else "need"
    return [f"{counted(spared, 'trial')} {needs} not run: contenders with the same recipe share theirs"]


def _edits(planned: Planned, before: Plan | None, done: set[str], failed: set[str]) -> list[str]:
    """What an edited study file changes in a study that was begun."""
    if before is None:
        return []
    old, new = {cell.id for cell in before.cells}, set(planned.trials)
    if old == new:
        return []
    kept, waiting = len(new & done), len(new - done - failed)
    stay = "stays as it is" if kept == 1 else "stay as they are"
    notes = [
        f"the study was edited: {counted(kept, 'finished trial')} {stay}, {counted(waiting, 'trial')} "
        f"{'is' if waiting == 1 else 'are'} to run"
    ]
    changed = [name for name in planned.trials if name not in old | done | failed]
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
    counts: dict[str, int] = {}
    for name in names:
        trial = planned.trials[name]
        size = "" if trial.limit is None else f" {trial.limit:,}"
        who = f"{trial.contender} on {trial.source.name}{size}"
        counts[who] = counts.get(who, 0) + 1
    told = [f"{who} ({number:,})" for who, number in counts.items()]
    return ", ".join(told[:most]) + (f" and {len(told) - most:,} more" if len(told) > most else "")


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Keep a second process from running the same study; the system lets go of the lock when we die."""
    with only_process(out, LOCK, "another process runs this study; wait for it, or choose another --out."):
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
