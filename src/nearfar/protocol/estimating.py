"""How long a study will take, from what has been measured, and from what that was."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from nearfar.errors import counted
from nearfar.protocol.local import shares
from nearfar.protocol.planning import Planned
from nearfar.protocol.records import Record, find_record
from nearfar.protocol.runs import Trial, train
from nearfar.protocol.trials import rows_of, split
from nearfar.training import duration

STEPS = 4
"""Of the short training that shows the speed."""


def estimate(
    planned: Planned, waiting: Sequence[str], out: Path, *, workers: int | None = None, threads: int | None = None
) -> str:
    """One sentence: how long the waiting trials will take, about, and how that is known."""
    number, own = shares(len(waiting), workers, threads, total=len(planned.trials))
    trials = [planned.trials[name] for name in waiting]
    found = [record for name in planned.trials if (record := find_record(out, name)) is not None and record.done]
    how = f"in {counted(number, 'process', 'processes')} of {counted(own, 'thread')}"
    if found:
        seconds = sum(_like(trial, found) for trial in trials) / number
        return f"about {duration(seconds)} {how}, going by {len(found):,} finished trials"
    rows = {trial.id: _rows(planned, trial) for trial in trials}
    pace = {contender: _pace(planned, trials, contender) for contender in dict.fromkeys(t.contender for t in trials)}
    seconds = sum(pace[trial.contender] * rows[trial.id] * _points(trial) for trial in trials) / number
    return (
        f"about {duration(seconds)} {how}, going by {STEPS} steps of each contender just now; finished trials say more"
    )


def _like(trial: Trial, found: Sequence[Record]) -> float:
    """The seconds of trials like this one: of the same contender and data, of the same contender, or of any."""
    for same in (
        lambda record: (
            (record.contender, record.data, record.limit) == (trial.contender, trial.source.name, trial.limit)
        ),
        lambda record: record.contender == trial.contender,
        lambda record: (record.data, record.limit) == (trial.source.name, trial.limit),
    ):
        if seconds := [record.seconds for record in found if same(record)]:
            return fmean(seconds)
    return fmean(record.seconds for record in found)


def _rows(planned: Planned, trial: Trial) -> int:
    """How many rows a trial trains on."""
    drawn = trial.limit or len(planned.rows[trial.source.name][0])
    return drawn if trial.folds == 1 else drawn * (trial.folds - 1) // trial.folds


def _points(trial: Trial) -> float:
    """How many trainings a trial has, with those of its search."""
    if trial.search is None:
        return 1
    from nearfar.protocol.search import number_of_points

    share = 1 - trial.search["dev"] if trial.search["dev"] else (trial.search["folds"] or 3) - 1
    return 1 + number_of_points(trial.search) * share


def _pace(planned: Planned, trials: Sequence[Trial], contender: str) -> float:
    """Seconds of a whole training for each of its rows."""
    import tomllib

    trial = next(trial for trial in trials if trial.contender == contender)
    if trial.untrained is not None:
        return 0.0
    records, official = planned.rows.get(trial.source.name) or rows_of(trial.source)
    part = split(records, official, size=trial.limit, seed=trial.seed, k=trial.folds, fold=trial.fold)
    with tempfile.TemporaryDirectory() as place:
        out, clock = Path(place) / "model", _Steps()
        train(trial, {"training.max_steps": STEPS}, part.train, out, listeners=(clock,))
        told = tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))
    steps = -(-len(part.train) // int(told["batches"]["size"])) * int(told["training"]["epochs"])
    return float(clock.per_step * steps / len(part.train))


class _Steps:
    """The time between steps, without that of the first."""

    def __init__(self) -> None:
        self.times: list[float] = []

    @property
    def per_step(self) -> float:
        if len(self.times) < 2:
            return 0.0
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1)

    def step(self, _entry: object) -> None:
        self.times.append(time.perf_counter())

    def evaluation(self, _entry: object) -> None:
        return

    def notice(self, _text: str) -> None:
        return
