"""A recipe file and overrides to a Recipe, or to one RecipeError with all problems."""

from __future__ import annotations

import logging
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, time
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nearfar.errors import MEMORY, Problem, RecipeError, did_you_mean
from nearfar.recipe.capabilities import Objective
from nearfar.recipe.keys import KeyPath, dotted, entries, fits, literal, printable, short
from nearfar.recipe.schema import ClassNames, Recipe
from nearfar.recipe.validation import Checker, Place, key_lines

_PLACE = re.compile(r"(?s)(.*) \(at (?:line (\d+), column (\d+)|end of document)\)")
_LONG_NUMBER = re.compile(r"[0-9_]{1000,}")
_BARE_VALUE = re.compile(r"([^=#\"'\[{]+?)\s*=\s*([^\"'\s\[{#][^\"'\[{#]*?)\s*(?:#.*)?$")

_CLOSE_LIST = "Close the list with ], and put a comma between entries."
_REMEDIES = (
    (r"cannot|duplicate", "The same key or table occurs before; keep one of the two."),
    (r"unescaped|escaped|invalid hex", r"Put a path with backslashes in single quotes: 'C:\texts\train.csv'."),
    (r"unterminated|illegal character '\\n'|expected \"'", "Close the quotes."),
    (r"unclosed array", _CLOSE_LIST),
    (
        r"unclosed inline|invalid initial",
        "Write a table in braces on one line, { a = 1, b = 2 }, with no comma at its end.",
    ),
)
"""Remedies by the beginning of the message of tomllib."""


