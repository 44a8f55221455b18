"""Ranking metrics: for each query, how high its relevant documents are ranked."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError, counted, did_you_mean, shorten
from nearfar.evaluation.classification import ScoredReport
from nearfar.shapes import expect

Ties = Literal["worst", "id"]
MEASURES = {
    "map": "map",
    "mrr": "recip_rank",
    **{f"p@{k}": f"P_{k}" for k in (1, 5, 10)},
    **{f"ndcg@{k}": f"ndcg_cut_{k}" for k in (1, 5, 10)},
    **{f"has_positive@{k}": f"success_{k}" for k in (1, 5, 50)},
}
"""Our names, and those of trec_eval."""
QUERIES = 256
"""Queries that are measured together."""
REQUESTED = {"map", "recip_rank", "P.1,5,10", "ndcg_cut.1,5,10", "success.1,5,50"}


@dataclass(frozen=True)
class RankingReport(ScoredReport):
    """How high relevant documents are ranked.

    ``scores`` holds ``map``, ``mrr``, ``p@k``, ``ndcg@k`` and ``has_positive@k``: means over the queries that have a
    relevant document.
    """

    rows: int
    """How many pairs of query and document were evaluated."""
    queries: int
    """How many different queries there are, including those without a relevant document."""
    queries_without_positive: int
    """How many queries have no relevant document; they are not in the scores."""
    positive: int
    """The lowest grade that counts as relevant."""
    ties: Ties
    """How documents with equal scores were ordered."""


def ranking_report(
    queries: Sequence[str],
    documents: Sequence[str],
    relevance: NDArray[np.integer],
    scores: NDArray[np.floating],
    *,
    positive: int = 1,
    ties: Ties = "worst",
) -> RankingReport:
    """MAP, MRR, P@k, nDCG@k and HasPositive@k of documents ranked by their scores within each query.

    The measures are those of trec_eval, computed by pytrec_eval. A document is relevant from the grade ``positive``
    on; nDCG alone uses the grades themselves as gains, ``Σ grade / log2(1 + rank)`` over the best such sum. P@k
    divides by k, even where a query has fewer documents. MAP and MRR use the whole ranking.

    Two things differ from trec_eval. A query without a relevant document is counted in ``queries_without_positive``
    and left out of every mean, where pytrec_eval gives it zeros (except nDCG, which counts lower grades too):
    multiply a score by ``(queries - queries_without_positive) / queries`` for the mean over all. And equal scores are
    ordered by ``ties`` on the unrounded scores, where trec_eval rounds them to single precision first.

    Args:
        queries: the query of each row.
        documents: the document of each row; no document twice for a query.
        relevance: (n,) grades from 0.
        scores: (n,) any numbers, the highest on top. Minus infinity means that the document was not retrieved: it is
            in no ranking, but counts among the relevant documents of its query.
        positive: the lowest grade that is relevant.
        ties: ``"worst"`` puts the lower grade first, so that a model with the same score for everything gains nothing;
            ``"id"`` puts the greater document id first, as trec_eval does.

    >>> report = ranking_report(["q", "q"], ["a", "b"], np.array([1, 0]), np.array([0.3, 0.9]))
    >>> report.scores["mrr"], report.scores["has_positive@1"], report.scores["p@5"]
    (0.5, 0.0, 0.2)
    """
    _refuse_settings(positive, ties)
    grades, values = _checked(queries, documents, relevance, scores)
    names: dict[str, int] = {}
    query = np.array([names.setdefault(name, len(names)) for name in queries], dtype=np.int64)  # (n,)
    _refuse_repeats(queries, documents)
    last = grades if ties == "worst" else -_alphabetical(documents)
    return _of_numbers(query, grades, values, last, positive=positive, ties=ties)


def numbered_report(
    pairs: NDArray[np.int64],
    relevance: NDArray[np.integer],
    scores: NDArray[np.floating],
    *,
    positive: int = 1,
    ties: Ties = "worst",
) -> RankingReport:
    """The same for (n, 2) numbers of queries and documents, all queries from 0 on, and no pair twice.

    It needs no objects for rows, so that a million of them take little memory.
    """
    _refuse_settings(positive, ties)
    grades, values = _checked(pairs[:, 0], pairs[:, 1], relevance, scores)
    last = grades if ties == "worst" else -_alphabetical(pairs[:, 1].astype(str).tolist())
    return _of_numbers(pairs[:, 0], grades, values, last, positive=positive, ties=ties)


def _of_numbers(
    query: NDArray[np.int64], grades: NDArray[np.int64], values: NDArray[np.float64], last: NDArray[np.int64],
    *, positive: int, ties: Ties,
) -> RankingReport:  # fmt: skip
    """Some queries at a time, since pytrec_eval takes dictionaries; ``last`` orders equal scores."""
    order = np.lexsort((last, -values, query))  # (n,)
    starts = np.flatnonzero(np.diff(query[order], prepend=-1))
    rankings = np.split(order, starts[1:])
    measured: list[dict[str, float]] = []
    for start in range(0, len(rankings), QUERIES):
        judged: dict[str, dict[str, int]] = {}
        ranked: dict[str, dict[str, float]] = {}
        for number, rows in enumerate(rankings[start : start + QUERIES]):
            if (grades[rows] >= positive).any():
                judged[str(number)] = {str(rank): grade for rank, grade in enumerate(grades[rows].tolist())}
                retrieved = int(np.isfinite(values[rows]).sum())
                ranked[str(number)] = {str(rank): -float(rank) for rank in range(retrieved)}  # whole: no ties left
        if judged:
            evaluator = _pytrec_eval().RelevanceEvaluator(judged, REQUESTED, relevance_level=positive)
            results = evaluator.evaluate(ranked)
            measured += [results[name] for name in judged]
    if not measured:
        raise SettingError(
            f"no document has relevance {positive} or more for any of {counted(len(rankings), 'query', 'queries')}, so "
            f"there is nothing to find; the highest grade is {grades.max()}. Lower positive, or check the relevance."
        )
    means = {ours: float(np.mean([each[theirs] for each in measured])) for ours, theirs in MEASURES.items()}
    return RankingReport(means, len(query), len(rankings), len(rankings) - len(measured), positive, ties)


def _refuse_settings(positive: int, ties: str) -> None:
    known = get_args(Ties)
    if ties not in known:
        raise SettingError(f"ties must be {' or '.join(known)}, got {ties!r}.{did_you_mean(ties, known)}")
    if positive < 1:
        raise SettingError(f"positive must be 1 or more, got {positive}: grade 0 means not relevant.")


def _checked(
    queries: Sequence[str] | NDArray[np.int64],
    documents: Sequence[str] | NDArray[np.int64],
    relevance: NDArray[np.integer],
    scores: NDArray[np.floating],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    n = expect(relevance=(relevance, "n"), scores=(scores, "n"))["n"]
    for name, ids in (("queries", queries), ("documents", documents)):
        if len(ids) != n:
            raise SettingError(f"{name} must have one id for each of the {counted(n, 'row')}, got {len(ids):,}.")
    if n == 0:
        raise SettingError("there is nothing to evaluate: no rows.")
    wrong = np.flatnonzero(np.isnan(scores) | np.isposinf(scores))
    if len(wrong):
        row = wrong[0]
        raise SettingError(
            f"scores must be numbers, got {scores[row]} for query {shorten(str(queries[row]))} and document "
            f"{shorten(str(documents[row]))} ({counted(len(wrong), 'such row')}); "
            "a model whose weights are NaN gives such scores."
        )
    wrong = np.flatnonzero((relevance < 0) | (relevance != np.floor(relevance)))
    if len(wrong):
        row = wrong[0]
        raise SettingError(
            f"relevance must be a whole number from 0, got {relevance[row]} for query {shorten(str(queries[row]))} and "
            f"document {shorten(str(documents[row]))}; map other grades to 0, 1, 2 and so on."
        )
    return relevance.astype(np.int64), scores.astype(np.float64)


def _refuse_repeats(queries: Sequence[str], documents: Sequence[str]) -> None:
    visited: set[tuple[str, str]] = set()
    for pair in zip(queries, documents, strict=True):
        if pair in visited:
            raise SettingError(
                f"document {shorten(pair[1])} occurs twice for query {shorten(pair[0])}; keep one row of each, "
                "or give the documents different ids."
            )
        visited.add(pair)


def _alphabetical(documents: Sequence[str]) -> NDArray[np.int64]:
    """(n,) the rank of each id among the sorted ids."""
    ranks = {name: rank for rank, name in enumerate(sorted(set(documents)))}
    return np.array([ranks[name] for name in documents], dtype=np.int64)


def _pytrec_eval() -> Any:
    try:
        return importlib.import_module("pytrec_eval")
    except ModuleNotFoundError as error:
        raise SettingError(
            "ranking measures need pytrec_eval, which is not installed: pip install pytrec-eval-terrier."
        ) from error
