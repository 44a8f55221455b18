"""A sampler that groups texts which share words, without any encoder (Algorithm 2)."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar

import numpy as np

from nearfar.batching.groups import GroupReport, Ids, Shingles, check_groups, report, shingle_groups
from nearfar.batching.samplers import Rows, cut
from nearfar.errors import SettingError
from nearfar.seeds import generator

_STOP_WORDS = """
    a about after again all also am an and any are aren as at be because been before being between both but by can
    cannot could couldn d did didn do does doesn doing don done down during each either else ever few for from further
    get gets getting got had has hasn have haven having he her here hers him his how however i if in into is isn it its
    just let ll like m many may me might more most much must my neither no nor not now of off often on once one only or
    other our ours out over own rather re s same shall she should shouldn since so some such t than that the their
    theirs them then there these they this those through to too under until up upon us ve very was wasn we were weren
    what when where whether which while who whom whose why will with within without won would wouldn yet you your yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English words that carry little meaning."""

CHUNK = 65536
"""Texts read at once; only their shingles are kept."""

_WORD = re.compile(r"\w+")


@dataclass(kw_only=True, eq=False)
class ShingleSampler:
    """Every row exactly once an epoch, texts that share a drawn shingle of words adjacent.

    Of each text ``shingle`` words are drawn, stop words left out (a text of stop words only keeps them, and one with
    fewer words gives all it has). Texts with the same shingle are cut into groups of ``group``, and the groups come in
    random order: Pan et al., Algorithm 2. A shingle is kept as 8 bytes, not as words, so memory is some tens of bytes
    a row. A text without any word is a group of its own. For languages that put spaces between words.

    Args:
        texts: the texts to group by, of the left or the right side; read in slices, one pass an epoch.
        size: rows of a batch.
        seed: of shingles and order.
        group: largest size of a group.
        shingle: words that the texts of a group share.
        same: (n,) ids; two rows of one id do not enter one group.

    >>> texts = ["the red car", "a red house", "cold soup", "hot soup"]
    >>> sampler = ShingleSampler(texts=texts, size=2, seed=3, group=2)
    >>> len(sampler), sorted(np.concatenate(sampler.batches(0)).tolist())
    (2, [0, 1, 2, 3])
    """

    reads_model: ClassVar[bool] = False

    texts: Sequence[str]
    size: int
    seed: int
    group: int = 8
    shingle: int = 1
    same: Ids | None = None
    report: GroupReport | None = field(default=None, init=False)
    """Of the latest epoch."""

    def __post_init__(self) -> None:
        check_groups(rows=len(self.texts), size=self.size, group=self.group, same=self.same)
        if self.shingle < 1:
            raise SettingError(f"batches.shingle_size must be 1 word or more, got {self.shingle}; try 1 or 2.")

    def __len__(self) -> int:
        return -(-len(self.texts) // self.size)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:  # noqa: ARG002 - as all samplers
        """The epoch's groups, one after the other, cut into batches."""
        source = generator(self.seed, "words", epoch)
        start = time.perf_counter()
        shingles = word_shingles(self.texts, words=self.shingle, source=source)
        groups = shingle_groups(shingles, group=self.group, source=source, same=self.same)
        batches = cut(groups.order, self.size)
        seconds = time.perf_counter() - start
        self.report = report(
            groups, batches=batches, similarity=self._overlap, measure="words", source=source, seconds=seconds
        )
        return batches

    def _overlap(self, batch: Rows) -> float:
        """Mean share of common words of two texts of a batch (Jaccard)."""
        bags = [frozenset(content_words(self.texts[row])) for row in batch.tolist()]
        pairs = [len(one & two) / max(len(one | two), 1) for one, two in combinations(bags, 2)]
        return sum(pairs) / len(pairs)


def word_shingles(texts: Sequence[str], *, words: int, source: np.random.Generator) -> Shingles:
    """(n,) numbers: equal for texts of which the same set of words was drawn."""
    shingles = np.empty(len(texts), dtype=np.uint64)
    for start in range(0, len(texts), CHUNK):
        numbers = np.fromiter(_numbers(texts[start : start + CHUNK], words, source), dtype=np.uint64)
        shingles[start : start + CHUNK] = numbers
    return shingles


def content_words(text: str) -> list[str]:
    """The different words of a text in lower case, without stop words unless it has no others.

    >>> content_words("The cat and the CAT's hat"), content_words("Who is it?"), content_words("?!")
    (['cat', 'hat'], ['who', 'is', 'it'], [])
    """
    every = dict.fromkeys(_WORD.findall(text.lower()))
    return [word for word in every if word not in STOP_WORDS] or list(every)


def _numbers(texts: Sequence[str], words: int, source: np.random.Generator) -> Iterator[int]:
    draws = source.random((len(texts), words)).tolist()
    unique = source.integers(2**64, size=len(texts), dtype=np.uint64).tolist()  # for texts without a word
    for text, draw, number in zip(texts, draws, unique, strict=True):
        bag = content_words(text)
        if not bag:
            yield number
            continue
        for at, place in enumerate(draw[: len(bag)]):  # the first words of a random order
            other = at + int(place * (len(bag) - at))
            bag[at], bag[other] = bag[other], bag[at]
        drawn = "\n".join(sorted(bag[:words]))
        yield int.from_bytes(hashlib.blake2b(drawn.encode(), digest_size=8).digest(), "little")
