"""The texts of a source that may be larger than memory, a window of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import cast

from nearfar.data.columns import Need, bind
from nearfar.data.issues import Ledger
from nearfar.data.readers import Invalid, problems_of, rows_at, shortfall
from nearfar.data.records import Layout, Records
from nearfar.data.sources import locate
from nearfar.data.table import PEEK, Table, changes, drop_notes, gather
from nearfar.errors import DataError

_NEED: Need = "text"


class Stream:
    """What ``read(..., need="text")`` gives of a source, but never more than a window of it at once.

    Iterating goes through the source from its beginning and gives its good rows as records of at
    most ``size`` rows; a window of none but bad rows is empty. After that, ``verdict`` says what is
    to be told of it, or raises what is wrong with it.

    Args:
        source: as for ``read``. Standard input can be gone through only once.
        layout: which columns are the texts.
        size: how many rows are held at a time.
        invalid: whether rows that cannot be used refuse the source, or are dropped.
        base: the folder that paths are relative to.
    """

    def __init__(
        self,
        source: str,
        layout: Layout = Layout(),  # noqa: B008  # frozen
        *,
        size: int,
        invalid: Invalid = "refuse",
        base: Path | None = None,
    ) -> None:
        self.source = source
        self.layout = layout
        self.size = size
        self.invalid = invalid
        self.base = base
        self._account = Table(Ledger(source), Ledger(source))

    def __iter__(self) -> Iterator[Records]:
        """The good rows, window by window. The columns are those ``read`` takes, from the first rows."""
        account = self._account = Table(Ledger(self.source), Ledger(self.source))
        ledger = account.structure
        rows = rows_at(locate(self.source, self.base), self.layout.columns, ledger)
        first = list(islice(rows, PEEK))
        known = dict.fromkeys(name for _, values in first for name in values)
        binding = bind(list(known), self.layout, _NEED, Ledger(self.source)) if first else None
        rows = chain(first, rows)
        del first
        if binding is None:
            gather(self.source, rows, self.layout, _NEED, ledger)  # finds no columns either, and enters why
            return
        text, pair, negative = (*binding.texts, None, None)[:3]
        named = Layout(text=text, pair=pair, negative=negative)
        blocked = False
        while window := list(islice(rows, self.size)):
            for place, (line, values) in enumerate(window):
                if not blocked and not known.keys() >= values.keys():
                    before = account.seen + place
                    blocked = changes(binding, known, values, self.layout, _NEED, line, before, ledger)
                window[place] = line, {name: values.get(name) for name in binding.texts}
            table = gather(self.source, iter(window), named, _NEED, ledger)
            del window
            _add(account, table)
            assert table.records is not None
            yield table.records

    def verdict(self) -> tuple[str, ...]:
        """The notes on the last time through, which must be at its end; raises DataError with all that is wrong."""
        problems = problems_of(self._account, self.invalid) or shortfall(
            self._account.records, self._account.structure.where, _NEED
        )
        if problems:
            raise DataError(problems)
        dropped = drop_notes(self._account) if self.invalid == "drop" else []
        return (*self._account.structure.notes, *dropped)


def _add(account: Table, table: Table) -> None:
    """Carry over what is wrong with the rows of a window, and one good row to show that there is one."""
    account.seen += table.seen
    account.rows.absorb(table.rows)
    if table.records is not None and not account.records:
        account.records = table.records.take(range(min(1, len(table.records))))
    for reason, lines in table.dropped.items():
        before = account.dropped.get(reason, [])
        start = before[0] if before else lines[0]
        # Their number and the first of them are all that is told: a range has both, and no size.
        account.dropped[reason] = cast(list[int], range(start, start + len(before) + len(lines)))
