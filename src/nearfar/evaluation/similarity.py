"""A model on pairs, rankings and a corpus: vectors, their cosines, and what these are worth.

A table holds each distinct text once, and pairs name its rows, so no text is encoded twice. Under several processes the
texts are shared out and every process gets all vectors, the same to the bit, and so the same report.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from nearfar.encoding import TextModel, TokenTable
from nearfar.encoding.model import by_length
from nearfar.errors import SettingError, counted
from nearfar.evaluation.pairs import PairReport, ScoreReport, pair_report, score_report
from nearfar.evaluation.ranking_metrics import RankingReport, Ties, ranking_report
from nearfar.evaluation.search import top_documents
from nearfar.shapes import expect

ROWS = 16_384
"""Rows that are exchanged, or compared in double precision, at once."""


def embed_table(model: TextModel, table: TokenTable, *, batch_size: int) -> NDArray[np.float32]:
    """(n, d) text vectors, not normalized, computed by all processes together and given back in order to each."""
    if batch_size < 1:
        raise SettingError(f"batch_size must be 1 or more, got {batch_size}.")
    rank, world = (dist.get_rank(), dist.get_world_size()) if _several() else (0, 1)
    device = next(model.parameters()).device
    result = torch.zeros(len(table), model.dim)
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for rows in list(by_length(table, batch_size))[rank::world]:
                output = model(model.inputs(table, rows).to(device))
                result[torch.from_numpy(rows)] = output.embedding.float().cpu()
    finally:
        model.train(training)
    if world > 1:
        _share(result, device)
    return result.numpy()


def _share(vectors: Tensor, device: torch.device) -> None:
    """Fill in the rows of the other processes: each row is zero in all but one, so a sum changes no bit."""
    for start in range(0, len(vectors), ROWS):
        piece = vectors[start : start + ROWS].to(device)
        dist.all_reduce(piece)
        vectors[start : start + ROWS] = piece.cpu()


def pair_scores(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n,) cosine of each row of the left with the same row of the right; 0 where one of them is all zeros.

    >>> pair_scores(np.array([[3.0, 4.0]], dtype=np.float32), np.array([[6.0, 8.0]], dtype=np.float32)).tolist()
    [1.0]
    """
    n = expect(left=(left, "n d"), right=(right, "n d"))["n"]
    every = np.arange(n)
    return _cosines(left, every, right, every)


def score_pairs(
    model: TextModel, table: TokenTable, left: NDArray[np.int64], right: NDArray[np.int64], *, batch_size: int
) -> NDArray[np.float32]:
    """(n,) cosines of pairs of texts, named by their rows in the table."""
    expect(left=(left, "n"), right=(right, "n"))
    refuse_outside("left", left, len(table))
    refuse_outside("right", right, len(table))
    vectors = embed_table(model, table, batch_size=batch_size)
    return _cosines(vectors, left, vectors, right)


def evaluate_scores(
    model: TextModel,
    table: TokenTable,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    truth: NDArray[np.floating],
    *,
    batch_size: int,
) -> ScoreReport:
    """Compare the cosines of pairs with graded scores; ``mse`` takes the truth to be in 0..1 like a cosine's."""
    expect(left=(left, "n"), right=(right, "n"), truth=(truth, "n"))
    return score_report(truth, score_pairs(model, table, left, right, batch_size=batch_size))


def evaluate_pairs(
    model: TextModel,
    table: TokenTable,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    truth: NDArray[np.integer] | NDArray[np.bool_],
    *,
    batch_size: int,
    threshold: float | None = None,
    accuracy_threshold: float | None = None,
) -> PairReport:
    """Compare the cosines of pairs with yes and no; the thresholds are those of :func:`pair_report`."""
    expect(left=(left, "n"), right=(right, "n"), truth=(truth, "n"))
    scores = score_pairs(model, table, left, right, batch_size=batch_size)
    return pair_report(truth, scores, threshold, accuracy_threshold)


