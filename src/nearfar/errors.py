"""Everything nearfar refuses, as one tree.

::

    NearfarError
    ├── SettingError          a setting of a part has an impossible value
    ├── ShapeError            tensors whose axes do not fit together
    ├── RecipeError           a recipe that cannot be used; lists every problem
    ├── DataError             a data file that cannot be used; lists every problem
    ├── EncoderError          an encoder or model folder that cannot be opened
    ├── OutputError           a place that cannot be written to
    ├── CheckpointError       no usable checkpoint, or one of another run
    ├── NotFiniteError        training met NaN or infinity
    └── Interrupted           training was asked to stop, and can be resumed

Every message says what came, what fits, and what to try.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

SHOWN = 200
"""How many problems a message spells out before it only counts the rest."""

MEMORY = "memory:"
"""How the name of data begins that is in memory, as opposed to a file: ``memory:train``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where it is, and what to do about it."""

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
        return f"{self.place}: {self.message}{value}. {self.remedy}"


class NearfarError(Exception):
    """The root: whatever nearfar itself refuses."""


class SettingError(NearfarError, ValueError):
    """A setting of a part has an impossible value."""


class ShapeError(NearfarError, ValueError):
    """Tensors whose axes do not fit together."""


class _ProblemList(NearfarError):
    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(problem_list(self.problems))


class RecipeError(_ProblemList):
    """A recipe that cannot be used; ``problems`` holds all that is wrong with it."""


class DataError(_ProblemList):
    """A data file that cannot be used; ``problems`` holds all that is wrong with it."""


class EncoderError(NearfarError):
    """An encoder or a model folder that cannot be opened."""


class OutputError(NearfarError):
    """A place that cannot be written to."""


class CheckpointError(NearfarError):
    """No usable checkpoint, or one that belongs to another run."""


class NotFiniteError(NearfarError):
    """Training met NaN or infinity."""


class Interrupted(NearfarError):
    """Training was asked to stop (Ctrl-C, SIGTERM); everything up to now is in a checkpoint."""


def problem_list(problems: Sequence[Problem]) -> str:
    """All problems, one a line, with their number where there are several."""
    lines = [str(problem) for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"... and {len(problems) - SHOWN:,} more ('nearfar check FILE --json' lists every one).")
    if len(problems) > 1:
        lines.append(f"{len(problems):,} problems in all.")
    return "\n".join(lines)


def shorten(value: str, width: int = 60) -> str:
    """A value as it may appear in a message: quoted, one line, not too long."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 4]}...{text[0]}"


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "batch", "batches"), counted(1200, "row")
    ('1 batch', '1,200 rows')
    """
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`` Did you mean 'x'?`` with a leading blank, or nothing when no known name is close.

    >>> did_you_mean("epoch", ["epochs", "seed"])
    " Did you mean 'epochs'?"
    >>> did_you_mean("zzz", ["epochs", "seed"])
    ''
    """
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""
