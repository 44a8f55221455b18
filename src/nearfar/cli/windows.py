"""A source in windows of rows: a first pass checks and counts them, a second one returns them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nearfar.data import Layout, Records, Stream
from nearfar.data.readers import Window
from nearfar.errors import DataError, Problem


@dataclass(frozen=True)
class Survey:
    """The result of the first pass over a source."""

    rows: int
    """The number of valid rows."""
    digest: str
    """SHA-256 of their texts."""
    first: Records
    """The first of them."""
    notes: tuple[str, ...]
    columns: tuple[str, ...] = ()
    """The names of all columns."""
    dropped: int = 0
    """The number of rows that are not valid."""


class Windows:
    """The checked texts of a source in windows of at most ``size`` rows, for any number of passes.

    Standard input, which can be read only once, is kept in memory.
    """

    def __init__(self, source: str, layout: Layout, *, invalid: Literal["refuse", "drop"], size: int) -> None:
        self.source = source
        self.size = size
        self._stream = Stream(source, layout, size=size, invalid=invalid)
        self._held = list(self._stream.windows()) if source == "-" else None

    def survey(self) -> Survey:
        """Check and count all rows; raises DataError with all problems, as ``read`` does."""
        digest = hashlib.sha256()
        rows = 0
        first: Records | None = None
        columns: dict[str, None] = {}
        dropped = 0
        for every, records, _ in self._windows():
            if not rows and len(records):
                first = records.take([0])
            rows += len(records)
            dropped += len(every) - len(records)
            for _, values in every:
                columns |= dict.fromkeys(values)
            digest.update(records.fingerprint().encode())
        notes = self._stream.finish()
        assert first is not None
        return Survey(rows, digest.hexdigest(), first, notes, tuple(columns), dropped)

    def again(self, survey: Survey) -> Iterator[Records]:
        """The same valid rows again; raises DataError if they have changed."""
        return (window.records for window in self.whole(survey))

    def whole(self, survey: Survey) -> Iterator[Window]:
        """The same rows again, valid or not, with all their columns; raises DataError if they have changed."""
        digest = hashlib.sha256()
        rows = 0
        for window in self._windows():
            rows += len(window.records)
            digest.update(window.records.fingerprint().encode())
            if rows > survey.rows:
                break
            yield window
        if rows != survey.rows or digest.hexdigest() != survey.digest:
            message, remedy = "it has changed while it was read", "Start again when nothing writes to it any more."
            raise DataError(Problem(self.source, message, remedy))

    def _windows(self) -> Iterator[Window]:
        return self._stream.windows() if self._held is None else iter(self._held)
