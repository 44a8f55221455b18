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

import json
import math
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from nearfar.assembly import write_whole
from nearfar.data import Layout, Records, consistent, doubts, pair_targets, read
from nearfar.errors import (
    DataError,
    Interrupted,
    NearfarError,
    OutputError,
    Problem,
    RecipeError,
    SettingError,
    counted,
)
from nearfar.protocol.driving import LOCK, Watcher, alone, interruptible
from nearfar.protocol.local import run_local, shares
from nearfar.protocol.planning import SCORES, Planned, plan_study
from nearfar.protocol.records import STUDY, TRIALS, Cell, Plan, clear_leftovers, find_record, plan_text
from nearfar.protocol.runs import Trial, recipe_of
from nearfar.protocol.statistics import FEWEST, compare, corrected_t_test
from nearfar.protocol.study import ELSEWHERE, Contender, DataTable, Study, StudyTable, with_key
from nearfar.protocol.wording import verdict
from nearfar.protocol.worker import SCRATCH
from nearfar.recipe import Override, build_recipe

if TYPE_CHECKING:
    from rich.console import Console

STATE = "tune.json"
MODEL = "model"
REPORT = "report.html"
FORMAT = 1
ROUNDS = 4
"""How often the rows are divided into folds at most."""
LEAST = 3
"""Folds after which a contender can be dropped."""
BEHIND = 0.1
"""Dropped is who is worse than the leader with a p-value below this."""
SIMPLEST = "encoder as it is"
FROZEN = {"max_steps": 1, "learning_rate": 1e-12}
"""A training that changes no weight beyond its last digits: one step, of next to no length."""
RATE = 1e-4
"""A second learning rate for cross-entropy, beside its usual 5e-5: few rows make few steps."""
COMBO = {
    "name": "blend", "weights": {"contrast": 0.1, "squares": 0.9},
    "parts": {"contrast": {"name": "batch-softmax"}, "squares": {"name": "cosine-mse"}},
}  # fmt: skip
WHERE = "nearfar tune"

Place = tuple[int, int]
"""Seed and fold."""
Ways = dict[str, dict[str, Any]]
"""Contenders: names to recipe tables."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is tuned, how, and for how long."""

    file: str
    out: Path
    minutes: float = 10
    folds: int = 3
    rounds: int = ROUNDS
    metric: str = "auto"
    seed: int = 2
    vectors: bool = False
    """Whether pairs with yes and no are to be compared as vectors, rather than read as one text with a class."""
    settings: tuple[Override, ...] = ()
    """Recipe keys that hold for all contenders, and columns of the file."""


@dataclass(frozen=True)
class Prepared:
    """A tune that can begin."""

    planned: Planned
    kind: str
    default: str
    """What ``nearfar train`` would take."""


@dataclass(frozen=True)
class Line:
    """What became of a contender."""

    name: str
    scores: tuple[float, ...]
    """Fold by fold, up to where it was dropped."""
    seconds: float | None
    """Of a trial, on average."""
    fate: str
    """``best``, ``dropped``, ``failed`` or nothing."""


@dataclass(frozen=True)
class Tuned:
    """What a tune has come to."""

    folder: Path
    winner: str
    metric: str
    lines: tuple[Line, ...]
    """The best first, who was dropped or failed last."""
    told: tuple[str, ...]
    """Sentences, without full stops."""
    spent: float
    """Seconds, over all calls."""
    judged: bool
    """Whether the winner was chosen by its scores; else it is the default."""


