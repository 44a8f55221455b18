"""Turns of contenders: in a random order within each round, long enough, and repeated when something disturbed them."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import machine
from benchmarks.bench import Bench, Contender, WorkerFailed
from benchmarks.lines import Line
from benchmarks.ratios import ratio
from benchmarks.tables import number

SECONDS = 30.0
"""The least time of a turn that counts."""
MARGIN = 1.15
"""So much longer is planned, since a turn may be faster than the one before."""
ATTEMPTS = 4
"""Tries of a turn before its contender does without it."""


@dataclass(frozen=True)
class Plan:
    """How often and how long."""

    rounds: int = 5
    most: int = 9
    """Rounds are added up to these while a ratio cannot be stated."""
    seconds: float = SECONDS
    seed: int = 1
    busy: bool = False
    """Whether the work of others is accepted: then no turn is repeated for it."""
    quiet: Callable[..., str] = machine.wait_until_quiet
    """Waits for the machine before a turn, and says what still disturbs."""


@dataclass
class Turns:
    """All turns of one comparison. ``write`` gets a line for each."""

    bench: Bench
    plan: Plan
    name: str
    write: Callable[[Line], None]
    planned: float = 0.0
    """The share of the cores that others use on purpose."""
    speeds: dict[str, dict[int, float]] = field(default_factory=dict)
    """Texts per second of the turns that count, by contender and round."""
    lost: set[str] = field(default_factory=set)

    def take(self, contenders: Sequence[Contender]) -> bool:
        """Round after round; False when a worker failed."""
        standing = {contender.name: self.sized(contender) for contender in contenders}
        rounds = min(self.plan.rounds, self.plan.most)
        number = 0
        while number < rounds or (number < self.plan.most and not self.certain(contenders)):
            number += 1
            order = list(standing)
            random.Random(f"{self.plan.seed}/{self.name}/{number}").shuffle(order)
            for place, name in enumerate(order):
                if name not in self.lost:
                    standing[name] = self.turn(standing[name], number, place)
        return not self.lost

    def sized(self, contender: Contender) -> Contender:
        """With as much work as a turn needs, found by a first short one, which also fills the caches of the system."""
        if contender.amount is None or not self.plan.seconds:
            return contender
        run = self.work(contender)
        return contender if run is None else self.longer(contender, run["seconds"])

    def turn(self, contender: Contender, number: int, place: int) -> Contender:
        """One turn that counts, or as many tries as there may be; returns the contender with its work as it is now."""
        for attempt in range(1, ATTEMPTS + 1):
            if not self.plan.busy:
                self.plan.quiet(planned=self.planned)
            load = machine.load()
            run = self.work(contender)
            if run is None:
                return contender
            why, again = self.objection(contender, run)
            kept = not why or not again
            self.write({
                "kind": "turn", "contender": contender.name, "base": contender.base, "round": number, "place": place,
                "attempt": attempt, "kept": kept, "why": why, "load_before": load, "load_after": machine.load(), **run,
            })  # fmt: skip
            self.tell(contender, run, number, why)
            if kept:
                self.speeds.setdefault(contender.name, {})[number] = run["texts_per_second"]
                return contender
            if too_short(run, self.plan.seconds):
                contender = self.longer(contender, run["seconds"])
        return contender

    def objection(self, contender: Contender, run: Line) -> tuple[str, bool]:
        """Why a turn does not count, or is doubtful, and whether it is to be repeated."""
        if contender.amount is not None and too_short(run, self.plan.seconds):
            return f"{run['seconds']:.1f} s are too short", True
        found = machine.disturbance(run.get("others"), run.get("steal"), planned=self.planned)
        return found, not self.plan.busy

    def longer(self, contender: Contender, seconds: float) -> Contender:
        """With work in proportion to the time that a turn of it took."""
        assert contender.amount is not None
        now = contender.job[contender.amount]
        wanted = now * self.plan.seconds * MARGIN / max(seconds, 1e-3)
        amount = max(now, math.ceil(wanted / contender.grain) * contender.grain)
        return replace(contender, job={**contender.job, contender.amount: amount})

    def certain(self, contenders: Sequence[Contender]) -> bool:
        """Whether every ratio to another contender may be stated."""
        first = contenders[0].name
        for contender in contenders:
            base = contender.base or first
            if contender.name == base or {contender.name, base} & self.lost:
                continue
            found = ratio(self.speeds.get(base, {}), self.speeds.get(contender.name, {}))
            if any(self.speeds.get(contender.name, {}).values()) and (found is None or not found.stated):
                return False
        return True

    def work(self, contender: Contender) -> dict[str, Any] | None:
        """What the worker reports; a failure costs a contender all turns that are left."""
        try:
            return self.bench.work(contender)
        except WorkerFailed as failure:
            self.lost.add(contender.name)
            self.write({"kind": "failure", "contender": contender.name, "why": str(failure)})
            tell(f"  {failure}")
            return None

    def tell(self, contender: Contender, run: Line, round_number: int, why: str) -> None:
        """One line for whoever waits."""
        rate = f"{number(run['texts_per_second'])} a second" if run["texts_per_second"] else f"{run['seconds']:.1f} s"
        tell(f"  {self.name} {round_number}/{self.plan.rounds} {contender.name}: {rate}{f' ({why})' if why else ''}")


def too_short(run: Line, seconds: float) -> bool:
    """Whether a turn ended before its time."""
    return run["seconds"] < seconds


def tell(text: str) -> None:
    """News for whoever waits; not part of the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
