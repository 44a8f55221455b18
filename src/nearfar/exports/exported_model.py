"""Models that were exported, for use without torch: what they have in common, whatever computes them."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import EncoderError, SettingError, did_you_mean
from nearfar.exports.heads import ExportedCard, ExportedHead, label_value

TOKENIZER = "tokenizer.json"
CARD = "export.json"
"""The card, where a format has no metadata of its own."""
FORMAT = 1
EMBEDDING = "sentence_embedding"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
LARGEST_TOKENIZER = 200 * 2**20
LARGEST_CARD = 100 * 2**20


class ExportedModel(ABC):
    """An exported model: labels, probabilities, scores and text vectors, by the interface of the model it was made of.

    Args:
        path: the file that holds the weights.
        card: what the export says about itself.
    """

    kind: str
    """What its limits of quality are named by: fp32, int8 or static."""

    def __init__(self, path: Path, card: ExportedCard) -> None:
        self.path = path
        self.card = card
        self.kind = card.precision
        self._tokenizer = open_tokenizer(path.with_name(TOKENIZER), card.max_length)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, which truncates texts at the limit of the model."""
        return self._tokenizer

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks; none for a model of one task."""
        return tuple(head.name for head in self.card.heads if head.name)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """The class names of a classifier, in the order of the graph's output; else None."""
        heads = self.card.heads
        return heads[0].labels if len(heads) == 1 and not heads[0].name and heads[0].labels else None

    @property
    def classes_(self) -> NDArray[Any]:
        """(c,) the classes, sorted, as :meth:`predict_proba` has its columns."""
        return self.classes()

    def classes(self, task: str | None = None) -> NDArray[Any]:
        """(c,) the classes of a task, sorted."""
        head = self._head(task)
        if not head.labels:
            raise AttributeError("this model predicts scores, and has no classes")
        return np.sort(_values(head))

    def predict(self, texts: Any, *, task: str | None = None, batch_size: int = 64) -> Any:
        """The class of each text or pair; its score; or a tuple of labels for a model of several labels a text."""
        head = self._head(task)
        outputs = self._outputs(head, texts, batch_size)
        if head.kind == "scores":
            return (head.low + outputs[:, 0].astype(np.float64) * (head.high - head.low)).astype(np.float32)
        values = _values(head)
        if head.kind == "cosine":
            return values[(outputs[:, 0] >= head.cut).astype(np.int64)]
        if head.kind == "classes":
            return values[outputs.argmax(axis=1)]
        least = np.array([head.thresholds.get(name, 0.5) for name in head.labels])
        chances = _sigmoid(outputs)
        order = np.argsort(-chances, axis=1, kind="stable")
        return [
            tuple(values[place].item() for place in places if row[place] >= least[place])
            for row, places in zip(chances, order, strict=True)
        ]

    def predict_proba(self, texts: Any, *, task: str | None = None, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, c) the probability of each class, in the order of :attr:`classes_`."""
        head = self._head(task)
        if head.kind not in ("classes", "multilabel"):
            raise SettingError("this head predicts scores or cosines, which are no probabilities; use predict.")
        outputs = self._outputs(head, texts, batch_size)
        chances = _sigmoid(outputs) if head.kind == "multilabel" else _softmax(outputs)
        return chances[:, np.argsort(_values(head), kind="stable")]

    def embed(self, texts: Any, *, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, d) the vector of each text."""
        rows = _rows(texts)
        if rows and len(rows[0]) == 2 and not any(head.reads == "joined" for head in self.card.heads):
            raise SettingError("this model embeds single texts; got pairs.")
        return self._run(rows, EMBEDDING, self.card.dim, batch_size)

    encode = embed

    def outputs(self, texts: Any, *, task: str | None = None, batch_size: int = 64) -> NDArray[np.float32]:
        """(n, k) what a head gives for each text or pair: logits, a score from 0 to 1, or a cosine."""
        return self._outputs(self._head(task), texts, batch_size)

    def _head(self, task: str | None) -> ExportedHead:
        heads = self.card.heads
        if not heads:
            raise SettingError("this model has no class head, so it predicts no labels; it embeds texts.")
        if task is None and len(heads) == 1:
            return heads[0]
        names = [head.name for head in heads]
        if task is None:
            raise SettingError(f"this model has several tasks; name one with task=: {', '.join(names)}.")
        if task not in names:
            raise SettingError(
                f"there is no task {task!r}; the tasks are {', '.join(names)}.{did_you_mean(task, names)}"
            )
        return heads[names.index(task)]

    def _outputs(self, head: ExportedHead, texts: Any, batch_size: int) -> NDArray[np.float32]:
        """(n, k) what the head gives for each text or pair."""
        rows, paired = _rows(texts), head.reads != "texts"
        width = 1 if head.kind in ("scores", "cosine") else len(head.labels)
        if rows and (len(rows[0]) == 2) != paired:
            wanted = "pairs of texts" if paired else "single texts"
            raise SettingError(f"this model reads {wanted}; got {'single texts' if paired else 'pairs'}.")
        if head.reads == "apart":
            rows = [(side,) for row in rows for side in row]
        elif head.reads == "both-orders":
            rows = [sides for row in rows for sides in (row, row[::-1])]
        together = 2 if head.reads in ("apart", "both-orders") else 1
        return self._run(rows, head.output, width, batch_size, together=together)

    @abstractmethod
    def _run(
        self, rows: list[tuple[str, ...]], output: str, width: int, batch_size: int, *, together: int = 1
    ) -> NDArray[np.float32]:
        """(n, width) one output for all rows; ``together`` rows make one answer."""