def contenders_for(kind: str, rows: int, *, fixed: Collection[str] = ()) -> Ways:
    """The sensible ways to train on rows of a kind: the default first, then the simplest, then the others.

    Args:
        kind: ``classes``, ``scores`` or ``pairs``.
        rows: how many there are, on which the default depends.
        fixed: recipe keys the user has set; what only varies these is left out.

    >>> list(contenders_for("scores", 100))
    ['cosine-mse', 'encoder as it is', 'pearson', 'batch-softmax+cosine-mse']
    """
    if kind != "classes":
        default = "cosine-mse" if kind == "scores" else "batch-softmax"
        others = ("pearson",) if kind == "scores" else ("contrastive-pairs", "cosine-mse")
        ways = _named(default, *others)
        ways["batch-softmax+cosine-mse"] = {"objective": COMBO}
    else:
        from nearfar.assembly.choosing import FEW_ROWS

        default = "supcon" if rows <= FEW_ROWS else "cross-entropy"
        ways = _named(default, "supcon", "cross-entropy", "cross-entropy+supcon", "triple-entropy")
        if "training.learning_rate" not in fixed:
            ways[f"cross-entropy at {RATE:g}"] = {**ways["cross-entropy"], "training": {"learning_rate": RATE}}
    still = "supcon" if kind == "classes" else "cosine-mse"
    simplest = {SIMPLEST: {"objective": {"name": still}, "training": FROZEN}}
    return {default: ways.pop(default), **simplest, **ways}


def is_behind(differences: Sequence[float], folds: int) -> bool:
    """Whether a contender is clearly behind, by its differences to the leader, fold by fold.

    It is, where there are three of them or more, their mean is negative, and the corrected resampled t-test has a
    p-value below 0.1.

    >>> is_behind([-0.2, -0.21, -0.19], 3), is_behind([-0.2, 0.1, -0.1], 3), is_behind([-0.2, -0.2], 3)
    (True, False, False)
    """
    if len(differences) < LEAST or fmean(differences) >= 0:
        return False
    return corrected_t_test(differences, test_to_train=1 / (folds - 1)).p < BEHIND


def makespan(seconds: Sequence[float], processes: int) -> float:
    """When the last of some trials ends, each being begun by the first process that is free.

    >>> makespan([3, 1, 1, 2], 2)
    4.0
    """
    ends = [0.0] * max(1, processes)
    for each in seconds:
        ends[ends.index(min(ends))] += each
    return max(ends)


def prepare(request: Request) -> Prepared:
    """Read the rows, see what they are, choose the contenders and plan all trials; bad input is refused here."""
    _check(request)
    shared, columns = _settings(request)
    name = request.file.partition("#")[0].removeprefix("sample:").removeprefix("hub:")
    table = DataTable(name=Path(name).name.partition(".")[0] or "rows", file=request.file, **columns)
    layout = {key: value for key, value in columns.items() if key != "invalid"}
    records = read(request.file, Layout(**layout), invalid=table.invalid)
    kind = _kind(records, compares=request.vectors)
    _check_rows(records, kind, request.folds, table.invalid)
    if request.metric not in ("auto", *SCORES[kind]):
        raise SettingError(f"--metric {request.metric}: such rows have {', '.join(SCORES[kind])}; choose one of them.")
    fixed = {".".join(override.path) for override in request.settings}
    ways = contenders_for(kind, len(records), fixed=fixed)
    settings = StudyTable(
        name=f"tune {table.name}", seeds=tuple(request.seed + number for number in range(request.rounds)),
        folds=request.folds, metric=request.metric, baseline=SIMPLEST,  # type: ignore[arg-type]
    )  # fmt: skip
    contenders = tuple(Contender(name, _laid_over(shared, own), own, None, {}) for name, own in ways.items())
    study = Study(Path.cwd() / "tune.toml", WHERE, settings, (table,), contenders)
    return Prepared(plan_study(study), kind, next(iter(ways)))


