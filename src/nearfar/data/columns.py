"""Which columns are the texts, which the label, which the ids: as told, or by the usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from nearfar.data.issues import Ledger
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
"""In ranking they come before all other targets."""
PAIRS = (
    ("text_a", "text_b"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("question1", "question2"),
    ("anchor", "positive"),
    ("query", "positive"),
    ("query", "answer"),
    ("query", "doc"),
    ("query", "document"),
    ("query", "passage"),
    ("premise", "hypothesis"),
    ("sent0", "sent1"),
    ("text1", "text2"),
    ("left", "right"),
)
TRIPLETS = (("sent0", "sent1", "hard_neg"), ("premise", "entailment", "contradiction"))
"""Beside any of the anchors with ``positive`` or ``pos`` and with ``negative`` or ``neg``."""
ANCHORS = ("anchor", "query", "premise", "text", "sentence", "question")
_FIRM = ("anchor", "query", "premise")
"""Anchors that are so beside a label, too; a text with a label may have columns of the odds of its classes."""
PLAIN = ("text", "texts")
"""Names so plain that they settle the matter among several single texts."""
SINGLES = (
    *("sentence", "content", "review", "question", "query", "utterance", "message", "document", "body"),
    *("sms", "tweet", "comment", "title", "doc", "passage"),
)
QUERY_IDS = ("query_id", "query-id", "queryid", "qid", "question_id")
DOC_IDS = ("doc_id", "doc-id", "docid", "document_id", "passage_id", "pid", "corpus_id", "corpus-id")
QUERIES = ("query", "question")
DOCUMENTS = ("doc", "document", "passage")

_NAME_TEXTS = (
    "Name the column with data.text (--text), for pairs also data.pair (--pair), for triplets data.negative, too; "
    "name the columns of a CSV or TSV file without a header line with data.columns."
)


@dataclass(frozen=True, slots=True)
class Binding:
    """The columns that are read."""

    texts: tuple[str, ...]
    target: str | None = None
    kind: Kind | None = None
    """``either``: a label by its name, but in pairs its values may turn out to be scores; ``grade``: a
    label by its name, but in ranking its values may turn out to be numbers, and so the relevance."""
    query: str | None = None
    """The column of the ids of queries."""
    document: str | None = None
    """The column of the ids of documents."""
    ranked: bool = False
    """Whether the pairs are queries, each with documents that are more or less relevant to it."""
    firm: bool = True
    """Whether ids must be ids; else a column that turns out to hold none is left out."""


def bind(found: Sequence[str], layout: Layout, need: Need, ledger: Ledger) -> Binding | None:
    """The columns to read among those found; None after entering why there is no telling."""
    before = len(ledger.problems) + ledger.unlisted
    if need == "text":
        layout = Layout(layout.text, layout.pair, negative=layout.negative)
    texts = _texts(found, layout, ledger)
    if need == "text":
        return Binding(texts) if texts and len(ledger.problems) + ledger.unlisted == before else None
    query, document = _ids(found, layout, texts or (), ledger)
    ranked = _ranked(found, layout, texts or (), query, document)
    target, holds = _target(found, layout, (*(texts or ()), query, document), ledger, ranked=ranked)
    if need == "label" and target is None and len(ledger.problems) + ledger.unlisted == before:
        ledger.problem(
            f"no column is recognized as the label among {_listed(found)}",
            "Name it with data.label (--label), or with data.score (--score) for scores.",
        )
    if len(ledger.problems) + ledger.unlisted > before or not texts:
        return None
    firm = ranked or bool(layout.query_id or layout.doc_id)
    if not firm:
        useful = layout.label is not None and query is not None if len(texts) == 2 else len(texts) == 1 and not target
        if not useful:  # as it is in a corpus, in a file of queries, and in a ranking that is read as classes
            query = document = None
        firm = len(texts) == 1 and texts[0].strip().lower() in (*QUERIES, *DOCUMENTS)
    kind: Kind | None = holds
    if holds == "label" and layout.label is None and len(texts) > 1:
        kind = "grade" if ranked else "either"
    elif holds == "score" and ranked:
        kind = "relevance"
    return Binding(texts, target, kind, query, document, ranked, firm)


def _texts(found: Sequence[str], layout: Layout, ledger: Ledger) -> tuple[str, ...] | None:
    told = (("text", layout.text), ("pair", layout.pair), ("negative", layout.negative))
    named = [(key, name) for key, name in told if name is not None]
    if named:
        known = [_explicit(key, name, found, ledger) for key, name in named]
        same = next(((a, b, one) for a, one in named for b, other in named if a != b and one == other), None)
        if layout.text is None and layout.pair is not None:
            ledger.problem("data.pair names the right text, but data.text does not name the left", _NAME_TEXTS)
        elif layout.negative is not None and (layout.text is None or layout.pair is None):
            ledger.problem(
                "data.negative names the negative, but data.text and data.pair do not name anchor and positive",
                "Name all three columns of the triplets, or none.",
            )
        elif same:
            ledger.problem(f"data.{same[0]} and data.{same[1]} name the same column {same[2]!r}", _NAME_TEXTS)
        return tuple(name for _, name in named) if all(known) else None
    aside = (layout.label, layout.score, layout.query_id, layout.doc_id)
    usual = _usual([name for name in found if name not in aside])
    triplets = _triplets(usual, targeted=bool(layout.label or layout.score or usual.keys() & {*TARGETS}))
    if len(triplets) == 1:
        return triplets[0]
    pairs = [(usual[left], usual[right]) for left, right in PAIRS if left in usual and right in usual]
    plain = [usual[name] for name in PLAIN if name in usual]
    if len(pairs) == 1 and not plain and not triplets:
        return pairs[0]
    singles = plain[:1] or _identified(usual, layout) or [usual[name] for name in SINGLES if name in usual]
    if not pairs and not triplets and len(singles) == 1:
        return (singles[0],)
    if triplets or pairs or singles:
        choices = [
            *(f"the triplet {', '.join(map(repr, each))}" for each in triplets),
            *(f"the pair {left!r}, {right!r}" for left, right in pairs),
            *map(repr, singles),
        ]
        message = f"it is not clear which column is the text: {' or '.join(choices)}, among {_listed(found)}"
    else:
        message = f"no column is recognized as the text among {_listed(found)}"
    ledger.problem(message, _NAME_TEXTS)
    return None


def _triplets(usual: Mapping[str, str], *, targeted: bool) -> list[tuple[str, ...]]:
    """All triplets that the usual names allow; an anchor by that name leaves no doubt."""
    found = [tuple(usual[name] for name in each) for each in TRIPLETS if all(name in usual for name in each)]
    positives = [usual[name] for name in ("positive", "pos") if name in usual]
    negatives = [usual[name] for name in ("negative", "neg") if name in usual]
    anchors = [usual[name] for name in (_FIRM if targeted else ANCHORS) if name in usual]
    if "anchor" in usual:
        anchors = [usual["anchor"]]
    return [*found, *((a, p, n) for a in anchors for p in positives for n in negatives)]


def _identified(usual: Mapping[str, str], layout: Layout) -> list[str]:
    """The text that a column of ids is about: the document of a corpus, the query of a file of queries."""
    for told, ids, names in ((layout.doc_id, DOC_IDS, DOCUMENTS), (layout.query_id, QUERY_IDS, QUERIES)):
        if told or any(name in usual for name in ids):
            about = [usual[name] for name in names if name in usual]
            if about:
                return about
    return []


def _ids(found: Sequence[str], layout: Layout, texts: Sequence[str], ledger: Ledger) -> tuple[str | None, str | None]:
    aside = (*texts, layout.label, layout.score)
    usual = _usual([name for name in found if name not in aside])
    chosen: list[str | None] = []
    for key, told, names in (("query_id", layout.query_id, QUERY_IDS), ("doc_id", layout.doc_id, DOC_IDS)):
        if told is None:
            chosen.append(next((usual[name] for name in names if name in usual), None))
        else:
            if _explicit(key, told, found, ledger) and told in aside:
                message = f"data.{key} names the column {told!r}, which is a text or a target already"
                ledger.problem(message, f"Set data.{key} anew.")
            chosen.append(told)
    if chosen[0] is not None and chosen[0] == chosen[1]:
        ledger.problem(f"data.query_id and data.doc_id name the same column {chosen[0]!r}", "Set one of them anew.")
    return chosen[0], chosen[1]


def _ranked(
    found: Sequence[str], layout: Layout, texts: Sequence[str], query: str | None, document: str | None
) -> bool:
    if len(texts) != 2 or layout.label is not None:
        return False
    if query is not None or layout.doc_id is not None:
        return True
    asks = texts[0].strip().lower() in QUERIES
    return asks and (document is not None or any(name in RELEVANCE for name in _usual(found)))


def _target(
    found: Sequence[str], layout: Layout, taken: Sequence[str | None], ledger: Ledger, *, ranked: bool
) -> tuple[str | None, Literal["label", "score"] | None]:
    if layout.label is not None and layout.score is not None:
        ledger.problem("data.label and data.score are both set", "Keep the one that says what the column holds.")
        return None, None
    for key, name in (("label", layout.label), ("score", layout.score)):
        if name is None:
            continue
        if _explicit(key, name, found, ledger) and name in taken:
            ledger.problem(f"data.{key} names the column {name!r}, which is a text already", f"Set data.{key} anew.")
        return name, "score" if key == "score" else "label"
    usual = _usual([name for name in found if name not in taken])
    firm = (*RELEVANCE, *SCORES) if ranked else SCORES
    for name in (*RELEVANCE, *TARGETS) if ranked else TARGETS:
        if name in usual:
            return usual[name], "score" if name in firm else "label"
    return None, None


def _explicit(key: str, name: str, found: Sequence[str], ledger: Ledger) -> bool:
    if name in found:
        return True
    flag = f" (--{key})" if key in ("text", "pair", "label", "score") else ""
    ledger.problem(
        f"there is no column {name!r} among {_listed(found)}",
        f"Set data.{key}{flag} to one of them.{did_you_mean(name, found)}",
    )
    return False


def _usual(found: Sequence[str]) -> dict[str, str]:
    """From the name in lower case without blanks around it to the column; exact spelling first."""
    usual: dict[str, str] = {}
    for name in found:
        usual.setdefault(name.strip().lower(), name)
    return usual | {name: name for name in found if name in usual}


def _listed(found: Sequence[str]) -> str:
    names = [repr(name[:60]) for name in found[:30]]
    more = f" and {len(found) - 30:,} more" if len(found) > 30 else ""
    return f"the columns found: {', '.join(names)}{more}" if names else "no columns at all"
