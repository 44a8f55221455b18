"""Unchecked rows to records: columns are recognized, values and ids are checked, and all problems are collected."""

from __future__ import annotations

import hashlib
import math
import sys
from array import array
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any, Literal, cast

import numpy as np

from nearfar.data.disk_columns import LabelWriter, TextWriter, ValueWriter, finished
from nearfar.data.records import Layout, Records, normalized
from nearfar.data.text_files import Row
from nearfar.data.values import (
    BELOW_ZERO,
    EMPTY_TEXT,
    NO_WEIGHT,
    Fault,
    Issues,
    id_of,
    in_scale,
    indicator_of,
    is_list,
    is_text,
    label_of,
    labels_of,
    long_text,
    number_of,
    score_of,
    text_fault,
)
from nearfar.errors import counted, did_you_mean, unit_of

Need = Literal["text", "label", "any"]
Kind = Literal["label", "score", "either", "relevance", "grade"]
Targets = tuple[Sequence[str] | None, Sequence[float] | None, Sequence[tuple[str, ...]] | None]
"""Of all rows: one label each, scores, or label sets; at most one of them."""

TARGETS = (
    *("label", "labels", "score", "scores"),  # this order is that of sentence-transformers
    *("target", "class", "category", "intent", "relevance", "similarity_score", "gold_label", "is_duplicate", "y"),
)
SCORES = ("score", "scores", "similarity_score")
RELEVANCE = ("relevance", "rel")
"""Names that come before all other targets in ranking."""
PAIRS = (
    *(("text_a", "text_b"), ("sentence1", "sentence2"), ("sentence_a", "sentence_b"), ("question1", "question2")),
    *(("anchor", "positive"), ("query", "positive"), ("query", "answer"), ("query", "doc"), ("query", "document")),
    *(("query", "passage"), ("premise", "hypothesis"), ("sent0", "sent1"), ("text1", "text2"), ("left", "right")),
    *(("question", "answer"), ("question", "positive"), ("anchor", "pos"), ("query", "pos"), ("question", "pos")),
)
TRIPLETS = (("sent0", "sent1", "hard_neg"), ("premise", "entailment", "contradiction"))
"""In addition to any of the anchors with ``positive`` or ``pos`` and with ``negative`` or ``neg``."""
ANCHORS = ("anchor", "query", "premise", "text", "sentence", "question")
_ALWAYS_ANCHORS = ("anchor", "query", "premise")
"""Anchors even if there is a label; a labeled text may have columns named positive and negative for its classes."""
PLAIN = ("text", "texts")
"""Names that are preferred among several single texts."""
SINGLES = (
    *("sentence", "content", "review", "question", "query", "utterance", "message", "document", "body"),
    *("sms", "tweet", "comment", "title", "doc", "passage"),
)
QUERY_IDS = ("query_id", "query-id", "queryid", "qid", "question_id")
DOC_IDS = ("doc_id", "doc-id", "docid", "document_id", "passage_id", "pid", "corpus_id", "corpus-id")
QUERIES = ("query", "question")
DOCUMENTS = ("doc", "document", "passage")

USUAL = frozenset(
    (*TARGETS, *SCORES, *RELEVANCE, *chain(*PAIRS), *chain(*TRIPLETS), *ANCHORS, *PLAIN, *SINGLES, *QUERY_IDS, *DOC_IDS)
) | {"positive", "pos", "negative", "neg"}
"""All names that columns are recognized by."""

_NAME_TEXTS = (
    "Name the column with data.text (--text), for pairs also data.pair (--pair), for triplets also data.negative; "
    "name the columns of a CSV or TSV file without a header line with data.columns."
)


@dataclass(frozen=True, slots=True)
class Binding:
    """The columns that are read."""

    texts: tuple[str, ...]
    target: str | None = None
    kind: Kind | None = None
    """``either``: a label by its name, but a score if a pair has fractions; ``grade``: a label by its name, but the
    relevance if a ranking has numbers."""
    query: str | None = None
    """The column of query ids."""
    document: str | None = None
    """The column of document ids."""
    ranked: bool = False
    """Whether the pairs are queries with documents that are more or less relevant."""
    strict_ids: bool = True
    """Whether an invalid id is a problem; else its column is left out."""
    separator: str | None = None
    """What separates the labels of a row, where a column has several."""
    indicators: tuple[str, ...] = ()
    """Columns of 0 and 1, one for each label."""
    weight: str | None = None
    """The column with the weight of each row."""


