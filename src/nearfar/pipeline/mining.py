"""Hard-negative mining: texts of a corpus that are near to an anchor and not among its positives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from nearfar.batching import Search, VectorFile
from nearfar.batching.cells import Cells
from nearfar.data import Records, pair_targets
from nearfar.data.records import normalized
from nearfar.errors import DataError, Problem, SettingError
from nearfar.evaluation import pair_scores, top_documents
from nearfar.evaluation.vectors import directions
from nearfar.pipeline.loaders import distinct
from nearfar.seeds import generator

Vectors = NDArray[np.float32]
Embed = Callable[[Sequence[str]], Vectors]
Ranking = tuple[Vectors, NDArray[np.int64]]
"""The cosines of the nearest documents of an anchor, falling, and their indices in the corpus."""
EmbedAll = Callable[[Sequence[str]], Iterable[Vectors]]
PER_ANCHOR = 5
"""Default number of negatives that are drawn from a window of ranks."""
SHALLOW = 1_024
"""Rankings of at most this many documents are searched; for deeper ones all documents are sorted."""
NUMBERS = 8_000_000
"""Cosines that are held at once."""
ENCODED = 65_536
"""Texts that are encoded at once where vectors go to disk."""
DOCUMENTS = 16_384
"""Documents that are compared at once in double precision."""


@dataclass(frozen=True, kw_only=True)
class Mining:
    """Which documents become negatives of an anchor.

    Ranks count from 1, the nearest document, and skip the anchor and its known positives.
    """

    window: tuple[int, int] | None = (10, 50)
    """The first and the last rank to draw from; None: the ranks 100 + 2^j (101, 102, 104, ...), the nearest first."""
    per_anchor: int | None = None
    """How many negatives an anchor gets; None: 5 of a window, all of the ranks 100 + 2^j."""
    margin: float | None = None
    """How far a negative's cosine must be below that of each of the anchor's positives; None: no limit."""
    max_score: float | None = None
    """The highest cosine a negative may have."""
    seed: int = 2
    memory: float = 4.0
    """GB for the vectors; if they need more, they are kept on disk, and documents are searched cell by cell."""

    def __post_init__(self) -> None:
        if not 0 < self.memory < np.inf:
            raise SettingError(f"memory must be a number of GB above 0, got {self.memory}; 4 is usual.")
        if self.window is not None and not 1 <= self.window[0] <= self.window[1]:
            first, last = self.window
            raise SettingError(f"a window of ranks begins at 1 or later and does not end before, got {first}-{last}.")
        if self.per_anchor is not None and self.per_anchor < 1:
            raise SettingError(f"per_anchor must be 1 or more, got {self.per_anchor}.")
        for name, value in (("margin", self.margin), ("max_score", self.max_score)):
            if value is not None and not np.isfinite(value):
                raise SettingError(f"{name} must be a finite number, got {value}.")

    def ranks(self, documents: int) -> NDArray[np.int64]:
        """The ranks to take from a corpus of this many documents, rising.

        >>> Mining(window=None).ranks(120).tolist()
        [101, 102, 104, 108, 116]
        """
        if self.window is not None:
            return np.arange(self.window[0], self.window[1] + 1)
        powers = 100 + 2 ** np.arange(60, dtype=np.int64)
        return powers[powers <= documents]


@dataclass(frozen=True)
class Mined:
    """Anchors with their positives and negatives, and how many documents were skipped."""

    positives: dict[str, list[str]]
    """Of each anchor, in the order of the file."""
    negatives: dict[str, list[str]]
    """Of the same anchors, the nearest first; empty where none is left."""
    documents: int
    """How many different texts were ranked."""
    known: int
    """Documents above the last rank that are skipped: the anchor itself, or its known positives."""
    beyond: int
    """Ranks that the corpus does not have."""
    too_near: int
    """Documents at the ranks that the margin excludes."""
    too_high: int
    """Documents at the ranks that only ``max_score`` excludes."""
    without_positive: int
    """Left texts of the file that have no positive, and so get no negatives."""
    allowed: int
    """The most documents that an anchor may get, being not known as its positives."""
    seed: int = 2
    recall: float | None = None
    """Of an approximate search in vectors on disk: the share of the truly nearest documents that it finds."""

    @property
    def count(self) -> int:
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

        With ``oversample`` the positive pairs are repeated until there are as many as negative ones; the seed chooses
        which of them get one more copy.
        """
        number = sum(map(len, self.positives.values()))
        copies = np.ones(number, dtype=np.int64)
        if oversample and self.count > number:
            times, rest = divmod(self.count, number)
            copies[:] = times
            copies[generator(self.seed, "oversample").permutation(number)[:rest]] += 1
        repeats = iter(copies.tolist())
        for anchor, positives in self.positives.items():
            for positive in positives:
                yield from [(anchor, positive, 1)] * next(repeats)
            for negative in self.negatives[anchor]:
                yield anchor, negative, 0


