"""Texts to token ids, tokenized once before training; batches are cut from one flat table."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.encoding.light_tokenizer import LightTokenizer
from nearfar.encoding.token_file import TokenFile, TokenList
from nearfar.encoding.unpadded import Unpadded
from nearfar.errors import SettingError

CHUNK = 2_048
"""Texts that are tokenized together."""
CHARS = 4_000_000
"""Characters that are tokenized together; a tokenizer needs some hundred bytes for each."""
PIECE = 2**22
"""Token ids that are looked at together."""
LONG = 50_000
"""Characters from which a text is shortened before it is tokenized."""
_one_at_a_time = Lock()
"""Fast tokenizers keep the settings of a call, and refuse to change them while another thread uses them."""

Indices = Sequence[int] | NDArray[np.int64]


@dataclass(frozen=True)
class Padding:
    """How a tokenizer pads: on which side, and with which ids."""

    token: int
    token_type: int
    left: bool


@dataclass(frozen=True)
class Padded:
    """A batch as every encoder of transformers reads it: ``input_ids``, ``attention_mask`` and so on."""

    tensors: dict[str, Tensor]

    def to(self, device: torch.device) -> Padded:
        """The same batch on a device."""
        return Padded({name: tensor.to(device) for name, tensor in self.tensors.items()})


Inputs = Padded | Unpadded


@dataclass(frozen=True)
class TokenTable:
    """All texts of a data set as one array of token ids with offsets; no padding is kept."""

    ids: NDArray[np.int32]
    types: NDArray[np.int32] | None
    """Token type ids (first or second text of a joined pair), where the encoder reads them."""
    offsets: NDArray[np.int64]
    truncated: int
    """How many texts were longer than the limit."""
    padding: Padding
    files: tuple[TokenFile, ...] = ()
    """Where ids and types are, if they are on disk."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def highest(self) -> int:
        """The highest token id, that of the padding included."""
        highest = self.padding.token
        for start in range(0, len(self.ids), PIECE):
            highest = int(self.ids[start : start + PIECE].max(initial=highest))
            for file in self.files:
                file.release()
        return highest

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) tokens of each text, special tokens included."""
        return np.diff(self.offsets)

    def take(self, rows: Indices) -> TokenTable:
        """A table of these rows, in this order."""
        spans = [slice(self.offsets[row], self.offsets[row + 1]) for row in rows]
        for file in self.files:
            file.count(len(spans))
        types = None if self.types is None else np.concatenate([self.types[:0], *(self.types[span] for span in spans)])
        return TokenTable(
            ids=np.concatenate([self.ids[:0], *(self.ids[span] for span in spans)]),
            types=types,
            offsets=_offsets([span.stop - span.start for span in spans]),
            truncated=0,
            padding=self.padding,
        )

    def join(self, other: TokenTable) -> TokenTable:
        """The rows of this table, then those of another."""
        return TokenTable(
            ids=np.concatenate([self.ids, other.ids]),
            types=None if self.types is None or other.types is None else np.concatenate([self.types, other.types]),
            offsets=np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
            truncated=self.truncated + other.truncated,
            padding=self.padding,
        )

    def unpadded(self, rows: Indices) -> Unpadded:
        """The rows as the fast path reads them: one after the other, the longest first, without padding."""
        chosen = np.asarray(rows, dtype=np.int64)
        order = np.argsort(-self.lengths[chosen], kind="stable")
        taken = self.take(chosen[order])
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        types = None if taken.types is None else torch.from_numpy(taken.types.astype(np.int64))
        ids, lengths = torch.from_numpy(taken.ids.astype(np.int64)), tuple(taken.lengths.tolist())
        return Unpadded(ids, types, lengths, torch.from_numpy(place))

    def padded(self, rows: Indices) -> Padded:
        """The rows as any encoder reads them: padded to the longest of them, with their mask."""
        lengths = self.lengths[rows]
        width = int(lengths.max(initial=1))
        starts = (width - lengths if self.padding.left else 0 * lengths)[:, None]  # (b, 1)
        real = (np.arange(width) >= starts) & (np.arange(width) < starts + lengths[:, None])  # (b, width)
        taken = self.take(rows)

        def fill(tokens: NDArray[np.int32], padding: int) -> Tensor:
            filled = np.full(real.shape, padding, dtype=np.int64)
            filled[real] = tokens
            return torch.from_numpy(filled)

        tensors = {"input_ids": fill(taken.ids, self.padding.token)}
        tensors["attention_mask"] = torch.from_numpy(real.astype(np.int64))
        if taken.types is not None:
            tensors["token_type_ids"] = fill(taken.types, self.padding.token_type)
        return Padded(tensors)


FRAGMENTS = 0.1
"""The share of fragments above which an encoder can hardly read texts; English texts have less than 0.05 in BERT's."""
_ENOUGH = 50


