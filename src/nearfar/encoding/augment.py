"""Augmentations: texts that are changed a little before the encoder reads them.

Each is called with the places of texts in a table of distinct texts and a seed, and gives a table of these texts,
changed: the same places and seed, the same table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding.lexicon import Lexicon, load_lexicon
from nearfar.encoding.tokens import TokenTable, tokenize
from nearfar.errors import SettingError, did_you_mean
from nearfar.seeds import generator

Places = NDArray[np.int64]
Augment = Callable[[Places, int], TokenTable]
"""Places of texts in the table and a seed to a table of these texts, changed."""
Augmentation = Literal["spans", "synonyms", "words"]
AUGMENTATIONS: tuple[Augmentation, ...] = get_args(Augmentation)
MaskMode = Literal["tokens", "characters"]
MASK_MODES: tuple[MaskMode, ...] = get_args(MaskMode)

LENGTH = 5
"""Tokens or characters of a masked span: Mirror-BERT's for sentences."""
SHARE = {"words": 0.1, "synonyms": 0.3}
"""Of the words that are dropped, or replaced where they have a synonym."""
SHORTEST = 30
"""Characters that a text must have for Mirror-BERT's own code to mask it."""

_PLACED_WORD = re.compile(r"\s*\S+")
_LETTERS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


