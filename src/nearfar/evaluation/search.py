"""The documents nearest to each query, found exactly, in bounded memory."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError, counted
from nearfar.shapes import expect

Found = tuple[NDArray[np.float32], NDArray[np.int64]]
FAISS_ROWS = 50_000
"""A corpus of more documents than this is searched by faiss; a smaller one needs nothing but NumPy."""
QUERIES = 1_024
"""Queries that are searched together."""
DOCUMENTS = 16_384
"""Documents that are searched together: with ``QUERIES``, 64 MB of scores."""
NUMBERS = 8_000_000
"""Numbers of candidate vectors that are held at once in double precision: 64 MB."""
SPARE = 16
"""Candidates beyond ``top`` that are scored again: rounding may have put the right ones behind others."""


def top_documents(
    queries: NDArray[np.float32], corpus: NDArray[np.float32], *, top: int, normalize: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(b, top) inner products of the best documents of each query, falling, and (b, top) their rows in the corpus.

    Every document is compared, none is guessed. Candidates come from single precision, whose last bits depend on the
    sizes of the blocks; they are scored again in double precision and rounded once, and the lower row stands first
    among equals, so the same vectors give the same result whatever the machine. The exception: of more than ``SPARE``
    documents that tie for the last place, any may be taken.

    Args:
        queries: (b, d) vectors.
        corpus: (n, d) vectors.
        top: how many documents of each query; all of them where the corpus has fewer.
        normalize: compare directions, which makes the inner product a cosine; zero vectors are 0 to everything.

    >>> scores, places = top_documents(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), top=1)
    >>> scores.tolist(), places.tolist()
    ([[1.0], [1.0]], [[0], [1]])
    """
    sizes = expect(queries=(queries, "b d"), corpus=(corpus, "n d"))
    if top < 1:
        raise SettingError(f"top must be 1 or more, got {top}.")
    if sizes["n"] == 0:
        raise SettingError("there is nothing to search: the corpus has no documents.")
    _refuse_not_finite("queries", queries)
    _refuse_not_finite("corpus", corpus)
    top = min(top, sizes["n"])
    candidates = _candidates(queries, corpus, min(top + SPARE, sizes["n"]), normalize=normalize)
    scores = np.zeros((sizes["b"], top), dtype=np.float32)
    places = np.zeros((sizes["b"], top), dtype=np.int64)
    step = max(1, NUMBERS // max(1, candidates.shape[1] * sizes["d"]))
    for start in range(0, sizes["b"], step):
        rows = slice(start, start + step)
        found = np.sort(candidates[rows], axis=1)
        left, right = _wide(queries[rows], normalize=normalize), _wide(corpus[found], normalize=normalize)
        rounded = np.einsum("bd,bkd->bk", left, right).astype(np.float32)
        order = np.argsort(-rounded, axis=1, kind="stable")[:, :top]  # the lower row first among equals
        scores[rows], places[rows] = _take(order, rounded, found)
    return scores, places


def _candidates(
    queries: NDArray[np.float32], corpus: NDArray[np.float32], many: int, *, normalize: bool
) -> NDArray[np.int64]:
    """(b, many) rows of the corpus that are best in single precision; each block of it is prepared once."""
    search = _by_faiss if len(corpus) > FAISS_ROWS else _by_numpy
    groups = [
        _narrow(queries[start : start + QUERIES], normalize=normalize) for start in range(0, len(queries), QUERIES)
    ]
    best = [np.zeros((len(group), 0), dtype=np.float32) for group in groups]
    rows = [np.zeros((len(group), 0), dtype=np.int64) for group in groups]
    for start in range(0, len(corpus), DOCUMENTS):
        block = _narrow(corpus[start : start + DOCUMENTS], normalize=normalize)
        for place, (scores, places) in enumerate(search(groups, block, min(many, len(block)))):
            best[place] = np.concatenate([best[place], scores], axis=1)
            rows[place] = np.concatenate([rows[place], places + start], axis=1)
            if best[place].shape[1] > many:
                kept = np.argpartition(-best[place], many - 1, axis=1)[:, :many]
                best[place], rows[place] = _take(kept, best[place], rows[place])
    return np.concatenate([np.zeros((0, many), dtype=np.int64), *rows])


def _by_numpy(groups: list[NDArray[np.float32]], block: NDArray[np.float32], many: int) -> Iterator[Found]:
    for queries in groups:
        scores = queries @ block.T  # (b, n)
        places = np.argpartition(-scores, many - 1, axis=1)[:, :many]
        yield np.take_along_axis(scores, places, axis=1), places


def _by_faiss(groups: list[NDArray[np.float32]], block: NDArray[np.float32], many: int) -> Iterator[Found]:
    index = _faiss().IndexFlatIP(block.shape[1])
    index.add(block)
    for queries in groups:
        yield index.search(queries, many)


def _take(columns: NDArray[np.int64], scores: NDArray[np.float32], places: NDArray[np.int64]) -> Found:
    return np.take_along_axis(scores, columns, axis=1), np.take_along_axis(places, columns, axis=1)


def _wide(vectors: NDArray[np.float32], *, normalize: bool) -> NDArray[np.float64]:
    """The vectors in double precision, with ``normalize`` of length 1; zero vectors stay."""
    wide = vectors.astype(np.float64)
    if not normalize:
        return wide
    lengths = np.sqrt(np.einsum("...d,...d->...", wide, wide))[..., None]
    return wide / np.where(lengths > 0, lengths, 1)


def _narrow(vectors: NDArray[np.float32], *, normalize: bool) -> NDArray[np.float32]:
    """The same in single precision, as faiss reads it."""
    return np.ascontiguousarray(_wide(vectors, normalize=True) if normalize else vectors, dtype=np.float32)


def _refuse_not_finite(name: str, vectors: NDArray[np.float32]) -> None:
    for start in range(0, len(vectors), DOCUMENTS):
        wrong = np.flatnonzero(~np.isfinite(vectors[start : start + DOCUMENTS]).all(axis=1))
        if len(wrong):
            raise SettingError(
                f"{name} must be finite, row {start + wrong[0]} is not; a model whose weights are NaN or infinite "
                "gives such vectors."
            )


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ModuleNotFoundError as error:
        raise SettingError(
            f"searching more than {counted(FAISS_ROWS, 'document')} needs faiss, which is not installed: "
            "pip install 'nearfar[pairs]'."
        ) from error
