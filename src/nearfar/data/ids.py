"""Ids of queries and documents: derived from the texts if there are none, and checked against them if there are."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from nearfar.data.columns import Binding
from nearfar.data.issues import Issues
from nearfar.data.records import Records, normalized
from nearfar.errors import unit_of


def derived(texts: Sequence[str]) -> list[str]:
    """Ids for texts that have none: equal for texts that are equal when normalized.

    >>> a, b, c = derived(["How are you?", "how  are you?", "Who are you?"])
    >>> a == b != c
    True
    """
    return [hashlib.blake2b(normalized(text).encode(), digest_size=10).hexdigest() for text in texts]


def with_ids(records: Records, binding: Binding, issues: Issues) -> Records:
    """The records with ids if they need them; an id with two texts is reported with both lines."""
    if not binding.ranked or records.labels is not None:
        return _single_texts(records, binding, issues)
    queries, documents = records.queries, records.documents
    if queries is None:
        queries = derived(records.texts[0])
    else:
        _report("query", binding.query, queries, _second_texts(queries, records.texts[0]), records, issues)
    if documents is None:
        documents = derived(records.texts[1])
    else:
        per_query = list(zip(queries, documents, strict=True))  # each query may have its own numbers
        second = _second_texts(per_query, records.texts[1])
        _report("document", binding.document, documents, second, records, issues)
        clash = next(_second_texts(documents, records.texts[1]), None)
        if clash and queries[clash[0]] != queries[clash[1]]:
            reason = _two_texts(documents, clash, records)
            issues.notes.append(f"document ids are unique within a query only: {reason}")
    return replace(records, queries=queries, documents=documents)


def _single_texts(records: Records, binding: Binding, issues: Issues) -> Records:
    """Single texts, each of which must have its own id; the ids of labeled pairs only group them."""
    if len(records.texts) > 1 or (records.queries is not None and records.documents is not None):
        return records
    ids = records.documents or records.queries
    if ids is None:
        return records
    kind, column = ("query", binding.query) if records.documents is None else ("document", binding.document)
    second = _second_texts(ids, records.texts[0])
    if binding.strict_ids:
        _report(kind, column, ids, second, records, issues)
    elif clash := next(second, None):
        issues.notes.append(f"column {column!r} is not used: {_two_texts(ids, clash, records)}")
        return replace(records, queries=None, documents=None)
    return records


def _second_texts(keys: Sequence[Hashable], texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The first row of a key with each row that has a further text of it."""
    rows: dict[Hashable, dict[str, int]] = {}
    for row, (key, text) in enumerate(zip(keys, texts, strict=True)):
        first_rows = rows.setdefault(key, {})
        if first_rows and normalized(text) not in first_rows:
            yield next(iter(first_rows.values())), row
        first_rows.setdefault(normalized(text), row)


def _report(
    kind: str,
    column: str | None,
    ids: Sequence[str],
    second: Iterator[tuple[int, int]],
    records: Records,
    issues: Issues,
) -> None:
    remedy = f"Give every {kind} its own id, and the same text in all rows."
    for first, row in second:
        message = f"the id of a {kind} that has another text on {records.place(first)}"
        issues.add(message, remedy, line=records.lines[row], column=column, value=ids[row])


def _two_texts(ids: Sequence[str], rows: tuple[int, int], records: Records) -> str:
    first, second = (records.lines[row] for row in rows)
    return f"{ids[rows[0]][:60]!r} has two texts ({unit_of(records.source)}s {first} and {second})"
