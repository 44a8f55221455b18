"""A source a window of rows at a time: checked and counted first, then the same rows once more."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nearfar.data import Layout, Records, Stream, read
from nearfar.errors import DataError, Problem


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
        self.size = size
        self._stream = Stream(source, layout, size=size, invalid=invalid)
        self._held = read(source, layout, invalid=invalid, need="text") if source == "-" else None

    def survey(self) -> Survey:
        """Check all rows and count them; raises DataError with all that is wrong, as ``read`` does."""
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
        """The same rows once more; raises DataError when they are not the same."""
        digest = hashlib.sha256()
        rows = 0
        for window in self._windows():
            rows += len(window)
            digest.update(window.fingerprint().encode())
            if rows > survey.rows:
                break
            yield window
        if rows != survey.rows or digest.hexdigest() != survey.digest:
            message, remedy = "it has changed while it was read", "Start anew when nothing writes to it any more."
            raise DataError([Problem(self.source, message, remedy)])

    def _windows(self) -> Iterator[Records]:
        return iter(self._stream) if self._held is None else _slices(self._held, self.size)


def _slices(records: Records, size: int) -> Iterator[Records]:
    for start in range(0, len(records), size):
        yield records.take(range(start, min(start + size, len(records))))
