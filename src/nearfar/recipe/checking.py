"""Plain values to dataclasses, with everything that does not fit reported at its place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from functools import cache
from typing import Any, NamedTuple

from nearfar.errors import SHOWN, Problem, did_you_mean
from nearfar.recipe.keys import Entry, Fits, broken_bound, entries, fits, phrase, tag
from nearfar.recipe.literals import LARGEST, Path, dotted, key_literal, literal, shown


class Place(NamedTuple):
    """Where a value came from: a line of a file, or a flag."""

    where: str
    line: int | None
    in_file: bool


class Checker:
    """Builds one dataclass and collects all problems on the way."""

    def __init__(self, root: type, place: Callable[[Path], Place]) -> None:
        self.root = root
        self.place = place
        self.problems: list[Problem] = []

    def build(self, values: Mapping[str, object]) -> Any:
        """The root filled with values; of no use when ``problems`` is not empty."""
        return self._table(self.root, values, ())

    def _table(self, kind: type, values: Mapping[str, object], path: Path, siblings: tuple[type, ...] = ()) -> Any:
        known = entries(kind)
        guessed = set()
        for name in values:
            if name not in known:
                guessed.add(self._unknown(name, values[name], path, known, kind, siblings))
        found = {}
        for name, entry in known.items():
            if name in values:
                found[name] = self._value(entry, values[name], (*path, name))
            elif entry.required and name not in guessed:
                self._missing(entry, path)
        return None if self.problems else kind(**found)

    def _value(self, entry: Entry, value: object, path: Path) -> Any:
        form = fits(entry.kind)
        if value is None:
            return self._unset(entry, form, path)
        if isinstance(value, Mapping) and form.tables:
            return self._tagged(entry, form.tables, value, path)
        if isinstance(value, Mapping) and form.values is not None:
            part = Entry(entry.name, form.values, entry.key, MISSING)
            return {name: self._value(part, inner, (*path, name)) for name, inner in value.items()}
        if isinstance(value, list | tuple) and form.items is not None:
            return self._list(entry, form, value, path)
        return self._scalar(entry, form, value, path)

    def _unset(self, entry: Entry, form: Fits, path: Path) -> Any:
        if form.optional:
            return None
        if "none" in form.choices:
            return "none"
        if entry.key.none is not ...:
            return entry.key.none
        self._report(path, f"{dotted(path)} cannot be unset", _fallback(entry))
        return None

    def _list(self, entry: Entry, form: Fits, value: list[object] | tuple[object, ...], path: Path) -> Any:
        part = Entry(entry.name, form.items, entry.key, MISSING)
        before = len(self.problems)
        items = tuple(self._value(part, item, (*path, at)) for at, item in enumerate(value))
        if entry.key.distinct and len(self.problems) == before:
            for at, item in enumerate(items):
                if item in items[:at]:
                    self._report((*path, at), f"{dotted(path)} has {literal(item)} twice", "Name each only once.")
        return items

    def _tagged(self, entry: Entry, tables: tuple[type, ...], values: Mapping[str, object], path: Path) -> Any:
        """Build the one table that fits, or the one that ``name`` chooses among several."""
        if len(tables) == 1:
            return self._table(tables[0], values, path)
        by_name = {tag(table): table for table in tables}
        name = values.get("name")
        if "name" not in values and not entry.required:
            return self._table(type(entry.default), values, path, tables)
        if isinstance(name, str) and name in by_name:
            return self._table(by_name[name], values, path, tables)
        choices = f"Choose one of {', '.join(map(literal, by_name))}."
        if "name" not in values:
            self._report(path, f"{dotted(path)}.name is missing", choices)
        elif isinstance(name, str):
            self._report((*path, "name"), f"{dotted(path)}.name cannot be {shown(name)}", choices, name, by_name)
        else:
            self._report((*path, "name"), f"{dotted(path)}.name is a string, got {shown(name)}", choices)
        known = {key: found for table in tables for key, found in entries(table).items()}
        for key in values:
            if key not in known:
                self._unknown(key, values[key], path, known, None, ())
        return None

    def _scalar(self, entry: Entry, form: Fits, value: object, path: Path) -> Any:
        if any(type(value) is type(choice) and value == choice for choice in form.choices):
            return value
        if isinstance(value, str) and str in form.scalars:
            return self._string(value, path)
        if isinstance(value, bool):
            if bool in form.scalars:
                return value
        elif isinstance(value, int):
            if int in form.scalars or float in form.scalars:
                return self._number(entry, form, value, path)
        elif isinstance(value, float) and float in form.scalars:
            return self._number(entry, form, value, path)
        self._unfit(entry, form, value, path)
        return None

    def _string(self, value: str, path: Path) -> str:
        if not value:
            self._report(path, f"{dotted(path)} is empty", "Write something between the quotes, or leave the key out.")
        elif "\0" in value:
            self._report(path, f"{dotted(path)} holds a NUL character", "Leave it out.")
        elif any("\ud800" <= sign <= "\udfff" for sign in value):
            self._report(path, f"{dotted(path)} holds bytes that are not UTF-8", "Rename the file or the column.")
        return value

    def _number(self, entry: Entry, form: Fits, value: float, path: Path) -> float:
        if not math.isfinite(value) if isinstance(value, float) else abs(value) > LARGEST:
            self._unfit(entry, form, value, path)
        elif broken_bound(value, entry.key):
            fitting = phrase(entry.kind, entry.key)
            self._report(path, f"{dotted(path)} is {fitting}, got {shown(value)}", _fallback(entry))
        elif int not in form.scalars:
            return float(value)
        return value

    def _unfit(self, entry: Entry, form: Fits, value: object, path: Path) -> None:
        message = f"{dotted(path)} is {phrase(entry.kind, entry.key)}, got {shown(value)}"
        remedy = self._unfit_remedy(entry, form, value, path)
        self._report(path, message, remedy, value if isinstance(value, str) else "", form.choices)

    def _unfit_remedy(self, entry: Entry, form: Fits, value: object, path: Path) -> str:
        if isinstance(value, float) and int in form.scalars and math.isfinite(value) and value == int(value):
            return self._write(path, literal(int(value)))
        if isinstance(value, str) and (number := _as_number(value, form)) is not None:
            return f"{self._write(path, literal(number))[:-1]}, without quotes."
        if form.items is not None and not isinstance(value, Mapping | list | tuple) and value != "":
            return self._write(path, literal([value])) if isinstance(value, str | int | float) else "Write a list."
        if isinstance(value, bool | int | float) and str in form.scalars and float not in form.scalars:
            return f"{self._write(path, literal(literal(value)))[:-1]}, with quotes."
        if len(form.tables) > 1 and isinstance(value, str):
            return self._write((*path, "name"), literal(value), header=True)
        return _fallback(entry)

    def _write(self, path: Path, text: str, *, header: bool = False) -> str:
        """The remedy that spells out an assignment, as it goes into a file or behind a flag."""
        if not self.place(path).in_file:
            return f"Write --set {dotted(path)}={text}."
        if isinstance(path[-1], int):
            return f"Write {text}."
        return f"Write {f'[{dotted(path[:-1])}] and below it ' if header else ''}{key_literal(path[-1])} = {text}."

    def _missing(self, entry: Entry, path: Path) -> None:
        full, form = (*path, entry.name), fits(entry.kind)
        if form.tables:
            needs = [name for name, part in entries(form.tables[0]).items() if part.required]
            content = f" with {' and '.join(needs)}" if needs else ""
            self._report(path, f"the table [{dotted(full)}] is missing", f"Add [{dotted(full)}]{content}.")
        else:
            table = f"the table [{_header(path)}]" if path else "the top of the recipe"
            message = f"{dotted(full)} is missing"
            self._report(path, message, f"Add {key_literal(entry.name)} to {table}. {entry.key.about}".strip())

    def _unknown(
        self,
        name: str,
        value: object,
        path: Path,
        known: Mapping[str, Entry],
        kind: type | None,
        siblings: tuple[type, ...],
    ) -> str | None:
        """Report a key that is not there, and name the key of this table that was meant, if any."""
        full = (*path, name)
        owners = [tag(table) for table in siblings if name in entries(table)]
        if owners and kind is not None:
            mine = f"{dotted(path)}.name is {literal(tag(kind))}"
            switch = self._write((*path, "name"), literal(owners[0]))[:-1]
            message = f"{name} is a setting of {' and '.join(owners)}, but {mine}"
            self._report(full, message, f"{switch}, or remove {name}.")
            return None
        if len(self.problems) > SHOWN:  # nobody reads so many suggestions, and they take time
            self._report(full, f"there is no key {dotted(full)}", "Remove it.")
            return None
        homes = [home for home in _homes(self.root) if home[-1] == name and home[:-1] != path]
        what = "table" if isinstance(value, Mapping) else "key"
        shown_name = f"[{_header(full)}]" if what == "table" else dotted(full)
        message = f"there is no {what} {shown_name}"
        if homes:
            self._report(full, message, f"{name} belongs {' or '.join(map(_inside, homes))}.")
            return None
        if guess := did_you_mean(name, list(known)):
            meant = next(key for key in known if repr(key) in guess)
            self._report(full, message, guess.strip())
            return meant
        far = {str(home[-1]): home for home in reversed(_homes(self.root))}
        guess = did_you_mean(name, list(far))
        if guess:
            home = next(home for key, home in far.items() if repr(key) in guess)
            self._report(full, message, f"{guess.strip()} It belongs {_inside(home)}.")
            return None
        here = f"[{_header(path)}]" if path else "the top of a recipe"
        self._report(full, message, f"Remove it; {here} knows {', '.join(known)}.")
        return None

    def _report(self, path: Path, message: str, remedy: str, name: str = "", choices: Any = ()) -> None:
        guess = did_you_mean(name, [choice for choice in choices if isinstance(choice, str)]).strip() if name else ""
        place = self.place(path)
        remedy = f"{guess} {remedy}" if guess else remedy
        self.problems.append(Problem(place.where, message, remedy, place.line))


def _header(path: Path) -> str:
    return dotted(part for part in path if isinstance(part, str))


def _fallback(entry: Entry) -> str:
    if entry.default is None:
        return "Leave it out to keep it unset."
    if entry.default is MISSING or fits(entry.kind).tables:
        return f"Write {phrase(entry.kind, entry.key)}."
    return f"Try the default, {literal(entry.default)}."


def _as_number(value: str, form: Fits) -> float | None:
    """The number a string spells, where one fits."""
    for kind in (int, float):
        if kind in form.scalars and len(value) < 20:
            try:
                number = kind(value)
            except ValueError:
                continue
            return number if math.isfinite(number) else None
    return None


def _inside(home: Path) -> str:
    tables = list(home[:-1])
    if not tables:
        return "at the top of the recipe, before the first [table]"
    owner = f" with {tables.pop()}" if "=" in str(tables[-1]) else ""
    return f"in [{dotted(tables)}]{owner}"


@cache
def _homes(root: type) -> tuple[Path, ...]:
    """Every key of the schema below its tables; ``name = "..."`` marks keys that only one choice of a table has."""
    return tuple(dict.fromkeys(_walk(root, (), (root,))))


def _walk(table: type, path: Path, seen: tuple[type, ...]) -> Iterator[Path]:
    for name, entry in entries(table).items():
        yield (*path, name)
        form = fits(entry.kind)
        inner = form.items if form.items is not None else form.values
        tables = form.tables if inner is None else fits(inner).tables
        shared = set.intersection(*(set(entries(part)) for part in tables)) if tables else set()
        for part in tables:
            if part not in seen:
                for home in _walk(part, (*path, name), (*seen, part)):
                    below = home[len(path) + 1 :]
                    choice = () if len(tables) == 1 or below[0] in shared else (f"name = {literal(tag(part))}",)
                    yield (*path, name, *below[:-1], *choice, below[-1])
