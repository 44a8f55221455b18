"""Rows in memory: texts or pairs, their labels or scores, and the line each row came from."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Shape = Literal["texts", "pairs"]
Target = Literal["label", "score"]

_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")  # int() alone would also take '1_000' and refuse 4,301 digits


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns hold what; ``None`` leaves it to the usual names."""

    text: str | None = None
    """The single text, or the left text of a pair."""
    pair: str | None = None
    """The right text of a pair."""
    label: str | None = None
    score: str | None = None
    columns: tuple[str, ...] | None = None
    """The names of the columns of a CSV or TSV file that has no header line."""


@dataclass(frozen=True)
class Records:
    """Checked rows: every text is a non-empty string, every score is finite."""

    texts: tuple[list[str], ...]
    """One column for single texts, two for pairs (left, right)."""
    labels: list[str] | None
    """The class name of each row."""
    scores: list[float] | None
    lines: list[int]
    """The 1-based line of each row in its file; the row number where a format has no lines."""
    source: str
    """The source as the user wrote it."""
    notes: tuple[str, ...] = ()
    """What a user must be told: blank lines skipped, rows dropped, a delimiter guessed."""

    def __post_init__(self) -> None:
        columns: list[Sequence[object] | None] = [*self.texts, self.labels, self.scores]
        assert self.texts
        assert all(column is None or len(column) == len(self.lines) for column in columns)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def shape(self) -> Shape:
        """``"texts"`` for one column of texts, ``"pairs"`` for more."""
        return "texts" if len(self.texts) == 1 else "pairs"

    @property
    def target(self) -> Target | None:
        """What each row has beside its texts."""
        if self.labels is not None:
            return "label"
        return None if self.scores is None else "score"

    def take(self, indices: Iterable[int]) -> Records:
        """The rows at these indices, in this order.

        >>> Records((["a", "b"],), ["x", "y"], None, [1, 2], "f.csv").take([1]).texts
        (['b'],)
        """
        chosen = list(indices)
        return Records(
            texts=tuple([column[i] for i in chosen] for column in self.texts),
            labels=None if self.labels is None else [self.labels[i] for i in chosen],
            scores=None if self.scores is None else [self.scores[i] for i in chosen],
            lines=[self.lines[i] for i in chosen],
            source=self.source,
            notes=self.notes,
        )

    def classes(self) -> tuple[str, ...]:
        """The class names, each once: by number when all are integers, else by the alphabet.

        >>> Records((["a", "b"],), ["10", "9"], None, [1, 2], "f.csv").classes()
        ('9', '10')
        """
        names = set(self.labels or ())
        if all(_WHOLE.fullmatch(name) for name in names):
            return tuple(sorted(names, key=lambda name: (int(name), name)))
        return tuple(sorted(names))

    def fingerprint(self) -> str:
        """SHA-256 over texts, labels and scores; the same rows from another file give the same."""
        digest = hashlib.sha256(f"{len(self.texts)} {len(self)} {self.target}".encode())
        for strings in (*self.texts, self.labels or ()):
            for string in strings:
                content = string.encode("utf-8", "surrogatepass")
                digest.update(struct.pack("<Q", len(content)))  # so that 'ab','c' differs from 'a','bc'
                digest.update(content)
        for score in self.scores or ():
            digest.update(struct.pack("<d", score))
        return digest.hexdigest()

    def keys(self) -> list[tuple[str, ...]]:
        """The texts of each row with case and blanks levelled: rows with equal keys say the same.

        >>> Records((["Hello  World "],), None, None, [1], "f.txt").keys()
        [('hello world',)]
        """
        return list(
            zip(*([" ".join(text.split()).casefold() for text in column] for column in self.texts), strict=True)
        )
