"""Mined negatives: anchors with their positives and negatives, in memory or on disk."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.data.disk_columns import DiskTexts
from nearfar.seeds import generator

Places = NDArray[np.int64]
LISTS = 4_096
"""Lists whose texts are read at once."""


def gathered(texts: Sequence[str], places: Places) -> list[str]:
    """The texts at these places, in this order; those on disk are read in the order of the file.

    >>> gathered(["a", "b", "c"], np.array([2, 0]))
    ['c', 'a']
    """
    if not isinstance(texts, DiskTexts):
        return [texts[place] for place in places.tolist()]
    order = np.argsort(places, kind="stable")
    found = texts.gather(places[order])
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return [found[place] for place in back.tolist()]


class TextLists(Mapping[str, list[str]]):
    """Lists of texts by their keys, which are texts, too; all are on disk, and ``items`` reads some thousand at a time.

    Looking up a single key reads all keys into memory.

    Args:
        keys: each once.
        texts: what the numbers stand for.
        counts: (n,) the texts of each list.
        numbers: the numbers of the texts of the lists from one to before another, one list after the other.
    """

    def __init__(
        self, keys: Sequence[str], texts: Sequence[str], counts: NDArray[np.integer], numbers: Callable[..., Places]
    ) -> None:
        self.counts = counts
        self._keys, self._texts, self._numbers = keys, texts, numbers
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __getitem__(self, key: str) -> list[str]:
        if not self._places:
            self._places = {each: place for place, each in enumerate(self._keys)}
        place = self._places[key]
        return gathered(self._texts, self._numbers(place, place + 1))

    def lists(self) -> Iterator[list[str]]:
        """All lists, in the order of the keys."""
        for start in range(0, len(self), LISTS):
            stop = min(start + LISTS, len(self))
            found, first = gathered(self._texts, self._numbers(start, stop)), 0
            for count in self.counts[start:stop].tolist():
                yield found[first : first + count]
                first += count

    def items(self) -> ItemsView[str, list[str]]:
        """Keys and lists, some thousand at a time."""
        return _Items(self)

    def values(self) -> ValuesView[list[str]]:
        """The lists, some thousand at a time."""
        return _Values(self)


class _Items(ItemsView[str, list[str]]):
    _mapping: TextLists

    def __iter__(self) -> Iterator[tuple[str, list[str]]]:
        return zip(self._mapping, self._mapping.lists(), strict=True)


class _Values(ValuesView[list[str]]):
    _mapping: TextLists

    def __iter__(self) -> Iterator[list[str]]:
        return self._mapping.lists()


def _lengths(lists: Mapping[str, list[str]]) -> NDArray[np.integer]:
    if isinstance(lists, TextLists):
        return lists.counts
    return np.fromiter(map(len, lists.values()), dtype=np.int64, count=len(lists))


@dataclass(frozen=True)
class Mined:
    """Anchors with their positives and negatives, and how many documents were skipped."""

    positives: Mapping[str, list[str]]
    """Of each anchor, in the order of the file."""
    negatives: Mapping[str, list[str]]
    """Of the same anchors in the same order, the nearest first; empty where none is left."""
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
    similarity: float | None = None
    """The mean cosine of anchors with their negatives."""

    @property
    def counts(self) -> NDArray[np.integer]:
        """(a,) the negatives of each anchor."""
        return _lengths(self.negatives)

    @property
    def count(self) -> int:
        """How many negatives there are."""
        return int(self.counts.sum())

    def triplets(self) -> Iterator[tuple[str, str, str]]:
        """Every positive of an anchor with every negative of it."""
        for (anchor, positives), negatives in zip(self.positives.items(), self.negatives.values(), strict=True):
            for positive in positives:
                for negative in negatives:
                    yield anchor, positive, negative

    def pairs(self, *, oversample: bool = False) -> Iterator[tuple[str, str, int]]:
        """All positive pairs with a 1 and the negative ones with a 0.

        With ``oversample`` the positive pairs are repeated until there are as many as negative ones; the seed chooses
        which of them get one more copy.
        """
        number = int(_lengths(self.positives).sum())
        copies = np.ones(number, dtype=np.int64)
        if oversample and self.count > number:
            times, rest = divmod(self.count, number)
            copies[:] = times
            copies[generator(self.seed, "oversample").permutation(number)[:rest]] += 1
        repeats = map(int, copies)
        for (anchor, positives), negatives in zip(self.positives.items(), self.negatives.values(), strict=True):
            for positive in positives:
                yield from [(anchor, positive, 1)] * next(repeats)
            for negative in negatives:
                yield anchor, negative, 0
