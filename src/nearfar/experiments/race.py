"""The race of a tune: the policy that runs trials fold by fold, drops who is behind, and stops when time is up."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean
from types import FrameType
from typing import Literal

from nearfar.errors import NearfarError, counted
from nearfar.experiments.comparisons import FEWEST, ComparisonSettings, compare, verdict
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.records import Cell, Plan, Record, find_record
from nearfar.experiments.search_space import BASELINE, Prepared
from nearfar.experiments.state import Clock, State
from nearfar.experiments.statistics import corrected_t_test
from nearfar.experiments.training_checks import Flag, doubts
from nearfar.experiments.trial import Trial
from nearfar.experiments.trial_runner import TrialRunner, Watcher, leader

LEAST = 3
"""Folds after which a contender can be dropped."""
BEHIND = 0.1
"""Dropped is who is worse than the leader with a p-value below this."""
Place = tuple[int, int]
"""Seed and fold."""
Outcome = Literal["best", "dropped", "failed", ""]


@dataclass(frozen=True)
class Line:
    """What became of a contender."""

    name: str
    scores: tuple[float, ...]
    """Fold by fold, up to where it was dropped."""
    seconds: float | None
    """Of a trial, on average."""
    outcome: Outcome


@dataclass(frozen=True)
class Wave:
    """Trials that run together."""

    trials: Sequence[Trial]
    processes: int
    began: float
    """Seconds of the clock when it began."""


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


def first_line(reason: str | None) -> str:
    """A reason in short."""
    return (reason or "no reason is known").splitlines()[0]


class TimeIsUp(Exception):
    """The time of the trials is over; what is left is for the last training."""


class Race:
    """The contenders, how far they are, and who is still in it."""

    def __init__(
        self, prepared: Prepared, watcher: Watcher, executor: LocalExecutor, clock: Clock, state: State
    ) -> None:
        self.prepared, self.request, self.watcher, self.executor = prepared, prepared.request, watcher, executor
        self.clock, self.state = clock, state
        self.plan, self.trials = prepared.planned.plan, prepared.planned.trials
        self.ids = {(cell.contender, (cell.seed, cell.fold)): cell.id for cell in self.plan.cells}
        self.places = list(dict.fromkeys((cell.seed, cell.fold) for cell in self.plan.cells))
        self.names = [BASELINE, *(name for name in self.plan.contenders if name != BASELINE)]
        records = ((name, find_record(self.request.out, name)) for name in self.trials)
        self.records: dict[str, Record] = {name: record for name, record in records if record is not None}
        """Of trials that have finished or failed, by their ids."""
        self.entered: list[Place] = []
        """Places that count: everybody who was in the race has finished them."""
        self.scores: dict[str, dict[Place, float]] = {name: {} for name in self.names}
        """On these places."""
        self.out_of_it: dict[str, Literal["dropped", "failed"]] = {}
        self.seconds: dict[str, list[float]] = {name: [] for name in self.names}
        """Of every finished trial, by contender."""
        for (name, _), trial in self.ids.items():
            if trial in self.records and self.records[trial].done:
                self.seconds[name].append(self.records[trial].seconds)
        self.wave: Wave | None = None
        """The trials that run, or ran last."""
        self.overhead = 0.0
        """What a wave takes beside its trials: processes have to start."""
        self.starting: float | None = None
        """The same of the first wave, as its first trial has shown it."""
        self.needed: float | None = None
        """What a first fold and the last training would take, where that is too long."""
        self.set_alarm: Callable[[float | None], None] = lambda _seconds: None

    @property
    def left(self) -> list[str]:
        """Who is still in the race."""
        return [name for name in self.names if name not in self.out_of_it]

    # The policy: which trials come next

    def run(self, runner: TrialRunner) -> None:
        """Fold after fold, until all is done, decided, or there is no time."""
        try:
            with alarm() as self.set_alarm:
                runner.run(self)
        except TimeIsUp:
            if not self.entered and self.needed is None and self.starting is not None:
                self.needed = max(self.first_needs(), self.clock.spent() + self.reserve())
            self.enter_all()

    def next_trials(self) -> Sequence[Trial]:
        """The trials of the next places; none where all is done or decided, or there is no time for more."""
        self.set_alarm(None)
        if self.wave is not None:
            seconds = [self.records[trial.id].seconds for trial in self.wave.trials]
            taken = makespan(seconds, self.wave.processes)
            self.overhead = max(0.0, self.clock.spent() - self.wave.began - taken)
        self.enter_all()
        rest = self.places[len(self.entered) :]
        trials = self.waiting(self.next_wave(rest)) if rest and not self.settled() else []
        if trials:
            self.wave = Wave(trials, self.processes(trials), self.clock.spent())
            self.set_alarm(self.clock.left() - self.reserve())
        return trials

    def finished(self, record: Record) -> None:
        """Count the seconds of a trial, show it, and look at the time."""
        assert self.wave is not None
        self.records[record.id] = record
        if record.done:
            self.seconds[self.trials[record.id].contender].append(record.seconds)
        if self.starting is None:
            self.starting = max(0.0, self.clock.spent() - self.wave.began - record.seconds)
        self.state.write(self.request.out, self.clock)
        done = sum(one.done for one in self.records.values())
        possible = done + len(self.waiting(self.places))
        self.watcher.trial(record, done, possible, max(0.0, self.clock.left()), self.leads())
        if not self.entered:
            self.check_first()
        self.set_alarm(self.clock.left() - self.reserve())

    def leads(self) -> str | None:
        """Who leads on the folds that all who have begun have finished."""
        scores: dict[str, dict[Place, float]] = {}
        for (name, place), trial in self.ids.items():
            record = self.records.get(trial)
            if name in self.left and record is not None and record.done:
                scores.setdefault(name, {})[place] = record.scores[self.plan.metric]
        best = leader(scores)
        return None if best is None else f"{best[0]} leads with {best[1]:.4f} over {counted(best[2], 'fold')}"

    # Who is in the race

    def enter_all(self) -> None:
        """Count the places that everybody has finished, in order, until it is decided who wins."""
        while len(self.entered) < len(self.places) and not self.settled():
            if not self.enter(self.places[len(self.entered)]):
                return

    def enter(self, place: Place) -> bool:
        """Count a place that everybody has finished, and drop who is behind; False where somebody has not."""
        if any(self.ids[name, place] not in self.records for name in self.left):
            return False
        for name in self.left:
            record = self.records[self.ids[name, place]]
            if record.done:
                self.scores[name][place] = record.scores[self.plan.metric]
            else:
                self.out_of_it[name] = "failed"
                self.watcher.message(f"{name} is out: its trial failed: {first_line(record.reason)}")
        if not self.left:
            failed = [record for record in self.records.values() if not record.done]
            reasons = "; ".join(f"{record.contender}: {first_line(record.reason)}" for record in failed)
            raise NearfarError(f"no contender could be trained ({reasons}); fix the cause, and run the same command.")
        self.entered.append(place)
        self.drop_behind()
        return True

    def drop_behind(self) -> None:
        """Let go of who is clearly behind the leader; the simplest stays, as the measure for all others."""
        first = self.leader()
        for name in self.left:
            if name in (first, BASELINE):
                continue
            gaps = [self.scores[name][place] - self.scores[first][place] for place in self.entered]
            if is_behind(gaps, self.request.folds):
                self.out_of_it[name] = "dropped"
                self.watcher.message(
                    f"{name} is dropped: {-fmean(gaps):.4f} behind {first} over {counted(len(gaps), 'fold')}, with a "
                    f"corrected p below {BEHIND:g}"
                )

    def leader(self) -> str:
        """Who has the highest mean; of equals the simplest."""
        return max(self.left, key=lambda name: fmean(self.scores[name].values()))

    def settled(self) -> bool:
        """Whether more folds could not change who wins, and need not say how sure that is."""
        rivals = [name for name in self.left if name != BASELINE]
        return len(self.left) == 1 or (len(rivals) <= 1 and len(self.entered) >= FEWEST)

    # What fits into the time

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
        trained = [each for other, seconds in self.seconds.items() if other != BASELINE for each in seconds]
        known = self.seconds[name] or trained or self.seconds[BASELINE]
        return fmean(known) if known else None

    def reserve(self) -> float:
        """The seconds of the last training, on all rows, of whoever of those in the race takes longest."""
        known = [fmean(self.seconds[name]) for name in self.left if self.seconds[name]]
        return max(known, default=0.0) * self.request.folds / (self.request.folds - 1)

    def waiting(self, wave: Sequence[Place]) -> list[Trial]:
        """The trials of these places that have no record yet."""
        wanted = {self.ids[name, place] for name in self.left for place in wave}
        return [trial for name, trial in self.trials.items() if name in wanted and name not in self.records]

    def processes(self, trials: Sequence[Trial]) -> int:
        """How many trials run side by side."""
        return self.executor.shares(len(trials), len(self.trials))[0]

    def check_first(self) -> None:
        """Give up a first fold that is going to take too long, rather than wait until the time is over."""
        assert self.wave is not None
        needed = self.first_needs()
        if needed > self.clock.total and any(trial.id not in self.records for trial in self.wave.trials):
            self.needed = needed
            raise TimeIsUp

    def first_needs(self) -> float:
        """The seconds until a first fold and the last training are over, going by the trials that have finished."""
        assert self.wave is not None
        expected = [self.expected(trial.contender) or 0.0 for trial in self.wave.trials]
        return self.wave.began + (self.starting or 0.0) + makespan(expected, self.wave.processes) + self.reserve()

    # What came of it

    def winner(self) -> str:
        """The best mean over the folds that count; without any, the default."""
        if self.entered:
            return self.leader()
        default = self.prepared.default
        record = self.records.get(self.ids[default, self.places[0]])
        if record is not None and not record.done:
            raise NearfarError(
                f"{default}, the default, could not be trained: {record.reason}; fix the cause, and try again."
            )
        return default

    def plan_of_what_ran(self) -> Plan:
        """The plan without folds that nobody got to, for the report: trials with a score that counts, or a reason."""
        if not self.entered:
            return self.plan
        cells = [cell for cell in self.plan.cells if (cell.seed, cell.fold) in self.entered and self.counts(cell)]
        return replace(self.plan, cells=tuple(cells), seeds=tuple(dict.fromkeys(seed for seed, _ in self.entered)))

    def counts(self, cell: Cell) -> bool:
        """Whether a trial is part of the result, with its score or as a failure."""
        failed = cell.id in self.records and not self.records[cell.id].done
        return failed or (cell.seed, cell.fold) in self.scores[cell.contender]

    def lines(self, winner: str) -> tuple[Line, ...]:
        """What became of every contender, the best first."""
        lines = []
        for name in self.names:
            seconds, scores = self.seconds[name], tuple(self.scores[name].values())
            outcome: Outcome = "best" if name == winner and self.entered else self.out_of_it.get(name, "")
            lines.append(Line(name, scores, fmean(seconds) if seconds else None, outcome))
        return tuple(
            sorted(lines, key=lambda line: (line.outcome in ("dropped", "failed"), -fmean(line.scores or (0,))))
        )

    def sentences(self, winner: str, flags: Sequence[Flag] = ()) -> Iterator[str]:
        """What may be said of the winner; whoever did not train well is named first."""
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
        if winner == BASELINE:
            yield "no training did better than none: the model is the pretrained encoder, with what is fitted to it"
        data, settings = self.plan.data[0].name, ComparisonSettings(test_to_train=1 / (self.request.folds - 1))
        for other in dict.fromkeys((BASELINE, self.prepared.default)):
            if other == winner or not self.scores[other]:
                continue
            shared = [place for place in self.entered if place in self.scores[other]]
            runs = {(data, name, *place): self.scores[name][place] for name in (winner, other) for place in shared}
            comparison = compare(runs, data=data, contender=winner, baseline=other, settings=settings)
            taken = "" if comparison.significant else f"; {winner} is taken all the same, for its mean is the highest"
            yield f"{verdict(comparison, doubts=doubts(flags, data, winner, other))}{taken}"
        yield (
            f"the score of {winner} is a little optimistic, because it was chosen by it: measure the model on rows "
            "that took no part"
        )


@contextmanager
def alarm() -> Iterator[Callable[[float | None], None]]:
    """An alarm that can be set and set again, in seconds, None for never; outside of the main thread it never rings."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda _seconds: None
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeIsUp

    def set_alarm(seconds: float | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0 if seconds is None else max(seconds, 0.001))

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield set_alarm
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:
            signal.signal(signal.SIGALRM, before)
