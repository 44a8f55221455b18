"""A source a window of rows at a time: what ``nearfar.data.read`` gives of it, but never all of it at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Literal, cast

from nearfar.data import CAP, Layout, Records, locate, read
from nearfar.data.columns import Need, bind
from nearfar.data.ledger import Ledger
from nearfar.data.readers import _shortfall, problems_of, rows_at
from nearfar.data.table import _PEEK, Table, _changes, drop_notes, gather
from nearfar.errors import DataError, Problem

NEED: Need = "text"


@dataclass(frozen=True)
class Survey:
    """What going through a source once came to."""

    rows: int
    """Rows that can be used."""
    digest: str
    """SHA-256 over their texts."""
    first: Records
    """The first of them."""
    notes: tuple[str, ...]


class Windows:
    """The texts of a source, checked, in windows of at most ``size`` rows; as often as one likes.

    Standard input, which comes only once, is held in memory.
    """

    def __init__(self, source: str, layout: Layout, *, invalid: Literal["refuse", "drop"], size: int) -> None:
        self.source = source
        self.layout = layout
        self.invalid = invalid
        self.size = size
        self._held = read(source, layout, invalid=invalid, need=NEED) if source == "-" else None

    def survey(self) -> Survey:
        """Check all rows and count them; raises DataError with all that is wrong, as ``read`` does."""
        total = Table(Ledger(self.source), Ledger(self.source))
        digest = hashlib.sha256()
        rows = 0
        for window in self._windows(total):
            if not rows:
                total.records = window.take(range(min(len(window), 1)))
            rows += len(window)
            digest.update(window.fingerprint().encode())
        problems = problems_of(total, self.invalid) or _shortfall(total, NEED)
        if problems or total.records is None:
            raise DataError(problems)
        dropped = drop_notes(total) if self.invalid == "drop" else []
        return Survey(rows, digest.hexdigest(), total.records, (*total.structure.notes, *dropped))

    def again(self, survey: Survey) -> Iterator[Records]:
        """The same rows once more; raises DataError when they are not the same."""
        digest = hashlib.sha256()
        rows = 0
        for window in self._windows(Table(Ledger(self.source), Ledger(self.source))):
            rows += len(window)
            digest.update(window.fingerprint().encode())
            if rows > survey.rows:
                break
            yield window
        if rows != survey.rows or digest.hexdigest() != survey.digest:
            message, remedy = "it has changed while it was read", "Start anew when nothing writes to it any more."
            raise DataError([Problem(self.source, message, remedy)])

    def _windows(self, total: Table) -> Iterator[Records]:
        if self._held is None:
            return _streamed(total, self.layout, self.size)
        total.structure.notes.extend(self._held.notes)
        return _slices(self._held, self.size)


def _slices(records: Records, size: int) -> Iterator[Records]:
    for start in range(0, len(records), size):
        yield records.take(range(start, min(start + size, len(records))))


def _streamed(total: Table, layout: Layout, size: int) -> Iterator[Records]:
    """The good rows of a source, window by window; ``total`` keeps account of what is wrong with the others.

    The columns are those that ``gather`` would read: it decides by the first rows, and so does this.
    """
    source, ledger = total.structure.where, total.structure
    rows = rows_at(locate(source), layout.columns, ledger)
    first = list(islice(rows, _PEEK))
    known = dict.fromkeys(name for _, values in first for name in values)
    binding = bind(list(known), layout, NEED, Ledger(source)) if first else None
    rows = chain(first, rows)
    del first
    if binding is None:
        gather(source, rows, layout, NEED, ledger)  # finds no columns either, and enters why
        return
    named = Layout(text=binding.texts[0], pair=binding.texts[1] if len(binding.texts) > 1 else None)
    blocked = False
    while window := list(islice(rows, size)):
        for place, (line, values) in enumerate(window):
            if not blocked and not known.keys() >= values.keys():
                known.update(dict.fromkeys(values))
                blocked = _changes(binding, list(known), layout, NEED, line, total.seen + place, ledger)
            window[place] = line, {name: values.get(name) for name in binding.texts}
        table = gather(source, iter(window), named, NEED, ledger)
        del window
        _add(total, table)
        assert table.records is not None
        yield table.records


def _add(total: Table, table: Table) -> None:
    """Carry over what is wrong with the rows of a window, within the cap."""
    total.seen += table.seen
    room = CAP - len(total.rows.problems)
    total.rows.problems.extend(table.rows.problems[:room])
    total.rows.unlisted += table.rows.unlisted + len(table.rows.problems[room:])
    for reason, lines in table.dropped.items():
        before = total.dropped.get(reason, [])
        start = before[0] if before else lines[0]
        # Their number and the first of them are all that is told: a range has both, and no size.
        total.dropped[reason] = cast(list[int], range(start, start + len(before) + len(lines)))
