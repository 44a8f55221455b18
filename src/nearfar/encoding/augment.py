"""Augmentations: texts that are changed a little before the encoder reads them.

Each is called with the indices of texts in a table of distinct texts and a seed, and gives a table of these texts,
changed: the same indices and seed, the same table.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding.lexicon import Lexicon, load_lexicon
from nearfar.encoding.tokens import TokenTable, tokenize
from nearfar.errors import SettingError, did_you_mean
from nearfar.seeds import generator

Places = NDArray[np.int64]
Augment = Callable[[Places, int], TokenTable]
"""Indices of texts in the table and a seed to a table of these texts, changed."""
Augmentation = Literal["spans", "synonyms", "words"]
AUGMENTATIONS: tuple[Augmentation, ...] = get_args(Augmentation)
MaskMode = Literal["tokens", "characters"]
MASK_MODES: tuple[MaskMode, ...] = get_args(MaskMode)

LENGTH = 5
"""Tokens or characters of a masked span: Mirror-BERT's for sentences."""
SHORTEST = 30
"""Characters that a text must have for Mirror-BERT's own code to mask it."""

_SPACED_WORD = re.compile(r"\s*\S+")
_LETTERS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenizedTexts:
    """The texts to change.

    Args:
        texts: all distinct texts.
        table: their tokens, in the same order.
        tokenizer: the one that made the table.
        max_length: tokens of the longest text.
    """

    texts: Sequence[str]
    table: TokenTable
    tokenizer: Any
    max_length: int


@dataclass(kw_only=True, eq=False)
class SpanMask:
    """Replaces one span of adjacent tokens of each text by mask tokens: Liu et al. 2021 (Mirror-BERT), by tokens.

    The span has ``length`` tokens, fewer in a short text, of which one token is always kept; a text of one token or
    none is unchanged. Every position where the span fits is equally likely. It holds no special token, so in a joined
    pair it lies in one of the two texts.

    Args:
        table: the tokens of all texts.
        special_ids: tokens that are not text: the ends, the separator, padding.
        mask_id: the tokenizer's mask token.
        length: tokens of the span.
    """

    table: TokenTable
    special_ids: Collection[int]
    mask_id: int
    length: int = LENGTH

    def __post_init__(self) -> None:
        _check_length(self.length)

    def __call__(self, places: Places, seed: int) -> TokenTable:
        """The texts at these indices, each with a span of its own."""
        taken = self.table.take(places)
        room = self._room(taken)
        row = np.repeat(np.arange(len(taken)), taken.lengths)  # (t,) the text of each token
        longest = np.zeros(len(taken), dtype=np.int64)
        np.maximum.at(longest, row, room)
        real = np.bincount(row[room > 0], minlength=len(taken))  # (n,) tokens of each text, without special ones
        sizes = np.minimum(np.minimum(real - 1, longest), self.length)  # (n,) tokens of each span
        fits = np.flatnonzero((room >= sizes[row]) & (sizes[row] > 0))  # where a span may start
        choices = np.bincount(row[fits], minlength=len(taken))  # (n,)
        drawn = (generator(seed, "spans").random(len(taken)) * choices).astype(np.int64)
        chosen = (np.cumsum(choices) - choices + drawn)[choices > 0]
        ids = taken.ids.copy()
        for start, size in zip(fits[chosen].tolist(), sizes[choices > 0].tolist(), strict=True):
            ids[start : start + size] = self.mask_id
        return replace(taken, ids=ids)

    def _room(self, table: TokenTable) -> NDArray[np.int64]:
        """(t,) how many tokens follow from each on, itself included, before a special one or the end of its text."""
        place = np.arange(len(table.ids))
        special = np.isin(table.ids, list(self.special_ids))
        next_special = np.minimum.accumulate(np.where(special, place, len(place))[::-1])[::-1]
        return np.minimum(next_special, np.repeat(table.offsets[1:], table.lengths)) - place


@dataclass(kw_only=True, eq=False)
class _TextChange(ABC):
    """Changes texts one by one, and tokenizes them again."""

    stream: ClassVar[str]
    """Names the randomness."""

    data: TokenizedTexts

    def __call__(self, places: Places, seed: int) -> TokenTable:
        """The texts at these indices, changed."""
        source = generator(seed, self.stream)
        texts = [self._changed(self.data.texts[place], source) for place in places.tolist()]
        return tokenize(self.data.tokenizer, [texts], max_length=self.data.max_length)

    @abstractmethod
    def _changed(self, text: str, source: np.random.Generator) -> str:
        """One text, changed."""


@dataclass(kw_only=True, eq=False)
class CharacterMask(_TextChange):
    """Replaces a span of characters by one mask token, as Mirror-BERT's published code does.

    It cuts words in two, leaves texts below 30 characters unchanged, and where the drawn characters occur more than
    once, it takes their first occurrence. Kept for comparison; use :class:`SpanMask` otherwise.

    Args:
        data: the texts; the tokenizer has a mask token.
        length: characters of the span.
    """

    stream = "characters"

    length: int = LENGTH

    def __post_init__(self) -> None:
        _check_length(self.length)
        _mask_of(self.data.tokenizer)

    def _changed(self, text: str, source: np.random.Generator) -> str:
        draw = source.random()
        if len(text) < SHORTEST or len(text) <= self.length:
            return text
        drawn = int(draw * (len(text) - self.length))
        left, right = text.split(text[drawn : drawn + self.length], 1)
        return f"{left} {self.data.tokenizer.mask_token} {right}"


