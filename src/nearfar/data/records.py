"""Rows in memory: texts, pairs or triplets, their labels or scores, and the line each row came from."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Shape = Literal["texts", "pairs", "triplets", "ranking"]
Target = Literal["label", "score"]

_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")  # int() alone would also take '1_000' and refuse 4,301 digits


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns hold what; ``None`` leaves it to the usual names."""

    text: str | None = None
    """The single text, the left text of a pair, the anchor of a triplet, or the query."""
    pair: str | None = None
    """The right text of a pair, the positive of a triplet, or the document."""
    label: str | None = None
    score: str | None = None
    columns: tuple[str, ...] | None = None
    """The names of the columns of a CSV or TSV file that has no header line."""
    negative: str | None = None
    """The negative of a triplet."""
    query_id: str | None = None
    doc_id: str | None = None


@dataclass(frozen=True)
class Records:
    """Checked rows: every text is a non-empty string, every score is finite."""

    texts: tuple[list[str], ...]
    """One column for single texts, two for pairs (left, right) and for ranking (query, document), three for
    triplets (anchor, positive, negative)."""
    labels: list[str] | None
    """The class name of each row."""
    scores: list[float] | None
    """The score of each row; in ranking its relevance, which is not below 0."""
    lines: list[int]
    """The 1-based line of each row in its file; the row number where a format has no lines."""
    source: str
    """The source as the user wrote it."""
    notes: tuple[str, ...] = ()
    """What a user must be told: blank lines skipped, rows dropped, a delimiter guessed."""
    queries: list[str] | None = None
    """The id of each row's query, in ranking and in files of queries."""
    documents: list[str] | None = None
    """The id of each row's document, in ranking and in corpora."""

    def __post_init__(self) -> None:
        columns: list[Sequence[object] | None] = [
            *(*self.texts, self.labels, self.scores),
            *(self.queries, self.documents),
        ]
        assert self.texts
        assert all(column is None or len(column) == len(self.lines) for column in columns)

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def shape(self) -> Shape:
        """``"texts"`` for one column of texts, ``"triplets"`` for three; two are ``"pairs"``, or ``"ranking"``
        where the queries are told and no classes are.
        """
        if len(self.texts) != 2:
            return "texts" if len(self.texts) == 1 else "triplets"
        return "pairs" if self.queries is None or self.labels is not None else "ranking"

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
            queries=None if self.queries is None else [self.queries[i] for i in chosen],
            documents=None if self.documents is None else [self.documents[i] for i in chosen],
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
        """SHA-256 over texts, labels, scores and ids; the same rows from another file give the same."""
        told = "".join(f" {name}" for name, ids in self._ids() if ids is not None)
        digest = hashlib.sha256(f"{len(self.texts)} {len(self)} {self.target}{told}".encode())
        for strings in (*self.texts, self.labels or (), *(ids or () for _, ids in self._ids())):
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
        return list(zip(*([levelled(text) for text in column] for column in self.texts), strict=True))

    def likenesses(self) -> list[tuple[str, ...]]:
        """What a row must not share with one on the other side of a split: its levelled texts.

        The two texts of a pair are in the order of the alphabet, so that a swapped pair is the same
        pair; a triplet is the pair of its anchor and its positive. In ranking the order tells.

        >>> Records((["b", "A"], ["a", "B"]), None, None, [1, 2], "f.csv").likenesses()
        [('a', 'b'), ('a', 'b')]
        """
        keys = self.keys()
        if self.shape in ("texts", "ranking"):
            return keys
        return [(left, right) if left <= right else (right, left) for left, right, *_ in keys]

    def _ids(self) -> tuple[tuple[str, list[str] | None], ...]:
        return (("queries", self.queries), ("documents", self.documents))


def levelled(text: str) -> str:
    """A text without what does not change its meaning: case, and how many blanks there are.

    >>> levelled(" Hello  World")
    'hello world'
    """
    return " ".join(text.split()).casefold()