def tune(request: Request, watcher: Watcher, *, workers: int | None = None, console: Console | None = None) -> Tuned:
    """Try the contenders for as long as there is time, and train the best on all rows; continues what was begun.

    Args:
        request: what is asked for.
        watcher: is told how it goes.
        workers: processes that run trials; None for as many as there are cores.
        console: where the last training is shown.
    """
    began = time.monotonic()
    prepared = prepare(request)
    out, planned = request.out, prepared.planned
    state = _open(out, _identity(request, prepared))
    clock = _Clock(60 * request.minutes, began, state.spent)
    over = state.searched is not None and request.minutes <= state.searched
    with alone(out):
        state.write(out, clock)
        write_whole(out / STUDY, plan_text(planned.plan))
        clear_leftovers(out)
        shutil.rmtree(out / SCRATCH, ignore_errors=True)
        if not over:
            _forget_failed(out, planned.plan)
        race = _Race(request, prepared, watcher, clock, state, workers)
        watcher.notice(_opening(request, prepared, over=over))
        watcher.begin(race.there(), len(planned.trials))
        try:
            with interruptible():
                race.run(may_run=not over)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped with {counted(race.there(), 'trial')} in {out}; the same command goes on with the others."
            ) from None
        finally:
            watcher.end()
            shutil.rmtree(out / SCRATCH, ignore_errors=True)
            state.write(out, clock)
        winner = race.winner()
        if not over:
            state.searched = request.minutes
        write_whole(out / STUDY, plan_text(race.plan_of_what_ran()))
        _refit(request, planned, winner, state, clock, watcher, console)
        state.write(out, clock)
    return Tuned(
        out, winner, planned.plan.metric, race.lines(winner), tuple(race.sentences(winner)), clock.spent(),
        judged=bool(race.entered),
    )  # fmt: skip


class _TimeIsUp(Exception):
    """The time of the trials is over; what is left is for the last training."""


class _Clock:
    """The time there is, over all calls."""

    def __init__(self, total: float, began: float, before: float) -> None:
        self.total, self.began, self.before = total, began, before

    def spent(self) -> float:
        return self.before + time.monotonic() - self.began

    def left(self) -> float:
        return self.total - self.spent()