def mine(
    records: Records,
    embed: Embed,
    settings: Mining,
    *,
    corpus: Sequence[str] | None = None,
    progress: Callable[[float], None] | None = None,
    embed_all: EmbedAll | None = None,
) -> Mined:
    """Hard negatives for the left texts of all positive pairs.

    Texts that are connected by positive pairs, directly or through others, are never negatives of each other; case and
    blanks make no difference.

    Args:
        records: pairs, triplets or a ranking; the left texts of positive pairs are the anchors.
        embed: gives the (n, d) vectors of texts, each distinct text once.
        settings: which negatives.
        corpus: where they come from; None: all texts of the records except those on the left.
        progress: takes the share of the anchors whose documents are ranked.
        embed_all: gives the vectors of all texts in place of ``embed``, in their order, some at a time.
    """
    anchors, without = _anchors(records)
    if corpus is None:
        corpus = [text for column in records.texts[1:] for text in column]
    distinct_texts: dict[str, str] = {}
    for text in corpus:
        distinct_texts.setdefault(normalized(text), text)
    documents = list(distinct_texts.values())
    pairs = [(anchor, positive) for anchor, positives in anchors.items() for positive in positives]
    sides = [anchor for anchor, _ in pairs], [positive for _, positive in pairs]
    texts, (left, right, queries, searched) = distinct([*sides, list(anchors), documents])
    pieces = _pieces(texts, embed, settings) if embed_all is None else embed_all(texts)
    vectors = _embedded(len(texts), iter(pieces), settings)
    group = _groups(texts, left, right)
    excluded = np.bincount(group[searched], minlength=len(texts))[
        group[queries]
    ]  # (a,) documents of the anchor's group
    lowest = np.full(len(texts), np.inf, dtype=np.float32)
    for some in np.split(np.arange(len(left)), range(DOCUMENTS, len(left), DOCUMENTS)):
        ends = (_taken(vectors, side[some]) for side in (left, right))
        np.minimum.at(lowest, left[some], pair_scores(*ends))
    ranks = settings.ranks(len(documents))
    counts = dict.fromkeys(("known", "beyond", "too_near", "too_high"), 0)
    names, negatives = list(anchors), {anchor: list[str]() for anchor in anchors}
    depth = min(int(ranks.max(initial=1) + excluded.max(initial=0)), len(documents))
    recall = None
    if isinstance(vectors, VectorFile):
        rankings, recall = _from_disk(vectors, queries, searched, depth, settings, progress or (lambda _: None))
    else:
        rankings = enumerate(_rankings(vectors[queries], vectors[searched], depth, progress or (lambda _: None)))
    for number, (scores, ranking) in rankings:
        anchor, row = names[number], int(queries[number])
        allowed = np.flatnonzero(group[searched[ranking]] != group[row])  # (k,) positions in the ranking
        inside = ranks[ranks <= len(allowed)]
        candidates = allowed[inside - 1]
        counts["beyond"] += len(ranks) - len(inside)
        counts["known"] += int(candidates[-1] + 1 - inside[-1]) if len(inside) else 0
        cosines = scores[candidates].astype(np.float64)
        near = cosines > (np.inf if settings.margin is None else float(lowest[row]) - settings.margin)
        high = (cosines > (np.inf if settings.max_score is None else settings.max_score)) & ~near
        counts["too_near"] += int(near.sum())
        counts["too_high"] += int(high.sum())
        chosen = _chosen(ranking[candidates[~near & ~high]], settings, anchor)
        negatives[anchor] = [documents[index] for index in chosen.tolist()]
    most = len(documents) - int(excluded.min(initial=len(documents)))
    return Mined(
        anchors, negatives, len(documents), **counts, without_positive=without, allowed=most, seed=settings.seed,
        recall=recall,
    )  # fmt: skip


def _pieces(texts: Sequence[str], embed: Embed, settings: Mining) -> Iterator[Vectors]:
    """The vectors of all texts, at once if the memory takes them."""
    width = embed(texts[:1]).shape[1] if len(texts) > ENCODED else 0
    step = len(texts) if _fits(width, len(texts), settings) else ENCODED
    for start in range(0, len(texts), step):
        yield embed(texts[start : start + step])


def _fits(width: int, texts: int, settings: Mining) -> bool:
    return 8 * width * texts <= settings.memory * 1e9


def _embedded(texts: int, pieces: Iterator[Vectors], settings: Mining) -> Vectors | VectorFile:
    """The vectors of all texts, on disk if there are too many for the memory."""
    first = _finite(next(pieces))
    if _fits(first.shape[1], texts, settings):
        rest = [_finite(piece) for piece in pieces]
        return np.concatenate([first, *rest]) if rest else first
    file = VectorFile(first.shape[1])
    for piece in chain([first], map(_finite, pieces)):
        file.append(piece)
    return file


def _finite(vectors: Vectors) -> Vectors:
    if not np.isfinite(vectors).all():
        raise SettingError("the model gives vectors that are not finite; its weights are NaN or infinite.")
    return vectors


def _taken(vectors: Vectors | VectorFile, rows: NDArray[np.int64]) -> Vectors:
    return vectors.gather(rows) if isinstance(vectors, VectorFile) else vectors[rows]


