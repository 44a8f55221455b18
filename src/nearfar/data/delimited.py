"""CSV, TSV and plain lines, each row with the first physical line it stands on."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain

from nearfar.data.issues import Ledger, count
from nearfar.data.lines import Line, nothing

Row = tuple[int, dict[str, object]]

_LARGEST = 2**31 - 1  # of a field; what a C long holds everywhere
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab"}
_QUOTES = 'Write a quote inside a quoted field twice (""), and close every field that opens with a quote.'


def csv_rows(lines: Iterator[Line], columns: Sequence[str] | None, ledger: Ledger) -> Iterator[Row]:
    """The rows of a CSV file as RFC 4180 has it; without ``columns`` the first line names them."""
    first = _first(lines, ledger)
    if first is None:
        nothing(ledger)
        return
    csv.field_size_limit(_LARGEST)
    delimiter = _delimiter(first.text, columns, ledger)
    current = first.text

    def texts() -> Iterator[str]:
        nonlocal current
        for line in chain([first], lines):
            current = line.text
            yield current

    parser = csv.reader(texts(), delimiter=delimiter, strict=True)

    def fields() -> Iterator[tuple[int, list[str]]]:
        while True:
            line = first.number + parser.line_num  # where the record to come begins
            try:
                row = next(parser)
            except StopIteration:
                return
            except csv.Error as error:
                _broken(str(error), line, first.number + parser.line_num - 1, ledger)
                continue
            if not row or (len(row) == 1 and not current.strip()):
                ledger.blank += 1
            else:
                yield line, row

    yield from _named(fields(), columns, ledger, _NAMES[delimiter])


def tsv_rows(lines: Iterator[Line], columns: Sequence[str] | None, ledger: Ledger) -> Iterator[Row]:
    """The rows of a TSV file: one line a row, a tab between fields, quotes are ordinary characters.

    Files in the manner of GLUE have bare quotes in their texts, which a CSV parser would take for
    the opening of a field over many lines. Spreadsheets on the other hand quote fields that hold
    quotes; so a field that begins and ends with one and has only doubled ones inside is unquoted.
    """

    def fields() -> Iterator[tuple[int, list[str]]]:
        for line in lines:
            if line.text.isspace():
                ledger.blank += 1
            else:
                yield line.number, [unquoted(field) for field in line.text.rstrip("\r\n").split("\t")]

    yield from _named(fields(), columns, ledger, "tab")


def text_rows(lines: Iterator[Line], ledger: Ledger) -> Iterator[Row]:
    """One plain text a line, as a column named ``text``."""
    empty = True
    for line in lines:
        if line.text.isspace():
            ledger.blank += 1
        elif line.sound:
            empty = False
            yield line.number, {"text": line.text.rstrip("\r\n")}
    if empty:
        nothing(ledger)


def unquoted(field: str) -> str:
    r"""A TSV field without the quotes a spreadsheet put around it.

    >>> unquoted('"a ""b"" c"')
    'a "b" c'
    >>> unquoted('"Yes" and "no"')
    '"Yes" and "no"'
    """
    if len(field) < 2 or field[0] != '"' or field[-1] != '"':
        return field
    inner = field[1:-1]
    return field if '"' in inner.replace('""', "") else inner.replace('""', '"')


def _first(lines: Iterator[Line], ledger: Ledger) -> Line | None:
    for line in lines:
        if line.text.strip():
            return line
        ledger.blank += 1
    return None


def _delimiter(line: str, columns: Sequence[str] | None, ledger: Ledger) -> str:
    """What separates the fields of the first line, which without ``columns`` is the header."""
    bare = re.sub(r'"[^"]*"', "", line)
    there = [sign for sign in _NAMES if sign in bare] or [","]
    fitting = [sign for sign in dict.fromkeys((",", *there)) if columns and bare.count(sign) == len(columns) - 1]
    chosen = (fitting or there)[0]
    if chosen != ",":
        name = _NAMES[chosen]
        why = "then has as many fields as data.columns" if fitting else f"has no comma but a {name}"
        ledger.notes.append(f"the fields are taken to be separated by {name}s: the first line {why}")
    return chosen


def _broken(error: str, line: int, last: int, ledger: Ledger) -> None:
    span = f" (found out on line {last})" if last > line else ""
    if "unexpected end of data" in error:
        message, remedy = "a quoted field that begins here is not closed before the end of the file", _QUOTES
    elif "expected after" in error:
        message, remedy = f"a closing quote is followed by more text in the same field{span}", _QUOTES
    elif "new-line" in error:
        message = f"a carriage return inside a field without quotes{span}"
        remedy = "Save the file with Unix or Windows line ends, or put the field in quotes."
    else:
        message, remedy = f"not CSV: {error}{span}", _QUOTES
    ledger.problem(message, remedy, line=line)


def _named(
    fields: Iterator[tuple[int, list[str]]], columns: Sequence[str] | None, ledger: Ledger, delimiter: str
) -> Iterator[Row]:
    """Rows as dictionaries, after a look at the header and at the width of every row."""
    if columns is None:
        header = next(fields, None)
        if header is None:
            nothing(ledger)
            return
        names = [name.strip() for name in header[1]]
        repeated = sorted({name for name in names if name and names.count(name) > 1})
        if repeated:
            ledger.problem(
                f"the header names {', '.join(map(repr, repeated))} more than once",
                "Give every column a name of its own.",
                line=header[0],
            )
            for _ in fields:  # the rest may have faults of its own to tell
                pass
            return
    else:
        names = list(columns)
    width, empty = len(names), True
    used = [(position, name) for position, name in enumerate(names) if name]
    plain = len(used) == width
    for line, row in fields:
        if len(row) != width:
            empty = False
            ledger.problem(
                f"{count(len(row), 'field')} where {'the header' if columns is None else 'data.columns'} has {width:,}",
                f"Put fields that hold a {delimiter} in quotes and fill up missing ones."
                if delimiter != "tab"
                else "Write tabs and line breaks inside a text as blanks, and fill up missing fields.",
                line=line,
            )
        elif (
            empty
            and columns is not None
            and [field.strip().casefold() for field in row] == [name.strip().casefold() for name in names]
        ):
            ledger.notes.append(f"line {line} repeats the names in data.columns and is taken for a header")
        else:
            empty = False
            yield (
                line,
                dict(zip(names, row, strict=True)) if plain else {name: row[position] for position, name in used},
            )
    if empty:
        nothing(ledger, "there are no rows, only a header line" if columns is None else "the file is empty")