def fragments(tokenizer: Any, table: TokenTable) -> float:
    """The share of tokens that tell an encoder little of a text: unknown ones, and pieces of one or two letters.

    Of tokenizers that do not mark the pieces of words with ``##``, only unknown tokens count. Few tokens give 0.
    """
    occurrences = np.bincount(table.ids[:PIECE])
    special, unknown = _special_ids(tokenizer)
    present = [number for number in np.flatnonzero(occurrences).tolist() if number not in special]
    total = int(occurrences[present].sum())
    if total < _ENOUGH:
        return 0.0
    backend = getattr(tokenizer, "backend_tokenizer", None)
    token_of = tokenizer.convert_ids_to_tokens if backend is None else backend.id_to_token
    poor = [number for number in present if number == unknown or _is_fragment(token_of(number))]
    return float(occurrences[poor].sum()) / total


def _special_ids(tokenizer: Any) -> tuple[set[int], int | None]:
    """The ids of special tokens but for the unknown one, and that one's."""
    if isinstance(tokenizer, LightTokenizer):  # of BERT's kind: without transformers
        backend = tokenizer.backend_tokenizer
        unknown = getattr(backend.model, "unk_token", None)
        if unknown is not None:
            special = {number for number, token in backend.get_added_tokens_decoder().items() if token.special}
            number = backend.token_to_id(unknown)
            return special - {number}, number
    return set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}, tokenizer.unk_token_id


def _is_fragment(token: str | None) -> bool:
    return token is not None and token.startswith("##") and len(token) <= 4 and token[2:].isalpha()


def foreign_texts(tokenizer: Any, table: TokenTable) -> str | None:
    """What to say of texts that the vocabulary of an encoder was not made for; None where it was."""
    share = fragments(tokenizer, table)
    if share <= FRAGMENTS:
        return None
    return (
        f"the encoder hardly knows these texts: {100 * share:.0f} % of their tokens are unknown or fragments of one or "
        "two letters. Is it made for their language? The default encoder is English; for other languages try "
        "--encoder sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
    )


