"""Problems and notes that are collected while a source is read."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field

from nearfar.errors import Problem

MAX_PROBLEMS = 10_000
"""Problems of one source that are listed; further ones are counted."""


@dataclass
class Issues:
    """The problems and notes of one source; the list of problems is limited to ``MAX_PROBLEMS``."""

    where: str
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    blank: int = 0
    """Blank lines skipped."""
    omitted: int = 0
    """Problems beyond the limit."""

    def add(
        self, message: str, remedy: str, *, line: int | None = None, column: str | None = None, value: object = ...
    ) -> None:
        """Add a problem; ``value`` is the value that it is about."""
        if len(self.problems) >= MAX_PROBLEMS:
            self.omitted += 1
            return
        shown = None if value is ... else show(value)
        self.problems.append(Problem(self.where, message, remedy, line, column, shown))

    def extend(self, other: Issues) -> None:
        """Add the problems of another source, within the limit."""
        free = max(0, MAX_PROBLEMS - len(self.problems))
        self.problems.extend(other.problems[:free])
        self.omitted += other.omitted + len(other.problems[free:])

    def sorted_problems(self, *others: Issues) -> list[Problem]:
        """These problems and those of others by line, those without a line first."""
        both = [self, *others]
        problems = sorted((problem for each in both for problem in each.problems), key=lambda one: one.line or 0)
        omitted = sum(each.omitted for each in both) + len(problems[MAX_PROBLEMS:])
        return [*problems[:MAX_PROBLEMS], *self.omission(omitted)]

    def omission(self, omitted: int) -> list[Problem]:
        """The last problem of a list that is not complete; none where it is."""
        message = f"{omitted:,} more problems are not listed, after the first {MAX_PROBLEMS:,}"
        remedy = "Fix those that are listed first; they often have one cause."
        return [Problem(self.where, message, remedy)] if omitted else []


def show(value: object) -> str:
    """A value for a message: strings unchanged, anything else abbreviated and not too deep.

    >>> show([[[[[[[[1]]]]]]]])
    '[[[[[[[...]]]]]]]'
    """
    return value[:200] if isinstance(value, str) else reprlib.repr(value)