def parse(raw: bytes, where: str) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    """The values of a TOML file, and the line of every key."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{raw[error.start]:02x} at offset {error.start:,} is not UTF-8"
        raise RecipeError([Problem(where, byte, "Save the file as UTF-8 text.")]) from None
    try:
        return tomllib.loads(text), key_lines(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise RecipeError([_syntax_problem(error, text, where)]) from None
    except RecursionError:
        brackets = [line.count("[") + line.count("{") for line in text.split("\n")]
        line = 1 + brackets.index(max(brackets))
        deep = Problem(where, "lists or tables are nested too deeply", "A recipe needs three levels at most.", line)
        raise RecipeError([deep]) from None
    except ValueError:  # Python refuses integers of thousands of digits
        number = _LONG_NUMBER.search(text)
        line = text.count("\n", 0, number.start() if number else 0) + 1
        long = Problem(where, "an integer has more than 64 bits", "Write a smaller number.", line)
        raise RecipeError([long]) from None


def _syntax_problem(error: tomllib.TOMLDecodeError, text: str, where: str) -> Problem:
    place = _PLACE.fullmatch(str(error))
    reason = place[1] if place else str(error)
    lines = text.split("\n")
    if place and place[2]:
        line, column = int(place[2]), f" at column {place[3]}"
    else:
        line, column = len(text.rstrip().split("\n")), " at the end of the file"
    content = lines[line - 1].strip() if line <= len(lines) else ""
    reason = short(reason[:1].lower() + reason[1:], 100)
    return Problem(where, f"not valid TOML{column}: {reason}", _syntax_remedy(reason, content), line)


def _syntax_remedy(reason: str, content: str) -> str:
    if "\0" in content:
        return "The file holds NUL bytes; save it as UTF-8 text."
    for pattern, remedy in _REMEDIES:
        if re.match(pattern, reason):
            return remedy
    if reason.startswith("expected '='"):
        return "TOML writes key = value, not key: value." if ":" in content else "Write key = value."
    if bare := _BARE_VALUE.match(content):
        return _bare_value_remedy(bare[1], bare[2])
    if content.endswith(("[", ",")):
        return _CLOSE_LIST
    return "Write strings in quotes, tables in [brackets], and every key on its own line."


def _bare_value_remedy(key: str, value: str) -> str:
    if value.lower() in ("true", "false"):
        return f"Write {key} = {value.lower()}."
    if value.lower() in ("none", "null", "nil"):
        return f"Leave {key} out to keep it unset."
    if re.fullmatch(r"[+-]?\.\d+", value):
        return f"Write {key} = {value.replace('.', '0.')}."
    if re.fullmatch(r"[+-]?\d+\.", value):
        return f"Write {key} = {value}0."
    return f'Strings need quotes: {key} = "{value}".'


ELSEWHERE = ("hub:", "sample:", MEMORY)
"""Prefixes of data sources that are not files."""

Source = TypeVar("Source", str, str | float, str | float | None)
AnyObjective = TypeVar("AnyObjective", bound=Objective)


def resolve_paths(recipe: Recipe, base: Path) -> Recipe:
    """The recipe with absolute paths of data files and encoder folders.

    Shares, ``auto``, ``-``, ``hub:``, ``sample:`` and ``memory:`` are unchanged, and so is a ``#split`` after a file.
    """
    data = replace(
        recipe.data,
        train=_absolute(recipe.data.train, base),
        dev=recipe.data.dev if recipe.data.dev == "auto" else _absolute(recipe.data.dev, base),
        test=_absolute(recipe.data.test, base),
        corpus=None if recipe.data.corpus is None else str(_absolute(recipe.data.corpus, base)),
        names=_class_names(recipe.data.names, base),
        unlabeled=_beside(recipe.data.unlabeled, base),
    )
    return replace(
        recipe,
        data=data,
        encoder=replace(recipe.encoder, name=_encoder(recipe.encoder.name, base)),
        objective=_objective(recipe.objective, base),
        stage=tuple(replace(stage, objective=_objective(stage.objective, base)) for stage in recipe.stage),
    )


def _objective(objective: AnyObjective, base: Path) -> AnyObjective:
    """The objective, or the parts of a blend, with absolute encoder folders."""
    changes: dict[str, Any] = {}
    for name, entry in entries(type(objective)).items():
        value = getattr(objective, name)
        if entry.key.encoder and value is not None:
            changes[name] = _encoder(value, base)
        elif fits(entry.kind).values is not None and fits(fits(entry.kind).values).tables:
            changes[name] = {key: _objective(part, base) for key, part in value.items()}
    return replace(objective, **changes)


def _encoder(name: str, base: Path) -> str:
    folder = _join(name, base)
    return folder if os.path.isdir(folder) else name  # unlike Path.is_dir, False for an unusable path


def _class_names(names: ClassNames, base: Path) -> ClassNames:
    """Class names as they are, or the absolute path of their file."""
    return names if not isinstance(names, str) or names in ("auto", "none") else _join(names, base)


def _beside(unlabeled: str | bool, base: Path) -> str | bool:
    """Whether the training texts have no labels, or the absolute path of texts beside them."""
    return unlabeled if isinstance(unlabeled, bool) else str(_absolute(unlabeled, base))


def _absolute(source: Source, base: Path) -> Source:
    if not isinstance(source, str) or source == "-" or source.startswith(ELSEWHERE):
        return source
    return _join(source, base)


def _join(name: str, base: Path) -> str:
    return str((base / (os.path.expanduser(name) if name.startswith("~/") else name)).absolute())


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


CLASS_WEIGHT = "the name that scikit-learn has"
SHINGLES = "rows of a batch share a word shingle"
ALIASES = (
    Alias("turns", "schedule", "it is the task schedule"),
    Alias("schedule.by", "sampling", "it is how tasks are sampled"),
    Alias("training.surgery", "gradient_surgery", "the term of the PCGrad paper"),
    Alias("batches.words", "shingle_size", "the words of a shingle"),
    Alias("batches.by", "neighbor_text", "the text of a pair whose neighbors share a batch"),
    Alias("batches.apart", "separate_duplicates", "pairs with an identical text are in separate groups"),
    Alias("objective.class_weights", "class_weight", CLASS_WEIGHT),
    Alias("objective.parts.*.class_weights", "class_weight", CLASS_WEIGHT),
    Alias("stage.*.objective.class_weights", "class_weight", CLASS_WEIGHT),
    Alias("task.*.objective.class_weights", "class_weight", CLASS_WEIGHT),
    Alias("batches.shuffle", "shingles", SHINGLES, value="words"),
    Alias("stage.*.shuffle", "shingles", SHINGLES, value="words"),
)
"""In the order they are applied: a key of a renamed table is listed after it, under its present name."""

Change = Callable[[Mapping[str, Any], KeyPath], Mapping[str, Any]]


def present_names(
    root: type, values: Mapping[str, object], lines: Mapping[KeyPath, int] | None = None, *, where: str = "the recipe"
) -> tuple[dict[str, Any], dict[KeyPath, int], list[Problem]]:
    """Values under the present names of their keys, the lines of these keys, and keys set under both names.

    Args:
        root: the dataclass of the whole table; names that it does not have are left alone.
        values: from a file, a flag or a dictionary.
        lines: the line of each key, if the values are from a file.
        where: the file, for messages.
    """
    renamed, new_lines, problems = dict(values), dict(lines or {}), list[Problem]()

    def rename(alias: Alias, old: str, table: Mapping[str, Any], path: KeyPath) -> Mapping[str, Any]:
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


def _in_tables(values: Any, tables: Sequence[str], path: KeyPath, change: Change) -> Any:
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
        form, rest = fits(form.items if form.values is None else form.values), rest[1:]
    return any(_exists(table, rest) for table in form.tables)


@cache
def _note(message: str) -> None:
    """Log a note, once in a process."""
    _log.warning("%s; the former name is still accepted", message)


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
) -> tuple[dict[str, object], dict[KeyPath, str], list[Problem]]:
    """The values with all overrides, the flag that has set each key, and overrides that cannot be applied."""
    merged: dict[str, object] = dict(values)
    flags: dict[KeyPath, str] = {}
    problems = []
    for override in overrides:
        problem = _apply(merged, override, flags)
        if problem is not None:
            problems.append(problem)
    return merged, flags, problems


def _apply(merged: dict[str, object], override: Override, flags: dict[KeyPath, str]) -> Problem | None:
    here: Any = merged
    path: KeyPath = ()
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


__all__ = ["Override", "build_recipe", "build_table", "parse_override", "read_recipe"]

LARGEST_FILE = 2**18
"""Bytes. A larger file is not a recipe."""


def read_recipe(path: Path, overrides: Sequence[Override] = ()) -> Recipe:
    """Read a TOML file; overrides replace its values."""

    where = printable(str(path))
    values, lines = parse(content(path, where), where)
    recipe: Recipe = build_table(Recipe, values, overrides, where=where, lines=lines)
    return recipe


def build_recipe(values: Mapping[str, object], overrides: Sequence[Override] = (), *, where: str) -> Recipe:
    """Make a recipe without a file; ``where`` is for messages about values that no flag has set."""
    recipe: Recipe = build_table(Recipe, values, overrides, where=where)
    return recipe


def build_table(
    root: type,
    values: Mapping[str, object],
    overrides: Sequence[Override] = (),
    *,
    where: str,
    lines: Mapping[KeyPath, int] | None = None,
) -> Any:
    """Build any dataclass whose fields are recipe keys."""

    def place(path: KeyPath) -> Place:
        prefixes = [path[:length] for length in range(len(path), -1, -1)]
        for prefix in prefixes:
            if prefix in flags:
                return Place(flags[prefix], None, in_file=False)
        return Place(where, next((at[prefix] for prefix in prefixes if prefix in at), None), in_file=lines is not None)

    values, at, twice = present_names(root, values, lines, where=where)
    if twice:
        raise RecipeError(twice)
    merged, flags, problems = overlay(values, [present_override(root, override) for override in overrides])
    checker = Checker(root, place)
    try:
        built = checker.build(merged)
    except RecursionError:
        checker.problems.append(Problem(where, "tables are nested too deeply", "Use fewer levels."))
    problems += checker.problems
    if problems:
        raise RecipeError(sorted(problems, key=lambda problem: (problem.line is None, problem.line or 0)))
    return built


def content(path: Path, where: str) -> bytes:
    """The bytes of a recipe file; raises RecipeError if it cannot be read, or is too large."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise RecipeError([Problem(where, "there is no such file", _similar_file(path))]) from None
    except IsADirectoryError:
        names = [name for name in _names(path) if name.endswith(".toml")]
        remedy = f"Name a file in it, such as {names[0]!r}." if names else "Name a recipe file, such as recipe.toml."
        raise RecipeError([Problem(where, "this is a folder", remedy)]) from None
    except PermissionError:
        raise RecipeError([Problem(where, "you may not read this file", "Change its permissions.")]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = Problem(where, f"the file cannot be read: {reason}", "Name a recipe file, such as recipe.toml.")
        raise RecipeError([problem]) from None
    if len(raw) > LARGEST_FILE:
        message = f"the file has more than {LARGEST_FILE:,} bytes, which no recipe needs"
        raise RecipeError([Problem(where, message, "Name a TOML file; texts belong in data.train.")])
    return raw


def _similar_file(path: Path) -> str:
    names = _names(path.parent)
    recipes = [name for name in names if name.endswith(".toml")]
    if guess := did_you_mean(path.name, names):
        return guess.strip()
    return f"The folder has {', '.join(recipes[:5])}." if recipes else "Check the path."


def _names(folder: Path) -> list[str]:
    try:
        return sorted(printable(entry.name) for entry in islice(folder.iterdir(), 1000))
    except OSError:
        return []
