"""The entry points: any source to rows, to records, or to windows of texts that may be larger than memory."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

from nearfar.data.arrow import folder_rows, hub_rows, parquet_rows
from nearfar.data.limits import Limits
from nearfar.data.records import Layout, Records
from nearfar.data.sources import DataSource, locate
from nearfar.data.table import Columns, Need, Table, check_rows, drop_notes, first_rows
from nearfar.data.text_files import (
    Bounds,
    Line,
    Row,
    check_encoding,
    csv_rows,
    json_rows,
    jsonl_rows,
    open_bytes,
    read_lines,
    text_rows,
    tsv_rows,
)
from nearfar.data.values import Issues
from nearfar.data.workbooks import workbook_rows
from nearfar.errors import DataError, Problem, counted

Invalid = Literal["refuse", "drop"]

_TEXT_FORMATS: dict[str, Callable[[Iterator[Line], Issues], Iterator[Row]]] = {
    "json": json_rows,
    "jsonl": jsonl_rows,
    "txt": text_rows,
}


def rows(
    source: str,
    *,
    columns: Sequence[str] | None = None,
    problems: list[Problem],
    notes: list[str] | None = None,
    base: Path | None = None,
) -> Iterator[Row]:
    """The unchecked rows of a source, one at a time: ``(line, values)``.

    Rows that cannot be read are skipped and added to ``problems``, remarks to ``notes``. Only one row is in memory at a
    time, except for .json files, which are one value. Raises DataError if there is no such source.
    """
    located = locate(source, base)
    issues = Issues(source, problems, notes if notes is not None else [])

    def all_rows() -> Iterator[Row]:
        yield from rows_of(located, Layout(columns=None if columns is None else tuple(columns)), issues)
        problems.extend(issues.omission(issues.omitted))

    return all_rows()


def columns_of(source: str, layout: Layout = Layout(), base: Path | None = None) -> set[str]:  # noqa: B008  # frozen
    """The names of the columns in the first rows of a source; none where it cannot be read."""
    try:
        first = list(islice(rows_of(locate(source, base), layout, Issues(source)), 20))
    except DataError:  # reported where the source is read
        return set()
    return {name for _, values in first for name in values}


def read(
    source: str,
    layout: Layout = Layout(),  # noqa: B008  # frozen
    *,
    invalid: Invalid = "refuse",
    base: Path | None = None,
    need: Need = "any",
) -> Records:
    """All rows of a source, checked; raises DataError with all problems.

    ``invalid="drop"`` leaves out rows whose text, label or score cannot be used, with a note; problems of the file
    itself are refused all the same. ``need="label"`` requires a label or a score in every row, and at least two
    classes; ``need="text"`` reads texts only.
    """
    return checked(read_table(source, layout, base=base, need=need), invalid=invalid, need=need)


def checked(table: Table, *, invalid: Invalid, need: Need) -> Records:
    """The records of a table that was read; raises DataError with all problems."""
    problems = problems_of(table, invalid) or missing_content(table.records, table.structure.where, need)
    if problems or table.records is None:
        raise DataError(problems)
    dropped = drop_notes(table) if invalid == "drop" else []
    return replace(table.records, notes=(*table.structure.notes, *dropped))


def read_table(source: str, layout: Layout, *, base: Path | None, need: Need) -> Table:
    """The records of a source with all problems; raises DataError only if there is no such source."""
    located = locate(source, base)
    issues = Issues(source)
    layout = replace(layout, disk=is_large(located) if layout.disk == "auto" else layout.disk)
    return check_rows(source, rows_of(located, layout, issues), layout, need, issues)


ON_DISK = 300_000_000
"""Bytes of a file from which on its rows are kept on disk; compressed ones count threefold."""


def is_large(source: DataSource) -> bool:
    """Whether the rows of a source are kept on disk where that is left open: those of large files are."""
    if source.path is None:
        return False
    files = [source.path] if source.path.is_file() else source.path.rglob("*.arrow")
    try:
        size = sum(file.stat().st_size for file in files)
    except OSError:  # reported where it is read
        return False
    packed = source.format == "parquet" or source.path.suffix.lower() == ".gz"
    return size * (3 if packed else 1) >= ON_DISK


def problems_of(table: Table, invalid: Invalid) -> list[Problem]:
    """The problems for which the source is refused."""
    return table.structure.sorted_problems(*([] if invalid == "drop" else [table.rows]))


def rows_of(source: DataSource, layout: Layout, issues: Issues) -> Iterator[Row]:
    """The rows of a source; after the last one, ``issues`` has all problems of the file."""
    form, path, columns, encoding = source.format, source.path, layout.columns, layout.encoding
    if encoding is not None:
        check_encoding(encoding)
    if columns is not None and form not in ("csv", "tsv"):
        issues.notes.append("data.columns has no effect here: only CSV and TSV files can lack column names")
    if form == "hub":
        yield from hub_rows(source.name, source.split, issues)
    elif form == "stdin":
        yield from _standard_input(issues, encoding, layout.limits)
    else:
        assert path is not None
        if form == "parquet":
            yield from parquet_rows(path, issues, layout.limits)
        elif form == "xlsx":
            yield from workbook_rows(path, source.split, issues, layout.limits)
        elif form == "folder":
            yield from folder_rows(path, source.split, issues)
        elif (stream := open_bytes(path, issues, layout.limits)) is not None:
            bounds = Bounds.of(layout.limits, whole=form == "json", lines=form != "json")
            with closing(stream), closing(read_lines(stream, issues, encoding, bounds)) as lines:
                if form in _TEXT_FORMATS:
                    yield from _TEXT_FORMATS[form](lines, issues)
                elif form == "csv":
                    yield from csv_rows(lines, columns, issues, layout.limits)
                else:
                    yield from tsv_rows(lines, columns, issues)
    if issues.blank:
        issues.notes.append(f"{counted(issues.blank, 'blank line')} skipped")


def _standard_input(issues: Issues, encoding: str | None, limits: Limits) -> Iterator[Row]:
    """JSON Lines if the first line that is not blank begins an object, else one text per line."""
    if sys.stdin is None or sys.stdin.closed:
        issues.add("there is no standard input", "Pipe the texts in, or name a file.")
        return
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:  # a replacement that has text only
        stream = io.BytesIO(sys.stdin.read().encode("utf-8", "surrogatepass"))
    lines = read_lines(cast(BinaryIO, stream), issues, encoding, Bounds.of(limits, whole=True))
    first: list[Line] = []
    for line in lines:
        first.append(line)
        if line.text.strip():
            break
    form = "jsonl" if first and first[-1].text.lstrip().startswith("{") else "txt"
    yield from _TEXT_FORMATS[form](chain(first, lines), issues)


def missing_content(records: Records | None, where: str, need: Need) -> list[Problem]:
    """What valid rows lack: no row is left, or there is only one class."""
    if records is None or len(records) == 0:
        remedy = "Fix the rows; 'nearfar check FILE' lists what is wrong with each."
        return [Problem(where, "no rows are left that can be used", remedy)]
    if need == "label" and records.label_sets is not None and len(records.classes()) < 2:
        message = (
            f"multi-label rows need two labels at least, and these have {counted(len(records.classes()), 'label')}"
        )
        remedy = "Write texts with and without it as two classes, or name another column with data.label (--label)."
        return [Problem(where, message, remedy)]
    if need == "label" and records.labels is not None and len(records.classes()) == 1:
        message = f"all {counted(len(records), 'row')} have the one class {records.labels[0][:60]!r}"
        remedy = "Add rows of a second class, or name another column with data.label (--label)."
        return [Problem(where, message, remedy)]
    return []


_NEED: Need = "text"


class Window(NamedTuple):
    """Some rows of a stream."""

    rows: list[Row]
    """All of them, valid or not, with their lines."""
    records: Records
    """The valid ones."""
    reasons: dict[int, str]
    """Why a row is not valid, by its line."""


@dataclass
class Stream:
    """The records of ``read(..., need="text")``, but never more than a window of them at once.

    Iterating reads the source from its beginning and gives its valid rows as records of at most ``size`` rows; a window
    without valid rows is empty. After the last window, ``finish`` returns the notes, or raises the problems.
    """

    source: str
    """As for ``read``. Standard input can be read only once."""
    layout: Layout = Layout()  # noqa: RUF009  # frozen
    """Which columns are the texts."""
    _: KW_ONLY
    size: int
    """Rows in memory at a time."""
    invalid: Invalid = "refuse"
    """Whether the source is refused for invalid rows, or they are dropped."""
    base: Path | None = None
    """The folder that paths are relative to."""

    def __post_init__(self) -> None:
        self._total = Table(Issues(self.source), Issues(self.source))

    def __iter__(self) -> Iterator[Records]:
        """The valid rows, window by window, from the columns that ``read`` would recognize in the first rows."""
        return (window.records for window in self.windows())

    def windows(self) -> Iterator[Window]:
        """Window by window all rows with all their columns, and the records of the valid ones."""
        self._total = total = Table(Issues(self.source), Issues(self.source))
        issues = total.structure
        rows = rows_of(locate(self.source, self.base), self.layout, issues)
        columns = Columns(rows, self.layout, _NEED, issues)
        if columns.binding is None:
            columns.count()
            return
        names = columns.binding.texts
        text, pair, negative = (*names, None, None)[:3]
        layout = Layout(text, pair, negative=negative, max_chars=self.layout.max_chars, large=self.layout.large)
        every = columns.rows()
        while window := first_rows(every, self.size):
            texts = ((line, {name: values.get(name) for name in names}) for line, values in window)
            table = check_rows(self.source, texts, layout, _NEED, issues)
            _add(total, table)
            assert table.records is not None
            yield Window(window, table.records, {problem.line or 0: problem.message for problem in table.rows.problems})

    def finish(self) -> tuple[str, ...]:
        """The notes on the last pass, which must be complete; raises DataError with all problems."""
        total = self._total
        problems = problems_of(total, self.invalid) or missing_content(total.records, self.source, _NEED)
        if problems:
            raise DataError(problems)
        return (*total.structure.notes, *(drop_notes(total) if self.invalid == "drop" else []))


def _add(total: Table, window: Table) -> None:
    """Add the problems of a window, and one valid row to show that there is one."""
    total.rows_read += window.rows_read
    total.rows.extend(window.rows)
    if window.records is not None and not total.records:
        total.records = window.records.take(range(min(1, len(window.records))))
    for reason, lines in window.dropped.items():
        before = total.dropped.get(reason, [])
        start = before[0] if before else lines[0]
        # Only their number and the first of them are reported: a range has both, and takes no memory.
        total.dropped[reason] = cast(list[int], range(start, start + len(before) + len(lines)))
