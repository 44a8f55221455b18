"""Overrides: values from the command line that replace those of a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from typing import Any

from nearfar.errors import Problem, RecipeError
from nearfar.recipe.literals import Path, dotted, printable, short


@dataclass(frozen=True)
class Override:
    """One value that replaces that of the file."""

    path: tuple[str, ...]
    value: object
    """``None`` unsets the key."""
    flag: str
    """As the user wrote it, for messages: ``--set training.epochs=3``, ``--epochs 3``."""


def parse_override(text: str) -> Override:
    """Read ``training.epochs=3``: the right side is a TOML value, ``none``, or else a plain string.

    >>> parse_override("data.train=reviews.csv").value
    'reviews.csv'
    >>> parse_override("training.epochs=3").value
    3
    """
    flag = short(f"--set {printable(text)}", 200)
    left, sign, right = text.partition("=")
    if not sign:
        raise RecipeError([Problem(flag, "there is no = in it", "Write --set KEY=VALUE, as in training.epochs=3.")])
    return Override(_key(left, flag), _value(right.strip(), flag), flag)


def _key(text: str, flag: str) -> tuple[str, ...]:
    path = []
    try:
        rest: Any = tomllib.loads(f"{text.strip()} = 0")
        while isinstance(rest, dict):
            (name,) = rest
            path.append(name)
            rest = rest[name]
    except (ValueError, RecursionError):
        path = []
    if not path or "\n" in text:
        remedy = "Write table.key=VALUE, as in training.epochs=3."
        raise RecipeError([Problem(flag, "the part before the = is not a key", remedy)])
    return tuple(path)


def _value(text: str, flag: str) -> object:
    if text == "none":
        return None
    try:
        table = tomllib.loads(f"value = {text}")
        tomllib.loads(f"value = [{text}]")  # fails if a comment follows: then # is part of a plain string
    except tomllib.TOMLDecodeError:
        return text
    except ValueError:
        raise RecipeError([Problem(flag, "the integer has more than 64 bits", "Write a smaller number.")]) from None
    except RecursionError:
        remedy = "A recipe needs three levels at most."
        raise RecipeError([Problem(flag, "lists or tables are nested too deeply", remedy)]) from None
    value = table["value"]
    return text if len(table) > 1 or isinstance(value, date | time) else value


def overlay(
    values: Mapping[str, object], overrides: Sequence[Override]
) -> tuple[dict[str, object], dict[Path, str], list[Problem]]:
    """The values with all overrides, the flag that has set each key, and overrides that cannot be applied."""
    merged: dict[str, object] = dict(values)
    flags: dict[Path, str] = {}
    problems = []
    for override in overrides:
        problem = _apply(merged, override, flags)
        if problem is not None:
            problems.append(problem)
    return merged, flags, problems


def _apply(merged: dict[str, object], override: Override, flags: dict[Path, str]) -> Problem | None:
    here: Any = merged
    path: Path = ()
    for depth, part in enumerate(override.path):
        slot: str | int = part
        if isinstance(here, list):
            slot = int(part) if part.isascii() and part.isdigit() and len(part) < 10 else len(here)
            if slot >= len(here):
                message = f"{dotted(path)} has {len(here)} entries, and none of them is {dotted((part,))}"
                return Problem(printable(override.flag), message, "Entries are counted from 0.")
        path = (*path, slot)
        if depth == len(override.path) - 1:
            here[slot] = override.value
        else:
            inner = here.get(slot) if isinstance(here, dict) else here[slot]
            if isinstance(inner, Mapping):
                here[slot] = dict(inner)
            elif isinstance(inner, list | tuple):
                here[slot] = list(inner)
            else:
                if inner is not None:
                    flags[path] = printable(override.flag)
                here[slot] = {}
            here = here[slot]
    for stale in [other for other in flags if other[: len(path)] == path]:
        del flags[stale]
    flags[path] = printable(override.flag)
    return None
