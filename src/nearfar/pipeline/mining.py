"""Hard-negative mining: texts of a corpus that are near to an anchor and not among its positives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from nearfar.batching import Search, VectorFile
from nearfar.batching.cells import Cells
from nearfar.batching.vector_file import IdFile
from nearfar.data import Records, pair_targets
from nearfar.data.disk_columns import DiskTexts, first_rows, joined, on_disk, picked
from nearfar.data.records import normalized
from nearfar.errors import DataError, Problem, SettingError
from nearfar.evaluation import pair_scores, top_documents
from nearfar.evaluation.vectors import directions
from nearfar.pipeline.loaders import distinct
from nearfar.pipeline.mined import LISTS, Mined, TextLists, gathered
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

    def most(self, documents: int) -> int:
        """How many negatives an anchor gets at most, from a corpus of this many documents."""
        number = PER_ANCHOR if self.per_anchor is None and self.window is not None else self.per_anchor
        ranks = len(self.ranks(documents))
        return ranks if number is None else min(number, ranks)


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
    columns = list(records.texts)
    if any(isinstance(column, DiskTexts) for column in (*columns, corpus)):
        columns, corpus = [on_disk(column) for column in columns], None if corpus is None else on_disk(corpus)
    anchors = _anchors(records, columns)
    documents = _documents(columns[1:] if corpus is None else [corpus])
    sides = picked(anchors.table, anchors.left), picked(anchors.table, anchors.right)
    texts, (left, right, queries, searched) = distinct([*sides, anchors.texts, documents])
    del sides
    pieces = _pieces(texts, embed, settings) if embed_all is None else embed_all(texts)
    vectors = _embedded(len(texts), iter(pieces), settings)
    group = _groups(texts, left, right)
    excluded = np.bincount(group[searched], minlength=len(texts))[
        group[queries]
    ]  # (a,) documents of the anchor's group
    lowest = np.full(len(texts), np.inf, dtype=np.float32)
    for start in range(0, len(left), DOCUMENTS):
        some = slice(start, start + DOCUMENTS)
        ends = (_taken(vectors, side[some]) for side in (left, right))
        np.minimum.at(lowest, left[some], pair_scores(*ends))
    ranks = settings.ranks(len(documents))
    counts = dict.fromkeys(("known", "beyond", "too_near", "too_high"), 0)
    depth = min(int(ranks.max(initial=1) + excluded.max(initial=0)), len(documents))
    kept = _Kept(anchors, documents, min(settings.most(len(documents)), depth))
    recall, similar = None, 0.0
    if isinstance(vectors, VectorFile):
        rankings, recall = _from_disk(vectors, queries, searched, depth, settings, progress or (lambda _: None))
    else:
        rankings = enumerate(_rankings(vectors[queries], vectors[searched], depth, progress or (lambda _: None)))
    while block := list(islice(rankings, max(1, min(LISTS, NUMBERS // max(1, depth))))):
        numbers = np.array([number for number, _ in block])
        negatives: list[NDArray[np.int64]] = []
        for anchor, number, (_, (scores, ranking)) in zip(
            gathered(anchors.texts, numbers), numbers.tolist(), block, strict=True
        ):
            row = int(queries[number])
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
            chosen = _chosen(candidates[~near & ~high], settings, anchor)  # (k,) positions in the ranking
            similar += float(scores[chosen].sum(dtype=np.float64))
            negatives.append(ranking[chosen])
        kept.add(numbers, negatives)
    most = len(documents) - int(excluded.min(initial=len(documents)))
    positives, found = kept.lists()
    mined = Mined(
        positives, found, len(documents), **counts, without_positive=anchors.without, allowed=most, seed=settings.seed,
        recall=recall,
    )  # fmt: skip
    return replace(mined, similarity=similar / mined.count) if mined.count else mined


def _pieces(texts: Sequence[str], embed: Embed, settings: Mining) -> Iterator[Vectors]:
    """The vectors of all texts, at once if the memory takes them."""
    width = embed(texts[:1]).shape[1] if len(texts) > ENCODED else 0
    whole = _fits(width, len(texts), settings) and not isinstance(texts, DiskTexts)
    step = len(texts) if whole else ENCODED
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


@dataclass(frozen=True)
class _Anchors:
    """The left texts of positive pairs with their positives."""

    texts: Sequence[str]
    """(a,) each once, in the order of the file."""
    table: Sequence[str]
    """The texts of all rows, each once."""
    left: NDArray[np.int64]
    """(p,) where in the table the left text of each positive pair is, anchor by anchor."""
    right: NDArray[np.int64]
    """(p,) the right text."""
    counts: NDArray[np.int64]
    """(a,) the positives of each anchor."""
    without: int
    """How many left texts have no positive."""


def _anchors(records: Records, columns: Sequence[Sequence[str]]) -> _Anchors:
    """What is mined for; the columns are the texts of the records, all in memory or all on disk."""
    if records.shape == "pairs" and records.scores is not None and not {0.0, 1.0}.issuperset(records.scores):
        line = next(line for line, score in zip(records.lines, records.scores, strict=True) if score not in (0, 1))
        remedy = "Give pairs with labels 1 and 0, or only positive pairs, without scores."
        raise DataError(Problem(records.source, "graded scores do not say which pairs are positive", remedy, line=line))
    positive = np.flatnonzero(np.array(pair_targets(records)) > 0.5)
    if not len(positive):
        raise DataError(Problem(records.source, "there are no positive pairs", "Add some: label or relevance 1."))
    table, (left, right) = distinct(columns[:2])
    without = len(np.unique(left))
    left, right = left[positive], right[positive]
    _, first = np.unique(left * len(table) + right, return_index=True)  # every pair once
    left, right = (side[np.sort(first)] for side in (left, right))
    names, first, numbers = np.unique(left, return_index=True, return_inverse=True)
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[np.argsort(first)] = np.arange(len(names))  # anchors in the order of the file
    numbers = ranks[numbers.reshape(-1)]
    order = np.argsort(numbers, kind="stable")
    return _Anchors(
        picked(table, names[np.argsort(first)]), table, left[order], right[order], np.bincount(numbers),
        without - len(names),
    )  # fmt: skip


def _documents(columns: Sequence[Sequence[str]]) -> Sequence[str]:
    """The texts of some columns; of texts that differ in case and blanks only, the first."""
    disk = [column for column in columns if isinstance(column, DiskTexts)]
    if disk:
        every = joined(disk)
        first = first_rows(map(normalized, every))
        return every.pick(np.flatnonzero(first == np.arange(len(first))))
    texts: dict[str, str] = {}
    for column in columns:
        for text in column:
            texts.setdefault(normalized(text), text)
    return list(texts.values())


class _Kept:
    """Positives and negatives of anchors: in memory, or as numbers on disk where the texts are there."""

    def __init__(self, anchors: _Anchors, documents: Sequence[str], most: int) -> None:
        self.anchors, self.documents = anchors, documents
        self._disk = isinstance(documents, DiskTexts)
        self._numbers = IdFile(max(1, most)) if self._disk else None
        self._counts = np.zeros(len(anchors.texts), dtype=np.int32)
        self._texts: list[list[str]] = [[] for _ in ([] if self._disk else anchors.texts)]

    def add(self, numbers: NDArray[np.int64], negatives: Sequence[NDArray[np.int64]]) -> None:
        """The negatives of the anchors of these numbers."""
        if self._numbers is None:
            for number, chosen in zip(numbers.tolist(), negatives, strict=True):
                self._texts[number] = [self.documents[index] for index in chosen.tolist()]
            return
        rows = np.full((len(numbers), self._numbers.width), -1, dtype=np.int64)
        for row, chosen in zip(rows, negatives, strict=True):
            row[: len(chosen)] = chosen
        self._counts[numbers] = (rows >= 0).sum(axis=1)
        self._numbers.write(numbers, rows)

    def lists(self) -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
        """The positives and the negatives of all anchors."""
        anchors, file = self.anchors, self._numbers
        bounds = np.concatenate([[0], np.cumsum(anchors.counts)])

        def right(start: int, stop: int) -> NDArray[np.int64]:
            return anchors.right[bounds[start] : bounds[stop]]

        if file is None:
            names = list(anchors.texts)
            every = zip(names, range(len(names)), strict=True)
            positives = {name: gathered(anchors.table, right(number, number + 1)) for name, number in every}
            return positives, dict(zip(names, self._texts, strict=True))

        def chosen(start: int, stop: int) -> NDArray[np.int64]:
            found = file.gather(np.arange(start, stop))
            return found[found >= 0]

        return (
            TextLists(anchors.texts, anchors.table, anchors.counts, right),
            TextLists(anchors.texts, self.documents, self._counts, chosen),
        )


def _groups(texts: Sequence[str], left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """(n,) ids: texts that are equal but for case and blanks, or connected by pairs, share one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if isinstance(texts, DiskTexts):
        same = first_rows(map(normalized, texts))
    else:
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
