"""The short way: one labeled file, some minutes, and the best of the sensible ways to train, fitted to all rows.

A tune is a study whose contenders follow from what the rows are. Its trials run fold by fold, each fold with all
contenders or with none, so that there is a leader from the first fold on and every comparison is paired. While there is
time the rows are divided anew. A folder holds what a study leaves, and beside it::

    OUT/
        tune.json      what was asked for, the time that was spent, who is trained on all rows
        model/         the winner
        report.html    all contenders, for people
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.errors import Interrupted, counted
from nearfar.experiments.conditions import conditions_of
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.race import Line, Race
from nearfar.experiments.records import STUDY, TRIALS, Plan, find_record, plan_text, read_records
from nearfar.experiments.search import recipe_of
from nearfar.experiments.search_space import BASELINE, Prepared, Request, prepare
from nearfar.experiments.state import Clock, State, identity_of, open_state
from nearfar.experiments.training_checks import Flag, flags_of
from nearfar.experiments.trial_runner import TrialRunner, Watcher
from nearfar.files import write_atomic

if TYPE_CHECKING:
    from nearfar.training import Callback

MODEL = "model"
REPORT = "report.html"


@dataclass(frozen=True)
class Tuned:
    """What a tune has come to."""

    folder: Path
    winner: str
    metric: str
    lines: tuple[Line, ...]
    """The best first, who was dropped or failed last."""
    sentences: tuple[str, ...]
    """What may be said of the winner, without full stops."""
    conditions: tuple[str, ...]
    """What contenders share, and in what they differ, without full stops."""
    flags: tuple[Flag, ...]
    """Contenders that did not train well."""
    spent: float
    """Seconds, over all calls."""
    judged: bool
    """Whether the winner was chosen by its scores; else it is the default."""


def tune(
    request: Request, watcher: Watcher, executor: LocalExecutor | None = None, *, callbacks: Sequence[Callback] = ()
) -> Tuned:
    """Try the contenders for as long as there is time, and train the best on all rows; continues what was begun.

    Args:
        request: what is asked for.
        watcher: is told how it goes.
        executor: the processes that run trials; None for as many as there are cores.
        callbacks: follow the last training.
    """
    began = time.monotonic()
    prepared = prepare(request)
    out, plan = request.out, prepared.planned.plan
    state = open_state(out, identity_of(prepared))
    clock = Clock(60 * request.minutes, began, state.spent)
    over = state.searched is not None and request.minutes <= state.searched
    executor = executor or LocalExecutor()
    runner = TrialRunner(out, prepared.planned, watcher, executor)
    with runner.session():
        state.write(out, clock)
        if not over:
            forget_failed(out, plan)
        race = Race(prepared, watcher, executor, clock, state)
        for note in prepared.notes:
            watcher.message(f"note: {note}")
        watcher.message(_opening(prepared, over=over))
        watcher.begin(runner.done(), len(prepared.planned.trials))
        try:
            if over:
                race.enter_all()
                watcher.end()
            else:
                race.run(runner)
        finally:
            state.write(out, clock)
        winner = race.winner()
        if not over:
            state.searched = request.minutes
        write_atomic(out / STUDY, plan_text(race.plan_of_what_ran()), out / f".{STUDY}")
        _refit(prepared, winner, state, clock, watcher, callbacks)
        state.write(out, clock)
    lines, records = race.lines(winner), read_records(out)
    flags = flags_of(record for record in records if record.contender != BASELINE)  # which is not meant to train
    sentences = tuple(race.sentences(winner, flags))
    conditions = tuple(conditions_of(records).lines())
    return Tuned(
        out, winner, plan.metric, lines, sentences, conditions, flags, clock.spent(), judged=bool(race.entered)
    )


def _refit(
    prepared: Prepared, winner: str, state: State, clock: Clock, watcher: Watcher, callbacks: Sequence[Callback]
) -> None:
    """Train the winner on all rows, or go on with that."""
    from nearfar import pipeline
    from nearfar.encoding.model_folder import CARD

    out, plan = prepared.request.out, prepared.planned.plan
    folder = out / MODEL
    same, finished = state.refit == winner, (folder / CARD).is_file()
    if finished and state.fitted == winner:
        watcher.message(f"{folder} is {winner}, trained on all rows already")
        return
    if not (same or finished):  # somebody else's training, which nobody goes on with; a model stays until ours begins
        shutil.rmtree(folder, ignore_errors=True)
    begun = same and (not finished or state.fitted is None) and folder.is_dir() and any(folder.iterdir())
    if not finished:
        state.fitted = None
    elif not same and state.fitted is None:  # a call was killed before it could write whom the model is of
        state.fitted = state.refit
    state.refit = winner
    state.write(out, clock)
    name = next(cell.id for cell in plan.cells if cell.contender == winner)
    trial = replace(prepared.planned.trials[name], contender=winner, seed=prepared.request.seed)
    source = trial.source
    data = {**trial.values.get("data", {}), "train": source.file, **source.layout, "invalid": source.invalid}
    drawn = [f"data.{key}" for key in ("limit", "per_class") if key in data]
    what = f"what {' and '.join(drawn)} leaves of the" if drawn else "all"
    watcher.message(f"{winner} is trained on {what} {plan.data[0].rows:,} rows")
    try:
        recipe = recipe_of(trial, {}, data)
        pipeline.train(recipe, folder, resume=begun, overwrite=not begun, callbacks=callbacks)
    except (Interrupted, KeyboardInterrupt):
        state.write(out, clock)
        raise Interrupted(
            f"stopped while {winner} was trained on all rows; all trials are in {out}, and the same command goes on."
        ) from None
    state.fitted = winner


def forget_failed(out: Path, plan: Plan) -> None:
    """Remove the records of trials that failed in an earlier call: they may succeed now."""
    for cell in plan.cells:
        record = find_record(out, cell.id)
        if record is not None and not record.done:
            shutil.rmtree(out / TRIALS / cell.id, ignore_errors=True)


def _opening(prepared: Prepared, *, over: bool) -> str:
    request, plan = prepared.request, prepared.planned.plan
    if over:
        return f"this tune has had its {request.minutes:g} minutes; give it more --minutes to go on"
    return (
        f"{plan.data[0].rows:,} {prepared.row_type.wording}; {counted(len(plan.contenders), 'contender')}: "
        f"{', '.join(plan.contenders)}; {plan.metric} over {request.folds} folds, drawn up to "
        f"{counted(request.rounds, 'time')} within {request.minutes:g} minutes"
    )
