"""What a comparison is: contenders, what surrounds them, and how its table is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from benchmarks.bench import OURS, Bench, Contender
from benchmarks.lines import Line

Contenders = Iterator[Contender]


@dataclass(frozen=True)
class Quality:
    """Two trainings that differ in the tool alone, compared seed by seed."""

    metric: str
    about: str
    trainings: Callable[[Bench], tuple[Contender, Contender]]
    """nearfar's and the peer's; the seed is added to their jobs."""

    def lines(self, bench: Bench) -> Iterator[Line]:
        """One line for each training."""
        for seed in range(1, bench.seeds + 1):
            for contender in self.trainings(bench):
                run = bench.work(replace(contender, job={**contender.job, "seed": seed}))
                yield {"kind": "quality", "contender": contender.name, "seed": seed, "quality": run["quality"]}


@dataclass(frozen=True)
class Comparison:
    """A name, what it is about, its contenders, and what surrounds them."""

    about: str
    contenders: Callable[[Bench], Contenders]
    unit: str = "texts/s"
    """Of the rates; "ms" for the time of one request."""
    ratio: str = f"{OURS} is faster by"
    """What the ratio to the base says."""
    finish: Callable[[Bench, Sequence[Contender]], Iterator[Line]] = lambda _bench, _contenders: iter(())
    """Lines about what is known only when all turns are there."""
    quality: Quality | None = None
    surroundings: Callable[[Bench], AbstractContextManager[None]] = lambda _bench: nullcontext()
    others: int = 0
    """Cores that the surroundings keep busy."""
    rounds: int | None = None
    """At most so many; None leaves it to the caller."""
    remarks: Callable[[dict[str, list[Line]]], list[str]] = lambda _turns: []
    """Markdown that is derived from the turns that count, by contender."""
