"""What the server asks of a model, whichever kind ``nearfar.load`` gives: tokens, embeddings and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import did_you_mean
from nearfar.server.errors import invalid, wrong_model

Rows = list[str] | list[tuple[str, str]]
Scores = list[tuple[str, float]]
"""The classes of a text with their scores, the best first."""
HeadKind = Literal["classes", "multilabel", "scores", "cosine"]
BATCH = 64
"""Texts of similar length that are computed together."""
Token = dict[str, Any]


@dataclass(frozen=True)
class ServedHead:
    """What predicts classes or scores: a model has none, one, or one for each of its tasks."""

    name: str
    """The task; empty for a model of one task."""
    kind: HeadKind
    paired: bool
    """Whether it reads pairs of texts."""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """Texts or pairs after tokenization."""

    rows: Rows
    lengths: NDArray[np.int64]
    """(n,) tokens of each."""
    truncated: int
    """How many are longer than the model reads."""
    table: Any = None
    """Their tokens, where the model takes them."""

    def __len__(self) -> int:
        return len(self.rows)

    def slice(self, start: int, stop: int) -> Prepared:
        """Some of the rows."""
        if (start, stop) == (0, len(self)):
            return self
        table = None if self.table is None else self.table.take(np.arange(start, stop))
        return Prepared(self.rows[start:stop], self.lengths[start:stop], 0, table)


class ServedModel(Protocol):
    """A model that can be served."""

    dim: int
    max_length: int
    dtype: str
    pooling: str
    embeds: bool
    """Whether it has embeddings of single texts."""
    heads: tuple[ServedHead, ...]

    def prepare(self, rows: Rows, head: ServedHead | None, /) -> Prepared:
        """Texts or pairs to tokens: for a head, or for embeddings."""

    def embed(self, parts: Sequence[Prepared]) -> NDArray[np.float32]:
        """(n, d) the embeddings of all texts."""

    def outputs(self, head: ServedHead, parts: Sequence[Prepared]) -> NDArray[np.float32]:
        """(n, k) what a head gives: logits, scores in the user's range, or cosines."""

    def tokens(self, texts: list[str], *, special: bool) -> list[list[Token]]:
        """The tokens of texts, untruncated, with their places in the text."""


def find_head(model: ServedModel, task: str | None) -> ServedHead:
    """The head of a task; a model with one head needs no name."""
    names = [head.name for head in model.heads]
    if not names:
        raise wrong_model("this model has no class head, so it predicts no labels; it embeds texts: /embed.")
    if task is None and len(names) == 1:
        return model.heads[0]
    if names == [""]:
        raise invalid("this model has no tasks; leave 'task' out.")
    if task is None:
        raise invalid(f"this model has several tasks; name one with 'task': {', '.join(names)}.")
    if task not in names:
        raise invalid(f"there is no such task; the tasks are {', '.join(names)}.{did_you_mean(task, names)}")
    return model.heads[names.index(task)]


def answers(head: ServedHead, outputs: NDArray[np.float32], *, raw: bool = False) -> list[Scores]:
    """What a head gives in words: the classes of each row with their scores, the best first.

    The scores are probabilities, of several labels each by itself; logits where ``raw`` ones are wanted. A head of
    scores or cosines gives one number.
    """
    if head.kind in ("scores", "cosine"):
        return [[(head.kind.removesuffix("s"), float(row[0]))] for row in outputs]
    values = outputs if raw else _probabilities(outputs, alone=head.kind == "multilabel")
    order = np.argsort(-values, axis=1, kind="stable")
    return [
        [(head.labels[place], float(row[place])) for place in places] for row, places in zip(values, order, strict=True)
    ]


def _probabilities(logits: NDArray[np.float32], *, alone: bool) -> NDArray[np.float32]:
    if alone:
        return np.asarray(0.5 * (1 + np.tanh(0.5 * logits)), dtype=np.float32)
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), dtype=np.float32)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, d) vectors scaled to length 1."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)


def open_served(name: str, *, device: str | None = None, precision: Any = None) -> ServedModel:
    """Open a model folder, an exported one too, or an encoder by name."""
    from nearfar.estimators.saved_model import load

    opened = load(name, device=device, precision=precision)
    return TorchModel(opened) if hasattr(opened, "model_") else ExportedModel(opened)


