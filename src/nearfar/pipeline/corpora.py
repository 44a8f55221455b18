"""Texts to search among, and queries to search for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nearfar.data import Layout, Records, read
from nearfar.errors import DataError, Problem


@dataclass(frozen=True)
class Corpus:
    """Single texts, each with its id where the file has ids."""

    texts: list[str]
    ids: list[str] | None
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.texts)


def read_corpus(source: str, *, text: str | None = None, invalid: Literal["refuse", "drop"] = "refuse") -> Corpus:
    """The documents of a file of single texts; rows with the same id and text, or without ids the same text, are one.

    Args:
        source: any source of data, with the columns ``doc_id`` and ``doc``, or ``text``.
        text: the column with the text; None for the usual names.
        invalid: what happens to rows that cannot be used.
    """
    records = read(source, Layout(text=text), invalid=invalid)
    if records.shape != "texts":
        problem = Problem(
            source, f"a corpus has one text a row, and these rows are {_named(records)}",
            "Name the column with the documents: --corpus-text.", line=records.lines[0],
        )  # fmt: skip
        raise DataError([problem])
    return _distinct(records, records.documents)


def read_queries(source: str, *, text: str | None = None, invalid: Literal["refuse", "drop"] = "refuse") -> Corpus:
    """The queries of a file of single texts, one for each row, or of a ranking, each query once.

    Args:
        source: any source of data, with the columns ``query_id`` and ``query``, or ``text``.
        text: the column with the text; None for the usual names.
        invalid: what happens to rows that cannot be used.
    """
    records = read(source, Layout(text=text), invalid=invalid)
    if records.shape == "ranking":
        return _distinct(records, records.queries)
    if records.shape != "texts":
        problem = Problem(
            source, f"a file of queries has one text a row, and these rows are {_named(records)}",
            "Name the column with the queries: --text.", line=records.lines[0],
        )  # fmt: skip
        raise DataError([problem])
    return Corpus(list(records.texts[0]), records.queries, source, records.notes)


def _distinct(records: Records, ids: list[str] | None) -> Corpus:
    texts = records.texts[0]
    if ids is None:
        return Corpus(list(dict.fromkeys(texts)), None, records.source, records.notes)
    kept = list(dict.fromkeys(zip(ids, texts, strict=True)))
    return Corpus([text for _, text in kept], [name for name, _ in kept], records.source, records.notes)


def _named(records: Records) -> str:
    return {"pairs": "pairs", "triplets": "triplets", "ranking": "a ranking", "texts": "texts"}[records.shape]