def bind(columns: Sequence[str], layout: Layout, need: Need, issues: Issues) -> Binding | None:
    """The columns to read among those of a source; None after reporting why they cannot be recognized."""
    before = len(issues.problems) + issues.omitted
    if need == "text":
        layout = Layout(layout.text, layout.pair, negative=layout.negative)
    texts = _texts(columns, layout, issues)
    if need == "text":
        return Binding(texts) if texts and len(issues.problems) + issues.omitted == before else None
    query, document = _ids(columns, layout, texts or (), issues)
    ranked = _ranked(columns, layout, texts or (), query, document)
    target, holds = _target(columns, layout, (*(texts or ()), query, document), issues, ranked=ranked)
    indicators = _indicators(columns, layout, (*(texts or ()), target), issues)
    taken = (*(texts or ()), target, query, document, *indicators)
    weight = layout.weight
    if weight is not None and _check_exists("weight", weight, columns, issues) and weight in taken:
        message = f"data.weight names the column {weight!r}, which is a text, a target or an id already"
        issues.add(message, "Set data.weight to another column.")
    if layout.label_separator is not None and (target is None or holds == "score") and not indicators:
        message = f"data.label_separator is set, but no column is recognized as the label among {_listed(columns)}"
        issues.add(message, "Name it with data.label (--label).")
    if need == "label" and target is None and not indicators and len(issues.problems) + issues.omitted == before:
        message = f"no column is recognized as the label among {_listed(columns)}"
        issues.add(message, "Name it with data.label (--label), or with data.score (--score) for scores.")
    if len(issues.problems) + issues.omitted > before or not texts:
        return None
    strict = ranked or bool(layout.query_id or layout.doc_id)
    if not strict:
        useful = layout.label is not None and query is not None if len(texts) == 2 else len(texts) == 1 and not target
        if not useful:  # useful in a corpus, in a file of queries, and in a ranking that is read as classes
            query = document = None
        strict = len(texts) == 1 and texts[0].strip().lower() in (*QUERIES, *DOCUMENTS)
    kind: Kind | None = holds
    if holds == "label" and layout.label is None and len(texts) > 1:
        kind = "grade" if ranked else "either"
    elif holds == "score" and ranked:
        kind = "relevance"
    return Binding(texts, target, kind, query, document, ranked, strict, layout.label_separator, indicators, weight)


def _indicators(columns: Sequence[str], layout: Layout, taken: Sequence[str | None], issues: Issues) -> tuple[str, ...]:
    """The columns of 0 and 1 that data.label_columns names."""
    named = layout.label_columns or ()
    if named and (layout.label is not None or layout.score is not None or layout.label_separator is not None):
        key = "label" if layout.label is not None else "score" if layout.score is not None else "label_separator"
        issues.add(f"data.label_columns and data.{key} are both set", "Keep the one that says where the labels are.")
        return ()
    for name in named:
        if _check_exists("label_columns", name, columns, issues) and name in taken:
            message = f"data.label_columns names the column {name!r}, which is a text already"
            issues.add(message, "Leave it out of data.label_columns.")
    return tuple(named)


def _texts(columns: Sequence[str], layout: Layout, issues: Issues) -> tuple[str, ...] | None:
    keys = (("text", layout.text), ("pair", layout.pair), ("negative", layout.negative))
    named = [(key, name) for key, name in keys if name is not None]
    if named:
        exist = [_check_exists(key, name, columns, issues) for key, name in named]
        same = next(((a, b, one) for a, one in named for b, other in named if a != b and one == other), None)
        if layout.text is None and layout.pair is not None:
            issues.add("data.pair names the right text, but data.text does not name the left", _NAME_TEXTS)
        elif layout.negative is not None and (layout.text is None or layout.pair is None):
            message = "data.negative names the negative, but data.text and data.pair do not name anchor and positive"
            issues.add(message, "Name all three columns of the triplets, or none.")
        elif same:
            issues.add(f"data.{same[0]} and data.{same[1]} name the same column {same[2]!r}", _NAME_TEXTS)
        return tuple(name for _, name in named) if all(exist) else None
    taken = (layout.label, layout.score, layout.query_id, layout.doc_id)
    usual = _usual(name for name in columns if name not in taken)
    triplets = _triplets(usual, targeted=bool(layout.label or layout.score or usual.keys() & {*TARGETS}))
    if len(triplets) == 1:
        return triplets[0]
    pairs = [(usual[left], usual[right]) for left, right in PAIRS if left in usual and right in usual]
    plain = _named(usual, PLAIN)
    if len(pairs) == 1 and not plain and not triplets:
        return pairs[0]
    singles = plain[:1] or _identified(usual, layout) or _named(usual, SINGLES)
    if not pairs and not triplets and len(singles) == 1:
        return (singles[0],)
    choices = [
        *(f"the triplet {', '.join(map(repr, each))}" for each in triplets),
        *(f"the pair {left!r}, {right!r}" for left, right in pairs),
        *map(repr, singles),
    ]
    message = f"no column is recognized as the text among {_listed(columns)}"
    if choices:
        message = f"it is not clear which column is the text: {' or '.join(choices)}, among {_listed(columns)}"
    issues.add(message, _NAME_TEXTS)
    return None


