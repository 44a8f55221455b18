"""Former names of recipe keys and values: still accepted, with a note that gives the present name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from nearfar.errors import Problem
from nearfar.recipe.keys import entries, fits
from nearfar.recipe.literals import Path, dotted, literal
from nearfar.recipe.overrides import Override

_log = logging.getLogger(__name__)


class Alias(NamedTuple):
    """One former name."""

    key: str
    """The former key, dotted; ``*`` stands for any entry of a list."""
    now: str
    """The last part of its present name; with ``value``, the present value."""
    reason: str
    """Why the present name is better."""
    value: str | None = None
    """The former value, if the key itself has kept its name."""


SHINGLES = "rows of a batch share a word shingle"
ALIASES = (
    Alias("turns", "schedule", "it is the task schedule"),
    Alias("schedule.by", "sampling", "it is how tasks are sampled"),
    Alias("training.surgery", "gradient_surgery", "the term of the PCGrad paper"),
    Alias("batches.words", "shingle_size", "the words of a shingle"),
    Alias("batches.by", "neighbor_text", "the text of a pair whose neighbors share a batch"),
    Alias("batches.apart", "separate_duplicates", "pairs with an identical text are in separate groups"),
    Alias("batches.shuffle", "shingles", SHINGLES, value="words"),
    Alias("stage.*.shuffle", "shingles", SHINGLES, value="words"),
)
"""In the order they are applied: a key of a renamed table is listed after it, under its present name."""

Change = Callable[[Mapping[str, Any], Path], Mapping[str, Any]]


def present_names(
    root: type, values: Mapping[str, object], lines: Mapping[Path, int] | None = None, *, where: str = "the recipe"
) -> tuple[dict[str, Any], dict[Path, int], list[Problem]]:
    """Values under the present names of their keys, the lines of these keys, and keys set under both names.

    Args:
        root: the dataclass of the whole table; names that it does not have are left alone.
        values: from a file, a flag or a dictionary.
        lines: the line of each key, if the values are from a file.
        where: the file, for messages.
    """
    renamed, new_lines, problems = dict(values), dict(lines or {}), list[Problem]()

    def rename(alias: Alias, old: str, table: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
        if old not in table or (alias.value is not None and table[old] != alias.value):
            return table
        former, present = dotted((*path, old)), dotted((*path, alias.now))
        if alias.value is not None:
            _note(f"{former} = {literal(alias.value)} is now {literal(alias.now)} ({alias.reason})")
            return {**table, old: alias.now}
        if alias.now in table:
            message = f"{former} is the former name of {present}, and both are set"
            problems.append(Problem(where, message, f"Remove {former}.", new_lines.get((*path, old))))
            return table
        _note(f"{former} is now {present} ({alias.reason})")
        depth = len(path) + 1
        new_lines.update(
            {(*path, alias.now, *key[depth:]): line for key, line in new_lines.items() if key[:depth] == (*path, old)}
        )
        return {alias.now if name == old else name: value for name, value in table.items()}

    for alias in _aliases(root):
        *tables, old = alias.key.split(".")
        renamed = _in_tables(renamed, tables, (), partial(rename, alias, old))
    return renamed, new_lines, problems


def former_names(root: type) -> list[tuple[str, str]]:
    """The former and present names of keys, and of values as ``key = value``, that a table has."""
    names = []
    for key, now, _, value in _aliases(root):
        present = f"{key} = {literal(now)}" if value else ".".join([*key.split(".")[:-1], now])
        names.append((f"{key} = {literal(value)}" if value else key, present))
    return names


def present_override(root: type, override: Override) -> Override:
    """An override under the present names of its keys."""
    nested: Any = override.value
    for part in reversed(override.path):
        nested = {part: nested}
    nested = present_names(root, nested)[0]
    path = []
    for _ in override.path:
        ((part, nested),) = nested.items()
        path.append(part)
    return replace(override, path=tuple(path), value=nested)


def _in_tables(values: Any, tables: Sequence[str], path: Path, change: Change) -> Any:
    """The values with a change in every table that these names lead to."""
    if not tables:
        return change(values, path) if isinstance(values, Mapping) else values
    first, *rest = tables
    if isinstance(values, list | tuple) and first == "*":
        return [_in_tables(value, rest, (*path, place), change) for place, value in enumerate(values)]
    if not isinstance(values, Mapping):
        return values
    return {
        name: _in_tables(value, rest, (*path, name), change) if first in (name, "*") else value
        for name, value in values.items()
    }


@cache
def _aliases(root: type) -> list[Alias]:
    """The aliases of keys that a table has."""

    def present_key(alias: Alias) -> tuple[str, ...]:
        *tables, old = alias.key.split(".")
        return (*tables, alias.now if alias.value is None else old)

    return [alias for alias in ALIASES if _exists(root, present_key(alias))]


@cache
def _exists(root: type, keys: tuple[str, ...]) -> bool:
    """Whether a table has this key."""
    entry = entries(root).get(keys[0])
    if entry is None or len(keys) == 1:
        return entry is not None
    form, rest = fits(entry.kind), keys[1:]
    if rest[0] == "*":
        form, rest = fits(form.items), rest[1:]
    return any(_exists(table, rest) for table in form.tables)


@cache
def _note(message: str) -> None:
    """Log a note, once in a process."""
    _log.warning("%s; the former name is still accepted", message)
