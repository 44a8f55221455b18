"""Former names of recipe keys and values: still accepted, with a note that gives the present name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from nearfar.errors import Problem
from nearfar.recipe.keys import entries, fits, schema_cache
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
    """The former value, where the key itself has kept its name."""


SHINGLES = "rows of a batch share a word shingle"
ALIASES = (
    Alias("turns", "schedule", "it is the task schedule"),
    Alias("schedule.by", "sampling", "it is how tasks are sampled"),
    Alias("training.surgery", "gradient_surgery", "the term of the PCGrad paper"),
    Alias("batches.words", "shingle_size", "the words of a shingle"),
    Alias("batches.by", "neighbor_text", "the text of a pair whose neighbors share a batch"),
    Alias("batches.apart", "separate_duplicates", "pairs with an identical text are kept in separate groups"),
    Alias("batches.shuffle", "shingles", SHINGLES, value="words"),
    Alias("stage.*.shuffle", "shingles", SHINGLES, value="words"),
)
"""In the order they are applied: a key inside a renamed table is listed below its present name."""


def present_names(
    root: type, values: Mapping[str, object], lines: Mapping[Path, int] | None = None, *, where: str = "the recipe"
) -> tuple[dict[str, Any], dict[Path, int], list[Problem]]:
    """Values under the present names of their keys, the lines of these keys, and keys set under both names.

    Args:
        root: the dataclass of the whole table; names that it does not have are left alone.
        values: as a file, a flag or a dictionary has them.
        lines: the line of each key, if the values are from a file.
        where: the file, for messages.
    """
    found, at, problems = dict(values), dict(lines or {}), list[Problem]()

    def rename(alias: Alias, table: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
        old = alias.key.rpartition(".")[2]
        if old not in table or (alias.value is not None and table[old] != alias.value):
            return table
        former, present = dotted((*path, old)), dotted((*path, alias.now))
        if alias.value is not None:
            _note(f"{former} = {literal(alias.value)} is now {literal(alias.now)} ({alias.reason})")
            return {**table, old: alias.now}
        if alias.now in table:
            message = f"{former} is the former name of {present}, and both are set"
            problems.append(Problem(where, message, f"Remove {former}.", at.get((*path, old))))
            return table
        _note(f"{former} is now {present} ({alias.reason})")
        depth = len(path)
        for key in [key for key in at if key[: depth + 1] == (*path, old)]:
            at[(*path, alias.now, *key[depth + 1 :])] = at[key]
        return {alias.now if name == old else name: value for name, value in table.items()}

    for alias in ALIASES:
        *tables, last = alias.key.split(".")
        if _exists(root, (*tables, alias.now if alias.value is None else last)):
            found = _each_table(found, tables, (), partial(rename, alias))
    return found, at, problems


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


def _each_table(
    values: Any, tables: Sequence[str], path: Path, change: Callable[[Mapping[str, Any], Path], Mapping[str, Any]]
) -> Any:
    """The values with a change in every table that the names lead to."""
    if not tables:
        return change(values, path) if isinstance(values, Mapping) else values
    first, rest = tables[0], tables[1:]
    if isinstance(values, list | tuple) and first == "*":
        return [_each_table(value, rest, (*path, place), change) for place, value in enumerate(values)]
    if not isinstance(values, Mapping):
        return values
    names = list(values) if first == "*" else [name for name in values if name == first]
    return {**values, **{name: _each_table(values[name], rest, (*path, name), change) for name in names}}


@schema_cache
def _exists(root: type, keys: tuple[str, ...]) -> bool:
    """Whether a table has this key."""
    first, *rest = keys
    entry = entries(root).get(first)
    if entry is None or not rest:
        return entry is not None
    form = fits(entry.kind)
    if rest[0] == "*":
        form, rest = fits(form.items), rest[1:]
    return any(_exists(table, tuple(rest)) for table in form.tables)


@cache
def _note(message: str) -> None:
    """Log a note, once in a process."""
    _log.warning("%s; the former name is still accepted", message)
