"""Checks and conversions of single values; problems and notes are collected."""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from nearfar.data.limits import too_long
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
    if isinstance(value, str):
        return value[:200]
    try:
        return reprlib.repr(value)
    except ValueError:  # a number with more digits than Python writes
        return f"a value of type {type(value).__name__}"


class Fault(NamedTuple):
    """Why a value cannot be used; rows are counted by it."""

    message: str
    remedy: str


def in_scale(score: float, scale: tuple[float, float]) -> float | Fault:
    """The score, or why it cannot be used."""
    low, high = scale
    if low <= score <= high:
        return score
    message = f"the score is outside data.scale, which is from {low:g} to {high:g}"
    return Fault(message, f"Correct it, set another data.scale, {DROP}.")


DROP = 'or drop such rows with data.invalid = "drop" (--invalid drop)'
EMPTY_TEXT = Fault("the text is empty", f"Write a text, {DROP}.")
NO_TEXT = Fault("the text is missing", f"Write a text, {DROP}.")
NOT_TEXT = Fault("the text is not a string", f"Write it in quotes, {DROP}.")
SURROGATE = Fault("the text has half of a surrogate pair, which is no character", f"Write the whole character, {DROP}.")
NO_LABEL = Fault("the label is missing", f"Write a label, {DROP}.")
MANY_LABELS = Fault("the label is a list, but other rows have one label each", f"Write a list in every row, {DROP}.")
NO_LABELS = Fault("the labels are missing", f"Write a list of labels, [] for a text without any, {DROP}.")
NO_LIST = Fault(
    "the labels are not a list, as in other rows",
    "Write a list of labels in every row, or say what separates them with data.label_separator (--label-separator); "
    f"{DROP}.",
)
NOT_INDICATOR = Fault("a label column has a value that is neither 0 nor 1", f"Write 1 where the label applies, {DROP}.")
NOT_LABEL = Fault(
    "the label is neither a name nor a whole number",
    f"Write the name of a class; name the column with data.score (--score) if it holds scores; {DROP}.",
)
NO_SCORE = Fault("the score is missing", f"Write a number, {DROP}.")
NOT_SCORE = Fault("the score is not a number", f"Write a number with a decimal point, {DROP}.")
BELOW_ZERO = Fault("the relevance is below 0", f"Write 0 for a document that does not answer the query, {DROP}.")
NO_WEIGHT = Fault("the weight is not a number of 0 or more", f"Write a finite number, {DROP}.")
NO_ID = Fault("the id is missing", f"Give every row an id, or remove the column; {DROP}.")
NOT_ID = Fault("the id is neither a name nor a whole number", f"Write a name or a whole number, {DROP}.")
NOT_FINITE = Fault("the score is not finite", f"Write a finite number, {DROP}.")


def is_text(value: object) -> bool:
    """Whether a value is a text that can be used; ``text_fault`` gives the reason if not."""
    return type(value) is str and value != "" and not value.isspace() and (value.isascii() or _encodable(value))


def long_text(limit: int) -> Fault:
    """The fault of a text with more characters than the limit."""
    message, remedy = too_long(limit, "text")
    return Fault(message, f"{remedy[:-1]}; {DROP}.")


def text_fault(value: object) -> Fault:
    """Why a value is not a text."""
    if value is None:
        return NO_TEXT
    if not isinstance(value, str):
        return NOT_TEXT
    return SURROGATE if value.strip() else EMPTY_TEXT


def label_of(value: object) -> str | Fault:
    """The class name of a value, or why it has none.

    >>> label_of(" spam "), label_of(1.0), label_of(True), label_of("1.0"), label_of(Decimal(3))
    ('spam', '1', 'true', '1.0', '3')
    """
    if isinstance(value, str):
        label = value.strip()
        if not label:
            return NO_LABEL
        return label if label.isascii() or _encodable(label) else NOT_LABEL
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float | Decimal):  # databases export whole numbers as decimals
            if math.isnan(value):
                return NO_LABEL
            return str(int(value)) if math.isfinite(value) and value == int(value) else NOT_LABEL
    except ValueError:  # more digits than Python writes
        return NOT_LABEL
    if value is None:
        return NO_LABEL
    return MANY_LABELS if isinstance(value, list | tuple) else NOT_LABEL


def is_list(value: object) -> bool:
    """Whether a value holds several labels."""
    return isinstance(value, list | tuple | set | frozenset)


def labels_of(value: object, separator: str | None = None) -> tuple[str, ...] | Fault:
    """The label names of a value, each once, or why it has none that can be used.

    >>> labels_of(["joy", "anger", "joy"]), labels_of("joy; anger", ";"), labels_of("", ";"), labels_of([])
    (('joy', 'anger'), ('joy', 'anger'), (), ())
    """
    if separator is not None and not is_list(value):
        if value is None:
            return ()
        names = value.split(separator) if isinstance(value, str) else [value]
        parts: list[object] = [name for name in names if not isinstance(name, str) or name.strip()]
    elif value is None:
        return NO_LABELS
    elif isinstance(value, list | tuple):
        parts = list(value)
    elif isinstance(value, set | frozenset):
        parts = sorted(value, key=str)  # a set has no order that two runs share
    else:
        return NO_LIST
    labels = [label_of(part) for part in parts]
    fault = next((label for label in labels if isinstance(label, Fault)), None)
    return fault or tuple(dict.fromkeys(label for label in labels if isinstance(label, str)))


def indicator_of(value: object) -> bool | Fault:
    """Whether a label applies: 1 or 0.

    >>> indicator_of("1"), indicator_of(0.0), indicator_of(True), indicator_of("2").message[:14]
    (True, False, True, 'a label column')
    """
    number = float(value) if isinstance(value, bool) else number_of(value)
    return NOT_INDICATOR if number not in (0, 1) else bool(number)


def score_of(value: object) -> float | Fault:
    """The finite number of a value, or why it has none.

    >>> score_of("2.5"), score_of(3), score_of("2,5").message
    (2.5, 3.0, 'the score is not a number')
    """
    if value is None or (isinstance(value, str) and not value.strip()):
        return NO_SCORE
    number = number_of(value)
    if number is None:
        return NOT_SCORE
    return number if math.isfinite(number) else NOT_FINITE


def id_of(value: object) -> str | Fault:
    """The id of a value, or why it has none.

    >>> id_of(" q7 "), id_of(7), id_of(None).message
    ('q7', '7', 'the id is missing')
    """
    name = label_of(value)
    if isinstance(name, Fault):
        return NO_ID if name is NO_LABEL else NOT_ID
    return name


def number_of(value: object) -> float | None:
    """A value as a number; None if it is not a number. Booleans are not."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):  # float("1_0") is 10
        return None
    if not isinstance(value, str | int | float | Decimal):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except ValueError:
        return None


def _encodable(text: str) -> bool:
    """Whether the text can be encoded as UTF-8: JSON strings can have half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
