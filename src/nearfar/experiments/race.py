"""The race of a tune: trials fold by fold, who leads, who is dropped, and when there is no more time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import fmean
from types import FrameType

from nearfar.errors import NearfarError, counted
from nearfar.experiments.local_executor import run_local, shares
from nearfar.experiments.records import Cell, Plan, find_record
from nearfar.experiments.runner import Watcher
from nearfar.experiments.runs import Trial
from nearfar.experiments.search_space import SIMPLEST, Prepared, Request
from nearfar.experiments.state import Clock, State
from nearfar.experiments.statistics import FEWEST, compare, corrected_t_test
from nearfar.experiments.verdicts import verdict

LEAST = 3
"""Folds after which a contender can be dropped."""
BEHIND = 0.1
"""Dropped is who is worse than the leader with a p-value below this."""
Place = tuple[int, int]
"""Seed and fold."""


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


class TimeIsUp(Exception):
    """The time of the trials is over; what is left is for the last training."""


class Race:
    """The contenders, how far they are, and who is still in it."""

    def __init__(
        self, request: Request, prepared: Prepared, watcher: Watcher, clock: Clock, state: State, workers: int | None
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
        self.starting: float | None = None
        """The same of the first wave, as its first trial has shown it."""
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
            with alarm() as self.ring:
                self.ring(self.clock.left() - self.reserve())
                run_local(trials, self.out, self, workers=self.workers, total=len(self.trials))
        except TimeIsUp:
            if not self.entered and self.needed is None and self.starting is not None:
                self.needed = max(self.first_needs(), self.clock.spent() + self.reserve())
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
        if self.starting is None:
            self.starting = max(0.0, self.clock.spent() - self.running[2] - record.seconds)
        self.state.write(self.out, self.clock)
        possible = self.there() + len(self.waiting(self.places))
        self.watcher.trial(record, self.there(), possible, max(0.0, self.clock.left()), self.told_leader())
        if not self.entered:
            self.check_first()
        self.ring(self.clock.left() - self.reserve())

    def check_first(self) -> None:
        """Give up a first fold that is going to take too long, rather than wait until the time is over."""
        needed = self.first_needs()
        if needed > self.clock.total and any(find_record(self.out, trial.id) is None for trial in self.running[0]):
            self.needed = needed
            raise TimeIsUp

    def first_needs(self) -> float:
        """The seconds until a first fold and the last training are over, going by the trials that are there."""
        trials, processes, began = self.running
        expected = [self.expected(trial.contender) or 0.0 for trial in trials]
        return began + (self.starting or 0.0) + makespan(expected, processes) + self.reserve()

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
def alarm() -> Iterator[Callable[[float], None]]:
    """An alarm that can be set and set again; outside of the main thread it never rings."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda _seconds: None
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TimeIsUp

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
