"""Corpora to search: single texts, and which of them are relevant to the rows of a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nearfar.data.disk_columns import DiskTexts, first_rows, picked
from nearfar.data.readers import Invalid, read
from nearfar.data.records import Layout, Records, normalized
from nearfar.data.targets import grades_of, relevant_grade
from nearfar.errors import DataError, Problem, counted, shorten


@dataclass(frozen=True)
class Corpus:
    """Single texts, with their ids where the file has ids."""

    texts: Sequence[str]
    ids: Sequence[str] | None
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)

    def fingerprint(self) -> str:
        """SHA-256 of the texts."""
        return Records((self.texts,), None, None, [0] * len(self.texts), self.source).fingerprint()


def read_corpus(
    source: str,
    *,
    text: str | None = None,
    encoding: str | None = None,
    invalid: Invalid = "refuse",
    large: bool = False,
    disk: bool | Literal["auto"] = False,
) -> Corpus:
    """The documents of a file of single texts; rows with the same id and text, or without ids the same text, are one.

    Args:
        source: any data source, with the columns ``doc_id`` and ``doc``, or ``text``.
        text: the column with the text; None for the usual names.
        encoding: the character encoding of a text file; None detects it.
        invalid: what happens to invalid rows.
        large: whether it is read whatever its size.
        disk: whether the texts are kept on disk; ``auto``: those of large files are.
    """
    records = read(source, Layout(text=text, encoding=encoding, large=large, disk=disk), invalid=invalid)
    if records.shape != "texts":
        raise _not_single(records, "a corpus", "documents: --corpus-text")
    return _distinct(records, records.documents)


def read_queries(
    source: str,
    *,
    text: str | None = None,
    encoding: str | None = None,
    invalid: Invalid = "refuse",
    large: bool = False,
) -> Corpus:
    """The queries of a file of single texts, one for each row, or of a ranking, each query once.

    Args:
        source: any data source, with the columns ``query_id`` and ``query``, or ``text``.
        text: the column with the text; None for the usual names.
        encoding: the character encoding of a text file; None detects it.
        invalid: what happens to invalid rows.
        large: whether it is read whatever its size.
    """
    records = read(source, Layout(text=text, encoding=encoding, large=large), invalid=invalid)
    if records.shape == "ranking":
        return _distinct(records, records.queries)
    if records.shape != "texts":
        raise _not_single(records, "a file of queries", "queries: --text")
    return Corpus(list(records.texts[0]), records.queries, source, records.notes)


def _distinct(records: Records, ids: Sequence[str] | None) -> Corpus:
    texts = records.texts[0]
    if isinstance(texts, DiskTexts):
        keys = texts if ids is None else (f"{name}\0{text}" for name, text in zip(ids, texts, strict=True))
        first = first_rows(keys)
        places = np.flatnonzero(first == np.arange(len(first)))
        return Corpus(texts.pick(places), ids and picked(ids, places), records.source, records.notes)
    if ids is None:
        return Corpus(list(dict.fromkeys(texts)), None, records.source, records.notes)
    kept = list(dict.fromkeys(zip(ids, texts, strict=True)))
    return Corpus([text for _, text in kept], [name for name, _ in kept], records.source, records.notes)


def _not_single(records: Records, what: str, column: str) -> DataError:
    rows = "a ranking" if records.shape == "ranking" else records.shape
    message = f"{what} has one text a row, and these rows are {rows}"
    return DataError(Problem(records.source, message, f"Name the column with the {column}.", line=records.lines[0]))


@dataclass(frozen=True)
class Judgments:
    """Which texts of a corpus are relevant to which left texts of a file."""

    queries: tuple[str, ...]
    """Each left text once, in the order of the file."""
    grades: dict[tuple[str, str], int]
    """The left text of a row and a text of the corpus, to the grade of the row."""
    positive: int
    """The lowest grade that is relevant."""
    notes: tuple[str, ...] = ()
    """What is left out."""


def judge(records: Records, corpus: Corpus, *, invalid: Invalid = "refuse") -> Judgments:
    """Look up the right text of every row in a corpus; case and blanks make no difference.

    A query none of whose relevant texts is there cannot be answered: DataError, or ``invalid="drop"`` leaves out its
    rows, with a note.

    Args:
        records: pairs, triplets or a ranking.
        corpus: the texts to search.
        invalid: what happens to queries without a relevant text in the corpus.
    """
    exact, similar = set(corpus.texts), dict[str, str]()
    for text in corpus.texts:
        similar.setdefault(normalized(text), text)
    positive = relevant_grade(records)
    grades: dict[tuple[str, str], int] = {}
    lost: dict[str, int] = {}
    found: set[str] = set()
    for row, (query, text, grade) in enumerate(zip(*records.texts[:2], grades_of(records), strict=True)):
        document = text if text in exact else similar.get(normalized(text))
        if document is not None:
            grades[query, document] = max(grade, grades.get((query, document), 0))
            found |= {query} if grade >= positive else set()
        elif grade >= positive:
            lost.setdefault(query, row)
    if not found and not lost:
        message = "none of its rows is a positive pair or has a relevant document, so there is nothing to find"
        raise DataError(Problem(records.source, message, "Search for positive pairs: label or relevance 1."))
    absent = {query: row for query, row in lost.items() if query not in found}
    if absent and (invalid == "refuse" or not found):
        row = next(iter(absent.values()))
        number = counted(len(found) + len(absent), "query", "queries")
        message = f"{len(absent):,} of {number} {_have(len(absent))} no relevant text in {corpus.source}"
        remedy = "Search a corpus that has them; texts are compared apart from case and blanks."
        if found:
            remedy += ' Or leave these queries out: --invalid drop, or data.invalid = "drop".'
        raise DataError(Problem(records.source, message, remedy, line=records.lines[row], value=records.texts[1][row]))
    grades = {pair: grade for pair, grade in grades.items() if pair[0] not in absent}
    queries = tuple(query for query in dict.fromkeys(records.texts[0]) if query not in absent)
    return Judgments(queries, grades, positive, tuple(_left_out(records, corpus, absent, lost)))


def _left_out(records: Records, corpus: Corpus, absent: Iterable[str], lost: dict[str, int]) -> list[str]:
    """What to say of relevant texts that are not in the corpus."""
    notes, gone = list[str](), set(absent)
    partly = [row for query, row in lost.items() if query not in gone]
    for rows, what in (
        ([lost[query] for query in absent], "without a relevant text in {}, left out of all scores"),
        (partly, "with a relevant text that is not in {} and does not count"),
    ):
        if rows:
            example = f"{shorten(records.texts[1][rows[0]])} on {records.place(rows[0])}"
            number = counted(len(rows), "query", "queries")
            notes.append(f"{records.source}: {number} {what.format(corpus.source)} (such as {example})")
    return notes


def _have(number: int) -> str:
    return "has" if number == 1 else "have"
