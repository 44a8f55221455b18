"""Hard negatives: texts that a model finds near to an anchor, and that are not among its positives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfar.data import Records, pair_targets
from nearfar.data.records import normalized
from nearfar.errors import DataError, Problem, SettingError
from nearfar.evaluation import pair_scores, top_documents
from nearfar.pipeline.rows import distinct
from nearfar.seeds import generator

Vectors = NDArray[np.float32]
PER_ANCHOR = 5
"""Negatives that are drawn from a window where nobody says how many."""
SHALLOW = 1_024
"""Rankings of at most so many documents are searched; deeper ones are sorted whole."""
NUMBERS = 8_000_000
"""Cosines that are held at once."""
DOCUMENTS = 16_384
"""Documents that are compared at once in double precision."""


@dataclass(frozen=True, kw_only=True)
class Mining:
    """Which documents become negatives of an anchor.

    Ranks count from 1, the nearest document, and pass over the anchor and all that is known to belong to it.
    """

    window: tuple[int, int] | None = (10, 50)
    """The first and the last rank to draw from; None: the ranks 100 + 2^j (101, 102, 104, ...), the nearest first."""
    per_anchor: int | None = None
    """How many negatives an anchor gets; None: 5 of a window, all of the ranks 100 + 2^j."""
    margin: float | None = None
    """How far a negative's cosine must be below that of each of the anchor's positives; None: it does not matter."""
    max_score: float | None = None
    """The highest cosine a negative may have."""
    seed: int = 2

    def __post_init__(self) -> None:
        if self.window is not None and not 1 <= self.window[0] <= self.window[1]:
            first, last = self.window
            raise SettingError(f"a window of ranks begins at 1 or later and does not end before, got {first}-{last}.")
        if self.per_anchor is not None and self.per_anchor < 1:
            raise SettingError(f"per_anchor must be 1 or more, got {self.per_anchor}.")
        for name, value in (("margin", self.margin), ("max_score", self.max_score)):
            if value is not None and not np.isfinite(value):
                raise SettingError(f"{name} must be a finite number, got {value}.")

    def ranks(self, documents: int) -> NDArray[np.int64]:
        """The ranks to look at in a corpus of so many documents, rising.

        >>> Mining(window=None).ranks(120).tolist()
        [101, 102, 104, 108, 116]
        """
        if self.window is not None:
            return np.arange(self.window[0], self.window[1] + 1)
        powers = 100 + 2 ** np.arange(60, dtype=np.int64)
        return powers[powers <= documents]


@dataclass(frozen=True)
class Mined:
    """Anchors with their positives and the negatives that were found, and how many were passed over."""

    positives: dict[str, list[str]]
    """Of each anchor, in the order of the file."""
    negatives: dict[str, list[str]]
    """Of the same anchors, the nearest first; none where none is left."""
    documents: int
    """How many different texts were ranked."""
    known: int
    """Documents that stood before the last rank and belong to the anchor, or are its text."""
    beyond: int
    """Ranks that the corpus does not have."""
    too_near: int
    """Documents at the ranks that the margin kept out."""
    too_high: int
    """Documents at the ranks that only their cosine kept out."""
    without_positive: int
    """Anchors of the file that have no positive, and so get no negatives."""
    strangers: int
    """How many documents the anchor with the most of them may have: the others are known to belong to it."""
    seed: int = 2

    @property
    def found(self) -> int:
        """How many negatives there are."""
        return sum(map(len, self.negatives.values()))

    def triplets(self) -> Iterator[tuple[str, str, str]]:
        """Every positive of an anchor with every negative of it."""
        for anchor, positives in self.positives.items():
            for positive in positives:
                for negative in self.negatives[anchor]:
                    yield anchor, positive, negative

    def pairs(self, *, oversample: bool = False) -> Iterator[tuple[str, str, int]]:
        """All positive pairs with a 1 and the negative ones with a 0.

        With ``oversample`` the positive pairs are repeated until there are as many as negative ones; where that does
        not come out even, the seed says which are there once more.
        """
        number = sum(map(len, self.positives.values()))
        copies = np.ones(number, dtype=np.int64)
        if oversample and self.found > number:
            times, rest = divmod(self.found, number)
            copies[:] = times
            copies[generator(self.seed, "oversample").permutation(number)[:rest]] += 1
        times_of = iter(copies.tolist())
        for anchor, positives in self.positives.items():
            for positive in positives:
                for _ in range(next(times_of)):
                    yield anchor, positive, 1
            for negative in self.negatives[anchor]:
                yield anchor, negative, 0


def mine(
    records: Records, embed: Callable[[list[str]], Vectors], settings: Mining, *, corpus: Sequence[str] | None = None
) -> Mined:
    """Hard negatives for the left texts of all positive pairs.

    Texts that are joined by positive pairs, however many there are between them, belong together and are never
    negatives of each other; case and blanks make no difference.

    Args:
        records: pairs, triplets or a ranking; those of texts that belong together give the anchors.
        embed: gives the (n, d) vectors of texts; each different text is asked for once.
        settings: which negatives.
        corpus: where they come from; None: all texts of the records but those on the left.
    """
    anchors, without = _anchors(records)
    if corpus is None:
        corpus = [text for column in records.texts[1:] for text in column]
    named: dict[str, str] = {}
    for text in corpus:
        named.setdefault(normalized(text), text)
    documents = list(named.values())
    pairs = [(anchor, positive) for anchor, positives in anchors.items() for positive in positives]
    texts, (left, right, asked, searched) = distinct(
        [[one for one, _ in pairs], [other for _, other in pairs], list(anchors), documents]
    )
    vectors = embed(texts)
    if not np.isfinite(vectors).all():
        raise SettingError("the model gives vectors that are not finite; its weights are NaN or infinite.")
    group = _groups(texts, left, right)
    own = np.bincount(group[searched], minlength=len(texts))[group[asked]]  # (a,) documents an anchor may not have
    lowest = np.full(len(texts), np.inf, dtype=np.float32)
    np.minimum.at(lowest, left, pair_scores(vectors[left], vectors[right]))
    ranks = settings.ranks(len(documents))
    counts = dict.fromkeys(("known", "beyond", "too_near", "too_high"), 0)
    negatives: dict[str, list[str]] = {}
    depth = min(int(ranks.max(initial=1) + own.max(initial=0)), len(documents))
    rankings = _rankings(vectors[asked], vectors[searched], depth)
    for (anchor, row), (scores, places) in zip(zip(anchors, asked.tolist(), strict=True), rankings, strict=True):
        allowed = np.flatnonzero(group[searched[places]] != group[row])  # (k,) places in the ranking
        inside = ranks[ranks <= len(allowed)]
        looked = allowed[inside - 1]
        counts["beyond"] += len(ranks) - len(inside)
        counts["known"] += int(looked[-1] + 1 - inside[-1]) if len(inside) else 0
        cosines = scores[looked].astype(np.float64)
        near = np.zeros(len(looked), dtype=np.bool_)
        if settings.margin is not None:
            near = cosines > float(lowest[row]) - settings.margin
        high = np.zeros(len(looked), dtype=np.bool_)
        if settings.max_score is not None:
            high = (cosines > settings.max_score) & ~near
        counts["too_near"] += int(near.sum())
        counts["too_high"] += int(high.sum())
        left_over = _chosen(places[looked[~near & ~high]], settings, anchor)
        negatives[anchor] = [documents[place] for place in left_over.tolist()]
    strangers = len(documents) - int(own.min(initial=len(documents)))
    return Mined(
        anchors, negatives, len(documents), **counts, without_positive=without, strangers=strangers, seed=settings.seed
    )


def _chosen(places: NDArray[np.int64], settings: Mining, anchor: str) -> NDArray[np.int64]:
    """The negatives among what is left: drawn from a window, the nearest of the other ranks."""
    if settings.window is None:
        return places[: settings.per_anchor]
    number = settings.per_anchor or PER_ANCHOR
    if len(places) <= number:
        return places
    drawn = generator(settings.seed, "negatives", anchor).permutation(len(places))[:number]
    return places[np.sort(drawn)]


def _anchors(records: Records) -> tuple[dict[str, list[str]], int]:
    """The left texts of positive pairs with their positives, each once, and how many left texts have none."""
    if records.shape == "pairs" and records.scores is not None and not {0.0, 1.0}.issuperset(records.scores):
        line = next(line for line, score in zip(records.lines, records.scores, strict=True) if score not in (0, 1))
        message, remedy = (
            "graded scores do not say which texts belong together",
            "Give pairs with labels 1 and 0, or only those that belong together, without scores.",
        )
        raise DataError([Problem(records.source, message, remedy, line=line)])
    targets = pair_targets(records)
    found: dict[str, dict[str, None]] = {}
    for anchor, positive, target in zip(*records.texts[:2], targets, strict=True):
        if target > 0.5:
            found.setdefault(anchor, {})[positive] = None
    if not found:
        remedy = "Add pairs that do: label or relevance 1."
        raise DataError([Problem(records.source, "there are no pairs of texts that belong together", remedy)])
    return {anchor: list(positives) for anchor, positives in found.items()}, len({*records.texts[0]} - found.keys())


def _groups(texts: Sequence[str], left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) ids: texts that are equal but for case and blanks, or joined by pairs, share one."""
    _, (same,) = distinct([[normalized(text) for text in texts]])
    size = len(texts)
    graph = coo_array((np.ones(len(left), dtype=np.int8), (same[left], same[right])), shape=(size, size))
    _, group = connected_components(graph, directed=False)
    return np.asarray(group, dtype=np.int64)[same]


