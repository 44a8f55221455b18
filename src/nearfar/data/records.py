"""Rows in memory or on disk: texts, pairs or triplets, their labels or scores, and the line of each row in its file."""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from nearfar.data.disk_columns import picked
from nearfar.data.limits import MAX_CHARS, Limits
from nearfar.errors import SettingError, unit_of

Shape = Literal["texts", "pairs", "triplets", "ranking"]
Target = Literal["label", "labels", "score"]
T = TypeVar("T")

_WHOLE = re.compile(r"[+-]?[0-9]{1,4000}")  # int() alone would also take '1_000' and refuse 4,301 digits


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns hold what, and what their numbers mean; ``None``: it is recognized by names and values."""

    text: str | None = None
    """The single text, the left text of a pair, the anchor of a triplet, or the query."""
    pair: str | None = None
    """The right text of a pair, the positive of a triplet, or the document."""
    label: str | None = None
    score: str | None = None
    columns: tuple[str, ...] | None = None
    """The column names of a CSV or TSV file without a header line."""
    label_separator: str | None = None
    """What separates the labels of a row in the label column, which then has several."""
    label_columns: tuple[str, ...] | None = None
    """Columns of 0 and 1, one for each label: an indicator matrix."""
    negative: str | None = None
    """The negative of a triplet."""
    query_id: str | None = None
    doc_id: str | None = None
    encoding: str | None = None
    """The character encoding of a text file; None detects it."""
    scale: tuple[float, float] | None = None
    """The lowest and the highest score or grade; others are refused."""
    relevant: float | None = None
    """The lowest grade of a relevant document; None: any above the lowest."""
    weight: str | None = None
    """The column with the weight of each row."""
    max_chars: int = MAX_CHARS
    """The most characters of a text, a cell or a line."""
    large: bool = False
    """Whether sources are read whatever their size."""
    disk: bool | Literal["auto"] = False
    """Whether checked rows are kept on disk; ``auto``: those of large sources are."""

    @property
    def limits(self) -> Limits:
        """How much is read."""
        return Limits(self.max_chars, self.large)

    def __post_init__(self) -> None:
        if self.scale is None:
            return
        if len(self.scale) != 2 or not all(map(math.isfinite, self.scale)) or self.scale[0] >= self.scale[1]:
            raise SettingError(
                f"data.scale is the lowest and the highest score, such as [1, 4], got {list(self.scale)}."
            )
        if self.relevant is not None and not self.scale[0] < self.relevant <= self.scale[1]:
            raise SettingError(
                f"data.relevant is {self.relevant:g}, which is no grade above the lowest of data.scale, "
                f"{self.scale[0]:g} to {self.scale[1]:g}."
            )


@dataclass(frozen=True)
class Records:
    """Checked rows: every text is a non-empty string, every score is finite."""

    texts: tuple[Sequence[str], ...]
    """One column for single texts, two for pairs (left, right) and for ranking (query, document), three for
    triplets (anchor, positive, negative)."""
    labels: Sequence[str] | None
    """The class name of each row."""
    scores: Sequence[float] | None
    """The score of each row; for ranking its relevance, which is at least 0."""
    lines: Sequence[int]
    """The 1-based line of each row in its file; the row number for formats without lines."""
    source: str
    """The source as the user wrote it."""
    notes: tuple[str, ...] = ()
    """What users should know: blank lines skipped, rows dropped, a delimiter guessed."""
    queries: Sequence[str] | None = None
    """The query id of each row, for ranking and files of queries."""
    documents: Sequence[str] | None = None
    """The document id of each row, for ranking and corpora."""
    scale: tuple[float, float] | None = None
    """The lowest and the highest score or grade that there can be; None: :func:`nearfar.data.score_range` finds it."""
    relevant: float | None = None
    """The lowest grade of a relevant document, for ranking; None: any above the lowest grade is."""
    label_sets: Sequence[tuple[str, ...]] | None = None
    """The labels of each row where a row has several (multi-label), each once; none is legal."""
    weights: Sequence[float] | None = None
    """How much each row counts in training; None: all the same."""

    def __post_init__(self) -> None:
        columns: list[Sequence[object] | None] = [*self.texts, self.labels, self.scores, self.queries, self.documents]
        columns += [self.label_sets, self.weights]
        assert self.texts
        assert all(column is None or len(column) == len(self.lines) for column in columns)

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, index: int) -> str:
        """Where a row is, for messages: its line in the file, or its number in memory.

        >>> Records((["a"],), None, None, [7], "f.txt").place(0)
        'line 7'
        """
        return f"{unit_of(self.source)} {self.lines[index]}"

    @property
    def shape(self) -> Shape:
        """``"texts"`` for one column of texts, ``"triplets"`` for three; two are ``"pairs"``, or ``"ranking"``
        with query ids and without classes.
        """
        if len(self.texts) != 2:
            return "texts" if len(self.texts) == 1 else "triplets"
        return "pairs" if self.queries is None or self.is_labeled else "ranking"

    @property
    def is_labeled(self) -> bool:
        """Whether rows have labels, one each or several."""
        return self.labels is not None or self.label_sets is not None

    def row_labels(self) -> Sequence[tuple[str, ...]]:
        """The labels of each row as a tuple, whether rows have one each, several or none.

        >>> Records((["a", "b"],), ["x", "y"], None, [1, 2], "f.csv").row_labels()
        [('x',), ('y',)]
        """
        if self.label_sets is not None:
            return self.label_sets
        return [()] * len(self) if self.labels is None else [(label,) for label in self.labels]

    @property
    def target(self) -> Target | None:
        """What each row has in addition to its texts."""
        if self.is_labeled:
            return "label" if self.label_sets is None else "labels"
        return None if self.scores is None else "score"

    def take(self, indices: Iterable[int]) -> Records:
        """The rows at these indices, in this order.

        >>> Records((["a", "b"],), ["x", "y"], None, [1, 2], "f.csv").take([1]).texts
        (['b'],)
        """
        chosen = np.fromiter(indices, dtype=np.int64) if not isinstance(indices, np.ndarray) else indices

        def pick(column: Sequence[T]) -> Sequence[T]:
            return picked(column, chosen)

        return replace(
            self,
            texts=tuple(pick(column) for column in self.texts),
            labels=self.labels and pick(self.labels),
            scores=self.scores and pick(self.scores),
            lines=pick(self.lines),
            queries=self.queries and pick(self.queries),
            documents=self.documents and pick(self.documents),
            label_sets=self.label_sets and pick(self.label_sets),
            weights=self.weights and pick(self.weights),
        )

    def classes(self) -> tuple[str, ...]:
        """The distinct class names, sorted: as numbers if all are integers, else alphabetically.

        >>> Records((["a", "b"],), ["10", "9"], None, [1, 2], "f.csv").classes()
        ('9', '10')
        """
        names = set(self.labels or ()) | {name for labels in self.label_sets or () for name in labels}
        if all(_WHOLE.fullmatch(name) for name in names):
            return tuple(sorted(names, key=lambda name: (int(name), name)))
        return tuple(sorted(names))

    def is_relevant(self, grade: float) -> bool:
        """Whether a document of this grade is relevant to its query."""
        return grade > (self.scale or (0.0,))[0] if self.relevant is None else grade >= self.relevant

    def fingerprint(self) -> str:
        """SHA-256 of texts, labels, scores and ids: equal for equal rows from different files."""
        ids = "".join(f" {name}" for name in ("queries", "documents") if getattr(self, name) is not None)
        digest = hashlib.sha256(f"{len(self.texts)} {len(self)} {self.target}{ids}".encode())
        for strings in (*self.texts, self.labels or (), self.queries or (), self.documents or ()):
            for string in strings:
                content = string.encode("utf-8", "surrogatepass")
                digest.update(struct.pack("<Q", len(content)))  # so that 'ab','c' differs from 'a','bc'
                digest.update(content)
        for labels in self.label_sets or ():
            digest.update(struct.pack("<Q", len(labels)))
            for name in sorted(labels):
                content = name.encode()
                digest.update(struct.pack("<Q", len(content)) + content)
        for score in self.scores or ():
            digest.update(struct.pack("<d", score))
        for weight in self.weights or ():
            digest.update(struct.pack("<d", weight))
        if self.scale is not None or self.relevant is not None:
            digest.update(f"{self.scale} {self.relevant}".encode())
        return digest.hexdigest()

    def normalized_texts(self) -> list[tuple[str, ...]]:
        """The normalized texts of each row.

        >>> Records((["Hello  World "],), None, None, [1], "f.txt").normalized_texts()
        [('hello world',)]
        """
        return list(zip(*(map(normalized, column) for column in self.texts), strict=True))

    def split_keys(self) -> list[tuple[str, ...]]:
        """The normalized texts of each row that must not be in two splits.

        The texts of a pair are sorted, so that a swapped pair is the same pair; a triplet counts as the pair of anchor
        and positive. For ranking, the order matters.

        >>> Records((["b", "A"], ["a", "B"]), None, None, [1, 2], "f.csv").split_keys()
        [('a', 'b'), ('a', 'b')]
        """
        return list(self.iter_split_keys())

    def iter_split_keys(self) -> Iterator[tuple[str, ...]]:
        """The same, one after the other."""
        keys = zip(*(map(normalized, column) for column in self.texts), strict=True)
        if self.shape in ("texts", "ranking"):
            return keys
        return ((left, right) if left <= right else (right, left) for left, right, *_ in keys)


def normalized(text: str) -> str:
    """A text in lower case, with single spaces between words: equal for texts that differ in nothing else.

    >>> normalized(" Hello  World")
    'hello world'
    """
    return " ".join(text.split()).casefold()
