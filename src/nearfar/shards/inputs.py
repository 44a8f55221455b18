"""Input files in row ranges: where each range begins, and the rows of one range with their lines in the file."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from nearfar.data.limits import Limits, TooLargeError
from nearfar.data.records import Layout
from nearfar.data.sources import Format, format_of
from nearfar.data.text_files import NO_ROWS, Bounds, Row, csv_rows, jsonl_rows, read_lines, text_rows, tsv_rows
from nearfar.data.values import Issues
from nearfar.errors import DataError, Problem
from nearfar.shards.storage import Storage

BLOCK = 2**22
"""Bytes of a text file that are looked at together."""
READ = ".csv, .tsv, .jsonl, .ndjson, .txt (each also with .gz) and .parquet"
MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
"""How files in UTF-16 and UTF-32 begin: they are one range, since their lines do not end in one byte."""


@dataclass(frozen=True)
class RowRange:
    """Some successive rows of a file.

    Of a Parquet file, ``first`` is the number of the first row, from 1, and ``count`` the number of rows. Of a text
    file, ``first`` is the first line, and the bytes from ``start`` to ``stop`` of the decompressed content are read,
    after the ``head`` bytes of the header.
    """

    first: int
    count: int = 0
    start: int = 0
    stop: int = 0
    head: int = 0


def known_format(name: str) -> Format:
    """The format of a file by its name; raises DataError for one that is not read in ranges."""
    form = format_of(Path(name))
    if form not in ("csv", "tsv", "jsonl", "txt", "parquet"):
        suffix = "".join(Path(name).suffixes[-2:]) or "no suffix"
        raise DataError(Problem(name, f"a file format that is not read in parts ({suffix})", f"Supported: {READ}."))
    return form


def ranges_of(name: str, rows: int, layout: Layout) -> list[RowRange]:
    """A file in ranges of so many rows; raises DataError where it cannot be read."""
    form = known_format(name)
    if form == "parquet":
        with _parquet(name) as file:
            total = int(file.metadata.num_rows)
        return [RowRange(start + 1, min(rows, total - start)) for start in range(0, total, rows)]
    issues = Issues(name)
    with closing(_content(name)) as stream:
        head = _read(stream, name, 4)
        if head.startswith(MARKS) or b"\0" in head:
            return [RowRange(1, 0, 0, -1)]
    wanted, skip = _cuts(name, form, rows, layout, issues)
    if issues.problems:
        raise DataError(issues.problems)
    return _by_lines(name, rows, skip, wanted)


def _cuts(name: str, form: Format, rows: int, layout: Layout, issues: Issues) -> tuple[list[int] | None, int]:
    """The lines at which ranges of a CSV file begin, None for any line; and how many lines its header has."""
    if form in ("jsonl", "txt") or (form == "tsv" and layout.columns is not None):
        return None, 0
    with closing(_content(name)) as stream:
        lines = read_lines(cast(BinaryIO, stream), issues, layout.encoding, Bounds.of(layout.limits, whole=False))
        if form == "tsv":
            first = next((line.number for line in lines if line.text.strip()), 0)
            return None, first
        cuts = [
            line
            for number, (line, _) in enumerate(csv_rows(lines, layout.columns, Issues(name), layout.limits))
            if number % rows == 0
        ]
    return cuts, (cuts[0] - 1 if cuts else 0)


def _by_lines(name: str, rows: int, skip: int, wanted: list[int] | None) -> list[RowRange]:
    """The ranges of a text file after ``skip`` lines of a header: at the wanted lines, or every ``rows`` lines."""
    cuts = [] if wanted is None else list(wanted)
    places: list[tuple[int, int]] = []  # lines and their offsets
    line, offset, ended = 1, 0, True
    at = skip + 1 if wanted is None else (cuts.pop(0) if cuts else 0)
    with closing(_content(name)) as stream:
        if at == 1:
            places.append((1, 0))
            at = 1 + rows if wanted is None else (cuts.pop(0) if cuts else 0)
        while block := _read(stream, name):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 10) + offset + 1
            while at and line < at <= line + len(ends):  # the line after end k of this block is line + k + 1
                places.append((at, int(ends[at - line - 1])))
                at = at + rows if wanted is None else (cuts.pop(0) if cuts else 0)
            line, offset, ended = line + len(ends), offset + len(block), block.endswith(b"\n")
    total = line - ended
    places = [(number, start) for number, start in places if start < offset]
    if not places:
        return []
    head = places[0][1]
    stops = [*(start for _, start in places[1:]), offset]
    lines = [*(number for number, _ in places[1:]), total + 1]
    return [
        RowRange(number, after - number, start, stop, head)
        for (number, start), stop, after in zip(places, stops, lines, strict=True)
    ]


def rows_of_range(
    name: str, part: RowRange, layout: Layout, issues: Issues, columns: Sequence[str] | None = None
) -> Iterator[Row]:
    """The rows of a range with their lines (rows of a Parquet file, from 1) in the file.

    Args:
        name: the file.
        part: the range.
        layout: how text files are read.
        issues: gets the problems.
        columns: those that are needed of a Parquet file; None for all.
    """
    form = known_format(name)
    if form == "parquet":
        yield from _parquet_rows(name, part, issues, columns)
        return
    content = _bytes_of(name, part)
    lines = read_lines(io.BytesIO(content), issues, layout.encoding, Bounds.of(layout.limits, whole=False))
    moved = part.first - 1 - content[: part.head].count(b"\n")
    own = Issues(issues.where)
    with closing(lines):
        if form == "jsonl":
            rows = jsonl_rows(lines, own)
        elif form == "txt":
            rows = text_rows(lines, own)
        elif form == "csv":
            rows = csv_rows(lines, layout.columns, own, layout.limits)
        else:
            rows = tsv_rows(lines, layout.columns, own)
        for line, values in rows:
            yield line + moved, values
    for problem in own.problems:
        if problem.remedy == NO_ROWS:  # a range of blank lines
            continue
        at = None if problem.line is None else problem.line + moved
        issues.problems.append(
            Problem(issues.where, problem.message, problem.remedy, at, problem.column, problem.value)
        )
    issues.blank += own.blank


def _bytes_of(name: str, part: RowRange) -> bytes:
    """The header of a text file and the bytes of a range; only these are in memory."""
    place = Storage(name)
    if not name.lower().endswith(".gz"):
        with place.open() as file:
            if part.stop < 0:
                return bytes(file.read())
            head = bytes(file.read_at(part.head, 0)) if part.start else b""
            return head + bytes(file.read_at(part.stop - part.start, part.start))
    with closing(_content(name)) as stream:
        if part.stop < 0:
            return bytes(stream.read())
        head = stream.read(part.head) if part.start else b""
        skip = part.start - len(head)
        while skip > 0 and (piece := _read(stream, name, min(BLOCK, skip))):
            skip -= len(piece)
        content = bytearray(head)
        rest = part.stop - part.start
        while rest > 0 and (piece := _read(stream, name, min(BLOCK, rest))):
            content += piece
            rest -= len(piece)
        return bytes(content)


def _content(name: str) -> io.BufferedReader:
    """The decompressed bytes of a text file."""
    raw = Storage(name).open()
    return io.BufferedReader(gzip.GzipFile(fileobj=raw) if name.lower().endswith(".gz") else raw, BLOCK)


def _read(stream: io.BufferedReader, name: str, size: int = BLOCK) -> bytes:
    try:
        return stream.read(size)
    except (OSError, EOFError) as error:
        what = "the compressed file ends too early" if isinstance(error, EOFError) else f"it cannot be read ({error})"
        raise DataError(Problem(name, what, "Copy or download it again; this copy is damaged.")) from error


def _parquet(name: str) -> Any:
    import pyarrow.parquet as pq

    source = Storage(name).open()
    try:
        return pq.ParquetFile(source)
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200].rstrip(".")
        message = f"not a Parquet file that can be read ({first})"
        raise DataError(Problem(name, message, "Write or download it again; this copy is damaged.")) from error


def _parquet_rows(name: str, part: RowRange, issues: Issues, columns: Sequence[str] | None) -> Iterator[Row]:
    """The rows of a range."""
    line = part.first
    for batch in _parquet_batches(name, part, issues, columns):
        for values in batch.to_pylist():
            yield line, values
            line += 1


def _parquet_batches(name: str, part: RowRange, issues: Issues, columns: Sequence[str] | None) -> Iterator[Any]:
    """The rows of a range as Arrow batches, from the row groups that have some of them."""
    with _parquet(name) as file:
        first, groups, number, before = part.first - 1, list[int](), 0, 0
        for group in range(file.metadata.num_row_groups):
            size = int(file.metadata.row_group(group).num_rows)
            if number < first + part.count and number + size > first:
                if not groups:
                    before = number
                groups.append(group)
            number += size
        skip, left = first - before, part.count
        try:
            for batch in file.iter_batches(1024, row_groups=groups, columns=None if columns is None else list(columns)):
                some = batch.slice(skip, left)
                skip, left = max(0, skip - len(batch)), left - len(some)
                if len(some):
                    yield some
                if not left:
                    return
        except (OSError, ValueError, TooLargeError) as error:
            first_line = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            issues.add(f"the rows from {part.first:,} on cannot be read ({first_line})", "Write the file again.")


@dataclass(frozen=True)
class Window:
    """Some rows of a range."""

    lines: Sequence[int]
    columns: Mapping[str, Sequence[object]] | None
    """The values of the columns that were asked for."""
    rows: Sequence[Row] = ()
    """The rows with all their columns, where none were asked for."""

    def column(self, name: str) -> Sequence[object]:
        """The values of a column; None where a row does not have it."""
        if self.columns is None:
            return [values.get(name) for _, values in self.rows]
        return self.columns.get(name) or [None] * len(self.lines)


def windows_of_range(
    name: str, part: RowRange, layout: Layout, issues: Issues, columns: Sequence[str] | None, size: int
) -> Iterator[Window]:
    """The rows of a range, so many at a time; of a Parquet file as columns, if some are named."""
    if columns is None or known_format(name) != "parquet":
        rows = rows_of_range(name, part, layout, issues, columns)
        while window := list(islice(rows, size)):
            lines = [line for line, _ in window]
            if columns is None:
                yield Window(lines, None, window)
            else:
                yield Window(lines, {name: [values.get(name) for _, values in window] for name in columns})
        return
    held: dict[str, list[object]] = {}
    line, count = part.first, 0
    for batch in chain(_parquet_batches(name, part, issues, columns), [None]):
        if batch is not None:
            for column, values in batch.to_pydict().items():
                held.setdefault(column, []).extend(values)
            count += len(batch)
        while count >= size or (batch is None and count):
            number = min(size, count)
            yield Window(range(line, line + number), {column: values[:number] for column, values in held.items()})
            held = {column: values[number:] for column, values in held.items()}
            line, count = line + number, count - number


def columns_of_file(name: str, layout: Layout) -> list[str]:
    """The names of the columns of a file, by its schema or by its first rows."""
    form = known_format(name)
    if form == "parquet":
        with _parquet(name) as file:
            return list(file.schema_arrow.names)
    issues = Issues(name)
    with closing(_content(name)) as stream:
        lines = read_lines(cast(BinaryIO, stream), issues, layout.encoding, Bounds.of(Limits(large=True), whole=False))
        if form == "txt":
            return ["text"]
        rows = {
            "jsonl": lambda: jsonl_rows(lines, issues),
            "csv": lambda: csv_rows(lines, layout.columns, issues, layout.limits),
            "tsv": lambda: tsv_rows(lines, layout.columns, issues),
        }[form]()
        names = {column: None for _, values in islice(rows, 20) for column in values}
    if not names:
        raise DataError(issues.problems or [Problem(name, "there are no rows", "Leave the file out.")])
    return list(names)
