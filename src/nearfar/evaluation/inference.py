"""A model over a table of texts: class probabilities, embeddings, and cosines of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from nearfar.encoding import Output, TextModel, TokenTable
from nearfar.encoding.model import by_length
from nearfar.errors import SettingError, counted
from nearfar.shapes import expect

ROWS = 16_384
"""Rows that processes exchange at once."""


def embed_table(model: TextModel, table: TokenTable, *, batch_size: int) -> NDArray[np.float32]:
    """(n, d) text vectors, not normalized, in the order of the table."""
    return _outputs(model, table, batch_size, lambda output: output.embedding.float(), width=model.dim)


def classify(model: TextModel, table: TokenTable, *, batch_size: int, multilabel: bool = False) -> NDArray[np.float32]:
    """(n, c) class probabilities, in the order of the table; with several labels, of each label by itself."""

    def probabilities(output: Output) -> Tensor:
        assert output.logits is not None
        logits = output.logits.float()
        return logits.sigmoid() if multilabel else logits.softmax(dim=1)

    return _outputs(model, table, batch_size, probabilities, width=model.classes, logits_only=True)


def logits_and_vectors(
    model: TextModel, table: TokenTable, *, batch_size: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(n, c) class logits and (n, d) text vectors, in the order of the table."""

    def both(output: Output) -> Tensor:
        assert output.logits is not None
        return torch.cat([output.logits.float(), output.embedding.float()], dim=1)

    values = _outputs(model, table, batch_size, both, width=model.classes + model.dim)
    return values[:, : model.classes], values[:, model.classes :]


def predict_scores(model: TextModel, table: TokenTable, *, batch_size: int) -> NDArray[np.float32]:
    """(n, 1) the scores that the head predicts, in the order of the table."""

    def scores(output: Output) -> Tensor:
        assert output.logits is not None
        return output.logits.float()

    return _outputs(model, table, batch_size, scores, width=1, logits_only=True)


@contextmanager
def inference(model: TextModel) -> Iterator[torch.device]:
    """Evaluation mode without gradients, on the device of the model; afterwards the mode is as before."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield next(model.parameters()).device
    finally:
        model.train(training)


def batches(table: TokenTable, batch_size: int, *, tokens: int = 0) -> list[NDArray[np.int64]]:
    """Rows of similar length, the longest first."""
    if batch_size < 1:
        raise SettingError(f"batch_size must be 1 or more, got {batch_size}.")
    return list(by_length(table, batch_size, tokens=tokens))


def _outputs(
    model: TextModel,
    table: TokenTable,
    batch_size: int,
    view: Callable[[Output], Tensor],
    *,
    width: int,
    logits_only: bool = False,
) -> NDArray[np.float32]:
    """(n, width) one view of the outputs, computed by all processes together."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    rank, world = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
    result = torch.zeros(len(table), width)
    share = batches(table, batch_size, tokens=model.tokens_at_once)[rank::world]
    with inference(model) as device:
        for rows in share:
            output = model(model.inputs(table, rows).to(device), logits_only=logits_only)
            result[torch.from_numpy(rows)] = view(output).cpu()
    if several:  # each row is zero in all processes but one, so the sum changes no bit
        for start in range(0, len(result), ROWS):
            piece = result[start : start + ROWS].to(device)
            dist.all_reduce(piece)
            result[start : start + ROWS] = piece.cpu()
    return result.numpy()


def score_pairs(
    model: TextModel, table: TokenTable, left: NDArray[np.int64], right: NDArray[np.int64], *, batch_size: int
) -> NDArray[np.float32]:
    """(n,) cosines of pairs of texts, given by their rows in the table."""
    expect(left=(left, "n"), right=(right, "n"))
    refuse_outside("left", left, len(table))
    refuse_outside("right", right, len(table))
    vectors = embed_table(model, table, batch_size=batch_size)
    return _cosines(vectors, left, vectors, right)


def pair_scores(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n,) the cosine of each row of the left with the same row of the right; 0 for a vector of zeros.

    >>> pair_scores(np.array([[3.0, 4.0]], dtype=np.float32), np.array([[6.0, 8.0]], dtype=np.float32)).tolist()
    [1.0]
    """
    rows = np.arange(expect(left=(left, "n d"), right=(right, "n d"))["n"])
    return _cosines(left, rows, right, rows)


def refuse_outside(name: str, rows: NDArray[np.int64], size: int) -> None:
    """Refuse indices out of range, negative ones included."""
    wrong = np.flatnonzero((rows < 0) | (rows >= size))
    if len(wrong):
        raise SettingError(
            f"{name} must be indices of {counted(size, 'row')}, from 0 on; got {rows[wrong[0]]} at index {wrong[0]}."
        )


def _cosines(
    left: NDArray[np.float32], left_rows: NDArray[np.int64], right: NDArray[np.float32], right_rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Cosines in double precision, rounded once: a text with itself is exactly 1."""
    result = np.zeros(len(left_rows), dtype=np.float32)
    for start in range(0, len(result), ROWS):
        rows = slice(start, start + ROWS)
        x, y = left[left_rows[rows]].astype(np.float64), right[right_rows[rows]].astype(np.float64)
        lengths = np.sqrt(np.einsum("nd,nd->n", x, x)) * np.sqrt(np.einsum("nd,nd->n", y, y))
        result[rows] = np.einsum("nd,nd->n", x, y) / np.where(lengths > 0, lengths, 1)
    return result
