"""The texts of a source that may be larger than memory, one window of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path
from typing import cast

from nearfar.data.columns import Need
from nearfar.data.issues import Issues
from nearfar.data.readers import Invalid, missing_content, problems_of, rows_of
from nearfar.data.records import Layout, Records
from nearfar.data.sources import locate
from nearfar.data.table import Columns, Table, check_rows, drop_notes
from nearfar.errors import DataError

_NEED: Need = "text"


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
        self._total = total = Table(Issues(self.source), Issues(self.source))
        issues = total.structure
        rows = rows_of(locate(self.source, self.base), self.layout.columns, issues)
        columns = Columns(rows, self.layout, _NEED, issues)
        if columns.binding is None:
            columns.count()
            return
        names = columns.binding.texts
        text, pair, negative = (*names, None, None)[:3]
        layout = Layout(text, pair, negative=negative)
        texts = ((line, {name: values.get(name) for name in names}) for line, values in columns.rows())
        while window := list(islice(texts, self.size)):
            table = check_rows(self.source, iter(window), layout, _NEED, issues)
            del window
            _add(total, table)
            assert table.records is not None
            yield table.records

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
