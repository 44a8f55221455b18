"""Which columns are the texts, the label and the ids: as the layout says, or by their usual names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nearfar.data.issues import Issues
from nearfar.data.records import Layout
from nearfar.errors import did_you_mean

Need = Literal["text", "label", "any"]
Kind = Literal["label", "score", "either", "relevance", "grade"]

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
    if need == "label" and target is None and len(issues.problems) + issues.omitted == before:
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
    return Binding(texts, target, kind, query, document, ranked, strict)


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