class GraphModel(ExportedModel):
    """An exported graph from token ids to its outputs, computed in batches of similar length.

    Args:
        path: the file of the graph.
        card: what the export says about itself.
    """

    @abstractmethod
    def _compute(self, output: str, feeds: dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        """One output of the graph for a padded batch."""

    def _run(
        self, rows: list[tuple[str, ...]], output: str, width: int, batch_size: int, *, together: int = 1
    ) -> NDArray[np.float32]:
        """Rows to one output of the graph, in batches of similar length; ``together`` rows make one answer."""
        if batch_size < 1:
            raise SettingError(f"batch_size must be 1 or more, got {batch_size}.")
        encoded = self._tokenizer.encode_batch([row if len(row) > 1 else row[0] for row in rows]) if rows else []
        lengths = np.array([len(one.ids) for one in encoded], dtype=np.int64).reshape(-1, together)
        result = np.zeros((len(lengths), width), dtype=np.float32)
        order = np.argsort(-lengths.max(axis=1, initial=0), kind="stable")
        for start in range(0, len(order), batch_size):
            answers = order[start : start + batch_size]
            chosen = (answers[:, None] * together + np.arange(together)).ravel()
            feeds = self._padded([encoded[place] for place in chosen])
            result[answers] = self._compute(output, feeds)
        return result

    def _padded(self, batch: Sequence[Any]) -> dict[str, NDArray[np.int64]]:
        """Encoded texts as the graph reads them, padded to the longest."""
        card = self.card
        width = max(len(one.ids) for one in batch)
        ids = np.full((len(batch), width), card.pad_id, dtype=np.int64)
        types = np.full((len(batch), width), card.pad_type, dtype=np.int64)
        mask = np.zeros((len(batch), width), dtype=np.int64)
        for row, one in enumerate(batch):
            span = slice(width - len(one.ids), width) if card.pad_left else slice(0, len(one.ids))
            ids[row, span], types[row, span], mask[row, span] = one.ids, one.type_ids, 1
        return dict(zip(INPUTS, (ids, mask, types) if card.typed else (ids, mask), strict=False))


def _rows(texts: Any) -> list[tuple[str, ...]]:
    """Texts or ``(left, right)`` pairs as tuples of strings."""
    if isinstance(texts, str):
        raise SettingError("give a list of texts, not one string: ['...'].")
    rows = [(row,) if isinstance(row, str) else tuple(row) if isinstance(row, list | tuple) else () for row in texts]
    for place, row in enumerate(rows):
        if len(row) not in (1, 2) or len(row) != len(rows[0]) or not all(isinstance(side, str) for side in row):
            raise SettingError(
                f"text {place} must be a string, or a (left, right) pair of strings like all others, got "
                f"{texts[place]!r:.60}."
            )
    return rows


def _values(head: ExportedHead) -> NDArray[Any]:
    return np.array([label_value(name, head.label_type) for name in head.labels])


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True), dtype=np.float32)


def _sigmoid(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * logits)), dtype=np.float32)


def read_card(text: str, path: Path) -> ExportedCard:
    """The card of an export, which the file at ``path`` holds."""
    try:
        card = ExportedCard.from_json(json.loads(text))
    except ValueError as cause:
        raise EncoderError(f"{path}: its metadata cannot be read ({cause}). Export the model again.") from cause
    if card.format > FORMAT:
        raise EncoderError(f"{path}: format {card.format} is newer than this nearfar reads ({FORMAT}); upgrade it.")
    return card


def read_card_file(folder: Path) -> ExportedCard:
    """The card of an export in a format without metadata of its own."""
    path = folder / CARD
    if not path.is_file() or path.stat().st_size > LARGEST_CARD:
        raise EncoderError(f"{path}: the description of the export is missing or too large. Export the model again.")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise EncoderError(f"{path}: its metadata cannot be read ({cause}). Export the model again.") from cause
    return read_card(text, path)


def open_tokenizer(path: Path, max_length: int) -> Any:
    """The tokenizer next to the weights, without padding, cutting texts after so many tokens."""
    if not path.is_file():
        raise EncoderError(f"{path}: the tokenizer is missing; the export wrote it next to the graph.")
    if path.stat().st_size > LARGEST_TOKENIZER:
        raise EncoderError(f"{path}: this tokenizer is larger than {LARGEST_TOKENIZER:,} bytes, so it is not read.")
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(os.fspath(path))
    except Exception as cause:  # tokenizers raises Exception itself
        raise EncoderError(f"{path}: this tokenizer cannot be read ({cause}). Export the model again.") from cause
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer
