"""Checks of the settings of objectives."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from nearfar.errors import SettingError

COUNTED = {
    "classes": "name as many as the labels have",
    "dim": "it is the width of the embeddings",
    "centers": "10 is usual",
}
"""What to give for a setting that is a count."""


def count(part: str, name: str, value: int, least: int) -> None:
    """Refuse what is no whole number, or too small."""
    try:
        number = operator.index(value)
    except TypeError:
        raise SettingError(f"{part}: {name} must be a whole number, got {value!r}; {COUNTED[name]}.") from None
    if number < least:
        raise SettingError(f"{part}: {name} must be {least} or more, got {value}; {COUNTED[name]}.")


def positive(part: str, name: str, value: float, usual: str, *, zero: bool = False) -> None:
    """Refuse what is not a finite number above 0, or with ``zero`` from 0 on."""
    try:
        good = 0 <= value < math.inf and (zero or value != 0)
    except TypeError:
        good = False
    if not good:
        least = "0 or more" if zero else "above 0"
        raise SettingError(f"{part}: {name} must be {least} and finite, got {value!r}; try {usual}.")


def one_of(part: str, name: str, value: str, known: Sequence[str]) -> None:
    """Refuse an unknown choice."""
    if value not in known:
        raise SettingError(f"{part}: {name} must be one of {', '.join(known)}, got {value!r}; try {known[0]!r}.")
