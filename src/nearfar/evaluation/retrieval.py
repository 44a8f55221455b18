"""A model as a search engine: for each query, the nearest documents of a whole corpus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding import TextModel, TokenTable
from nearfar.errors import SettingError
from nearfar.evaluation.inference import embed_table
from nearfar.evaluation.ranking_metrics import RankingReport, Ties, ranking_report
from nearfar.evaluation.search import top_documents
from nearfar.evaluation.similarity import refuse_outside
from nearfar.shapes import expect

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
    positive: int = 1,
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
        positive: the lowest grade that is relevant.
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
    scores, documents = top_documents(vectors[queries], vectors[corpus], top=top, normalize=True)
    pairs = np.column_stack([np.repeat(np.arange(sizes["q"]), documents.shape[1]), documents.ravel()])  # (q · top, 2)
    grades = np.zeros(len(pairs), dtype=np.int64)
    _, ranked, matched = np.intersect1d(pairs @ [sizes["m"], 1], known, assume_unique=True, return_indices=True)
    grades[ranked] = relevance[matched]
    missed = np.ones(len(known), dtype=np.bool_)
    missed[matched] = False
    rows = np.concatenate([pairs, judged[missed]])
    return ranking_report(
        rows[:, 0].astype(str).tolist(),
        rows[:, 1].astype(str).tolist(),
        np.concatenate([grades, relevance[missed]]),
        np.concatenate([scores.ravel(), np.full(int(missed.sum()), -np.inf, dtype=np.float32)]),
        positive=positive,
        ties=ties,
    )
