"""JSON Lines, and JSON files that hold one list of objects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from nearfar.data.delimited import Row
from nearfar.data.issues import Issues
from nearfar.data.lines import Line, report_empty

_TYPES = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "true or false"}
_OBJECT = 'Write an object such as {"text": "...", "label": "..."}.'
_VALID_LINES = "Write valid JSON; 'python -m json.tool --json-lines FILE' shows where it fails."
_VALID = _VALID_LINES.replace("--json-lines ", "")


class _RepeatedKeyError(ValueError):
    """The same key twice in one object."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _RepeatedKeyError(next(key for key, number in counts.items() if number > 1))
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
# NaN and Infinity are accepted here: whether they matter depends on the column, and the values are checked.


def jsonl_rows(lines: Iterator[Line], issues: Issues) -> Iterator[Row]:
    """One object per line; blank lines are counted and skipped."""
    empty = True
    for number, text, valid in lines:
        if text.isspace():
            issues.blank += 1
            continue
        empty = False
        if not valid:
            continue
        try:
            values = _DECODER.decode(text.rstrip("\n"))  # else an error at the end would be on the next line
        except (ValueError, RecursionError) as error:
            _report_syntax(error, number, issues, _VALID_LINES)
            continue
        if _is_object(values, number, issues):
            yield number, values
    if empty:
        report_empty(issues)


def json_rows(lines: Iterator[Line], issues: Issues) -> Iterator[Row]:
    """The objects of one top-level list, each with the line on which it begins."""
    text = "".join(line.text for line in lines)
    if issues.problems:
        return  # invalid bytes: further errors would follow from them
    place = _skip_space(text, 0)
    if place == len(text):
        report_empty(issues)
        return
    line = 1 + text.count("\n", 0, place)
    if text[place] != "[":
        remedy = "Put [ and ] around the objects with commas between, or name the file .jsonl if it has one per line."
        issues.add("a .json file must hold one list of objects", remedy, line=line)
        return
    if text.startswith("]", _skip_space(text, place + 1)):
        report_empty(issues, "the list is empty")
        return
    separator = ","
    while separator == ",":
        start = _skip_space(text, place + 1)
        line += text.count("\n", place, start)
        try:
            values, place = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            _report_syntax(error, line, issues, _VALID)
            return
        if _is_object(values, line, issues):
            yield line, values
        end = _skip_space(text, place)
        line += text.count("\n", start, end)
        place, separator = end, text[end : end + 1]
    rest = _skip_space(text, place + 1)
    if not separator:
        issues.add("the list is not closed before the end", "Close the list with ].", line=line)
    elif separator != "]":
        issues.add(f"not JSON: {separator!r} where , or ] is expected", _VALID, line=line)
    elif rest != len(text):
        issues.add("there is more after the end of the list", _VALID, line=1 + text.count("\n", 0, rest))


def _is_object(values: object, line: int, issues: Issues) -> bool:
    """Whether a row is an object; reports it if not."""
    if not isinstance(values, dict):
        kind = _TYPES.get(type(values), "null")
        issues.add(f"{kind} where an object is expected", _OBJECT, line=line, value=values)
    return isinstance(values, dict)


def _skip_space(text: str, place: int) -> int:
    """The first place from here on that is not JSON white space."""
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _report_syntax(error: ValueError | RecursionError, line: int, issues: Issues, valid: str) -> None:
    """Report why JSON that begins on this line cannot be parsed."""
    if isinstance(error, json.JSONDecodeError):
        line = max(line, error.lineno)  # counted within one line, or within a whole .json file
        near = error.doc[max(0, error.pos - 15) : error.pos + 25].strip("\r\n")
        issues.add(f"not JSON: {error.msg}, at character {error.colno:,} of the line", valid, line=line, value=near)
    elif isinstance(error, _RepeatedKeyError):
        issues.add(f"the key {str(error)[:100]!r} occurs twice in one object", "Keep one of the two.", line=line)
    elif isinstance(error, RecursionError):
        issues.add("lists or objects nested too deeply", "Keep only the text and its label.", line=line)
    else:
        issues.add("a number with too many digits", "Write it as a string in quotes.", line=line)
