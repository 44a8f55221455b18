"""What the settings of class objectives may be."""

from __future__ import annotations

import math
import operator

from nearfar.errors import SettingError

COUNTED = {
    "classes": "name as many as the labels have",
    "dim": "it is the width of the embeddings",
    "centers": "10 is usual",
}
"""What to give for a setting that is counted."""


def count(part: str, name: str, value: int, least: int) -> None:
    """Refuse what is no whole number, or too small."""
    try:
        number = operator.index(value)
    except TypeError:
        raise SettingError(f"{part}: {name} must be a whole number, got {value!r}; {COUNTED[name]}.") from None
    if number < least:
        raise SettingError(f"{part}: {name} must be {least} or more, got {value}; {COUNTED[name]}.")


def positive(part: str, name: str, value: float, usual: str) -> None:
    """Refuse what is not a number above 0, or has no end."""
    _finite(part, name, value, usual, zero=False)


def not_negative(part: str, name: str, value: float, usual: str) -> None:
    """The same, but 0 may be."""
    _finite(part, name, value, usual, zero=True)


def _finite(part: str, name: str, value: float, usual: str, *, zero: bool) -> None:
    try:
        good = 0 <= value < math.inf and (zero or value != 0)
    except TypeError:
        good = False
    if not good:
        least = "0 or more" if zero else "above 0"
        raise SettingError(f"{part}: {name} must be {least} and finite, got {value!r}; try {usual}.")
