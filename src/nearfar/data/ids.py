"""The ids of queries and documents: read, derived where there are none, and true to their texts."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal

from nearfar.data.columns import Binding
from nearfar.data.issues import Ledger
from nearfar.data.records import Records, levelled
from nearfar.data.values import Fault, id_of

Kind = Literal["query", "document"]


def ids_of(values: Sequence[object]) -> tuple[list[str], dict[int, Fault]]:
    """The id each value stands for, and why some stand for none."""
    ids: list[str] = []
    faults: dict[int, Fault] = {}
    for index, value in enumerate(values):
        found = id_of(value)
        if isinstance(found, Fault):
            faults[index] = found
        ids.append("" if isinstance(found, Fault) else found)
    return ids, faults


def derived(texts: Sequence[str]) -> list[str]:
    """Ids for texts that have none: the same for texts that say the same, case and blanks apart.

    >>> a, b, c = derived(["How are you?", "how  are you?", "Who are you?"])
    >>> a == b != c
    True
    """
    return [hashlib.blake2b(levelled(text).encode(), digest_size=10).hexdigest() for text in texts]


def with_ids(records: Records, binding: Binding, ledger: Ledger) -> Records:
    """The records with ids where they need them; an id of two texts is entered with both lines."""
    if not binding.ranked or records.labels is not None:
        return _alone(records, binding, ledger)
    queries, documents = records.queries, records.documents
    if queries is None:
        queries = derived(records.texts[0])
    else:
        _consistent("query", queries, queries, records.texts[0], records, binding.query, ledger)
    if documents is None:
        documents = derived(records.texts[1])
    else:
        within = list(zip(queries, documents, strict=True))  # they may be numbered anew for every query
        _consistent("document", within, documents, records.texts[1], records, binding.document, ledger)
        clash = _clash(documents, records.texts[1])
        if clash and queries[clash[0]] != queries[clash[1]]:
            first, again = (records.lines[index] for index in clash)
            ledger.notes.append(
                f"ids of documents hold within a query only: {documents[clash[0]][:60]!r} "
                f"names two texts (lines {first} and {again})"
            )
    return replace(records, queries=queries, documents=documents)


def _alone(records: Records, binding: Binding, ledger: Ledger) -> Records:
    """Single texts whose ids must each name one of them, and labeled pairs, whose ids only group them."""
    if len(records.texts) > 1 or (records.queries is not None and records.documents is not None):
        return records
    ids = records.documents or records.queries
    column = binding.query if records.documents is None else binding.document
    if ids is None:
        return records
    if binding.firm:
        kind: Kind = "query" if records.documents is None else "document"
        _consistent(kind, ids, ids, records.texts[0], records, column, ledger)
        return records
    clash = _clash(ids, records.texts[0])
    if clash is None:
        return records
    first, again = (records.lines[index] for index in clash)
    ledger.notes.append(
        f"column {column!r} is not used: {ids[clash[0]][:60]!r} names two texts (lines {first} and {again})"
    )
    return replace(records, queries=None, documents=None)


def _consistent(
    kind: Kind,
    keys: Sequence[Hashable],
    ids: Sequence[str],
    texts: Sequence[str],
    records: Records,
    column: str | None,
    ledger: Ledger,
) -> None:
    """Enter every id under which a second text appears, once for each such text."""
    known: dict[Hashable, dict[str, int]] = {}
    for index, (key, text) in enumerate(zip(keys, texts, strict=True)):
        under = known.setdefault(key, {})
        said = levelled(text)
        if said not in under and under:
            ledger.problem(
                f"the id of a {kind} that has another text on line {next(iter(under.values()))}",
                f"Give every {kind} an id of its own, and the same text wherever it stands.",
                line=records.lines[index],
                column=column,
                value=ids[index],
            )
        under.setdefault(said, records.lines[index])


def _clash(ids: Sequence[str], texts: Sequence[str]) -> tuple[int, int] | None:
    """The first two rows with the same id and different texts."""
    known: dict[str, int] = {}
    for index, name in enumerate(ids):
        first = known.setdefault(name, index)
        if texts[first] != texts[index] and levelled(texts[first]) != levelled(texts[index]):
            return first, index
    return None
