"""Ids of queries and documents: derived from the texts if there are none, and checked against them if there are."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import replace

from nearfar.data.columns import Binding
from nearfar.data.issues import Issues
from nearfar.data.records import Records, normalized


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
        _check_texts("query", binding.query, queries, queries, records.texts[0], records, issues)
    if documents is None:
        documents = derived(records.texts[1])
    else:
        per_query = list(zip(queries, documents, strict=True))  # each query may have its own numbers
        _check_texts("document", binding.document, per_query, documents, records.texts[1], records, issues)
        clash = _clash(documents, records.texts[1])
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
    if binding.strict_ids:
        _check_texts(kind, column, ids, ids, records.texts[0], records, issues)
        return records
    clash = _clash(ids, records.texts[0])
    if clash is None:
        return records
    issues.notes.append(f"column {column!r} is not used: {_two_texts(ids, clash, records)}")
    return replace(records, queries=None, documents=None)


def _check_texts(
    kind: str,
    column: str | None,
    keys: Sequence[Hashable],
    ids: Sequence[str],
    texts: Sequence[str],
    records: Records,
    issues: Issues,
) -> None:
    """Report every further text of an id."""
    known: dict[Hashable, dict[str, int]] = {}
    for key, name, text, line in zip(keys, ids, texts, records.lines, strict=True):
        lines = known.setdefault(key, {})
        if lines and normalized(text) not in lines:
            message = f"the id of a {kind} that has another text on line {next(iter(lines.values()))}"
            remedy = f"Give every {kind} its own id, and the same text in all rows."
            issues.add(message, remedy, line=line, column=column, value=name)
        lines.setdefault(normalized(text), line)


def _two_texts(ids: Sequence[str], clash: tuple[int, int], records: Records) -> str:
    first, second = (records.lines[index] for index in clash)
    return f"{ids[clash[0]][:60]!r} has two texts (lines {first} and {second})"


def _clash(ids: Sequence[str], texts: Sequence[str]) -> tuple[int, int] | None:
    """The first two rows with the same id and different texts."""
    known: dict[str, int] = {}
    for index, name in enumerate(ids):
        first = known.setdefault(name, index)
        if texts[first] != texts[index] and normalized(texts[first]) != normalized(texts[index]):
            return first, index
    return None
