"""JSON Lines, and JSON files that hold one list of objects."""

from __future__ import annotations

import json
from collections.abc import Iterator

from nearfar.data.delimited import Row
from nearfar.data.issues import Ledger
from nearfar.data.lines import Line, nothing

_KINDS = {
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}
_OBJECT = 'Write an object such as {"text": "...", "label": "..."}.'
_VALID_LINES = "Write valid JSON; 'python -m json.tool --json-lines FILE' shows where it fails."
_VALID = _VALID_LINES.replace("--json-lines ", "")


class _RepeatedKeyError(ValueError):
    """The same key twice in one object."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKeyError(key)
            seen.add(key)
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
# NaN and Infinity pass here: whether they matter depends on the column, and the values are checked.


def jsonl_rows(lines: Iterator[Line], ledger: Ledger) -> Iterator[Row]:
    """One object a line; blank lines are counted and skipped."""
    empty = True
    decode = _DECODER.decode
    for number, text, sound in lines:
        if text.isspace():
            ledger.blank += 1
            continue
        empty = False
        if not sound:
            continue
        try:
            values = decode(text.rstrip("\n"))  # else an error at the end counts as on the next line
        except (ValueError, RecursionError) as error:
            _fault(error, number, ledger, _VALID_LINES)
            continue
        if isinstance(values, dict):
            yield number, values
        else:
            ledger.problem(f"{_KINDS[type(values)]} where an object is expected", _OBJECT, line=number, value=values)
    if empty:
        nothing(ledger)


def json_rows(lines: Iterator[Line], ledger: Ledger) -> Iterator[Row]:
    """The objects of one top-level list, each with the line on which it opens."""
    text = "".join(line.text for line in lines)
    if ledger.problems:
        return  # faulty bytes: what JSON would say of the text with gaps is of no use
    place = _skip(text, 0)
    if place == len(text):
        nothing(ledger)
        return
    line = 1 + text.count("\n", 0, place)
    if text[place] != "[":
        ledger.problem(
            "a .json file must hold one list of objects",
            "Put [ and ] around the objects with commas between, or name the file .jsonl if it has one object a line.",
            line=line,
        )
        return
    after = _skip(text, place + 1)
    if text[after : after + 1] == "]":
        nothing(ledger, "the list is empty")
        return
    separator = ","
    while separator == ",":
        start = _skip(text, place + 1)
        line += text.count("\n", place, start)
        try:
            values, place = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            _fault(error, line, ledger, _VALID)
            return
        if isinstance(values, dict):
            yield line, values
        else:
            ledger.problem(f"{_KINDS[type(values)]} where an object is expected", _OBJECT, line=line, value=values)
        end = _skip(text, place)
        line += text.count("\n", start, end)
        place, separator = end, text[end : end + 1]
    if separator != "]":
        found = (
            f"not JSON: {separator!r} where , or ] is expected"
            if separator
            else "the list is not closed before the end"
        )
        ledger.problem(found, "Close the list with ]." if not separator else _VALID, line=line)
    elif _skip(text, place + 1) != len(text):
        place = _skip(text, place + 1)
        ledger.problem("there is more after the end of the list", _VALID, line=1 + text.count("\n", 0, place))


def _skip(text: str, place: int) -> int:
    """The first place from here on that is no JSON white space."""
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _fault(error: ValueError | RecursionError, line: int, ledger: Ledger, valid: str) -> None:
    """Enter why a piece of JSON that begins on this line was refused."""
    if isinstance(error, json.JSONDecodeError):
        # JSONDecodeError numbers the lines of what it was given: one line, or a whole .json file
        line = max(line, error.lineno)
        near = error.doc[max(0, error.pos - 15) : error.pos + 25].strip("\r\n")
        ledger.problem(f"not JSON: {error.msg}, at character {error.colno:,} of the line", valid, line=line, value=near)
    elif isinstance(error, _RepeatedKeyError):
        ledger.problem(f"the key {str(error)[:100]!r} stands twice in one object", "Keep one of the two.", line=line)
    elif isinstance(error, RecursionError):
        ledger.problem("lists or objects nested too deeply", "Keep only the text and its label.", line=line)
    else:
        ledger.problem("a number with too many digits", "Write it as a string in quotes.", line=line)