def _from_disk(
    vectors: VectorFile, queries: NDArray[np.int64], searched: NDArray[np.int64], depth: int, settings: Mining,
    progress: Callable[[float], None],
) -> tuple[Iterator[tuple[int, Ranking]], float]:  # fmt: skip
    """The numbers and rankings of all anchors among documents on disk, and the share of true neighbors in them."""
    if depth > SHALLOW:
        raise SettingError(
            f"{depth:,} documents of each anchor are to be ranked, and the vectors do not fit into the memory, where "
            f"rankings have {SHALLOW:,} at most: raise memory (--memory), or choose earlier ranks (--positions)."
        )
    source = generator(settings.seed, "cells")
    documents, anchors = _part(vectors, searched), _part(vectors, queries)
    cells = Cells(documents, Search(memory=int(settings.memory * 1e9)), source)
    recall = cells.tune(documents, min(depth, 50), source, anchors)

    def rankings() -> Iterator[tuple[int, Ranking]]:
        for found in cells.nearest(anchors, depth, progress):
            for number, scores, ids in zip(found.rows.tolist(), found.scores, found.ids, strict=True):
                yield number, (scores[ids >= 0], ids[ids >= 0])

    return rankings(), recall


def _part(vectors: VectorFile, rows: NDArray[np.int64]) -> VectorFile:
    """Some of the vectors, in a file of their own."""
    part = VectorFile(vectors.width)
    for start in range(0, len(rows), ENCODED):
        part.append(vectors.gather(rows[start : start + ENCODED]))
    return part


def _chosen(candidates: NDArray[np.int64], settings: Mining, anchor: str) -> NDArray[np.int64]:
    """The negatives among the candidates: a random sample of a window, or the nearest of the other ranks."""
    if settings.window is None:
        return candidates[: settings.per_anchor]
    number = settings.per_anchor or PER_ANCHOR
    if len(candidates) <= number:
        return candidates
    drawn = generator(settings.seed, "negatives", anchor).permutation(len(candidates))[:number]
    return candidates[np.sort(drawn)]


def _anchors(records: Records) -> tuple[dict[str, list[str]], int]:
    """The left texts of positive pairs with their positives, and how many left texts have none."""
    if records.shape == "pairs" and records.scores is not None and not {0.0, 1.0}.issuperset(records.scores):
        line = next(line for line, score in zip(records.lines, records.scores, strict=True) if score not in (0, 1))
        remedy = "Give pairs with labels 1 and 0, or only positive pairs, without scores."
        raise DataError(Problem(records.source, "graded scores do not say which pairs are positive", remedy, line=line))
    targets = pair_targets(records)
    anchors: dict[str, dict[str, None]] = {}
    for anchor, positive, target in zip(*records.texts[:2], targets, strict=True):
        if target > 0.5:
            anchors.setdefault(anchor, {})[positive] = None
    if not anchors:
        raise DataError(Problem(records.source, "there are no positive pairs", "Add some: label or relevance 1."))
    without = len({*records.texts[0]} - anchors.keys())
    return {anchor: list(positives) for anchor, positives in anchors.items()}, without


def _groups(texts: Sequence[str], left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) ids: texts that are equal but for case and blanks, or connected by pairs, share one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, (same,) = distinct([[normalized(text) for text in texts]])
    size = len(texts)
    graph = coo_array((np.ones(len(left), dtype=np.int8), (same[left], same[right])), shape=(size, size))
    _, group = connected_components(graph, directed=False)
    return np.asarray(group, dtype=np.int64)[same]


def _rankings(
    anchors: Vectors, corpus: Vectors, depth: int, progress: Callable[[float], None]
) -> Iterator[tuple[Vectors, NDArray[np.int64]]]:
    """For each anchor the cosines of its ``depth`` nearest documents, falling, and their indices in the corpus."""
    if depth > SHALLOW:
        yield from _sorted(anchors, corpus, depth, progress)
        return
    step = max(1, NUMBERS // max(1, depth))
    for start in range(0, len(anchors), step):
        some = anchors[start : start + step]

        def advance(share: float, start: int = start, size: int = len(some)) -> None:
            progress((start + share * size) / len(anchors))

        scores, indices = top_documents(some, corpus, top=depth, normalize=True, progress=advance)
        yield from zip(scores, indices, strict=True)


def _sorted(
    anchors: Vectors, corpus: Vectors, depth: int, progress: Callable[[float], None]
) -> Iterator[tuple[Vectors, NDArray[np.int64]]]:
    """The same for many documents, where sorting all is cheaper than keeping the best."""
    step = max(1, NUMBERS // len(corpus))
    for start in range(0, len(anchors), step):
        queries = directions(anchors[start : start + step])
        scores = np.zeros((len(queries), len(corpus)), dtype=np.float32)
        for first in range(0, len(corpus), DOCUMENTS):
            scores[:, first : first + DOCUMENTS] = queries @ directions(corpus[first : first + DOCUMENTS]).T
        for row in scores:
            order = np.argsort(-row, kind="stable")[:depth]
            yield row[order], order
        progress(min(1.0, (start + step) / len(anchors)))
