"""Exact nearest-neighbor search in bounded memory, and a model as a search engine."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding import TextModel, TokenTable
from nearfar.errors import SettingError, counted
from nearfar.evaluation.inference import embed_table, refuse_outside
from nearfar.evaluation.ranking_metrics import RankingReport, Ties, numbered_report
from nearfar.evaluation.vectors import directions, refuse_unusable
from nearfar.shapes import expect

Ranked = tuple[NDArray[np.float32], NDArray[np.int64]]
Progress = Callable[[float], None]
"""Takes the share of a search that is done, from 0 to 1."""
FAISS_ROWS = 50_000
"""A larger corpus is searched by faiss, a smaller one by NumPy."""
QUERIES = 256
"""Queries that are searched together."""
DOCUMENTS = 16_384
"""Documents that are searched together: with ``QUERIES``, 16 MB of scores."""
NUMBERS = 2_000_000
"""Numbers of candidate vectors that are held at once in double precision: 16 MB."""
SPARE = 16
"""Candidates beyond ``top`` that are scored again, because rounding may have changed their order."""


def top_documents(
    queries: NDArray[np.float32],
    corpus: NDArray[np.float32],
    *,
    top: int,
    normalize: bool = False,
    progress: Progress | None = None,
) -> Ranked:
    """(b, top) inner products of the best documents of each query, falling, and (b, top) their rows in the corpus.

    The search is exact. Candidates come from single precision, whose last bits depend on the sizes of the blocks; they
    are scored again in double precision and rounded once, and the lower row comes first among equals, so the same
    vectors give the same result on any machine. The exception: of more than ``SPARE`` documents that tie for the last
    rank, any may be taken.

    Args:
        queries: (b, d) vectors.
        corpus: (n, d) vectors.
        top: how many documents of each query; all of them where the corpus has fewer.
        normalize: compare directions, which makes the inner product a cosine; zero vectors are 0 to everything.
        progress: follows the search.

    >>> scores, rows = top_documents(np.eye(2, dtype=np.float32), np.eye(2, dtype=np.float32), top=1)
    >>> scores.tolist(), rows.tolist()
    ([[1.0], [1.0]], [[0], [1]])
    """
    sizes = expect(queries=(queries, "b d"), corpus=(corpus, "n d"))
    if top < 1:
        raise SettingError(f"top must be 1 or more, got {top}.")
    if sizes["n"] == 0:
        raise SettingError("there is nothing to search: the corpus has no documents.")
    refuse_unusable(queries=queries, corpus=corpus)
    top = min(top, sizes["n"])
    progress = progress or (lambda _: None)
    candidates = _candidates(queries, corpus, min(top + SPARE, sizes["n"]), progress, normalize=normalize)
    scores = np.zeros((sizes["b"], top), dtype=np.float32)
    documents = np.zeros((sizes["b"], top), dtype=np.int64)
    step = max(1, NUMBERS // max(1, candidates.shape[1] * sizes["d"]))
    for start in range(0, sizes["b"], step):
        rows = slice(start, start + step)
        chosen = np.sort(candidates[rows], axis=1)
        left, right = _wide(queries[rows], normalize=normalize), _wide(corpus[chosen], normalize=normalize)
        rounded = np.einsum("bd,bkd->bk", left, right).astype(np.float32)
        order = np.argsort(-rounded, axis=1, kind="stable")[:, :top]  # the lower row first among equals
        scores[rows], documents[rows] = _take(order, rounded, chosen)
        progress((1 + min(1.0, (start + step) / sizes["b"])) / 2)
    return scores, documents


def _candidates(
    queries: NDArray[np.float32], corpus: NDArray[np.float32], many: int, progress: Progress, *, normalize: bool
) -> NDArray[np.int64]:
    """(b, many) the best rows of the corpus in single precision; each block of it is prepared once."""
    search = _by_faiss if len(corpus) > FAISS_ROWS else _by_numpy
    groups = [
        _narrow(queries[start : start + QUERIES], normalize=normalize) for start in range(0, len(queries), QUERIES)
    ]
    best = [np.zeros((len(group), 0), dtype=np.float32) for group in groups]
    rows = [np.zeros((len(group), 0), dtype=np.int64) for group in groups]
    for start in range(0, len(corpus), DOCUMENTS):
        block = _narrow(corpus[start : start + DOCUMENTS], normalize=normalize)
        for at, (scores, indices) in enumerate(search(groups, block, min(many, len(block)))):
            best[at] = np.concatenate([best[at], scores], axis=1)
            rows[at] = np.concatenate([rows[at], indices + start], axis=1)
            if best[at].shape[1] > many:
                kept = np.argpartition(-best[at], many - 1, axis=1)[:, :many]
                best[at], rows[at] = _take(kept, best[at], rows[at])
            progress((start + (at + 1) / len(groups) * len(block)) / len(corpus) / 2)
    return np.concatenate([np.zeros((0, many), dtype=np.int64), *rows])


def _by_numpy(groups: list[NDArray[np.float32]], block: NDArray[np.float32], many: int) -> Iterator[Ranked]:
    for queries in groups:
        scores = queries @ block.T  # (b, n)
        indices = np.argpartition(-scores, many - 1, axis=1)[:, :many]
        yield np.take_along_axis(scores, indices, axis=1), indices


def _by_faiss(groups: list[NDArray[np.float32]], block: NDArray[np.float32], many: int) -> Iterator[Ranked]:
    index = _faiss().IndexFlatIP(block.shape[1])
    index.add(block)
    for queries in groups:
        yield index.search(queries, many)


def _take(columns: NDArray[np.int64], scores: NDArray[np.float32], indices: NDArray[np.int64]) -> Ranked:
    return np.take_along_axis(scores, columns, axis=1), np.take_along_axis(indices, columns, axis=1)


def _wide(vectors: NDArray[np.float32], *, normalize: bool) -> NDArray[np.float64]:
    return directions(vectors) if normalize else vectors.astype(np.float64)


def _narrow(vectors: NDArray[np.float32], *, normalize: bool) -> NDArray[np.float32]:
    """In single precision and contiguous, as faiss reads it."""
    return np.ascontiguousarray(_wide(vectors, normalize=True) if normalize else vectors, dtype=np.float32)


def _faiss() -> Any:
    try:
        return importlib.import_module("faiss")
    except ModuleNotFoundError as error:
        raise SettingError(
            f"searching more than {counted(FAISS_ROWS, 'document')} needs faiss, which is not installed: "
            "pip install faiss-cpu."
        ) from error


DEEPEST = 50
"""Documents that HasPositive@50 needs for each query."""


@dataclass(frozen=True)
class Search:
    """Queries, the corpus to search, and which documents are relevant to which query."""

    queries: NDArray[np.int64]
    """(q,) the row of each query's text in the table."""
    corpus: NDArray[np.int64]
    """(m,) the row of each document's text."""
    judged: NDArray[np.int64]
    """(n, 2) a query and a document, by their indices in ``queries`` and ``corpus``; no pair twice."""
    relevance: NDArray[np.integer]
    """(n,) the document's grade for the query, from 0."""
    positive: int = 1
    """The lowest grade that is relevant."""
    csls: int | None = None
    """Neighbors of cross-domain similarity local scaling; None compares cosines."""


