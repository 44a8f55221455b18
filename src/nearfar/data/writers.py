"""Rows to a file by its ending: JSON Lines, CSV, TSV, Parquet or Excel; can be continued after an interruption.

While the rows are computed, ``NAME.part`` holds those so far as JSON Lines, and ``NAME.part.json`` records how many are
safe on the disk and what they were made from. After the last row they become the target, which exists whole or not at
all.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from nearfar.errors import OutputError, SettingError, counted, did_you_mean
from nearfar.files import atomic, flush, is_full, lock_named, part_of, progress_of, write_atomic

FORMAT = 1
_BATCH = 10_000

Values = Mapping[str, object]
Rows = Callable[[], Iterator[Values]]
"""The rows from the first to the last, as often as it is called."""


def ending_of(out: str) -> str:
    """The ending of a file that rows can be written to; raises SettingError for any other."""
    ending = Path(out).suffix.lower()
    if ending not in _WRITERS:
        known = ", ".join(_WRITERS)
        raise SettingError(f"--out {out}: the ending says the format: {known}.{did_you_mean(ending, list(_WRITERS))}")
    if ending == ".xlsx":
        try:
            import openpyxl  # noqa: F401
        except ImportError:
            raise SettingError(f"--out {out}: run 'pip install openpyxl' first, or write .csv.") from None
    return ending


class RowFile:
    """A file of rows that is being filled.

    Args:
        target: its final name, with one of the endings that :func:`ending_of` knows.
        columns: the names of all columns.
        rows: how many rows it will have.
        origin: what the rows are made from, by its name in messages; it must be the same to continue.
    """

    def __init__(self, target: Path, columns: Sequence[str], rows: int, origin: Mapping[str, str]) -> None:
        self.target, self.columns, self.rows = target, list(columns), rows
        self.part, self.progress = part_of(target), progress_of(target)
        self.origin = {**origin, "the columns": json.dumps(self.columns)}
        self.done = 0
        """Rows that are safe on the disk."""
        self._file: IO[bytes] | None = None

    def open(self, *, resume: bool) -> int:
        """Begin, or with ``resume`` continue; returns how many rows are done."""
        with self._write_errors():
            file = os.fdopen(os.open(self.part, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            try:
                self._lock(file)
                self.done, place = self._unfinished(file) if resume else (0, 0)
                file.truncate(place)
                file.seek(place)
                self._file = file
                self._keep(self.done)
            except BaseException:
                self._file = None
                file.close()
                raise
        return self.done

    def append(self, rows: Iterable[Values]) -> None:
        """The next rows; they are on the disk when this returns."""
        assert self._file is not None
        with self._write_errors():
            written = 0
            for row in rows:
                self._file.write(line_of(row))
                written += 1
            self._keep(self.done + written)

    def finish(self) -> None:
        """Write the target from the rows."""
        assert self._file is not None
        with self._write_errors():
            if self.target.suffix.lower() in (".jsonl", ".ndjson"):
                os.replace(self.part, self.target)
            else:
                with atomic(self.target) as temporary:
                    _WRITERS[self.target.suffix.lower()](temporary, self.columns, self._rows)
                self.part.unlink()
            with suppress(OSError):  # not every system can flush a folder
                flush(self.target.parent)
            self.progress.unlink(missing_ok=True)

    def _rows(self) -> Iterator[Values]:
        with self.part.open("rb") as lines:
            yield from map(json.loads, lines)

    def discard(self) -> None:
        """Remove all files of the run."""
        self.progress.unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with suppress(OSError):  # what a full disk did not take; the progress file does not count it
                self._file.close()
            self._file = None

    def _unfinished(self, file: IO[bytes]) -> tuple[int, int]:
        """The rows and bytes of an earlier run; zeros where there is none; raises OutputError if it was another one."""
        try:
            values = json.loads(self.progress.read_text(encoding="utf-8"))
            done, place, origin = int(values["done"]), int(values["bytes"]), dict(values["origin"])
            if values["format"] != FORMAT:
                return 0, 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0, 0
        changed = [name for name, value in self.origin.items() if origin.get(name) != value]
        if os.fstat(file.fileno()).st_size < place:
            changed.append(f"the size of {self.part.name}")
        if changed:
            raise OutputError(
                f"{self.target}: the unfinished rows in {self.part.name} cannot be continued, because this has "
                f"changed: {', '.join(changed)}. Start again without --resume."
            )
        return done, place

    def _keep(self, done: int) -> None:
        """Flush the rows first, then their number: a crash in between costs only the last ones."""
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        values = {"format": FORMAT, "done": done, "bytes": self._file.tell(), "origin": self.origin}
        write_atomic(self.progress, json.dumps(values) + "\n", self.progress.with_name(f"{self.progress.name}.new"))
        self.done = done

    def _lock(self, file: IO[bytes]) -> None:
        if not lock_named(file, self.part):
            raise OutputError(
                f"{self.target}: another process is filling {self.part.name}. Let it finish, or choose another --out."
            )

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            full = is_full(cause)
            why = "there is no room left" if full else f"writing failed: {cause.strerror}"
            raise OutputError(
                f"{self.target}: {why}. {'Make room' if full else 'Fix that'} and continue with --resume: "
                f"{self.done:,} of {counted(self.rows, 'row')} are safe in {self.part.name}."
            ) from cause


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Values]) -> None:
    """Write rows that are in memory to a file by its ending; it exists whole or not at all."""
    with atomic(path) as temporary:
        _WRITERS[path.suffix.lower()](temporary, columns, lambda: iter(rows))


def encoded(ending: str, columns: Sequence[str], rows: Sequence[Values]) -> bytes:
    """Rows that are in memory as the bytes of a .jsonl or .parquet file."""
    if ending == ".jsonl":
        return b"".join(map(line_of, rows))
    buffer = io.BytesIO()
    _parquet(buffer, columns, lambda: iter(rows))
    return buffer.getvalue()


def line_of(row: Values) -> bytes:
    """A row as a line of JSON; whatever JSON does not have, such as a date, is written as text."""
    return (json.dumps(row, ensure_ascii=False, default=str) + "\n").encode("utf-8", "replace")


def _cell(value: object) -> Any:
    """A value for a format that has plain cells only."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _csv(path: Path, columns: Sequence[str], rows: Rows) -> None:
    with path.open("w", encoding="utf-8-sig", newline="") as file:  # with the mark by which Excel recognizes UTF-8
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in rows())