@dataclass(kw_only=True, eq=False)
class WordDeletion(_TextChange):
    """Drops each word with a probability, never all words of a text.

    For languages that put spaces between words: without them a text is one word, and unchanged.

    Args:
        data: the texts.
        share: probability of each word.
    """

    stream = "words"

    share: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise SettingError(f"word deletion: share must be above 0 and below 1, got {self.share}; try 0.1.")

    def _changed(self, text: str, source: np.random.Generator) -> str:
        words = _SPACED_WORD.findall(text)
        if len(words) < 2:
            return text
        draws = source.random(len(words))
        kept = draws >= self.share
        if not kept.any():
            kept[draws.argmax()] = True  # each word is equally likely to be it
        return text if kept.all() else "".join(np.array(words, dtype=object)[kept]).lstrip()


@dataclass(kw_only=True, eq=False)
class Synonyms(_TextChange):
    """Replaces each word that has a synonym by one with a probability; every synonym is equally likely.

    For English: a word has its most frequent meaning (:func:`~nearfar.encoding.lexicon.read_lexicon`). Function
    words, inflected forms, punctuation and spacing are unchanged.

    Args:
        data: the texts.
        lexicon: the synonyms.
        share: probability of each word that has a synonym.
    """

    stream = "synonyms"

    lexicon: Lexicon
    share: float = 0.3

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SettingError(f"synonyms: share must be above 0 and at most 1, got {self.share}; try 0.3.")

    def _changed(self, text: str, source: np.random.Generator) -> str:
        def replaced(match: re.Match[str]) -> str:
            word = match.group()
            others = self.lexicon.synonyms(word)
            if not others or source.random() >= self.share:
                return word
            return others[source.integers(len(others))]

        return _LETTERS.sub(replaced, text)


def make_augment(
    name: Augmentation,
    data: TokenizedTexts,
    *,
    length: int | None = None,
    mode: MaskMode | None = None,
    share: float | None = None,
    lexicon: Lexicon | None = None,
) -> Augment:
    """The augmentation of that name; settings left out have its defaults.

    Args:
        name: ``spans`` masks, ``words`` drops words, ``synonyms`` replaces words.
        data: the texts.
        length: of a span.
        mode: what a span is made of; ``characters`` as published, ``tokens`` otherwise.
        share: of the words.
        lexicon: of synonyms; WordNet otherwise.
    """
    if name not in AUGMENTATIONS:
        known = ", ".join(AUGMENTATIONS)
        raise SettingError(f"no augmentation {name!r}; take one of {known}.{did_you_mean(name, AUGMENTATIONS)}")
    if len(data.texts) != len(data.table):
        raise SettingError(
            f"augmentation {name!r}: {len(data.texts)} texts, but {len(data.table)} in the table of tokens."
        )
    every = {"length": length, "mode": mode, "share": share, "lexicon": lexicon}
    given: dict[str, Any] = {setting: value for setting, value in every.items() if value is not None}
    read = {"spans": ("length", "mode"), "words": ("share",), "synonyms": ("share", "lexicon")}[name]
    for setting in given:
        if setting not in read:
            raise SettingError(f"augmentation {name!r} has no setting {setting!r}; it reads {' and '.join(read)}.")
    if name == "words":
        return WordDeletion(data=data, **given)
    if name == "synonyms":
        return Synonyms(data=data, lexicon=given.pop("lexicon", None) or load_lexicon(), **given)
    mode = given.pop("mode", "tokens")
    if mode not in MASK_MODES:
        raise SettingError(f"augmentation 'spans': mode must be {' or '.join(MASK_MODES)}, got {mode!r}.")
    if mode == "characters":
        return CharacterMask(data=data, **given)
    mask_id, special_ids = _mask_of(data.tokenizer), _special_ids(data.tokenizer)
    return SpanMask(table=data.table, special_ids=special_ids, mask_id=mask_id, **given)


def _check_length(length: int) -> None:
    if length < 1:
        raise SettingError(f"a masked span must have a length of 1 or more, got {length}; try {LENGTH}.")


def _special_ids(tokenizer: Any) -> set[int]:
    """All special tokens but the one for unknown words, which is text unless it is an end as well."""
    special = set(tokenizer.all_special_ids)
    ends = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id)
    return special if tokenizer.unk_token_id in ends else special - {tokenizer.unk_token_id}


def _mask_of(tokenizer: Any) -> int:
    if tokenizer.mask_token_id is None:
        raise SettingError(
            "spans are masked with the tokenizer's mask token, and this tokenizer has none; take an encoder that was "
            "trained to fill masks, or another augmentation: words, synonyms."
        )
    return int(tokenizer.mask_token_id)
