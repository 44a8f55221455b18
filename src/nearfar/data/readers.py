"""The front door: any source to rows, any source to records."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal, cast

from nearfar.data.arrow import folder_rows, hub_rows, parquet_rows
from nearfar.data.columns import Need
from nearfar.data.delimited import Row, csv_rows, text_rows, tsv_rows
from nearfar.data.issues import Ledger, count, merged, overflow
from nearfar.data.jsonl import json_rows, jsonl_rows
from nearfar.data.lines import Line, open_bytes, read_lines
from nearfar.data.records import Layout, Records
from nearfar.data.sources import Place, locate
from nearfar.data.table import Table, drop_notes, gather
from nearfar.errors import DataError, Problem

Invalid = Literal["refuse", "drop"]


def rows(
    source: str,
    *,
    columns: Sequence[str] | None = None,
    problems: list[Problem],
    notes: list[str] | None = None,
    base: Path | None = None,
) -> Iterator[Row]:
    """The rows of a source as they stand there, one at a time: ``(line, values)``.

    Rows that cannot be read go to ``problems`` and are passed over; remarks go to ``notes``. Only
    one row is held at a time (.json files, which are one value, apart). Raises DataError when
    there is no such source.
    """
    place = locate(source, base)
    ledger = Ledger(source, problems, notes if notes is not None else [])

    def counted() -> Iterator[Row]:
        yield from rows_at(place, columns, ledger)
        if ledger.unlisted:
            problems.append(overflow(source, ledger.unlisted))

    return counted()


def read(
    source: str,
    layout: Layout = Layout(),  # noqa: B008  # frozen
    *,
    invalid: Invalid = "refuse",
    base: Path | None = None,
    need: Need = "any",
) -> Records:
    """All rows of a source, checked; raises DataError with all that is wrong.

    ``invalid="drop"`` leaves out rows whose text, label or score cannot be used and says so in the
    notes; faults of the file itself are refused all the same. ``need="label"`` asks for a label or
    a score in every row, and for at least two classes; ``need="text"`` reads texts only.
    """
    return checked(table_of(source, layout, base=base, need=need), invalid=invalid, need=need)


def checked(table: Table, *, invalid: Invalid, need: Need) -> Records:
    """The records of a table that was read; raises DataError with all that is wrong with it."""
    problems = problems_of(table, invalid)
    if not problems:
        problems = shortfall(table.records, table.structure.where, need)
    if problems or table.records is None:
        raise DataError(problems)
    dropped = drop_notes(table) if invalid == "drop" else []
    return replace(table.records, notes=(*table.structure.notes, *dropped))


def table_of(source: str, layout: Layout, *, base: Path | None, need: Need) -> Table:
    """All that reading a source came to; raises DataError only when there is no such source."""
    place = locate(source, base)
    ledger = Ledger(source)
    return gather(source, rows_at(place, layout.columns, ledger), layout, need, ledger)


def problems_of(table: Table, invalid: Invalid) -> list[Problem]:
    """What refuses the source."""
    ledgers = [table.structure] if invalid == "drop" else [table.structure, table.rows]
    return merged(table.structure.where, ledgers)


def rows_at(place: Place, columns: Sequence[str] | None, ledger: Ledger) -> Iterator[Row]:
    """The rows of a place; when they are through, the ledger knows all faults of the file."""
    if columns is not None and place.format not in ("csv", "tsv"):
        ledger.notes.append("data.columns has no effect here: only CSV and TSV files lack the names of their columns")
    if place.format == "hub":
        yield from hub_rows(place.name, place.split, ledger)
    elif place.format == "stdin":
        yield from _standard_input(ledger)
    else:
        assert place.path is not None
        if place.format == "parquet":
            yield from parquet_rows(place.path, ledger)
        elif place.format == "folder":
            yield from folder_rows(place.path, place.split, ledger)
        else:
            stream = open_bytes(place.path, ledger)
            if stream is not None:
                with closing(stream):
                    yield from _text_format(place.format, read_lines(stream, ledger), columns, ledger)
    if ledger.blank:
        ledger.notes.append(f"{count(ledger.blank, 'blank line')} skipped")


def _text_format(form: str, lines: Iterator[Line], columns: Sequence[str] | None, ledger: Ledger) -> Iterator[Row]:
    if form == "csv":
        return csv_rows(lines, columns, ledger)
    if form == "tsv":
        return tsv_rows(lines, columns, ledger)
    if form == "json":
        return json_rows(lines, ledger)
    return jsonl_rows(lines, ledger) if form == "jsonl" else text_rows(lines, ledger)


def _standard_input(ledger: Ledger) -> Iterator[Row]:
    """JSON Lines when the first line that is not blank opens an object, else one text a line."""
    if sys.stdin is None or sys.stdin.closed:
        ledger.problem("there is no standard input", "Pipe the texts in, or name a file.")
        return
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:  # a stand-in that has text only
        stream = io.BytesIO(sys.stdin.read().encode("utf-8", "surrogatepass"))
    lines = read_lines(cast(BinaryIO, stream), ledger)
    first: list[Line] = []
    for line in lines:
        first.append(line)
        if line.text.strip():
            break
    form = "jsonl" if first and first[-1].text.lstrip().startswith("{") else "txt"
    yield from _text_format(form, chain(first, lines), None, ledger)


def shortfall(records: Records | None, where: str, need: Need) -> list[Problem]:
    """What is wrong with records none of whose rows is at fault."""
    if records is None or len(records) == 0:
        remedy = "Mend the rows; 'nearfar check FILE' lists what is wrong with each."
        return [Problem(where, "no rows are left that can be used", remedy)]
    if need == "label" and records.labels is not None and len(records.classes()) == 1:
        message = f"all {count(len(records), 'row')} have the one class {records.labels[0][:60]!r}"
        remedy = "Add rows of a second class, or name another column with data.label (--label)."
        return [Problem(where, message, remedy)]
    return []
