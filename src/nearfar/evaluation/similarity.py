"""Cosine similarity of pairs of texts.

A table holds each distinct text once, and pairs name its rows, so no text is encoded twice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding import TextModel, TokenTable
from nearfar.errors import SettingError, counted
from nearfar.evaluation.inference import embed_table
from nearfar.shapes import expect

ROWS = 16_384
"""Pairs that are compared at once in double precision."""


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
