"""The bytes of a file to TOML values, with remedies for syntax errors."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from nearfar.errors import Problem, RecipeError
from nearfar.recipe.lines import key_lines
from nearfar.recipe.literals import Path, short

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


def parse(raw: bytes, where: str) -> tuple[dict[str, Any], dict[Path, int]]:
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