@dataclass
class _State:
    """What is remembered from call to call."""

    identity: dict[str, Any]
    spent: float = 0.0
    searched: float | None = None
    """The minutes for which there was nothing more to try."""
    refit: str | None = None
    """Whom the model folder is of, finished or not."""

    def write(self, out: Path, clock: _Clock) -> None:
        self.spent = clock.spent()
        values = {"format": FORMAT, "identity": self.identity, "spent": round(self.spent, 3),
                  "searched": self.searched, "refit": self.refit}  # fmt: skip
        write_whole(out / STATE, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


class _Race:
    """The contenders, how far they are, and who is still in it."""

    def __init__(
        self,
        request: Request,
        prepared: Prepared,
        watcher: Watcher,
        clock: _Clock,
        state: _State,
        workers: int | None,
    ) -> None:
        self.request, self.prepared, self.watcher = request, prepared, watcher
        self.clock, self.state, self.workers = clock, state, workers
        self.out, self.plan, self.trials = request.out, prepared.planned.plan, prepared.planned.trials
        self.ids = {(cell.contender, (cell.seed, cell.fold)): cell.id for cell in self.plan.cells}
        self.places = list(dict.fromkeys((cell.seed, cell.fold) for cell in self.plan.cells))
        self.names = [SIMPLEST, *(name for name in self.plan.contenders if name != SIMPLEST)]
        self.entered: list[Place] = []
        """Places that count: everybody who was in the race has finished them."""
        self.scores: dict[str, dict[Place, float]] = {name: {} for name in self.names}
        """On these places."""
        self.out_of_it: dict[str, str] = {}
        """Who is ``dropped`` or ``failed``."""
        self.reasons: dict[str, str] = {}
        self.seconds: dict[str, list[float]] = {}
        """Of every finished trial, by contender."""
        for name in self.names:
            found = (find_record(self.out, self.ids[name, place]) for place in self.places)
            self.seconds[name] = [record.seconds for record in found if record is not None and record.done]
        self.overhead = 0.0
        """What a wave of trials takes beside them: processes have to start."""
        self.needed: float | None = None
        """What a first fold and the last training would take, where that is too long."""
        self.running: tuple[list[Trial], int, float] = ([], 1, 0.0)
        """The trials of a wave, its processes, and when it began."""
        self.ring: Callable[[float], None] = lambda _seconds: None

    @property
    def left(self) -> list[str]:
        """Who is still in the race."""
        return [name for name in self.names if name not in self.out_of_it]

    def run(self, *, may_run: bool) -> None:
        """Fold after fold, until all is done, decided, or there is no time."""
        place = 0
        while place < len(self.places) and not self.settled():
            if self.enter(self.places[place]):
                place += 1
                continue
            wave = self.next_wave(self.places[place:]) if may_run else []
            if not wave or not self.run_wave(wave):
                while place < len(self.places) and wave and self.enter(self.places[place]):
                    place += 1
                return

    def enter(self, place: Place) -> bool:
        """Count a place that everybody has finished, and drop who is behind; False where somebody has not."""
        records = {name: find_record(self.out, self.ids[name, place]) for name in self.left}
        if any(record is None for record in records.values()):
            return False
        for name, record in records.items():
            assert record is not None
            if record.done:
                self.scores[name][place] = record.scores[self.plan.metric]
            else:
                self.out_of_it[name] = "failed"
                self.reasons[name] = (record.reason or "no reason is known").splitlines()[0]
                self.watcher.notice(f"{name} is out: its trial failed: {self.reasons[name]}")
        if not self.left:
            told = "; ".join(f"{name}: {reason}" for name, reason in self.reasons.items())
            raise NearfarError(f"no contender could be trained ({told}); mend the cause, and run the same command.")
        self.entered.append(place)
        self.drop_behind()
        return True

    def drop_behind(self) -> None:
        """Let go of who is clearly behind the leader; the simplest stays, as the measure for all others."""
        leader = self.leader()
        for name in self.left:
            if name in (leader, SIMPLEST):
                continue
            gaps = [self.scores[name][place] - self.scores[leader][place] for place in self.entered]
            if is_behind(gaps, self.request.folds):
                self.out_of_it[name] = "dropped"
                self.watcher.notice(
                    f"{name} is dropped: {-fmean(gaps):.4f} behind {leader} over {counted(len(gaps), 'fold')}, with a "
                    f"corrected p below {BEHIND:g}"
                )

    def leader(self) -> str:
        """Who has the highest mean; of equals the simplest."""
        return max(self.left, key=lambda name: fmean(self.scores[name].values()))

    def settled(self) -> bool:
        """Whether more folds could not change who wins, and need not say how sure that is."""
        rivals = [name for name in self.left if name != SIMPLEST]
        return len(self.left) == 1 or (len(rivals) <= 1 and len(self.entered) >= FEWEST)

    def next_wave(self, rest: Sequence[Place]) -> list[Place]:
        """The places that run next: one to begin with, then what is left of a round, as far as there is time."""
        wave = [place for place in rest if place[0] == rest[0][0]] if self.entered else [rest[0]]
        while wave and not self.fits(wave):
            wave.pop()
        return wave

    def fits(self, wave: Sequence[Place]) -> bool:
        """Whether there is time for these places, and for the last training after them."""
        trials = self.waiting(wave)
        expected = [self.expected(trial.contender) for trial in trials]
        known = [seconds for seconds in expected if seconds is not None]
        needed = makespan(known, self.processes(trials)) + self.overhead + self.reserve() if known else 0.0
        if not self.entered and needed > self.clock.left():
            self.needed = self.clock.spent() + needed
        return self.clock.left() > 0 and needed <= self.clock.left()

    def expected(self, name: str) -> float | None:
        """The seconds of a contender's next trial: as before, or as those of others that are trained; None: unknown."""
        trained = [each for other, found in self.seconds.items() if other != SIMPLEST for each in found]
        everybody = [each for found in self.seconds.values() for each in found]
        known = self.seconds[name] or trained or everybody
        return fmean(known) if known else None

    def reserve(self) -> float:
        """The seconds of the last training, on all rows, of whoever of those in the race takes longest."""
        known = [fmean(self.seconds[name]) for name in self.left if self.seconds[name]]
        return max(known, default=0.0) * self.request.folds / (self.request.folds - 1)

    def waiting(self, wave: Sequence[Place]) -> list[Trial]:
        """The trials of these places that are not there yet."""
        wanted = {self.ids[name, place] for name in self.left for place in wave}
        return [trial for name, trial in self.trials.items() if name in wanted and find_record(self.out, name) is None]

    def processes(self, trials: Sequence[Trial]) -> int:
        """How many trials run side by side."""
        return shares(len(trials), self.workers, None, total=len(self.trials))[0]

    def run_wave(self, wave: Sequence[Place]) -> bool:
        """Run the trials of some places; False where their time was up before."""
        trials = self.waiting(wave)
        began, processes = self.clock.spent(), self.processes(trials)
        self.running = (trials, processes, began)
        try:
            with _alarm() as self.ring:
                self.ring(self.clock.left() - self.reserve())
                run_local(trials, self.out, self, workers=self.workers, total=len(self.trials))
        except _TimeIsUp:
            return False
        records = [find_record(self.out, trial.id) for trial in trials]
        taken = makespan([record.seconds for record in records if record is not None], processes)
        self.overhead = max(0.0, self.clock.spent() - began - taken)
        return True

    def __call__(self, event: str, name: str) -> None:
        """What happens to trials, as :func:`run_local` tells it."""
        trial = self.trials[name]
        if event == "started":
            return
        if event == "lost":
            self.watcher.notice(
                f"the process of {trial.contender}, fold {trial.fold} is gone; the trial is begun again"
            )
            return
        record = find_record(self.out, name)
        assert record is not None
        if record.done:
            self.seconds[trial.contender].append(record.seconds)
        self.state.write(self.out, self.clock)
        possible = self.there() + len(self.waiting(self.places))
        self.watcher.trial(record, self.there(), possible, max(0.0, self.clock.left()), self.told_leader())
        if not self.entered:
            self.check_first()
        self.ring(self.clock.left() - self.reserve())

    def check_first(self) -> None:
        """Give up a first fold that is going to take too long, rather than wait until the time is over."""
        trials, processes, began = self.running
        expected = [self.expected(trial.contender) or 0.0 for trial in trials]
        needed = began + makespan(expected, processes) + self.reserve()
        if needed > self.clock.total and any(find_record(self.out, trial.id) is None for trial in trials):
            self.needed = needed
            raise _TimeIsUp

    def told_leader(self) -> str | None:
        """Who leads on the folds that all who have begun have finished; None before there are two to compare."""
        found: dict[str, dict[Place, float]] = {}
        for name in self.left:
            for place in self.places:
                record = find_record(self.out, self.ids[name, place])
                if record is not None and record.done:
                    found.setdefault(name, {})[place] = record.scores[self.plan.metric]
        common = set(self.places).intersection(*found.values()) if found else set()
        if len(found) < 2 or not common:
            return None
        means = {name: fmean(scores[place] for place in common) for name, scores in found.items()}
        first = max(means, key=lambda name: means[name])
        return f"{first} leads with {means[first]:.4f} over {counted(len(common), 'fold')}"

    def there(self) -> int:
        """How many trials are finished."""
        found = (find_record(self.out, name) for name in self.trials)
        return sum(record is not None and record.done for record in found)

    def winner(self) -> str:
        """The best mean over the folds that count; without any, the default."""
        if self.entered:
            return self.leader()
        default = self.prepared.default
        record = find_record(self.out, self.ids[default, self.places[0]])
        if record is not None and not record.done:
            raise NearfarError(
                f"{default}, the default, could not be trained: {record.reason}; mend the cause, and try again."
            )
        return default

    def plan_of_what_ran(self) -> Plan:
        """The plan without folds that nobody got to, for the report."""
        if not self.entered:
            return self.plan
        cells = tuple(cell for cell in self.plan.cells if self.counts(cell))
        seeds = tuple(dict.fromkeys(seed for seed, _ in self.entered))
        return replace(self.plan, cells=cells, seeds=seeds)

    def counts(self, cell: Cell) -> bool:
        """Whether a trial is part of the result, with its score or as a failure."""
        place, record = (cell.seed, cell.fold), find_record(self.out, cell.id)
        return (
            place in self.entered and record is not None and (not record.done or place in self.scores[cell.contender])
        )

    def lines(self, winner: str) -> tuple[Line, ...]:
        """The standing of every contender, the best first."""
        found = [
            Line(
                name, tuple(self.scores[name].values()), fmean(self.seconds[name]) if self.seconds[name] else None,
                "best" if name == winner and self.entered else self.out_of_it.get(name, ""),
            )
            for name in self.names
        ]  # fmt: skip
        return tuple(
            sorted(found, key=lambda line: (bool(line.fate) and line.fate != "best", -fmean(line.scores or (0.0,))))
        )

    def sentences(self, winner: str) -> Iterator[str]:
        """What may be said of the winner."""
        if not self.entered:
            longer = "" if self.needed is None else f": about {self.needed / 60:.1f} minutes are needed"
            yield (
                f"{self.request.minutes:g} minutes are too few for one fold of every contender and the last training"
                f"{longer}; {winner}, the default, was taken without comparing it"
            )
            return
        mean = fmean(self.scores[winner].values())
        yield (
            f"{winner} has the highest mean of {counted(len(self.names), 'contender')}: {self.plan.metric} {mean:.4f} "
            f"over {counted(len(self.entered), 'fold')}"
        )
        if winner == SIMPLEST:
            yield "no training did better than none: the model is the encoder as it was, with what is fitted to it"
        for other in dict.fromkeys((SIMPLEST, self.prepared.default)):
            if other == winner or not self.scores[other]:
                continue
            shared = [place for place in self.entered if place in self.scores[other]]
            runs = {
                (self.plan.data[0].name, name, *place): self.scores[name][place]
                for name in (winner, other)
                for place in shared
            }
            found = compare(
                runs, data=self.plan.data[0].name, contender=winner, baseline=other,
                test_to_train=1 / (self.request.folds - 1),
            )  # fmt: skip
            taken = "" if found.significant else f"; {winner} is taken all the same, for its mean is the highest"
            yield f"{verdict(found)}{taken}"
        yield (
            f"the score of {winner} is a little optimistic, because it was chosen by it: measure the model on rows "
            "that took no part"
        )


@contextmanager
def _alarm() -> Iterator[Callable[[float], None]]:
    """An alarm that can be set and set again; outside of the main thread it never rings."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda _seconds: None
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise _TimeIsUp

    def wind(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield wind
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.signal(signal.SIGALRM, before)


def _refit(
    request: Request, planned: Planned, winner: str, state: _State, clock: _Clock, watcher: Watcher,
    console: Console | None,
) -> None:  # fmt: skip
    """Train the winner on all rows, or go on with that."""
    from nearfar.assembly import run
    from nearfar.encoding.bundle import CARD

    folder = request.out / MODEL
    same = state.refit == winner
    if same and (folder / CARD).is_file():
        watcher.notice(f"{folder} is {winner}, trained on all rows already")
        return
    state.refit = winner
    state.write(request.out, clock)
    name = next(cell.id for cell in planned.plan.cells if cell.contender == winner)
    trial = replace(planned.trials[name], contender=winner, seed=request.seed)
    source = trial.source
    data = {**trial.values.get("data", {}), "train": source.file, **source.layout, "invalid": source.invalid}
    begun = same and folder.is_dir() and any(folder.iterdir())
    drawn = [f"data.{key}" for key in ("limit", "per_class") if key in data]
    what = f"what {' and '.join(drawn)} leaves of the" if drawn else "all"
    watcher.notice(f"{winner} is trained on {what} {planned.plan.data[0].rows:,} rows")
    try:
        run(recipe_of(trial, {}, data), folder, resume=begun, overwrite=not begun, console=console)
    except (Interrupted, KeyboardInterrupt):
        state.write(request.out, clock)
        raise Interrupted(
            f"stopped while {winner} was trained on all rows; all trials are in {request.out}, and the same command "
            "goes on."
        ) from None


def _check(request: Request) -> None:
    if not (math.isfinite(request.minutes) and request.minutes > 0):
        raise SettingError(f"--minutes must be above 0, got {request.minutes:g}; 10 is usual.")
    if request.folds < 2:
        raise SettingError(f"--folds must be 2 or more, got {request.folds}; 3 is usual.")
    if request.rounds < 1:
        raise SettingError(f"--rounds must be 1 or more, got {request.rounds}; {ROUNDS} is usual.")
    if not 0 <= request.seed < 2**31 - request.rounds:
        raise SettingError(f"--seed must be from 0 to {2**31 - request.rounds - 1}, got {request.seed}; 2 is usual.")
    if request.file == "-":
        raise SettingError("the data is read more than once, so it cannot be -, standard input; name a file.")


def _settings(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """The recipe that all contenders share, and the columns of the file."""
    problems = []
    shared: dict[str, Any] = {"data": {"dev": 0.0}}
    columns: dict[str, Any] = {}
    for override in request.settings:
        key = ".".join(override.path)
        if override.path[0] in ("objective", "stage"):
            remedy = "Leave it out; 'nearfar train --objective' trains with one of your choice."
            problems.append(Problem(override.flag, "the objective is what is to be found", remedy))
        elif key == "seed":
            problems.append(Problem(override.flag, "the seed has a flag of its own", "Write --seed."))
        elif key in ("data.train", "data.test"):
            remedy = "Name one file; it is divided into folds."
            problems.append(Problem(override.flag, "the rows to train and to test on are those of FILE", remedy))
        elif override.path[0] == "data" and override.path[1:2] and override.path[1] in ELSEWHERE:
            value = override.value
            if value is not None:
                columns[override.path[1]] = tuple(value) if isinstance(value, list) else value
                if key == "data.invalid":  # rows that contradict each other are only seen in training
                    shared = with_key(shared, key, value)
        elif override.value is not None:
            shared = with_key(shared, key, override.value)
    if problems:
        raise RecipeError(problems)
    build_recipe({"data": {"train": "-"}}, request.settings, where=WHERE)  # says what is wrong with a flag
    return shared, columns


def _laid_over(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a contender: what it says itself wins, key by key."""
    return {**shared, **{name: {**shared.get(name, {}), **table} for name, table in own.items()}}


def _named(*names: str) -> Ways:
    return {name: {"objective": {"name": name}} for name in names}


def _kind(records: Records, *, compares: bool) -> str:
    """What the rows are, or what is wrong with them."""
    if compares and not (records.shape == "pairs" and records.target is not None):
        message = "there are no pairs with yes or no, or with a score, to be compared"
        raise DataError(
            [Problem(records.source, message, "Name their columns: --text, --pair and --label or --score.")]
        )
    if records.labels is not None and not compares:
        return "classes"
    if records.labels is not None and records.scores is None:
        return "pairs"
    if records.shape == "pairs" and records.scores is not None:
        return "scores"
    message = "the rows have neither labels nor scores to choose by"
    if records.shape == "texts":
        remedy = (
            "Add a column named label, or name yours with --label; without labels: nearfar train --objective simcse."
        )
    else:
        remedy = "Add labels or scores (--label, --score); 'nearfar study run' compares objectives on other rows."
    raise DataError([Problem(records.source, message, remedy)])


def _check_rows(records: Records, kind: str, folds: int, invalid: Literal["refuse", "drop"]) -> None:
    """Refuse rows on which every trial would fail."""
    if kind != "classes":
        if kind == "pairs":
            pair_targets(records)
        problems = [*consistent(records, invalid=invalid)[1], *doubts(records)[0]]
        if problems:
            raise DataError(problems)
        return
    counts = Counter(records.labels or ())
    if len(counts) < 2:
        message = "all rows have the same label, so there is nothing to tell apart"
        remedy = "Add rows of another class."
        raise DataError([Problem(records.source, message, remedy, value=next(iter(counts), None))])
    name, fewest = min(counts.items(), key=lambda each: (each[1], each[0]))
    if fewest < folds:
        others = sum(count < folds for count in counts.values()) - 1
        more = f", and {counted(others, 'other class', 'other classes')}" if others else ""
        message = f"class {name!r} has {counted(fewest, 'text')}, fewer than the {folds} folds{more}"
        fewer = f"Give --folds {fewest}, add" if fewest >= 2 else "Add"
        raise DataError([Problem(records.source, message, f"{fewer} texts of it, or leave the class out.")])


def _identity(request: Request, prepared: Prepared) -> dict[str, Any]:
    """What must be the same for a tune to go on."""
    plan = prepared.planned.plan
    keys = {".".join(override.path): override.value for override in request.settings}
    told = {"rows": plan.data[0].digest[:16], "kind": prepared.kind, "folds": request.folds, "rounds": request.rounds,
            "metric": plan.metric, "seed": request.seed, "settings": keys}  # fmt: skip
    found: dict[str, Any] = json.loads(json.dumps(told, default=str))
    return found


def _open(out: Path, identity: dict[str, Any]) -> _State:
    """What was done in this folder before, if it was the same tune."""
    if out.exists() and not out.is_dir():
        raise OutputError(f"{out}: this is a file; give a folder with --out.")
    path = out / STATE
    if not path.is_file():
        if out.is_dir() and any(entry.name not in (LOCK, SCRATCH) for entry in out.iterdir()):
            raise OutputError(f"{out}: the folder holds something else than a tune; choose another with --out.")
        return _State(identity)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        before = dict(values["identity"])
        state = _State(identity, float(values["spent"]), values["searched"], values["refit"])
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise OutputError(
            f"{path}: this cannot be read ({cause}). Choose another --out, or remove the folder."
        ) from cause
    other = [key for key in identity if identity[key] != before.get(key)]
    if other or values.get("format") != FORMAT:
        told = ", ".join(f"{key}: {before.get(key)!r}, not {identity[key]!r}" for key in other) or "another format"
        raise OutputError(
            f"{out}: another tune is in this folder ({told}). Choose another --out, or remove the folder."
        )
    return state


def _forget_failed(out: Path, plan: Plan) -> None:
    """Trials that failed in an earlier call may succeed now."""
    for cell in plan.cells:
        record = find_record(out, cell.id)
        if record is not None and not record.done:
            shutil.rmtree(out / TRIALS / cell.id, ignore_errors=True)


def _opening(request: Request, prepared: Prepared, *, over: bool) -> str:
    plan = prepared.planned.plan
    what = {"classes": "rows with classes", "scores": "pairs with scores", "pairs": "pairs with yes or no"}
    if over:
        return f"this tune has had its {request.minutes:g} minutes; give it more --minutes to go on"
    return (
        f"{plan.data[0].rows:,} {what[prepared.kind]}; {counted(len(plan.contenders), 'contender')}: "
        f"{', '.join(plan.contenders)}; {plan.metric} over {request.folds} folds, drawn up to "
        f"{counted(request.rounds, 'time')} within {request.minutes:g} minutes"
    )
