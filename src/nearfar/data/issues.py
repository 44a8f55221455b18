"""What a reader finds on its way: problems, notes, blank lines."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from nearfar.errors import Problem

CAP = 10_000
"""How many problems of one file are listed; more are only counted."""


@dataclass
class Ledger:
    """The running account of reading one source; it never grows beyond ``CAP`` problems."""

    where: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    blank: int = 0
    """Blank lines skipped."""
    unlisted: int = 0
    """Problems beyond the cap."""

    def problem(
        self, message: str, remedy: str, *, line: int | None = None, column: str | None = None, value: object = ...
    ) -> None:
        """Enter a problem; ``value`` is what stood there."""
        if len(self.problems) >= CAP:
            self.unlisted += 1
            return
        shown = None if value is ... else show(value)
        self.problems.append(Problem(self.where, message, remedy, line, column, shown))

    def absorb(self, other: Ledger) -> None:
        """Enter the problems of another ledger after these, within the cap."""
        room = max(0, CAP - len(self.problems))
        self.problems.extend(other.problems[:room])
        self.unlisted += other.unlisted + len(other.problems[room:])


def merged(where: str, ledgers: Iterable[Ledger]) -> list[Problem]:
    """The problems of several ledgers by line, those without a line first, the cap stated last."""
    ledgers = list(ledgers)
    problems = [problem for ledger in ledgers for problem in ledger.problems]
    problems.sort(key=lambda problem: problem.line or 0)
    hidden = sum(map(attrgetter("unlisted"), ledgers)) + max(0, len(problems) - CAP)
    if hidden:
        del problems[CAP:]
        problems.append(overflow(where, hidden))
    return problems


def overflow(where: str, hidden: int) -> Problem:
    """The last entry of a list that was cut at the cap."""
    return Problem(
        where,
        f"{hidden:,} more problems are not listed, after the first {CAP:,}",
        "Mend those that are listed first; they are often of one kind.",
    )


def show(value: object) -> str:
    """A value for a message: strings as they are, anything else abbreviated, never too deep.

    >>> show([[[[[[[[1]]]]]]]])
    '[[[[[[[...]]]]]]]'
    """
    return value[:200] if isinstance(value, str) else reprlib.repr(value)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> count(1, "row"), count(1200, "row"), count(2, "class", "classes")
    ('1 row', '1,200 rows', '2 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
