"""Plain values to dataclasses; every invalid value is reported with its file and line, or its flag."""

from __future__ import annotations

import math
import re
import shlex
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, NamedTuple

from nearfar.errors import SHOWN, Problem, did_you_mean
from nearfar.recipe.keys import (
    BARE,
    LARGEST,
    Entry,
    Fits,
    KeyPath,
    broken_bound,
    dotted,
    entries,
    fits,
    key_literal,
    literal,
    phrase,
    schema_cache,
    shown,
    tag,
)

DEEPEST = 16
"""Keys nested deeper than this have the line of their ancestor."""

_GAP = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_STRING = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}' r"|'''.*?'{3,5}" r'|"(?:[^"\\]|\\.)*"' r"|'[^']*'", re.DOTALL)
_PLAIN = re.compile(r"[^,\]}\r\n#]+")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The 1-based line of every key, table and list entry of a valid TOML text.

    >>> key_lines("seed = 2\\n[data]\\ntrain = 'a.csv'\\n")
    {('seed',): 1, ('data',): 2, ('data', 'train'): 3}
    """
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.breaks = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[KeyPath, int] = {}
        self.lengths: dict[KeyPath, int] = {}  # of arrays of tables

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        self.skip(_GAP)
        while self.at < len(self.text):
            table = self.header() if self.sees("[") else self.statement(table)
            self.skip(_GAP)
        return self.lines

    def header(self) -> KeyPath:
        line, many = self.line(), self.text.startswith("[[", self.at)
        self.at += 1 + many
        *parents, last = self.key()
        self.at += 1 + many
        path: KeyPath = ()
        for part in parents[:DEEPEST]:
            path = self.newest((*path, part))
            self.note(path, line)
        path = (*path, last)
        if many:
            self.note(path, line)
            self.lengths[path] = self.lengths.get(path, 0) + 1
            path = self.newest(path)
        if len(path) <= DEEPEST:
            self.lines[path] = line
        return path

    def newest(self, path: KeyPath) -> KeyPath:
        return (*path, self.lengths[path] - 1) if path in self.lengths else path

    def statement(self, table: KeyPath) -> KeyPath:
        """Read one ``key = value`` and return its table."""
        path, line = table, self.line()
        for part in self.key():
            path = (*path, part) if len(path) <= DEEPEST else path
            self.note(path, line)
        self.at += 1  # the equals sign
        self.skip(_BLANK)
        self.value(path)
        return table

    def key(self) -> list[str]:
        parts = []
        while True:
            self.skip(_BLANK)
            if quoted := _STRING.match(self.text, self.at):
                parts.append(tomllib.loads(f"key = {quoted[0]}")["key"])
                self.at = quoted.end()
            else:
                parts.append(self.take(BARE))
            self.skip(_BLANK)
            if not self.sees("."):
                return parts
            self.at += 1

    def value(self, path: KeyPath) -> None:
        if self.sees("["):
            self.array(path)
        elif self.sees("{"):
            self.inline_table(path)
        elif quoted := _STRING.match(self.text, self.at):
            self.at = quoted.end()
        else:
            self.take(_PLAIN)

    def array(self, path: KeyPath) -> None:
        self.at += 1
        self.skip(_GAP)
        place = 0
        while not self.sees("]"):
            inner = (*path, place)
            self.note(inner, self.line())
            self.value(inner)
            self.separator()
            place += 1
        self.at += 1

    def inline_table(self, path: KeyPath) -> None:
        self.at += 1
        self.skip(_GAP)
        while not self.sees("}"):
            self.statement(path)
            self.separator()
        self.at += 1

    def separator(self) -> None:
        self.skip(_GAP)
        if self.sees(","):
            self.at += 1
            self.skip(_GAP)

    def note(self, path: KeyPath, line: int) -> None:
        if len(path) <= DEEPEST:
            self.lines.setdefault(path, line)

    def line(self) -> int:
        return bisect_left(self.breaks, self.at) + 1

    def sees(self, sign: str) -> bool:
        return self.text.startswith(sign, self.at)

    def skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match, f"the scanner failed at character {self.at}"
        self.at = match.end()
        return match[0]


ELSEWHERE_CALLED: dict[str, KeyPath] = {"batch_size": ("batches", "size"), "lr": ("training", "learning_rate")}
"""Keys by their names in most other tools."""


class Place(NamedTuple):
    """Where a value is from: a line of a file, or a flag."""

    where: str
    line: int | None
    in_file: bool


class Checker:
    """Builds one dataclass and collects all problems."""

    def __init__(self, root: type, place: Callable[[KeyPath], Place]) -> None:
        self.root = root
        self.place = place
        self.problems: list[Problem] = []

    def build(self, values: Mapping[str, object]) -> Any:
        """The root with these values; None if there are ``problems``."""
        return self._table(self.root, values, ())

    def _table(self, kind: type, values: Mapping[str, object], path: KeyPath, siblings: tuple[type, ...] = ()) -> Any:
        known = entries(kind)
        unknown = [name for name in values if name not in known]
        meant = {self._unknown(name, values[name], path, known, kind, siblings) for name in unknown}
        checked = {}
        for name, entry in known.items():
            if name in values:
                checked[name] = self._value(entry, values[name], (*path, name))
            elif entry.required and name not in meant:
                self._missing(entry, path)
        return None if self.problems else kind(**checked)

    def _value(self, entry: Entry, value: object, path: KeyPath) -> Any:
        form = fits(entry.kind)
        if value is None:
            return self._unset(entry, form, path)
        if isinstance(value, Mapping) and form.tables:
            return self._tagged(entry, form.tables, value, path)
        if isinstance(value, Mapping) and form.values is not None:
            part = Entry(entry.name, form.values, entry.key, MISSING)
            for name in filter(_not_unicode, value):
                self._report((*path, name), f"a name in {dotted(path)} has bytes that are not UTF-8", "Rename it.")
            return {name: self._value(part, inner, (*path, name)) for name, inner in value.items()}
        if isinstance(value, list | tuple) and form.items is not None:
            return self._list(entry, form, value, path)
        return self._scalar(entry, form, value, path)

    def _unset(self, entry: Entry, form: Fits, path: KeyPath) -> Any:
        if form.optional:
            return None
        if "none" in form.choices:
            return "none"
        if entry.key.none is not ...:
            return entry.key.none
        self._report(path, f"{dotted(path)} cannot be unset", _fallback(entry))
        return None

    def _list(self, entry: Entry, form: Fits, value: list[object] | tuple[object, ...], path: KeyPath) -> Any:
        part = Entry(entry.name, form.items, entry.key, MISSING)
        before = len(self.problems)
        items = tuple(self._value(part, item, (*path, at)) for at, item in enumerate(value))
        if entry.key.distinct and len(self.problems) == before:
            for at, item in enumerate(items):
                if item in items[:at]:
                    self._report((*path, at), f"{dotted(path)} has {literal(item)} twice", "Name each only once.")
        return items

    def _tagged(self, entry: Entry, tables: tuple[type, ...], values: Mapping[str, object], path: KeyPath) -> Any:
        """Build the only table, or the one that ``name`` chooses among several."""
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
        known = {key: entry for table in tables for key, entry in entries(table).items()}
        for key in values:
            if key not in known:
                self._unknown(key, values[key], path, known, None, ())
        return None

    def _scalar(self, entry: Entry, form: Fits, value: object, path: KeyPath) -> Any:
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

    def _string(self, value: str, path: KeyPath) -> str:
        if not value:
            self._report(path, f"{dotted(path)} is empty", "Write something between the quotes, or leave the key out.")
        elif "\0" in value:
            self._report(path, f"{dotted(path)} has a NUL character", "Leave it out.")
        elif _not_unicode(value):
            self._report(path, f"{dotted(path)} has bytes that are not UTF-8", "Rename the file or the column.")
        return value

    def _number(self, entry: Entry, form: Fits, value: float, path: KeyPath) -> float:
        if not math.isfinite(value) if isinstance(value, float) else abs(value) > LARGEST:
            self._unfit(entry, form, value, path)
        elif broken_bound(value, entry.key):
            fitting = phrase(entry.kind, entry.key)
            self._report(path, f"{dotted(path)} is {fitting}, got {shown(value)}", _fallback(entry))
        elif int not in form.scalars:
            return float(value)
        return value

    def _unfit(self, entry: Entry, form: Fits, value: object, path: KeyPath) -> None:
        message = f"{dotted(path)} is {phrase(entry.kind, entry.key)}, got {shown(value)}"
        remedy = self._unfit_remedy(entry, form, value, path)
        innermost, inside = path, value
        while isinstance(inside, Mapping) and inside:  # it may be a table only because of a flag for a key inside it
            name = next(iter(inside))
            innermost, inside = (*innermost, name), inside[name]
        at = path if self.place(innermost).in_file else innermost
        self._report(at, message, remedy, value if isinstance(value, str) else "", form.choices)

    def _unfit_remedy(self, entry: Entry, form: Fits, value: object, path: KeyPath) -> str:
        if isinstance(value, float) and int in form.scalars and math.isfinite(value) and value == int(value):
            return self._write(path, literal(int(value)))
        if isinstance(value, str) and (number := _as_number(value, form)) is not None:
            return f"{self._write(path, literal(number))[:-1]}, without quotes."
        if form.items is not None and fits(form.items).tables:
            return f"Write [[{_header(path)}]] in the recipe, once for every entry, and its keys below."
        if form.values is not None and fits(form.values).tables:
            return f"Write [{_header(path)}.NAME] in the recipe for every entry, each with a NAME of your choice."
        if form.items is not None and not isinstance(value, Mapping | list | tuple) and value != "":
            if not isinstance(value, str | int | float):
                return "Write a list."
            return self._write(path, literal(_entries(value) if isinstance(value, str) else [value]))
        if isinstance(value, bool | int | float) and str in form.scalars and float not in form.scalars:
            return f"{self._write(path, literal(literal(value)))[:-1]}, with quotes."
        if len(form.tables) > 1 and isinstance(value, str):
            return self._write((*path, "name"), literal(value), header=True)
        return _fallback(entry)

    def _write(self, path: KeyPath, text: str, *, header: bool = False) -> str:
        """The remedy with an assignment, as written in a file or, quoted for a shell, after --set."""
        if not self.place(path).in_file:
            return f"Write --set {shlex.quote(f'{dotted(path)}={text}')}."
        if isinstance(path[-1], int):
            return f"Write {text}."
        return f"Write {f'[{_header(path[:-1])}] and below it ' if header else ''}{key_literal(path[-1])} = {text}."

    def _missing(self, entry: Entry, path: KeyPath) -> None:
        full, form = (*path, entry.name), fits(entry.kind)
        if form.tables:
            needs = [name for name, part in entries(form.tables[0]).items() if part.required]
            content = f" with {' and '.join(needs)}" if needs else ""
            self._report(path, f"the table [{dotted(full)}] is missing", f"Add [{dotted(full)}]{content}.")
        else:
            table = f"the table {_in_brackets(path)}" if path else "the top of the recipe"
            message = f"{dotted(full)} is missing"
            self._report(path, message, f"Add {key_literal(entry.name)} to {table}. {entry.key.about}".strip())

    def _unknown(
        self,
        name: str,
        value: object,
        path: KeyPath,
        known: Mapping[str, Entry],
        kind: type | None,
        siblings: tuple[type, ...],
    ) -> str | None:
        """Report a key that does not exist; returns the key of this table that was probably meant."""
        full = (*path, name)
        what = "table" if isinstance(value, Mapping) else "key"
        message = f"there is no {what} {_in_brackets(full) if what == 'table' else dotted(full)}"
        below = _homes(kind).get(name) if kind not in (None, self.root) else None
        owners = [tag(table) for table in siblings if name in entries(table)]
        if name == "weight" and path[-2:-1] == ("parts",):
            remedy = f"Write weights = {{ {path[-1]} = {literal(value)} }} in [{dotted(path[:-2])}]."
            self._report(full, f"{message}: the weights of all parts are in one table", remedy)
        elif below:
            guess = did_you_mean(name, list(known)).strip()
            self._report(full, message, f"{guess} {name} belongs {_inside(below, path)}.".strip())
        elif owners and kind is not None:
            self._report(full, *self._of_another(name, path, kind, owners))
        elif len(self.problems) > SHOWN:  # so many suggestions would not be read, and they take time
            self._report(full, message, "Remove it.")
        else:
            guess, meant = self._meant(name, path, known)
            self._report(full, message, guess)
            return meant
        return None

    def _of_another(self, name: str, path: KeyPath, kind: type, owners: Sequence[str]) -> tuple[str, str]:
        """Message and remedy for a key that other choices of this table have."""
        message = f"{name} is a setting of {_series(owners, 'and')}, but {dotted(path)}.name is {literal(tag(kind))}"
        switch = self._write((*path, "name"), literal(owners[0]))[:-1]
        others = " or the name of another of these" if len(owners) > 1 else ""
        return message, f"{switch}{others}, or remove {name}."

    def _meant(self, name: str, path: KeyPath, known: Mapping[str, Entry]) -> tuple[str, str | None]:
        """The remedy for an unknown key, and the key of this table that was probably meant."""
        homes = _homes(self.root)
        places = homes.get(name, ())
        *table, key = ELSEWHERE_CALLED.get(name, ("",))
        if key in known:
            return f"Write {key}.", str(key)
        if any(list(home.tables) == table for home in homes.get(str(key), ())):
            return f"Write {key} in [{dotted(table)}]{f', or {name} {_inside(places)}' if places else ''}.", None
        if places:
            return f"{name} belongs {_inside(places)}.", None
        if guess := did_you_mean(name, list(known)).strip():
            return guess, next(key for key in known if repr(key) in guess)
        if guess := did_you_mean(name, list(homes)).strip():
            return f"{guess} It belongs {_inside(next(homes[key] for key in homes if repr(key) in guess))}.", None
        return f"Remove it; {_in_brackets(path) if path else 'the top of a recipe'} knows {', '.join(known)}.", None

    def _report(self, path: KeyPath, message: str, remedy: str, name: str = "", choices: Any = ()) -> None:
        guess = did_you_mean(name, [choice for choice in choices if isinstance(choice, str)]).strip() if name else ""
        place = self.place(path)
        remedy = f"{guess} {remedy}" if guess else remedy
        self.problems.append(Problem(place.where, message, remedy, place.line))


def _header(path: KeyPath) -> str:
    return dotted(part for part in path if isinstance(part, str))


def _in_brackets(path: KeyPath) -> str:
    """The header of a table, with double brackets for an entry of a list."""
    return f"[[{_header(path)}]]" if path and isinstance(path[-1], int) else f"[{_header(path)}]"


def _series(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _fallback(entry: Entry) -> str:
    if entry.key.usual is not None:
        return f"Try {literal(entry.key.usual)}, or leave it out."
    if entry.default is None:
        _, means, what = entry.key.about.rpartition("unset means ")
        return f"Leave it out; {means}{what}" if means else "Leave it out to keep it unset."
    form = fits(entry.kind)
    if entry.default is MISSING or form.tables or form.values is not None:
        return f"Write {phrase(entry.kind, entry.key)}."
    return f"Try the default, {literal(entry.default)}."


def _not_unicode(text: str) -> bool:
    """Whether a text has surrogates, which stand for bytes of a shell that are not UTF-8."""
    return any("\ud800" <= sign <= "\udfff" for sign in text)


def _entries(value: str) -> list[str]:
    """The entries of a list that was given as a string; a shell may have removed the quotes.

    >>> _entries("[text, label]")
    ['text', 'label']
    """
    return [entry for part in value.strip("[] ").split(",") if (entry := part.strip("\"' "))] or [value]


def _as_number(value: str, form: Fits) -> float | None:
    """The number in a string, if a number is allowed."""
    for kind in (int, float):
        if kind in form.scalars and len(value) < 20:
            try:
                number = kind(value)
            except ValueError:
                continue
            return number if math.isfinite(number) else None
    return None


class Home(NamedTuple):
    """A table of a recipe that has a certain key."""

    tables: tuple[str, ...]
    """The tables around the key, ``NAME`` for an arbitrary name."""
    names: tuple[str, ...] = ()
    """The choices of the table that have the key, if not all have it."""
    entry: bool = False
    """Whether the table is an entry of a list."""


def _inside(homes: Sequence[Home], path: KeyPath = ()) -> str:
    """Where a key belongs, in words; the tables are relative to ``path``."""
    places = []
    for home in homes:
        header = _in_brackets((*path, *home.tables, *((0,) if home.entry else ())))
        names = f" with name = {_series([literal(name) for name in home.names], 'or')}" if home.names else ""
        top = not path and not home.tables
        places.append("at the top of the recipe, before the first [table]" if top else f"in {header}{names}")
    return _series(places, "or")


@schema_cache
def _homes(root: type) -> dict[str, tuple[Home, ...]]:
    """Where each key belongs, plain tables first and entries of lists last.

    A table that occurs in several others, such as objectives in stages and blends, is listed at its least depth.
    """
    places: dict[str, list[tuple[int, Home]]] = {}
    visited: set[type] = set()
    level: list[tuple[tuple[type, ...], Home]] = [((root,), Home(()))]
    while level:
        below = []
        for tables, place in level:
            fresh = [table for table in tables if table not in visited]
            for name in dict.fromkeys(name for table in fresh for name in entries(table)):
                owners = [table for table in tables if name in entries(table)]
                names = tuple(map(tag, owners)) if len(owners) < len(tables) else ()
                rank = 2 if place.entry else 1 if len(tables) > 1 else 0
                places.setdefault(name, []).append((rank, place._replace(names=names)))
            below += [inner for table in fresh for inner in _inner(table, place)]
        visited.update(table for tables, _ in level for table in tables)
        level = below
    return {name: tuple(home for _, home in sorted(homes, key=lambda one: one[0])) for name, homes in places.items()}


def _inner(table: type, place: Home) -> list[tuple[tuple[type, ...], Home]]:
    """The tables inside a table, each with its place."""
    inner = []
    for name, entry in entries(table).items():
        form, tables = fits(entry.kind), (*place.tables, name)
        if form.tables:
            inner.append((form.tables, Home(tables)))
        if form.items is not None:
            inner.append((fits(form.items).tables, Home(tables, entry=True)))
        if form.values is not None:
            inner.append((fits(form.values).tables, Home((*tables, "NAME"))))
    return inner
