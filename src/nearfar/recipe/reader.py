"""A recipe file and overrides to a Recipe, or to one RecipeError with all problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nearfar.errors import Problem, RecipeError, did_you_mean
from nearfar.recipe.aliases import present_names, present_override
from nearfar.recipe.literals import Path as KeyPath
from nearfar.recipe.literals import printable
from nearfar.recipe.overrides import Override, overlay, parse_override
from nearfar.recipe.schema import Recipe
from nearfar.recipe.validation import Checker, Place

__all__ = ["Override", "build_recipe", "build_table", "parse_override", "read_recipe"]

LARGEST_FILE = 2**18
"""Bytes. A larger file is not a recipe."""


def read_recipe(path: Path, overrides: Sequence[Override] = ()) -> Recipe:
    """Read a TOML file; overrides replace its values."""
    from nearfar.recipe.parser import parse  # flags alone do not need its regular expressions

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
