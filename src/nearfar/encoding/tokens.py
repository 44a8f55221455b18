"""Texts to token ids, ahead and once; batches are cut from the flat table and padded to their longest text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nearfar.encoding.unpadded import Stream
from nearfar.errors import SettingError

CHUNK = 2_048


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


Inputs = Padded | Stream


@dataclass(frozen=True)
class TokenTable:
    """All texts of a data set as one stream of token ids with offsets; no padding is kept."""

    ids: NDArray[np.int32]
    types: NDArray[np.int32] | None
    """Token type ids (first or second text of a joined pair), where the encoder reads them."""
    offsets: NDArray[np.int64]
    truncated: int
    """How many texts were longer than the limit."""
    padding: Padding

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) tokens of each text, special tokens included."""
        return np.diff(self.offsets)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> TokenTable:
        """A table of these rows, in this order."""
        spans = [slice(self.offsets[row], self.offsets[row + 1]) for row in rows]
        lengths = np.array([span.stop - span.start for span in spans], dtype=np.int64)
        return TokenTable(
            ids=np.concatenate([self.ids[:0], *(self.ids[span] for span in spans)]),
            types=None
            if self.types is None
            else np.concatenate([self.types[:0], *(self.types[span] for span in spans)]),
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
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

    def stream(self, rows: Sequence[int] | NDArray[np.int64]) -> Stream:
        """The rows as the fast path reads them: one after the other, the longest first, without padding."""
        chosen = np.asarray(rows, dtype=np.int64)
        order = np.argsort(-self.lengths[chosen], kind="stable")
        spans = [slice(self.offsets[row], self.offsets[row + 1]) for row in chosen[order]]
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        types = None if self.types is None else _joined(self.types, spans)
        lengths = tuple(int(span.stop - span.start) for span in spans)
        return Stream(_joined(self.ids, spans), types, lengths, torch.from_numpy(place))

    def padded(self, rows: Sequence[int] | NDArray[np.int64]) -> Padded:
        """The rows as any encoder reads them."""
        return Padded(self.batch(rows))

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> dict[str, Tensor]:
        """The rows padded to the longest of them, with their mask."""
        lengths = self.lengths[rows]
        width = int(lengths.max(initial=1))
        ids = np.full((len(rows), width), self.padding.token, dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        types = None if self.types is None else np.full((len(rows), width), self.padding.token_type, dtype=np.int64)
        for place, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            start = self.offsets[row]
            where = slice(width - length, width) if self.padding.left else slice(0, length)
            ids[place, where] = self.ids[start : start + length]
            mask[place, where] = 1
            if types is not None and self.types is not None:
                types[place, where] = self.types[start : start + length]
        batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if types is not None:
            batch["token_type_ids"] = torch.from_numpy(types)
        return batch


def _joined(flat: NDArray[np.int32], spans: list[slice]) -> Tensor:
    pieces = [flat[span] for span in spans]
    return torch.from_numpy(np.concatenate([flat[:0], *pieces]).astype(np.int64))


def tokenize(tokenizer: Any, columns: Sequence[Sequence[str]], *, max_length: int) -> TokenTable:
    """One column of texts, or two that are joined in the tokenizer's own pair format, to a table of tokens."""
    if len(columns) not in (1, 2):
        raise SettingError(f"tokenize takes one column of texts, or two to join, got {len(columns)}.")
    special = tokenizer.num_special_tokens_to_add(pair=len(columns) == 2)
    if max_length < special:  # tokenizers then cut nothing at all
        what = "a joined pair" if len(columns) == 2 else "a text"
        raise SettingError(
            f"encoder.max_length is {max_length}, but {what} has {special} special tokens of this encoder alone; "
            f"set more than {special}."
        )
    typed = "token_type_ids" in tokenizer.model_input_names
    ids: list[NDArray[np.int32]] = []
    types: list[NDArray[np.int32]] = []
    lengths: list[int] = []
    truncated = 0
    for start in range(0, len(columns[0]), CHUNK):
        chunk = [list(column[start : start + CHUNK]) for column in columns]
        encoded = tokenizer(
            *chunk, truncation=True, max_length=max_length, padding=False, return_attention_mask=False,
            return_token_type_ids=typed,
        )  # fmt: skip
        rows = encoded["input_ids"]
        lengths.extend(map(len, rows))
        ids.append(np.fromiter((token for row in rows for token in row), dtype=np.int32))
        if typed:
            types.append(np.fromiter((kind for row in encoded["token_type_ids"] for kind in row), dtype=np.int32))
        if encoded.encodings is None:  # a tokenizer without a fast version does not say what it cut
            truncated += sum(len(row) >= max_length for row in rows)
        else:
            truncated += sum(bool(encoding.overflowing) for encoding in encoded.encodings)
    if 0 in lengths:
        place = lengths.index(0)
        raise SettingError(
            f"text {place} has no tokens, as this tokenizer adds no special ones: {columns[0][place]!r:.60}. "
            "Leave such texts out."
        )
    empty = np.zeros(0, dtype=np.int32)
    return TokenTable(
        ids=np.concatenate([empty, *ids]),
        types=np.concatenate([empty, *types]) if typed else None,
        offsets=np.concatenate([[0], np.cumsum(np.array(lengths, dtype=np.int64))]).astype(np.int64),
        truncated=truncated,
        padding=Padding(
            token=0 if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id),
            token_type=int(tokenizer.pad_token_type_id),
            left=tokenizer.padding_side == "left",
        ),
    )
