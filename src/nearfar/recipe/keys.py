"""How a frozen dataclass describes a table: one sentence and the fitting values for every key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, MISSING, dataclass, fields, is_dataclass
from functools import cache, update_wrapper
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from nearfar.recipe.literals import literal


@dataclass(frozen=True)
class Key:
    """What a key is for and, beyond its type, which values fit."""

    about: str
    """One sentence."""
    _: KW_ONLY
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    whole_from: float | None = None
    """From here on, only whole numbers fit."""
    distinct: bool = False
    """No entry of the list may come twice."""
    usual: object = None
    """A value to try where the key is unset by default."""
    encoder: bool = False
    """Whether it names an encoder, which may be a folder."""
    none: object = ...
    """What the bare word ``none`` stands for where the key cannot be unset; ``...`` for nothing."""


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_CACHES: list[Callable[[], None]] = []


def schema_cache(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Remember what a function says about tables, until :func:`forget_schema` is called."""
    remembered = cache(function)
    _CACHES.append(remembered.cache_clear)
    return update_wrapper(remembered, function)  # type: ignore[return-value]


def forget_schema() -> None:
    """Tables can be chosen now that could not before, or the other way round."""
    for clear in _CACHES:
        clear()


class Entry(NamedTuple):
    """One key of a table: its name, its type, its default and what it is for."""

    name: str
    kind: Any
    key: Key
    default: object
    """``MISSING`` where the key is required."""

    @property
    def required(self) -> bool:
        """Whether a recipe has to state this key."""
        return self.default is MISSING


class Choice(ABC):
    """A type that stands for several tables, one of which a recipe chooses by its name."""

    @classmethod
    @abstractmethod
    def tables(cls) -> tuple[type, ...]:
        """The tables to choose from."""


class Fits(NamedTuple):
    """A type, taken apart into the forms a TOML value may have."""

    optional: bool = False
    choices: tuple[Any, ...] = ()
    scalars: tuple[type, ...] = ()
    tables: tuple[type, ...] = ()
    items: Any = None
    """The type of the entries, where a list fits."""
    values: Any = None
    """The type of the values, where a table with free keys fits."""


@schema_cache
def entries(table: type) -> dict[str, Entry]:
    """The keys of a dataclass by name, in the order they are written."""
    hints = get_type_hints(table, include_extras=True)
    found = {}
    for part in fields(table):
        default = part.default if part.default_factory is MISSING else part.default_factory()
        kind, key = hints[part.name], Key("")
        if get_origin(kind) is Annotated:
            kind, key = get_args(kind)[0], next(note for note in get_args(kind)[1:] if isinstance(note, Key))
        found[part.name] = Entry(part.name, kind, key, default)
    return found


@schema_cache
def fits(kind: Any) -> Fits:
    """Take a type apart: unions, choices, lists, tables."""
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    found: dict[str, Any] = {"choices": (), "scalars": (), "tables": ()}
    for member in members:
        if member is NoneType:
            found["optional"] = True
        elif get_origin(member) is Literal:
            found["choices"] += get_args(member)
        elif member in (str, int, float, bool):
            found["scalars"] += (member,)
        elif is_dataclass(member):
            found["tables"] += (member,)
        elif isinstance(member, type) and issubclass(member, Choice):
            found["tables"] += member.tables()
        elif get_origin(member) is tuple:
            found["items"] = get_args(member)[0]
        elif get_origin(member) is dict:
            found["values"] = get_args(member)[1]
        else:
            raise TypeError(f"a recipe key cannot be of type {member!r}")
    return Fits(**found)


def tag(table: type) -> str:
    """The name by which a table is chosen among several."""
    return str(entries(table)["name"].default)


def phrase(kind: Any, key: Key) -> str:
    """What fits, in words.

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