def _tsv(path: Path, columns: Sequence[str], rows: Rows) -> None:
    """One line per row: tabs and line breaks inside a text are written as spaces."""
    with path.open("w", encoding="utf-8", newline="") as file:
        for row in chain([dict(zip(columns, columns, strict=True))], rows()):
            values = (row.get(name) for name in columns)
            cells = ("" if value is None else re.sub(r"[\t\r\n]+", " ", str(_cell(value))) for value in values)
            file.write("\t".join(cells) + "\n")


def _lines(path: Path, _columns: Sequence[str], rows: Rows) -> None:
    with path.open("wb") as file:
        file.writelines(map(line_of, rows()))


def _parquet(path: Path | IO[bytes], columns: Sequence[str], rows: Rows) -> None:
    """Columns of one kind keep it, those of several kinds become text; lists and objects are JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds: dict[str, set[type]] = {name: set() for name in columns}
    for row in rows():
        for name in columns:
            kinds[name].add(type(row.get(name)))
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
    fields = {}
    for name, seen in kinds.items():
        seen -= {type(None)}
        seen = {float} if seen == {int, float} else seen
        fields[name] = types.get(next(iter(seen)), pa.string()) if len(seen) == 1 else pa.string()
    with pq.ParquetWriter(path, pa.schema(fields)) as file:
        rest = rows()
        while batch := list(islice(rest, _BATCH)):
            table = {
                name: [_typed(row.get(name), text=fields[name] == pa.string()) for row in batch] for name in columns
            }
            file.write_table(pa.table(table, schema=pa.schema(fields)))


def _typed(value: object, *, text: bool) -> object:
    value = _cell(value)
    return str(value) if text and value is not None else value


def _workbook(path: Path, columns: Sequence[str], rows: Rows) -> None:
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    book = Workbook(write_only=True)
    sheet = book.create_sheet("predictions")

    def cell(value: object) -> Any:
        value = _cell(value)
        if not isinstance(value, str):
            return value
        made = WriteOnlyCell(sheet, ILLEGAL_CHARACTERS_RE.sub("\ufffd", value)[:32_767])  # the most a cell holds
        made.data_type = "s"  # a text that begins with = is no formula
        return made

    sheet.append([cell(name) for name in columns])
    for row in rows():
        sheet.append([cell(row.get(name)) for name in columns])
    book.save(path)


_WRITERS: dict[str, Callable[[Path, Sequence[str], Rows], None]] = {
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
    ".xlsx": _workbook,
}