def evaluate_ranking(
    model: TextModel,
    table: TokenTable,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    relevance: NDArray[np.integer],
    *,
    batch_size: int,
    queries: Sequence[str] | None = None,
    documents: Sequence[str] | None = None,
    positive: int = 1,
    ties: Ties = "worst",
) -> RankingReport:
    """Rank the given candidates of each query by their cosine with it.

    Args:
        model: the model.
        table: each distinct text once.
        left: (n,) the row of the query's text in the table.
        right: (n,) the row of the candidate's text.
        relevance: (n,) the candidate's grade for the query, from 0.
        batch_size: texts that are encoded together.
        queries: the query ids; None: equal texts are the same query.
        documents: the document ids; None: each row is a document of its own, equal texts or not.
        positive: the lowest grade that is relevant.
        ties: as in :func:`ranking_report`.
    """
    n = expect(left=(left, "n"), right=(right, "n"), relevance=(relevance, "n"))["n"]
    scores = score_pairs(model, table, left, right, batch_size=batch_size)
    if queries is None:
        queries = [str(row) for row in left.tolist()]
    if documents is None:
        documents = _names(n)
    return ranking_report(queries, documents, relevance, scores, positive=positive, ties=ties)


def evaluate_retrieval(
    model: TextModel,
    table: TokenTable,
    queries: NDArray[np.int64],
    corpus: NDArray[np.int64],
    judged: NDArray[np.int64],
    relevance: NDArray[np.integer],
    *,
    batch_size: int,
    top: int = 100,
    positive: int = 1,
    ties: Ties = "worst",
) -> RankingReport:
    """Search the whole corpus for each query and judge the documents on top.

    A relevant document that is not among the top ones counts as missed, for MAP and nDCG as well; a document nobody
    judged for a query is not relevant to it.

    Args:
        model: the model.
        table: each distinct text once.
        queries: (q,) the row of each query's text in the table.
        corpus: (m,) the row of each document's text.
        judged: (n, 2) a query and a document, by their places in ``queries`` and ``corpus``; no pair twice.
        relevance: (n,) the document's grade for the query, from 0.
        batch_size: texts that are encoded together.
        top: how many documents are retrieved for each query; 50 or more, for HasPositive@50.
        positive: the lowest grade that is relevant.
        ties: as in :func:`ranking_report`.
    """
    sizes = expect(judged=(judged, "n 2"), relevance=(relevance, "n"), queries=(queries, "q"), corpus=(corpus, "m"))
    if top < 50:
        raise SettingError(f"top must be 50 or more, got {top}: HasPositive@50 looks at so many documents.")
    refuse_outside("queries", queries, len(table))
    refuse_outside("corpus", corpus, len(table))
    refuse_outside("judged queries", judged[:, 0], sizes["q"])
    refuse_outside("judged documents", judged[:, 1], sizes["m"])
    known = judged @ [sizes["m"], 1]  # (n,) one number for each pair
    if len(np.unique(known)) < len(known):
        raise SettingError("judged names a pair of query and document twice; keep one row of each.")
    vectors = embed_table(model, table, batch_size=batch_size)
    scores, places = top_documents(vectors[queries], vectors[corpus], top=top, normalize=True)
    pairs = np.column_stack([np.repeat(np.arange(sizes["q"]), places.shape[1]), places.ravel()])  # (q · top, 2)
    grades = np.zeros(len(pairs), dtype=np.int64)
    _, here, there = np.intersect1d(pairs @ [sizes["m"], 1], known, assume_unique=True, return_indices=True)
    grades[here] = relevance[there]
    missed = np.ones(len(known), dtype=np.bool_)
    missed[there] = False
    rows = np.concatenate([pairs, judged[missed]])
    return ranking_report(
        [str(query) for query in rows[:, 0].tolist()],
        [str(document) for document in rows[:, 1].tolist()],
        np.concatenate([grades, relevance[missed]]),
        np.concatenate([scores.ravel(), np.full(int(missed.sum()), -np.inf, dtype=np.float32)]),
        positive=positive,
        ties=ties,
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


def refuse_outside(name: str, rows: NDArray[np.int64], size: int) -> None:
    """Places that are not there are refused; minus one is none from the end."""
    wrong = np.flatnonzero((rows < 0) | (rows >= size))
    if len(wrong):
        raise SettingError(
            f"{name} must be places among {counted(size, 'row')}, from 0 on; got {rows[wrong[0]]} at place {wrong[0]}."
        )


def _names(number: int) -> list[str]:
    """Ids whose alphabetical order is that of the rows."""
    return [f"{row:0{len(str(number))}}" for row in range(number)]


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