def _triplets(usual: Mapping[str, str], *, targeted: bool) -> list[tuple[str, ...]]:
    """All triplets among the usual names; a column named anchor is the only anchor."""
    fixed = [tuple(usual[name] for name in each) for each in TRIPLETS if all(name in usual for name in each)]
    anchors = _named(usual, ("anchor",)) or _named(usual, _ALWAYS_ANCHORS if targeted else ANCHORS)
    positives, negatives = _named(usual, ("positive", "pos")), _named(usual, ("negative", "neg"))
    return [*fixed, *((a, p, n) for a in anchors for p in positives for n in negatives)]


def _identified(usual: Mapping[str, str], layout: Layout) -> list[str]:
    """The text that a column of ids belongs to: the document of a corpus, or the query of a file of queries."""
    for named, ids, texts in ((layout.doc_id, DOC_IDS, DOCUMENTS), (layout.query_id, QUERY_IDS, QUERIES)):
        if (named or _named(usual, ids)) and (matching := _named(usual, texts)):
            return matching
    return []


def _ids(columns: Sequence[str], layout: Layout, texts: Sequence[str], issues: Issues) -> tuple[str | None, str | None]:
    taken = (*texts, layout.label, layout.score)
    usual = _usual(name for name in columns if name not in taken)
    query, document = layout.query_id, layout.doc_id
    for key, name in (("query_id", query), ("doc_id", document)):
        if name is not None and _check_exists(key, name, columns, issues) and name in taken:
            message = f"data.{key} names the column {name!r}, which is a text or a target already"
            issues.add(message, f"Set data.{key} to another column.")
    query = query if query is not None else next(iter(_named(usual, QUERY_IDS)), None)
    document = document if document is not None else next(iter(_named(usual, DOC_IDS)), None)
    if query is not None and query == document:
        issues.add(
            f"data.query_id and data.doc_id name the same column {query!r}", "Set one of them to another column."
        )
    return query, document


def _ranked(
    columns: Sequence[str], layout: Layout, texts: Sequence[str], query: str | None, document: str | None
) -> bool:
    if len(texts) != 2 or layout.label is not None:
        return False
    if query is not None or layout.doc_id is not None:
        return True
    asks = texts[0].strip().lower() in QUERIES
    return asks and (document is not None or any(name in RELEVANCE for name in _usual(columns)))


def _target(
    columns: Sequence[str], layout: Layout, taken: Sequence[str | None], issues: Issues, *, ranked: bool
) -> tuple[str | None, Literal["label", "score"] | None]:
    if layout.label is not None and layout.score is not None:
        issues.add("data.label and data.score are both set", "Keep the one that says what the column holds.")
        return None, None
    if layout.label_columns:
        return None, None
    for key, name in (("label", layout.label), ("score", layout.score)):
        if name is None:
            continue
        if _check_exists(key, name, columns, issues) and name in taken:
            message = f"data.{key} names the column {name!r}, which is a text already"
            issues.add(message, f"Set data.{key} to another column.")
        return name, "score" if key == "score" else "label"
    usual = _usual(name for name in columns if name not in taken)
    scores = (*RELEVANCE, *SCORES) if ranked else SCORES
    for name in (*RELEVANCE, *TARGETS) if ranked else TARGETS:
        if name in usual:
            return usual[name], "score" if name in scores else "label"
    return None, None