@dataclass(kw_only=True, eq=False)
class SpanMask:
    """One span of neighboring tokens of each text becomes mask tokens: Liu et al. 2021 (Mirror-BERT), by tokens.

    The span has ``length`` tokens, fewer in a short text, of which one token always stays; a text of one token or none
    is left as it is. Every place where the span fits is equally likely. It holds no special token, so in a joined pair
    it lies in one of the two texts.

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
        """The texts at these places, each with a span of its own."""
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
        """(t,) how many tokens stand from each on, itself included, before a special one or the end of its text."""
        place = np.arange(len(table.ids))
        special = np.isin(table.ids, list(self.special_ids))
        next_special = np.minimum.accumulate(np.where(special, place, len(place))[::-1])[::-1]
        return np.minimum(next_special, np.repeat(table.offsets[1:], table.lengths)) - place


@dataclass(kw_only=True, eq=False)
class CharacterMask:
    """A span of characters becomes one mask token, as Mirror-BERT's published code has it.

    It cuts words in two, leaves texts below 30 characters as they are, and where the drawn characters occur more than
    once, it takes their first occurrence. Kept for comparison; :class:`SpanMask` is meant to be used.

    Args:
        texts: all texts, in the order of the table.
        tokenizer: with a mask token.
        max_length: tokens of the longest text.
        length: characters of the span.
    """

    texts: Sequence[str]
    tokenizer: Any
    max_length: int
    length: int = LENGTH

    def __post_init__(self) -> None:
        _check_length(self.length)
        _mask_of(self.tokenizer)

    def __call__(self, places: Places, seed: int) -> TokenTable:
        """The texts at these places, the long ones with a span of their own."""
        draws = generator(seed, "characters").random(len(places)).tolist()
        texts = [self._masked(self.texts[place], draw) for place, draw in zip(places.tolist(), draws, strict=True)]
        return tokenize(self.tokenizer, [texts], max_length=self.max_length)

    def _masked(self, text: str, draw: float) -> str:
        if len(text) < SHORTEST or len(text) <= self.length:
            return text
        drawn = int(draw * (len(text) - self.length))
        left, right = text.split(text[drawn : drawn + self.length], 1)
        return f"{left} {self.tokenizer.mask_token} {right}"


@dataclass(kw_only=True, eq=False)
class WordDeletion:
    """Each word is dropped with a probability, never all of a text.

    Written for languages that put spaces between words: without them a text is one word, and stays.

    Args:
        texts: all texts, in the order of the table.
        tokenizer: of the encoder.
        max_length: tokens of the longest text.
        share: probability of each word.
    """

    texts: Sequence[str]
    tokenizer: Any
    max_length: int
    share: float = SHARE["words"]

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise SettingError(
                f"word deletion: share must be above 0 and below 1, got {self.share}; try {SHARE['words']}."
            )

    def __call__(self, places: Places, seed: int) -> TokenTable:
        """The texts at these places, without some of their words."""
        source = generator(seed, "words")
        texts = [self._thinned(self.texts[place], source) for place in places.tolist()]
        return tokenize(self.tokenizer, [texts], max_length=self.max_length)

    def _thinned(self, text: str, source: np.random.Generator) -> str:
        words = _PLACED_WORD.findall(text)
        if len(words) < 2:
            return text
        draws = source.random(len(words))
        stays = draws >= self.share
        if not stays.any():
            stays[draws.argmax()] = True  # all are equally likely to be it
        return text if stays.all() else "".join(np.array(words, dtype=object)[stays]).lstrip()


@dataclass(kw_only=True, eq=False)
class Synonyms:
    """Each word that has a synonym is replaced by one with a probability; every synonym is equally likely.

    For English: a word means what it means most often (:func:`~nearfar.encoding.lexicon.read_lexicon`). Function
    words, inflected forms, punctuation and spacing stay.

    Args:
        texts: all texts, in the order of the table.
        tokenizer: of the encoder.
        max_length: tokens of the longest text.
        share: probability of each word that has a synonym.
        lexicon: the synonyms.
    """

    texts: Sequence[str]
    tokenizer: Any
    max_length: int
    lexicon: Lexicon
    share: float = SHARE["synonyms"]

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise SettingError(
                f"synonyms: share must be above 0 and at most 1, got {self.share}; try {SHARE['synonyms']}."
            )

    def __call__(self, places: Places, seed: int) -> TokenTable:
        """The texts at these places, some words replaced."""
        source = generator(seed, "synonyms")

        def replaced(match: re.Match[str]) -> str:
            word = match.group()
            others = self.lexicon.synonyms(word)
            if not others or source.random() >= self.share:
                return word
            return others[source.integers(len(others))]

        texts = [_LETTERS.sub(replaced, self.texts[place]) for place in places.tolist()]
        return tokenize(self.tokenizer, [texts], max_length=self.max_length)


def make_augment(
    name: Augmentation,
    *,
    table: TokenTable,
    texts: Sequence[str],
    tokenizer: Any,
    max_length: int,
    length: int | None = None,
    mode: MaskMode | None = None,
    share: float | None = None,
    lexicon: Lexicon | None = None,
) -> Augment:
    """The augmentation of that name over a table and its texts; settings left out have the part's defaults.

    Args:
        name: ``spans`` masks, ``words`` drops words, ``synonyms`` replaces words.
        table: the tokens of all texts.
        texts: all texts, in the order of the table.
        tokenizer: the one that made the table.
        max_length: tokens of the longest text.
        length: of a span.
        mode: what a span is made of; ``characters`` as published, ``tokens`` otherwise.
        share: of the words.
        lexicon: of synonyms; WordNet otherwise.
    """
    if name not in AUGMENTATIONS:
        known = ", ".join(AUGMENTATIONS)
        raise SettingError(f"no augmentation {name!r}; take one of {known}.{did_you_mean(name, AUGMENTATIONS)}")
    if len(texts) != len(table):
        raise SettingError(f"augmentation {name!r}: {len(texts)} texts, but {len(table)} in the table of tokens.")
    given = {"length": length, "mode": mode, "share": share, "lexicon": lexicon}
    read = {"spans": ("length", "mode"), "words": ("share",), "synonyms": ("share", "lexicon")}[name]
    for setting, value in given.items():
        if value is not None and setting not in read:
            raise SettingError(f"augmentation {name!r} has no setting {setting!r}; it reads {' and '.join(read)}.")
    if name == "spans":
        length = LENGTH if length is None else length
        if mode == "characters":
            return CharacterMask(texts=texts, tokenizer=tokenizer, max_length=max_length, length=length)
        if mode not in (None, "tokens"):
            raise SettingError(f"augmentation 'spans': mode must be {' or '.join(MASK_MODES)}, got {mode!r}.")
        return SpanMask(table=table, special_ids=_special_ids(tokenizer), mask_id=_mask_of(tokenizer), length=length)
    share = SHARE[name] if share is None else share
    if name == "words":
        return WordDeletion(texts=texts, tokenizer=tokenizer, max_length=max_length, share=share)
    lexicon = load_lexicon() if lexicon is None else lexicon
    return Synonyms(texts=texts, tokenizer=tokenizer, max_length=max_length, lexicon=lexicon, share=share)


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