def _rankings(anchors: Vectors, corpus: Vectors, depth: int) -> Iterator[tuple[Vectors, NDArray[np.int64]]]:
    """For each anchor the cosines of its ``depth`` nearest documents, falling, and their places in the corpus."""
    if depth > SHALLOW:
        yield from _sorted(anchors, corpus, depth)
        return
    step = max(1, NUMBERS // max(1, depth))
    for start in range(0, len(anchors), step):
        scores, places = top_documents(anchors[start : start + step], corpus, top=depth, normalize=True)
        yield from zip(scores, places, strict=True)


def _sorted(anchors: Vectors, corpus: Vectors, depth: int) -> Iterator[tuple[Vectors, NDArray[np.int64]]]:
    """The same for many documents, where sorting all is cheaper than keeping the best."""
    step = max(1, NUMBERS // len(corpus))
    for start in range(0, len(anchors), step):
        asked = _unit(anchors[start : start + step])
        scores = np.zeros((len(asked), len(corpus)), dtype=np.float32)
        for first in range(0, len(corpus), DOCUMENTS):
            scores[:, first : first + DOCUMENTS] = asked @ _unit(corpus[first : first + DOCUMENTS]).T
        for row in scores:
            order = np.argsort(-row, kind="stable")[:depth]
            yield row[order], order


def _unit(vectors: Vectors) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", wide, wide))[:, None]
    return wide / np.where(lengths > 0, lengths, 1)
