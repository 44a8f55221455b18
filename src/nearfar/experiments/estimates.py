"""How long a study will take, from what has been measured, and from what that was."""

from __future__ import annotations

import math
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

from nearfar.data import SIZES, Records
from nearfar.errors import NearfarError, counted
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.records import Record, find_record
from nearfar.experiments.rows import split
from nearfar.experiments.search import FOLDS, number_of_points, train
from nearfar.experiments.task_pace import STEPS, task_seconds
from nearfar.experiments.trial import TASKS, Planned, Trial
from nearfar.experiments.trials import reason_of, warm_up
from nearfar.training import Callback, about


def estimate(planned: Planned, waiting: Sequence[str], out: Path, executor: LocalExecutor) -> str:
    """One sentence: how long the waiting trials will take, about, and how that is known."""
    number, threads = executor.shares(len(waiting), len(planned.trials))
    trials = [planned.trials[name] for name in waiting]
    done = [record for name in planned.trials if (record := find_record(out, name)) is not None and record.done]
    how = f"in {counted(number, 'process', 'processes')} of {counted(threads, 'thread')}"
    if done:
        seconds = sum(_like(trial, done) for trial in trials) / number
        return f"{about(seconds)} {how}, going by {counted(len(done), 'finished trial')}"
    if all(trial.kind == TASKS for trial in trials):
        warm_up()
        whole = {name: task_seconds(trial) for name, trial in {each.contender: each for each in trials}.items()}
        seconds = sum(whole[trial.contender] for trial in trials) / number
    else:
        paces = {name: _pace(planned, trials, name) for name in dict.fromkeys(trial.contender for trial in trials)}
        seconds = sum(_whole(trial, _rows(planned, trial), paces[trial.contender]) for trial in trials) / number
    return f"{about(seconds)} {how}, going by {STEPS} steps of each contender just now; finished trials say more"


def _like(trial: Trial, done: Sequence[Record]) -> float:
    """The seconds of trials like this one: of the same contender and data, of the same contender, or of any."""
    contender = [record for record in done if record.contender == trial.contender]
    data = [record for record in done if (record.data, record.limit) == (trial.source.name, trial.limit)]
    both = [record for record in contender if record in data]
    return fmean(record.seconds for record in both or contender or data or done)


def _rows(planned: Planned, trial: Trial) -> int:
    """How many rows a trial trains on."""
    drawn = trial.limit or len(planned.rows[trial.source.name][0])
    return drawn if trial.folds == 1 else drawn * (trial.folds - 1) // trial.folds


@dataclass(frozen=True)
class _Pace:
    """What a short training has shown."""

    fixed: float = 0.0
    """Seconds beside the steps: opening the encoder, tokenizing, measuring, saving."""
    step: float = 0.0
    stages: tuple[tuple[int, int], ...] = ((1, 1),)
    """The batch and the epochs of each."""
    most: int | None = None
    """Steps after which a stage ends in any case."""
    drawn: int | None = None
    """Rows that it trains on at most."""

    def seconds(self, rows: float) -> float:
        """Of a whole training on so many rows."""
        drawn = min(rows, self.drawn or rows)
        steps = [math.ceil(drawn / batch) * epochs for batch, epochs in self.stages]
        return self.fixed + self.step * sum(min(each, self.most or each) for each in steps)


def _whole(trial: Trial, rows: int, pace: _Pace) -> float:
    """The seconds of a trial, with the trainings of its search."""
    once = pace.seconds(rows)
    if trial.search is None:
        return once
    k, dev = trial.search.folds or FOLDS, trial.search.dev
    share = dev if isinstance(dev, float) else 0.0
    point = pace.seconds(rows * (1 - share)) if dev else k * pace.seconds(rows * (k - 1) / k)
    return once + number_of_points(trial.search) * point


def _pace(planned: Planned, trials: Sequence[Trial], contender: str) -> _Pace:
    """Train a contender for a few steps; NearfarError with its name where it cannot be trained."""
    trial = next(trial for trial in trials if trial.contender == contender)
    if trial.untrained is not None:
        return _Pace()
    warm_up()
    part = split(planned.rows[trial.source.name], trial)
    with tempfile.TemporaryDirectory() as place:
        out, clock, began = Path(place) / "model", _Steps(), time.perf_counter()
        try:
            train(trial, {"training.max_steps": STEPS}, part.train, out, callbacks=(clock,))
        except NearfarError as error:
            reason = reason_of(error, Path(place))
            raise NearfarError(f"contender {contender!r} on {trial.source.name!r} would fail: {reason}") from error
        spent = time.perf_counter() - began
        recipe = tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))
    stages = recipe.get("stage") or [{"batch_size": recipe["batches"]["size"], **recipe["training"]}]
    return _Pace(
        fixed=max(0.0, spent - len(clock.times) * clock.per_step),
        step=clock.per_step,
        stages=tuple((int(stage["batch_size"]), int(stage["epochs"])) for stage in stages),
        most=trial.values.get("training", {}).get("max_steps"),
        drawn=_drawn(trial, part.train),
    )


def _drawn(trial: Trial, records: Records) -> int | None:
    """The rows that a contender trains on at most, where it says so."""
    data = trial.values.get("data", {})
    limit, each = data.get("limit"), data.get("per_class")
    asked = [SIZES[limit] if isinstance(limit, str) else limit, each and each * len(set(records.labels or ()))]
    return min((most for most in asked if most), default=None)


class _Steps(Callback):
    """The time between steps, without that of the first, nor what lies between stages."""

    def __init__(self) -> None:
        self.times: list[float] = []

    @property
    def per_step(self) -> float:
        if len(self.times) < 2:
            return 0.0
        return median(after - before for before, after in pairwise(self.times))

    def step(self, entry: object) -> None:  # noqa: ARG002 - the time alone counts
        self.times.append(time.perf_counter())
