"""Which column is the text, which the pair, which the label: as told, or by the usual names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nearfar.data.ledger import Ledger
from nearfar.data.records import Layout
from nearfar.errors import did_you_mean

Need = Literal["text", "label", "any"]

TARGETS = (
    *("label", "labels", "score", "scores"),  # this order is that of sentence-transformers
    *("target", "class", "category", "intent", "relevance", "similarity_score", "gold_label", "is_duplicate", "y"),
)
SCORES = ("score", "scores", "similarity_score")
PAIRS = (
    ("text_a", "text_b"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("question1", "question2"),
    ("anchor", "positive"),
    ("query", "answer"),
    ("query", "doc"),
    ("premise", "hypothesis"),
    ("sent0", "sent1"),
    ("text1", "text2"),
    ("left", "right"),
)
PLAIN = ("text", "texts")
"""Names so plain that they settle the matter among several single texts."""
SINGLES = (
    *("sentence", "content", "review", "question", "query", "utterance", "message", "document", "body"),
    *("sms", "tweet", "comment", "title"),
)

_NAME_TEXTS = (
    "Name the column with data.text (--text), for pairs also data.pair (--pair); "
    "name the columns of a CSV or TSV file without a header line with data.columns."
)


@dataclass(frozen=True, slots=True)
class Binding:
    """The columns that are read."""

    texts: tuple[str, ...]
    target: str | None = None
    kind: Literal["label", "score", "either"] | None = None
    """``either``: a label by its name, but in pairs its values may turn out to be scores."""


def bind(found: Sequence[str], layout: Layout, need: Need, ledger: Ledger) -> Binding | None:
    """The columns to read among those found; None after entering why there is no telling."""
    before = len(ledger.problems) + ledger.unlisted
    if need == "text":
        layout = Layout(layout.text, layout.pair)
    texts = _texts(found, layout, ledger)
    target, kind = (None, None) if need == "text" else _target(found, layout, texts or (), ledger)
    if need == "label" and target is None and len(ledger.problems) + ledger.unlisted == before:
        ledger.problem(
            f"no column is recognized as the label among {_listed(found)}",
            "Name it with data.label (--label), or with data.score (--score) for scores.",
        )
    if len(ledger.problems) + ledger.unlisted > before or not texts:
        return None
    if kind == "label" and layout.label is None and len(texts) > 1:
        return Binding(texts, target, "either")
    return Binding(texts, target, kind)


def _texts(found: Sequence[str], layout: Layout, ledger: Ledger) -> tuple[str, ...] | None:
    named = [(key, name) for key, name in (("text", layout.text), ("pair", layout.pair)) if name is not None]
    if named:
        known = [_explicit(key, name, found, ledger) for key, name in named]
        if layout.text is None:
            ledger.problem("data.pair names the right text, but data.text does not name the left", _NAME_TEXTS)
        elif layout.text == layout.pair:
            ledger.problem(f"data.text and data.pair name the same column {layout.text!r}", _NAME_TEXTS)
        return tuple(name for _, name in named) if all(known) else None
    usual = _usual([name for name in found if name not in (layout.label, layout.score)])
    pairs = [(usual[left], usual[right]) for left, right in PAIRS if left in usual and right in usual]
    plain = [usual[name] for name in PLAIN if name in usual]
    if len(pairs) == 1 and not plain:
        return pairs[0]
    singles = plain[:1] or [usual[name] for name in SINGLES if name in usual]
    if not pairs and len(singles) == 1:
        return (singles[0],)
    if pairs or singles:
        choices = [*(f"the pair {left!r}, {right!r}" for left, right in pairs), *map(repr, singles)]
        message = f"it is not clear which column is the text: {' or '.join(choices)}, among {_listed(found)}"
    else:
        message = f"no column is recognized as the text among {_listed(found)}"
    ledger.problem(message, _NAME_TEXTS)
    return None


def _target(
    found: Sequence[str], layout: Layout, texts: Sequence[str], ledger: Ledger
) -> tuple[str | None, Literal["label", "score"] | None]:
    if layout.label is not None and layout.score is not None:
        ledger.problem("data.label and data.score are both set", "Keep the one that says what the column holds.")
        return None, None
    for key, name in (("label", layout.label), ("score", layout.score)):
        if name is None:
            continue
        if _explicit(key, name, found, ledger) and name in texts:
            ledger.problem(f"data.{key} names the column {name!r}, which is a text already", f"Set data.{key} anew.")
        return name, "score" if key == "score" else "label"
    usual = _usual([name for name in found if name not in texts])
    for name in TARGETS:
        if name in usual:
            return usual[name], "score" if name in SCORES else "label"
    return None, None


def _explicit(key: str, name: str, found: Sequence[str], ledger: Ledger) -> bool:
    if name in found:
        return True
    ledger.problem(
        f"there is no column {name!r} among {_listed(found)}",
        f"Set data.{key} (--{key}) to one of them.{did_you_mean(name, found)}",
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
