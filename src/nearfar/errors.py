"""All errors of nearfar.

::

    NearfarError
    ├── SettingError          a setting has an impossible value
    ├── ShapeError            tensors whose shapes do not match
    ├── RecipeError           a recipe that cannot be used; lists every problem
    ├── DataError             a data file that cannot be used; lists every problem
    ├── EncoderError          an encoder or model folder that cannot be opened
    ├── OutputError           a file or folder that cannot be written
    ├── CheckpointError       no usable checkpoint, or one of another run
    ├── NotFiniteError        NaN or infinity during training
    ├── ProcessError          another process of the same run has ended
    └── Interrupted           training was stopped, and can be resumed

Every message says what was given, what is allowed, and what to try.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

SHOWN = 200
"""Problems that a message lists; further ones are counted."""
SAME = 5
"""Problems of one kind that a message lists; of more than that the first ones are listed, the others are counted."""

MANY, LONG = 1_000, 100
"""Names that a misspelled one is compared with, and characters of a name."""

MEMORY = "memory:"
"""Prefix of the name of data in memory, as opposed to a file: ``memory:train``."""
FLAG = r" \(--[a-z][^()]*\)"
"""A flag of the command line after the recipe key that it sets; data in memory comes with no command."""


def unit_of(source: str) -> str:
    """What messages count data in: lines of a file, rows of data in memory.

    >>> unit_of("a.csv"), unit_of("memory:train")
    ('line', 'row')
    """
    return "row" if source.startswith(MEMORY) else "line"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, where, and what to do about it."""

    where: str
    """The file or the flag, as the user wrote it, or data in memory, such as ``memory:train``."""
    message: str
    """What is wrong, without a full stop."""
    remedy: str
    """What to do, as a sentence."""
    line: int | None = None
    """1-based; for data in memory and for formats without lines, the 1-based row."""
    column: str | None = None
    value: str | None = None

    @property
    def place(self) -> str:
        """Where it is.

        >>> Problem("a.csv", "", "", line=5, column="text").place
        "a.csv:5: column 'text'"
        >>> Problem("memory:train", "", "", line=5, column="text").place
        "memory:train, row 5, column 'text'"
        """
        if self.where.startswith(MEMORY):
            row, column = ", row {}", ", column {!r}"
        else:
            row, column = ":{}", ": column {!r}"
        parts = [text.format(value) for text, value in ((row, self.line), (column, self.column)) if value is not None]
        return "".join([self.where, *parts])

    def __str__(self) -> str:
        value = "" if self.value is None else f" (got {shorten(self.value)})"
        remedy = re.sub(FLAG, "", self.remedy) if self.where.startswith(MEMORY) else self.remedy
        return f"{self.place}: {self.message}{value}. {remedy}"


class NearfarError(Exception):
    """The base class of all errors of nearfar."""

    def __str__(self) -> str:
        """The message; halves of surrogate pairs, which cannot be printed, are escaped."""
        return super().__str__().encode("utf-8", "backslashreplace").decode()


class SettingError(NearfarError, ValueError):
    """A setting has an impossible value."""


class ShapeError(NearfarError, ValueError):
    """Tensors whose shapes do not match."""


class _ProblemList(NearfarError):
    def __init__(self, problems: Problem | Sequence[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__(problem_list(self.problems))


class RecipeError(_ProblemList):
    """A recipe that cannot be used; ``problems`` holds all that is wrong with it."""


class DataError(_ProblemList):
    """A data file that cannot be used; ``problems`` holds all that is wrong with it."""


class EncoderError(NearfarError):
    """An encoder or a model folder that cannot be opened."""


class OutputError(NearfarError):
    """A file or folder that cannot be written."""


class CheckpointError(NearfarError):
    """No usable checkpoint, or one that belongs to another run."""


class NotFiniteError(NearfarError):
    """NaN or infinity during training."""


class ProcessError(NearfarError):
    """Another process of the same run has ended; the run can be resumed."""


class Interrupted(NearfarError):
    """Training was stopped (Ctrl-C, SIGTERM); a checkpoint has its state."""


def problem_list(problems: Sequence[Problem]) -> str:
    """All problems, one per line, with their number if there are several; those of one kind that repeat are counted."""
    kinds: dict[tuple[str, str | None, str], list[Problem]] = {}
    for problem in problems:
        kind = re.sub(r"[0-9][0-9,.a-f]*|'[^']*'", "#", problem.message)
        kinds.setdefault((problem.where, problem.column, kind), []).append(problem)
    listed: list[Problem | str] = []
    for same in kinds.values():
        few = same if len(same) <= SAME else same[: SAME - 2]
        listed += few
        if rest := same[len(few) :]:
            numbers = [f"{problem.line:,}" for problem in rest[:8] if problem.line is not None]
            more = " and more" if len(rest) > len(numbers) else ""
            places = f": {unit_of(rest[0].where)}s {', '.join(numbers)}{more}" if numbers else ""
            listed.append(f"{rest[0].where}: {len(rest):,} more of this kind{places}.")
    lines = [str(problem) for problem in listed[:SHOWN]]
    if len(listed) > SHOWN:
        lines.append(f"... and {len(listed) - SHOWN:,} more ('nearfar check FILE --json' lists every one).")
    if len(problems) > 1:
        lines.append(f"{len(problems):,} problems in all.")
    return "\n".join(lines)


def shorten(value: str, width: int = 60) -> str:
    """A value for a message: quoted, on one line, not too long."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 4]}...{text[0]}"


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "batch", "batches"), counted(1200, "row")
    ('1 batch', '1,200 rows')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`` Did you mean 'x'?`` with a leading space, or an empty string if no known name is similar.

    >>> did_you_mean("epoch", ["epochs", "seed"])
    " Did you mean 'epochs'?"
    >>> did_you_mean("zzz", ["epochs", "seed"])
    ''
    """
    near = [other for other in known[:MANY] if len(other) <= LONG]  # else comparing takes minutes
    close = get_close_matches(name[:LONG], near, n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42), duration(200), duration(7300)
    ('42 s', '3 min 20 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