def _check_exists(key: str, name: str, columns: Sequence[str], issues: Issues) -> bool:
    if name in columns:
        return True
    flag = f" (--{key})" if key in ("text", "pair", "label", "score") else ""
    remedy = f"Set data.{key}{flag} to one of them.{did_you_mean(name, columns)}"
    issues.add(f"there is no column {name!r} among {_listed(columns)}", remedy)
    return False


def _usual(columns: Iterable[str]) -> dict[str, str]:
    """Columns by their names in lower case and without surrounding spaces; exact spelling first."""
    columns = list(columns)
    usual: dict[str, str] = {}
    for name in columns:
        usual.setdefault(name.strip().lower(), name)
    return usual | {name: name for name in columns if name in usual}


def _named(usual: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """The columns that have one of these names."""
    return [usual[name] for name in names if name in usual]


def _listed(columns: Sequence[str]) -> str:
    names = [repr(name[:60]) for name in columns[:30]]
    more = f" and {len(columns) - 30:,} more" if len(columns) > 30 else ""
    return f"the columns found: {', '.join(names)}{more}" if names else "no columns at all"


def derived(texts: Sequence[str]) -> list[str]:
    """Ids for texts that have none: equal for texts that are equal when normalized.

    >>> a, b, c = derived(["How are you?", "how  are you?", "Who are you?"])
    >>> a == b != c
    True
    """
    return [hashlib.blake2b(normalized(text).encode(), digest_size=10).hexdigest() for text in texts]


def with_ids(records: Records, binding: Binding, issues: Issues) -> Records:
    """The records with ids if they need them; an id with two texts is reported with both lines."""
    if not binding.ranked or records.is_labeled:
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


PEEK = 1_000
"""Rows that are searched for column names, since JSON rows need not all have the same."""


@dataclass
class Table:
    """The records of a source, and all problems."""

    structure: Issues
    """Problems of the file itself, for which it is always refused."""
    rows: Issues
    """Problems of single rows, which can be dropped instead."""
    rows_read: int = 0
    """Rows that could be read, valid or not."""
    dropped: dict[str, list[int]] = field(default_factory=dict)
    """The lines of invalid rows by their first problem."""
    empty: list[int] = field(default_factory=list)
    """The lines of rows with an empty text."""
    records: Records | None = None
    """The valid rows; None if the columns are not known."""


HELD = 50_000_000
"""Characters of rows that are held at a time."""


def first_rows(rows: Iterator[Row], most: int) -> list[Row]:
    """The next rows, at most so many, and fewer where they are very long."""
    first: list[Row] = []
    chars = 0
    while chars < HELD and len(first) < most and (row := next(rows, None)) is not None:
        first.append(row)
        chars += sum(len(value) for value in row[1].values() if isinstance(value, str))
    return first


class Columns:
    """The columns that are read from a source, by the names in its first rows."""

    def __init__(self, rows: Iterator[Row], layout: Layout, need: Need, issues: Issues) -> None:
        first = first_rows(rows, PEEK)
        self.layout, self.need, self.issues = layout, need, issues
        self.known = dict.fromkeys(name for _, values in first for name in values)
        self.binding = bind(list(self.known), layout, need, issues) if first else None
        self._rows = chain(first, rows)

    def count(self) -> int:
        """The number of rows of a source whose columns are not known."""
        number = sum(1 for _ in self._rows)
        if not number and not self.issues.problems:
            self.issues.add("there are no rows", "Name a source that has rows.")
        return number

    def rows(self) -> Iterator[Row]:
        """All rows; the first late column that would change which columns are read is reported."""
        changed = False
        for before, (line, values) in enumerate(self._rows):
            if not changed and not self.known.keys() >= values.keys():
                changed = self._report_late(line, values, before)
            yield line, values

    def _report_late(self, line: int, values: Mapping[str, object], before: int) -> bool:
        new = [name for name in values if name not in self.known]
        late = [name for name in new if name.strip().lower() in USUAL]  # no other name is recognized
        old = list(self.known) if late else []  # each of many rows may have a column of its own
        self.known.update(dict.fromkeys(new))
        if not late:
            return False

        def changes(added: int) -> bool:
            names = [*old, *late[:added]]
            return bind(names, self.layout, self.need, Issues(self.issues.where)) != self.binding

        if not changes(len(late)):
            return False
        first = next(late[added - 1] for added in range(1, len(late) + 1) if changes(added))
        message = f"a column {first!r} appears first here, but the {before:,} rows before do not have it"
        remedy = (
            "Give all rows the same columns, or name those to read with data.text, data.pair, data.label, data.score."
        )
        self.issues.add(message, remedy, line=line)
        return True


def check_rows(source: str, rows: Iterator[Row], layout: Layout, need: Need, issues: Issues) -> Table:
    """Read all rows, recognize their columns, and check every value."""
    table = Table(issues, Issues(source))
    columns = Columns(rows, layout, need, issues)
    binding = columns.binding
    if binding is None:
        table.rows_read = columns.count()
        return table
    checker = _Checker(table, binding, layout)
    columns_of_values: dict[str, Any] = {
        name: ValueWriter() if checker.disk else []
        for name in (binding.target, binding.query, binding.document, binding.weight, *binding.indicators)
        if name is not None
    }
    for line, values in columns.rows():
        checker.add(line, values)
        for name, column in columns_of_values.items():
            column.append(values.get(name))
    others: dict[str, Sequence[object]] = {name: finished(column) for name, column in columns_of_values.items()}
    table.rows_read = len(checker.lines)
    if need != "text":
        used = (*binding.texts, *others)
        unused = [repr(name[:60]) for name in columns.known if name and name not in used]
        if unused:
            more = " and more" if len(unused) > 20 else ""
            issues.notes.append(f"columns that are not used: {', '.join(unused[:20])}{more}")
    labels, scores, label_sets = checker.targets(others)
    queries, documents = (checker.ids(name, others) for name in (binding.query, binding.document))
    texts, lines = tuple(finished(column) for column in checker.texts), checker.lines
    if checker.disk and lines and lines[-1] - lines[0] == len(lines) - 1:
        lines = range(lines[0], lines[-1] + 1)
    records = Records(
        texts, labels, scores, lines, source, queries=queries, documents=documents,
        label_sets=label_sets, weights=checker.weights(others),
    )  # fmt: skip
    if scores is not None:
        records = replace(records, scale=layout.scale, relevant=layout.relevant if binding.ranked else None)
    if not all(checker.valid):
        records = records.take(np.flatnonzero(np.array(checker.valid, dtype=bool)))
    table.records = with_ids(records, binding, issues)
    return table


def drop_notes(table: Table) -> list[str]:
    """How many rows were dropped, by reason."""
    unit = unit_of(table.structure.where)
    return [
        f"{counted(len(lines), 'row')} dropped because {reason} (first on {unit} {lines[0]})"
        for reason, lines in table.dropped.items()
    ]


class _Checker:
    """The columns of a table under construction, and which of its rows are valid."""

    def __init__(self, table: Table, binding: Binding, layout: Layout) -> None:
        self.table, self.binding, self.scale = table, binding, layout.scale
        self.longest = layout.limits.line or sys.maxsize
        self.disk = layout.disk is True
        self.texts: tuple[Any, ...] = tuple(TextWriter() if self.disk else [] for _ in binding.texts)
        self.lines: Any = array("q") if self.disk else []
        self.valid: Any = bytearray() if self.disk else []

    def reject(self, index: int, fault: Fault, column: str, value: object) -> None:
        """Report an invalid value; the row is dropped for the first one."""
        line = self.lines[index]
        self.table.rows.add(fault.message, fault.remedy, line=line, column=column, value=value)
        if self.valid[index]:
            self.table.dropped.setdefault(fault.message, []).append(line)
        self.valid[index] = False

    def add(self, line: int, values: Mapping[str, object]) -> None:
        """Add the texts of a row."""
        self.lines.append(line)
        self.valid.append(True)
        empty = False
        for column, name in zip(self.texts, self.binding.texts, strict=True):
            value = values.get(name)
            if is_text(value) and len(value) <= self.longest:  # type: ignore[arg-type]  # it is a string
                column.append(value)
            else:
                column.append("")
                fault = long_text(self.longest) if is_text(value) else text_fault(value)
                empty = empty or fault is EMPTY_TEXT
                self.reject(-1, fault, name, value)
        if empty:
            self.table.empty.append(line)

    def targets(self, columns: Mapping[str, Sequence[object]]) -> Targets:
        """The labels, the scores or the label sets of all rows."""
        name, kind = self.binding.target, self.binding.kind
        if self.binding.indicators:
            return None, None, self._indicated(columns)
        if name is None:
            return None, None, None
        if self.binding.separator is not None or _has_lists(columns[name]):
            return None, None, self._label_sets(name, columns[name])
        scored = kind in ("score", "relevance")
        if kind == "grade":
            scored = _numbers(columns[name])[0]
        elif kind == "either" and all(_numbers(columns[name])):
            scored = True
            self.table.structure.notes.append(
                f"column {name!r} has fractions, so it is read as scores; set data.label to read it as classes"
            )
        cached_label = lru_cache(maxsize=None, typed=True)(label_of)  # typed: 1, 1.0 and True are equal
        labels: Any = LabelWriter() if self.disk else []
        scores: Any = array("d") if self.disk else []
        for index, value in enumerate(columns[name]):
            result: str | float | Fault
            if scored:
                result = score_of(value)
            else:
                result = cached_label(value) if isinstance(value, str | int | float) else label_of(value)
            if self.binding.ranked and isinstance(result, float) and result < 0:
                result = BELOW_ZERO
            elif scored and self.scale is not None and isinstance(result, float):
                result = in_scale(result, self.scale)
            if isinstance(result, Fault):
                self.reject(index, result, name, value)
            if scored:
                scores.append(result if isinstance(result, float) else 0.0)
            else:
                labels.append(result if isinstance(result, str) else "")
        return (None, scores, None) if scored else (finished(labels), None, None)

    def _label_sets(self, name: str, column: Sequence[object]) -> list[tuple[str, ...]]:
        """The labels of each row, from lists or from texts that a separator divides."""
        known: dict[tuple[str, ...] | Fault, tuple[str, ...] | Fault] = {}  # equal ones are one, in memory
        results = [known.setdefault(one, one) for one in (labels_of(value, self.binding.separator) for value in column)]
        for index, result in enumerate(results):
            if isinstance(result, Fault):
                self.reject(index, result, name, column[index])
        return [() if isinstance(result, Fault) else result for result in results]

    def _indicated(self, columns: Mapping[str, Sequence[object]]) -> list[tuple[str, ...]]:
        """The labels of each row, from a column of 0 and 1 for each label."""
        chosen: list[list[str]] = [[] for _ in self.lines]
        for name in self.binding.indicators:
            for index, value in enumerate(columns[name]):
                applies = indicator_of(value)
                if isinstance(applies, Fault):
                    self.reject(index, applies, name, value)
                elif applies:
                    chosen[index].append(name)
        return [tuple(labels) for labels in chosen]

    def weights(self, columns: Mapping[str, Sequence[object]]) -> Sequence[float] | None:
        """The weights of all rows; None if no column has them."""
        name = self.binding.weight
        if name is None:
            return None
        weights: Any = array("d") if self.disk else []
        for index, value in enumerate(columns[name]):
            weight = number_of(value)
            if weight is None or not math.isfinite(weight) or weight < 0:
                self.reject(index, NO_WEIGHT, name, value)
            weights.append(weight if weight is not None else 0.0)
        return cast(Sequence[float], weights)

    def ids(self, name: str | None, columns: Mapping[str, Sequence[object]]) -> list[str] | None:
        """The ids in a column; None if there is no such column, or one that is left out for an invalid id."""
        if name is None:
            return None
        results = [id_of(value) for value in columns[name]]
        for index, result in enumerate(results):
            if isinstance(result, Fault):
                if not self.binding.strict_ids:
                    reason = f"{result.message} on {unit_of(self.table.structure.where)} {self.lines[index]}"
                    self.table.structure.notes.append(f"column {name!r} is not used: {reason}")
                    return None
                self.reject(index, result, name, columns[name][index])
        return ["" if isinstance(result, Fault) else result for result in results]


def _has_lists(targets: Sequence[object]) -> bool:
    """Whether most values are lists, so that a row has several labels; a single list among names is a fault."""
    lists = sum(map(is_list, targets))
    return 2 * lists > sum(value is not None for value in targets)


def _numbers(targets: Sequence[object]) -> tuple[bool, bool]:
    """Whether all values are numbers, and whether some of them are fractions."""
    fraction = False
    for value in targets:
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        number = number_of(value)
        if number is None:
            return False, False
        fraction = fraction or (math.isfinite(number) and not number.is_integer())
    return True, fraction
