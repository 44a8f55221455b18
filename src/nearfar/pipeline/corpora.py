"""Corpora to search, and queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nearfar.data import Layout, Records, read
from nearfar.errors import DataError, Problem


@dataclass(frozen=True)
class Corpus:
    """Single texts, with their ids where the file has ids."""

    texts: list[str]
    ids: list[str] | None
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)


def read_corpus(source: str, *, text: str | None = None, invalid: Literal["refuse", "drop"] = "refuse") -> Corpus:
    """The documents of a file of single texts; rows with the same id and text, or without ids the same text, are one.

    Args:
        source: any data source, with the columns ``doc_id`` and ``doc``, or ``text``.
        text: the column with the text; None for the usual names.
        invalid: what happens to invalid rows.
    """
    records = read(source, Layout(text=text), invalid=invalid)
    if records.shape != "texts":
        raise _not_single(records, "a corpus", "documents: --corpus-text")
    return _distinct(records, records.documents)


def read_queries(source: str, *, text: str | None = None, invalid: Literal["refuse", "drop"] = "refuse") -> Corpus:
    """The queries of a file of single texts, one for each row, or of a ranking, each query once.

    Args:
        source: any data source, with the columns ``query_id`` and ``query``, or ``text``.
        text: the column with the text; None for the usual names.
        invalid: what happens to invalid rows.
    """
    records = read(source, Layout(text=text), invalid=invalid)
    if records.shape == "ranking":
        return _distinct(records, records.queries)
    if records.shape != "texts":
        raise _not_single(records, "a file of queries", "queries: --text")
    return Corpus(list(records.texts[0]), records.queries, source, records.notes)


def _distinct(records: Records, ids: list[str] | None) -> Corpus:
    texts = records.texts[0]
    if ids is None:
        return Corpus(list(dict.fromkeys(texts)), None, records.source, records.notes)
    kept = list(dict.fromkeys(zip(ids, texts, strict=True)))
    return Corpus([text for _, text in kept], [name for name, _ in kept], records.source, records.notes)


def _not_single(records: Records, what: str, column: str) -> DataError:
    rows = "a ranking" if records.shape == "ranking" else records.shape
    message = f"{what} has one text a row, and these rows are {rows}"
    return DataError(Problem(records.source, message, f"Name the column with the {column}.", line=records.lines[0]))
