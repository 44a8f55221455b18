"""Recipes to TOML, with all keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from nearfar.recipe.keys import Entry, entries, fits, key_literal, literal
from nearfar.recipe.schema import Recipe


def to_toml(recipe: Recipe) -> str:
    """The recipe as a TOML text; reading it gives an equal recipe."""
    return table_to_toml(recipe)


def table_to_toml(table: Any) -> str:
    """Any dataclass whose fields are recipe keys, as a TOML text."""
    lines: list[str] = []
    _write(table, (), lines)
    return "\n".join(lines).strip() + "\n"


def _write(table: Any, path: tuple[str, ...], lines: list[str]) -> None:
    """Plain keys first, because in TOML a key after a header belongs to its table."""
    if isinstance(table, Mapping):
        values, known = dict(table), {}
    else:
        kind: type = type(table)
        known = entries(kind)
        values = {name: getattr(table, name) for name in known}
    for name, value in values.items():
        if name in known and _is_unset(value, known[name]):
            lines.append(f"# {name} is unset: {known[name].key.about}")
        elif not _is_table(value) and not _is_tables(value):
            lines.append(f"{key_literal(name)} = {literal(value)}")
    for name, value in values.items():
        header = ".".join(map(key_literal, (*path, name)))
        if _is_table(value):
            lines += ["", f"[{header}]"]
            _write(value, (*path, name), lines)
        elif _is_tables(value):
            for part in value:
                lines += ["", f"[[{header}]]"]
                _write(part, (*path, name), lines)


def _is_unset(value: object, entry: Entry) -> bool:
    """Whether a key is left out; ``stage = []`` would conflict with a ``[[stage]]`` added by hand."""
    items = fits(entry.kind).items
    return value is None or (value == () == entry.default and items is not None and bool(fits(items).tables))


def _is_table(value: object) -> bool:
    return is_dataclass(value) or isinstance(value, Mapping)


def _is_tables(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(map(_is_table, value))