def _offsets(lengths: Sequence[int] | array[int]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(np.asarray(lengths, dtype=np.int32), out=offsets[1:])
    return offsets


def chunks(columns: Sequence[Sequence[str]]) -> Iterator[slice]:
    """Slices of at most ``CHUNK`` rows, and of ``CHARS`` characters where a row does not have more itself.

    >>> list(chunks([["a"] * 3_000]))
    [slice(0, 2048, None), slice(2048, 3000, None)]
    """
    start = held = 0
    for row, texts in enumerate(zip(*columns, strict=True)):
        chars = sum(map(len, texts))
        if row > start and (row - start >= CHUNK or held + chars > CHARS):
            yield slice(start, row)
            start, held = row, 0
        held += chars
    if columns[0]:
        yield slice(start, len(columns[0]))


def shortened(tokenizer: Any, text: str, max_length: int) -> str:
    """As much of a long text as its first tokens need: what follows would be truncated.

    The text is cut at a space, where a tokenizer splits it before it looks for tokens, so that the tokens before the
    cut are those of the whole text; and what is left is truncated itself, or else the cut comes later. Tokenizers that
    do not split at spaces, and those that keep the end of a text, get the whole text.
    """
    if len(text) <= LONG or tokenizer.truncation_side != "right" or not _splits_at_spaces(tokenizer):
        return text
    end = LONG
    while end < len(text):
        part = text[: text.rfind(" ", 0, end) + 1].rstrip()
        if len(part) > end // 2 and _encode(tokenizer, [[part]], max_length).truncated:
            return part
        end *= 4
    return text


def _splits_at_spaces(tokenizer: Any) -> bool:
    splitter = getattr(getattr(tokenizer, "backend_tokenizer", None), "pre_tokenizer", None)
    return splitter is not None and len(splitter.pre_tokenize_str("a b")) > 1


@dataclass(frozen=True)
class _Encoded:
    """The tokens of some texts."""

    ids: list[list[int]]
    types: list[list[int]] | None
    truncated: int
    """How many texts were longer than the limit."""


def _encode(tokenizer: Any, columns: Sequence[list[str]], max_length: int) -> _Encoded:
    """Texts to tokens; a fast tokenizer is called itself, since what transformers puts around it takes longer."""
    typed = _is_typed(tokenizer)
    if not (tokenizer.is_fast and _is_plain(type(tokenizer))):
        settings = {"truncation": True, "max_length": max_length, "padding": False, "return_attention_mask": False}
        encoded = tokenizer(*columns, return_token_type_ids=typed, **settings)
        rows, types = encoded["input_ids"], encoded["token_type_ids"] if typed else None
        if encoded.encodings is None:  # a tokenizer without a fast version does not report what it truncated
            return _Encoded(rows, types, sum(len(row) >= max_length for row in rows))
        return _Encoded(rows, types, sum(bool(one.overflowing) for one in encoded.encodings))
    backend = tokenizer.backend_tokenizer
    side = tokenizer.truncation_side
    wanted = {"max_length": max_length, "stride": 0, "strategy": "longest_first", "direction": side}
    if backend.truncation != wanted:
        backend.enable_truncation(**wanted)
    if backend.padding is not None:
        backend.no_padding()
    found = backend.encode_batch_fast(columns[0] if len(columns) == 1 else list(zip(*columns, strict=True)))
    return _Encoded(
        ids=[one.ids for one in found],
        types=[one.type_ids for one in found] if typed else None,
        truncated=sum(bool(one.overflowing) for one in found),
    )


def _is_plain(kind: type[Any]) -> bool:
    """Whether a tokenizer of transformers does nothing to texts but have its fast tokenizer read them."""
    own = [parent for parent in kind.__mro__ if parent.__module__.startswith("transformers.models.")]
    return not any(name in vars(parent) for parent in own for name in ("__call__", "_encode_plus"))


def _is_typed(tokenizer: Any) -> bool:
    """Whether the encoder reads token types."""
    return "token_type_ids" in tokenizer.model_input_names


def tokenize(tokenizer: Any, columns: Sequence[Sequence[str]], *, max_length: int, disk: bool = False) -> TokenTable:
    """One column of texts, or two that are joined in the tokenizer's pair format, to a table of tokens.

    With ``disk``, the tokens are kept in a file that goes with the process.
    """
    if len(columns) not in (1, 2):
        raise SettingError(f"tokenize takes one column of texts, or two to join, got {len(columns)}.")
    special = tokenizer.num_special_tokens_to_add(pair=len(columns) == 2)
    if max_length < special:  # tokenizers then truncate nothing at all
        what = "a joined pair" if len(columns) == 2 else "a text"
        raise SettingError(
            f"encoder.max_length is {max_length}, but {what} has {special} special tokens of this encoder alone; "
            f"set more than {special}."
        )
    ids, types = (TokenFile(), TokenFile()) if disk else (TokenList(), TokenList())
    lengths = array("i")
    truncated = 0
    for rows_of_chunk in chunks(columns):
        chunk = [list(column[rows_of_chunk]) for column in columns]
        with _one_at_a_time:
            if len(chunk) == 1:  # how two texts are truncated together depends on the lengths of both
                chunk = [[shortened(tokenizer, text, max_length) for text in chunk[0]]]
            encoded = _encode(tokenizer, chunk, max_length)
        lengths.extend(map(len, encoded.ids))
        ids.add(np.fromiter(chain.from_iterable(encoded.ids), dtype=np.int32))
        if encoded.types is not None:
            types.add(np.fromiter(chain.from_iterable(encoded.types), dtype=np.int32))
        truncated += encoded.truncated
    if 0 in lengths:
        place = lengths.index(0)
        raise SettingError(
            f"text {place} has no tokens, as this tokenizer adds no special ones: {columns[0][place]!r:.60}. "
            "Leave such texts out."
        )
    padding = 0 if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
    return TokenTable(
        ids=ids.open(),
        types=types.open() if _is_typed(tokenizer) else None,
        offsets=_offsets(lengths),
        truncated=truncated,
        padding=Padding(padding, int(tokenizer.pad_token_type_id), tokenizer.padding_side == "left"),
        files=tuple(each for each in (ids, types) if isinstance(each, TokenFile)),
    )


Encoded = tuple[list[int], list[str], list[int], list[tuple[int, int]] | None]
"""The ids, tokens, marks of special tokens and places of a text; places are None where a tokenizer has none."""


def encode_all(tokenizer: Any, texts: Sequence[str], *, special: bool = True) -> list[Encoded]:
    """All tokens of texts, with special ones or without, untruncated."""
    with _one_at_a_time:
        if isinstance(tokenizer, LightTokenizer):
            backend = tokenizer.backend_tokenizer
            backend.no_truncation()
            backend.no_padding()
            found = backend.encode_batch(list(texts), add_special_tokens=special)
            return [(one.ids, one.tokens, one.special_tokens_mask, one.offsets) for one in found]
        encoded = tokenizer(list(texts), add_special_tokens=special, truncation=False, padding=False, verbose=False)
        if encoded.encodings is not None:
            return [(one.ids, one.tokens, one.special_tokens_mask, one.offsets) for one in encoded.encodings]
        marks = set(tokenizer.all_special_ids)
        return [
            (row, tokenizer.convert_ids_to_tokens(row), [int(number in marks) for number in row], None)
            for row in encoded["input_ids"]
        ]