class TorchModel:
    """A model that torch computes.

    Args:
        estimator: what ``nearfar.load`` gives.
    """

    def __init__(self, estimator: Any) -> None:
        from nearfar.encoding.task_model import is_task_model, load_tasks

        model = estimator.model_
        self.model = model
        self.dim = int(model.model.dim)
        self.max_length = int(model.card.max_length)
        self.dtype = str(next(model.model.parameters()).dtype).removeprefix("torch.")
        self.pooling = str(model.card.pooling)
        self.embeds = not model.card.joined
        self.task_model = load_tasks(model.folder, model) if is_task_model(model.card) else None
        self.heads = self._heads()

    def _heads(self) -> tuple[ServedHead, ...]:
        model = self.model
        if self.task_model is not None:
            return tuple(
                ServedHead(
                    card.name,
                    "scores" if card.labels is None else "cosine" if card.head["kind"] == "cosine" else "classes",
                    card.reads != "texts",
                    card.labels or (),
                )
                for card in self.task_model.tasks.values()
            )
        if model.predicts_scores:
            return (ServedHead("", "scores", model.card.joined),)
        if model.labels is None:
            return ()
        return (ServedHead("", "multilabel" if model.multilabel else "classes", model.card.joined, model.labels),)

    def prepare(self, rows: Rows, head: ServedHead | None) -> Prepared:
        """Texts or pairs to tokens."""
        if head is not None and head.paired and self.task_model is not None:
            from nearfar.encoding.task_model import lay_out

            card = self.task_model.card(head.name)
            table, places = lay_out(
                self.model.reader, [list(column) for column in zip(*rows, strict=True)], card.reads, self.max_length
            )
            lengths = sum((table.lengths[column] for column in places), np.zeros(len(rows), dtype=np.int64))
            return Prepared(rows, lengths, table.truncated)
        table = self.model.tokenize(rows)
        return Prepared(rows, table.lengths, table.truncated, table)

    def embed(self, parts: Sequence[Prepared]) -> NDArray[np.float32]:
        """(n, d) the embeddings of all texts."""
        vectors: NDArray[np.float32] = self.model.embed(_joined(parts), batch_size=BATCH)
        return vectors

    def outputs(self, head: ServedHead, parts: Sequence[Prepared]) -> NDArray[np.float32]:
        """(n, k) what a head gives."""
        if self.task_model is not None:
            rows = [row for part in parts for row in part.rows]
            columns = [list(column) for column in zip(*rows, strict=True)] if head.paired else [rows]
            outputs: NDArray[np.float32] = self.task_model.outputs(head.name, columns, batch_size=BATCH)  # type: ignore[arg-type]
            card = self.task_model.card(head.name)
            return outputs if head.kind != "scores" else card.low + outputs * (card.high - card.low)
        table = _joined(parts)
        if head.kind == "scores":
            return np.asarray(self.model.scores(table, batch_size=BATCH)[:, None])
        logits: NDArray[np.float32] = self.model.logits(table, batch_size=BATCH)
        return logits

    def tokens(self, texts: list[str], *, special: bool) -> list[list[Token]]:
        """The tokens of texts."""
        from nearfar.encoding.tokens import encode_all

        return [_described(*one) for one in encode_all(self.model.reader, texts, special=special)]


def _joined(parts: Sequence[Prepared]) -> Any:
    return reduce(lambda left, right: left.join(right), (part.table for part in parts))


class ExportedModel:
    """A model that was exported, and is computed without torch.

    Args:
        exported: what ``nearfar.load`` gives.
    """

    def __init__(self, exported: Any) -> None:
        card = exported.card
        self.exported = exported
        self.dim, self.max_length = int(card.dim), int(card.max_length)
        self.dtype = str(getattr(card, "precision", "fp32"))
        self.pooling = "exported"
        self.embeds = not any(head.reads == "joined" for head in card.heads)
        self.heads = tuple(
            ServedHead(head.name, head.kind, head.reads != "texts", tuple(head.labels)) for head in card.heads
        )
        self._ranges = {head.name: (head.low, head.high) for head in card.heads}

    def prepare(self, rows: Rows, _head: ServedHead | None) -> Prepared:
        """Texts or pairs to tokens, which are counted."""
        encoded = self.exported.tokenizer.encode_batch(rows)
        lengths = np.array([len(one.ids) for one in encoded], dtype=np.int64)
        return Prepared(rows, lengths, sum(bool(one.overflowing) for one in encoded))

    def embed(self, parts: Sequence[Prepared]) -> NDArray[np.float32]:
        """(n, d) the embeddings of all texts."""
        vectors: NDArray[np.float32] = self.exported.embed([row for part in parts for row in part.rows])
        return vectors

    def outputs(self, head: ServedHead, parts: Sequence[Prepared]) -> NDArray[np.float32]:
        """(n, k) what a head gives."""
        rows = [row for part in parts for row in part.rows]
        outputs: NDArray[np.float32] = self.exported.outputs(rows, task=head.name or None)
        low, high = self._ranges[head.name]
        return outputs if head.kind != "scores" else low + outputs * (high - low)

    def tokens(self, texts: list[str], *, special: bool) -> list[list[Token]]:
        """The tokens of texts."""
        encoded = self.exported.tokenizer.encode_batch(texts, add_special_tokens=special)
        return [_described(one.ids, one.tokens, one.special_tokens_mask, one.offsets) for one in encoded]


def _described(
    ids: Sequence[int], words: Sequence[str], special: Sequence[int], offsets: Sequence[tuple[int, int]] | None
) -> list[Token]:
    """Tokens as text-embeddings-inference describes them; special ones are at no place of the text."""
    places = offsets or [(0, 0)] * len(ids)
    return [
        {
            "id": int(number),
            "text": word,
            "special": bool(mark),
            "start": None if mark or offsets is None else start,
            "stop": None if mark or offsets is None else stop,
        }
        for number, word, mark, (start, stop) in zip(ids, words, special, places, strict=True)
    ]
