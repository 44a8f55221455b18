"""CSV, TSV and plain text files, each row with the number of its first line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from nearfar.data.issues import Issues
from nearfar.data.lines import Line, report_empty
from nearfar.errors import counted

Row = tuple[int, dict[str, object]]
"""The line of a row, and its values by column."""
Fields = Iterator[tuple[int, list[str]]]

_MAX_FIELD = 2**31 - 1  # fits into a C long on every platform
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab"}
_QUOTES = 'Write a quote inside a quoted field twice (""), and close every field that opens with a quote.'
_FILL_TSV = "Write tabs and line breaks inside a text as spaces, and add missing fields."


def csv_rows(lines: Iterator[Line], columns: Sequence[str] | None, issues: Issues) -> Iterator[Row]:
    """The rows of a CSV file (RFC 4180); without ``columns`` the first line has their names."""
    first = next((line for line in lines if not _blank(line, issues)), None)
    if first is None:
        report_empty(issues)
        return
    csv.field_size_limit(_MAX_FIELD)
    delimiter = _delimiter(first.text, columns, issues)
    current = first.text

    def texts() -> Iterator[str]:
        nonlocal current
        for line in chain([first], lines):
            current = line.text
            yield current

    parser = csv.reader(texts(), delimiter=delimiter, strict=True)

    def fields() -> Fields:
        while True:
            line = first.number + parser.line_num  # where the next record begins
            try:
                row = next(parser)
            except StopIteration:
                return
            except csv.Error as error:
                issues.add(*_syntax_problem(str(error), line, first.number + parser.line_num - 1), line=line)
                continue
            if not row or (len(row) == 1 and not current.strip()):
                issues.blank += 1
            else:
                yield line, row

    remedy = f"Put fields that contain a {_NAMES[delimiter]} in quotes and add missing ones."
    yield from _with_names(fields(), columns, issues, _FILL_TSV if delimiter == "\t" else remedy)


def tsv_rows(lines: Iterator[Line], columns: Sequence[str] | None, issues: Issues) -> Iterator[Row]:
    """The rows of a TSV file: one line per row, tabs between fields, quotes are ordinary characters.

    Texts in files like those of GLUE have single quotes that a CSV parser would take for the start of a field across
    many lines. Spreadsheets, however, quote fields that contain quotes, so a field that begins and ends with a quote
    and has only doubled ones inside is unquoted.
    """
    fields = (
        (line.number, [unquoted(field) for field in line.text.rstrip("\r\n").split("\t")])
        for line in lines
        if not _blank(line, issues)
    )
    yield from _with_names(fields, columns, issues, _FILL_TSV)


def text_rows(lines: Iterator[Line], issues: Issues) -> Iterator[Row]:
    """One text per line, as a column named ``text``."""
    empty = True
    for line in lines:
        if not _blank(line, issues) and line.valid:
            empty = False
            yield line.number, {"text": line.text.rstrip("\r\n")}
    if empty:
        report_empty(issues)


def unquoted(field: str) -> str:
    r"""A TSV field without the quotes of a spreadsheet.

    >>> unquoted('"a ""b"" c"')
    'a "b" c'
    >>> unquoted('"Yes" and "no"')
    '"Yes" and "no"'
    """
    if len(field) < 2 or field[0] != '"' or field[-1] != '"':
        return field
    inner = field[1:-1]
    return field if '"' in inner.replace('""', "") else inner.replace('""', '"')


def _blank(line: Line, issues: Issues) -> bool:
    """Whether a line is blank; counts it then."""
    if line.text.strip():
        return False
    issues.blank += 1
    return True


def _delimiter(line: str, columns: Sequence[str] | None, issues: Issues) -> str:
    """The delimiter of a file by its first line, which without ``columns`` is the header."""
    bare = re.sub(r'"[^"]*"', "", line)
    present = [sign for sign in _NAMES if sign in bare] or [","]
    matching = [sign for sign in dict.fromkeys((",", *present)) if columns and bare.count(sign) == len(columns) - 1]
    chosen = (matching or present)[0]
    if chosen != ",":
        name = _NAMES[chosen]
        why = "then has as many fields as data.columns" if matching else f"has no comma but a {name}"
        issues.notes.append(f"the fields are assumed to be separated by {name}s: the first line {why}")
    return chosen


def _syntax_problem(error: str, line: int, last: int) -> tuple[str, str]:
    """Message and remedy for what the CSV parser reports."""
    span = f" (noticed on line {last})" if last > line else ""
    if "unexpected end of data" in error:
        return "a quoted field that begins here is not closed before the end of the file", _QUOTES
    if "expected after" in error:
        return f"a closing quote is followed by more text in the same field{span}", _QUOTES
    if "new-line" in error:
        remedy = "Save the file with Unix or Windows line breaks, or put the field in quotes."
        return f"a carriage return inside a field without quotes{span}", remedy
    return f"not CSV: {error}{span}", _QUOTES


def _with_names(fields: Fields, columns: Sequence[str] | None, issues: Issues, remedy: str) -> Iterator[Row]:
    """Rows as dictionaries, after a check of the header and of the number of fields in every row."""
    names = list(columns or ())
    if columns is None:
        line, header = next(fields, (0, []))
        if not line:
            report_empty(issues)
            return
        names = [name.strip() for name in header]
        if not distinct_names([name for name in names if name], issues, line=line):
            for _ in fields:  # reports the problems of the other rows
                pass
            return
    width, empty = len(names), True
    used = [(place, name) for place, name in enumerate(names) if name]
    lowered = [name.strip().casefold() for name in names]
    for line, row in fields:
        if len(row) != width:
            empty = False
            where = "the header" if columns is None else "data.columns"
            issues.add(f"{counted(len(row), 'field')} where {where} has {width:,}", remedy, line=line)
        elif empty and columns is not None and [field.strip().casefold() for field in row] == lowered:
            issues.notes.append(f"line {line} repeats the names in data.columns and is taken for a header")
        else:
            empty = False
            yield line, {name: row[place] for place, name in used}
    if empty:
        report_empty(issues, "there are no rows, only a header line" if columns is None else "the file is empty")


def distinct_names(names: Sequence[str], issues: Issues, line: int | None = None) -> bool:
    """Whether all columns have different names; reports it if not."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        which = f"{', '.join(map(repr, repeated))}"
        message = f"the columns {which} occur" if line is None else f"the header names {which}"
        issues.add(f"{message} more than once", "Give every column a different name.", line=line)
    return not repeated
