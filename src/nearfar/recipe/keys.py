"""A frozen dataclass as the schema of a table: one sentence and the allowed values for every key; TOML literals."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields, is_dataclass
from functools import cache, update_wrapper
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys, and 0-based positions of list entries."""

BARE = re.compile(r"[A-Za-z0-9_-]+")
"""A key that needs no quotes."""
LARGEST = 2**63 - 1
"""TOML integers have 64 bits."""

_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(32), 127)}
_ESCAPES |= {ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r", ord('"'): '\\"', ord("\\"): "\\\\"}


def literal(value: object) -> str:
    """A value as a TOML literal; ``None``, which TOML lacks, becomes ``unset``.

    >>> literal(("a", 0.5, True))
    '["a", 0.5, true]'
    """
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) <= LARGEST else "an integer of more than 64 bits"
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key_literal(str(name))} = {literal(part)}" for name, part in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    return repr(value)


def key_literal(name: str) -> str:
    """A key in TOML, in quotes only if they are needed."""
    return name if BARE.fullmatch(name) else literal(name)


def dotted(path: Iterable[str | int]) -> str:
    """A path of keys as one dotted key, each part shortened.

    >>> dotted(("stage", 0, "learning rate"))
    'stage.0."learning rate"'
    """
    return ".".join(short(key_literal(str(part))) for part in path)


def shown(value: object) -> str:
    """A value for a message: short, on one line, with its type."""
    if isinstance(value, str):
        return f"the string {short(printable(literal(value)))}"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, Mapping):
        return "a table"
    if value is None or isinstance(value, bool | int | float):
        return literal(value)
    return f"a {type(value).__name__}"


def printable(text: str) -> str:
    """A text that any terminal can print, whatever bytes the shell has passed."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def short(text: str, width: int = 60) -> str:
    """A text of limited length; its last character, often a quote, is kept."""
    return text if len(text) <= width else f"{text[: width - 4]}...{text[-1]}"


@dataclass(frozen=True)
class Key:
    """The description of a key and, in addition to its type, the allowed values."""

    about: str
    """One sentence."""
    _: KW_ONLY
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    whole_from: float | None = None
    """From here on, only whole numbers are allowed."""
    distinct: bool = False
    """No entry of the list may occur twice."""
    usual: object = None
    """A value to suggest if the key is unset by default."""
    encoder: bool = False
    """Whether it names an encoder, which may be a folder."""
    none: object = ...
    """The value of ``none`` on the command line if the key cannot be unset; ``...`` if it has none."""


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_CACHES: list[Callable[[], None]] = []


def schema_cache(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Cache the results of a function about tables until :func:`forget_schema` is called."""
    cached = cache(function)
    _CACHES.append(cached.cache_clear)
    return update_wrapper(cached, function)  # type: ignore[return-value]


def forget_schema() -> None:
    """Clear the caches, because tables were added or removed."""
    for clear in _CACHES:
        clear()


class Entry(NamedTuple):
    """One key of a table: its name, type, default and description."""

    name: str
    kind: Any
    key: Key
    default: object
    """``MISSING`` if the key is required."""

    @property
    def required(self) -> bool:
        """Whether the key has no default."""
        return self.default is MISSING


class Choice(ABC):
    """A type with several tables, one of which a recipe chooses by its name."""

    @classmethod
    @abstractmethod
    def tables(cls) -> tuple[type, ...]:
        """The tables to choose from."""


class Fits(NamedTuple):
    """The forms of TOML values that a type allows."""

    optional: bool = False
    choices: tuple[Any, ...] = ()
    scalars: tuple[type, ...] = ()
    tables: tuple[type, ...] = ()
    items: Any = None
    """The type of the entries, if a list is allowed."""
    values: Any = None
    """The type of the values, if a table with arbitrary keys is allowed."""


@schema_cache
def entries(table: type) -> dict[str, Entry]:
    """The keys of a dataclass by name, in order."""
    hints = get_type_hints(table, include_extras=True)
    keys = {}
    for part in fields(table):
        default = part.default if part.default_factory is MISSING else part.default_factory()
        kind, key = hints[part.name], Key("")
        if get_origin(kind) is Annotated:
            kind, key = get_args(kind)[0], next(note for note in get_args(kind)[1:] if isinstance(note, Key))
        keys[part.name] = Entry(part.name, kind, key, default)
    return keys


@schema_cache
def fits(kind: Any) -> Fits:
    """The forms of a type: unions, choices, lists, tables."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    forms: dict[str, Any] = {"choices": (), "scalars": (), "tables": ()}
    for member in members:
        if member is NoneType:
            forms["optional"] = True
        elif get_origin(member) is Literal:
            forms["choices"] += get_args(member)
        elif member in (str, int, float, bool):
            forms["scalars"] += (member,)
        elif is_dataclass(member):
            forms["tables"] += (member,)
        elif isinstance(member, type) and issubclass(member, Choice):
            forms["tables"] += member.tables()
        elif get_origin(member) is tuple:
            forms["items"] = get_args(member)[0]
        elif get_origin(member) is dict:
            forms["values"] = get_args(member)[1]
        else:
            raise TypeError(f"a recipe key cannot be of type {member!r}")
    return Fits(**forms)


def tag(table: type) -> str:
    """The name by which a recipe chooses the table."""
    return str(entries(table)["name"].default)


def phrase(kind: Any, key: Key) -> str:
    """The allowed values in words.

    >>> phrase(int | None, Key("", at_least=1))
    'a whole number of at least 1'
    >>> phrase(int | Literal["epoch"], Key("", at_least=1))
    'a whole number of at least 1 or "epoch"'
    """
    form = fits(kind)
    words = []
    if str in form.scalars:
        words.append("a string")
    if bool in form.scalars:
        words.append("true or false")
    if float in form.scalars:
        words.append("a number" + _range(key))
    elif int in form.scalars:
        words.append("a whole number" + _range(key))
    words += [literal(choice) for choice in form.choices]
    if form.items is not None:
        words.append(f"a list, each entry {phrase(form.items, key)}")
    if form.tables or form.values is not None:
        words.append("a table")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _range(key: Key) -> str:
    low = f"above {literal(key.above)}" if key.above is not None else ""
    low = f"of at least {literal(key.at_least)}" if key.at_least is not None else low
    high = f"below {literal(key.below)}" if key.below is not None else ""
    high = f"at most {literal(key.at_most)}" if key.at_most is not None else high
    whole = f", whole from {literal(key.whole_from)} on" if key.whole_from is not None else ""
    bounds = " and ".join(bound for bound in (low, high) if bound)
    return (f" {bounds}" if bounds else "") + whole


def broken_bound(value: float, key: Key) -> bool:
    """Whether a number is outside the range of its key."""
    return (
        (key.at_least is not None and value < key.at_least)
        or (key.above is not None and value <= key.above)
        or (key.at_most is not None and value > key.at_most)
        or (key.below is not None and value >= key.below)
        or (key.whole_from is not None and value >= key.whole_from and value != int(value))
    )