def csls_vectors(
    queries: NDArray[np.float32], corpus: NDArray[np.float32], neighbors: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    r"""Vectors whose inner products rank documents by CSLS: Conneau et al. 2018, arXiv:1710.04087, section 2.3.

    .. math:: \text{CSLS}(x, y) = 2 \cos(x, y) - r(x) - r(y)

    with *r* the mean cosine of a vector with its nearest ones of the other side. Documents that are near to everything
    (hubs) fall back; *r(x)* is the same for all documents of a query, and is left out.

    Args:
        queries: (b, d) vectors of the source language.
        corpus: (n, d) vectors of the target language.
        neighbors: how many nearest ones; 10 is usual.
    """
    if neighbors < 1:
        raise SettingError(f"CSLS needs 1 neighbor or more, got {neighbors}; 10 is usual.")
    near, _ = top_documents(corpus, queries, top=neighbors, normalize=True)
    density = near.astype(np.float64).mean(axis=1, keepdims=True)  # (n, 1): r(y)
    left = np.concatenate([directions(queries), np.ones((len(queries), 1))], axis=1)
    right = np.concatenate([2 * directions(corpus), -density], axis=1)
    return left.astype(np.float32), right.astype(np.float32)


def positives_search(left: NDArray[np.int64], right: NDArray[np.int64]) -> Search:
    """A search for the right text of each positive pair among all right texts; arguments are rows of a table."""
    queries, query = np.unique(left, return_inverse=True)
    corpus, document = np.unique(right, return_inverse=True)
    judged = np.unique(np.column_stack([query, document]), axis=0)
    return Search(queries, corpus, judged, np.ones(len(judged), dtype=np.int64))


def evaluate_retrieval(
    model: TextModel,
    table: TokenTable,
    search: Search,
    *,
    batch_size: int,
    top: int = 100,
    positive: int | None = None,
    ties: Ties = "worst",
) -> RankingReport:
    """Search the whole corpus for each query and evaluate the ranking of the nearest documents.

    A relevant document that is not among them counts as missed, for MAP and nDCG as well; a document without a
    judgment for a query is not relevant to it.

    Args:
        model: the encoder.
        table: each distinct text once.
        search: queries, corpus and judgments.
        batch_size: texts that are encoded together.
        top: how many documents are retrieved for each query; 50 or more, for HasPositive@50.
        positive: the lowest grade that is relevant; None for that of the search.
        ties: as in :func:`ranking_report`.
    """
    queries, corpus, judged, relevance = search.queries, search.corpus, search.judged, search.relevance
    sizes = expect(judged=(judged, "n 2"), relevance=(relevance, "n"), queries=(queries, "q"), corpus=(corpus, "m"))
    if top < DEEPEST:
        raise SettingError(f"top must be {DEEPEST} or more, got {top}: HasPositive@50 needs that many documents.")
    refuse_outside("queries", queries, len(table))
    refuse_outside("corpus", corpus, len(table))
    refuse_outside("judged queries", judged[:, 0], sizes["q"])
    refuse_outside("judged documents", judged[:, 1], sizes["m"])
    known = judged @ [sizes["m"], 1]  # (n,) one number for each pair
    if len(np.unique(known)) < len(known):
        raise SettingError("judged has a pair of query and document twice; keep one row of each.")
    vectors = embed_table(model, table, batch_size=batch_size)
    left, right = vectors[queries], vectors[corpus]
    if search.csls is not None:
        left, right = csls_vectors(left, right, search.csls)
    scores, documents = top_documents(left, right, top=top, normalize=search.csls is None)
    pairs = np.column_stack([np.repeat(np.arange(sizes["q"]), documents.shape[1]), documents.ravel()])  # (q · top, 2)
    grades = np.zeros(len(pairs), dtype=np.int64)
    _, ranked, matched = np.intersect1d(pairs @ [sizes["m"], 1], known, assume_unique=True, return_indices=True)
    grades[ranked] = relevance[matched]
    missed = np.ones(len(known), dtype=np.bool_)
    missed[matched] = False
    rows = np.concatenate([pairs, judged[missed]])
    return numbered_report(
        rows,
        np.concatenate([grades, relevance[missed]]),
        np.concatenate([scores.ravel(), np.full(int(missed.sum()), -np.inf, dtype=np.float32)]),
        positive=search.positive if positive is None else positive,
        ties=ties,
    )
