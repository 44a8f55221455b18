"""A source in windows of rows: a first pass checks and counts them, a second one returns them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nearfar.data import Layout, Records, Stream, read
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


class Windows:
    """The checked texts of a source in windows of at most ``size`` rows, for any number of passes.

    Standard input, which can be read only once, is kept in memory.
    """

    def __init__(self, source: str, layout: Layout, *, invalid: Literal["refuse", "drop"], size: int) -> None:
        self.source = source
        self.size = size
        self._stream = Stream(source, layout, size=size, invalid=invalid)
        self._held = read(source, layout, invalid=invalid, need="text") if source == "-" else None

    def survey(self) -> Survey:
        """Check and count all rows; raises DataError with all problems, as ``read`` does."""
        digest = hashlib.sha256()
        rows = 0
        first: Records | None = None
        for window in self._windows():
            if not rows and len(window):
                first = window.take([0])
            rows += len(window)
            digest.update(window.fingerprint().encode())
        notes = self._stream.finish() if self._held is None else self._held.notes
        assert first is not None
        return Survey(rows, digest.hexdigest(), first, notes)

    def again(self, survey: Survey) -> Iterator[Records]:
        """The same rows again; raises DataError if they have changed."""
        digest = hashlib.sha256()
        rows = 0
        for window in self._windows():
            rows += len(window)
            digest.update(window.fingerprint().encode())
            if rows > survey.rows:
                break
            yield window
        if rows != survey.rows or digest.hexdigest() != survey.digest:
            message, remedy = "it has changed while it was read", "Start again when nothing writes to it any more."
            raise DataError(Problem(self.source, message, remedy))

    def _windows(self) -> Iterator[Records]:
        return iter(self._stream) if self._held is None else _slices(self._held, self.size)


def _slices(records: Records, size: int) -> Iterator[Records]:
    for start in range(0, len(records), size):
        yield records.take(range(start, min(start + size, len(records))))
