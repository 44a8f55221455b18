"""What rankings are worth: for each query, how high its relevant documents stand."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError, counted, did_you_mean, shorten
from nearfar.shapes import expect

Ties = Literal["worst", "id"]
MEASURES = {
    "map": "map",
    "mrr": "recip_rank",
    "p@1": "P_1", "p@5": "P_5", "p@10": "P_10",
    "ndcg@1": "ndcg_cut_1", "ndcg@5": "ndcg_cut_5", "ndcg@10": "ndcg_cut_10",
    "has_positive@1": "success_1", "has_positive@5": "success_5", "has_positive@50": "success_50",
}  # fmt: skip
"""Our names, and those of trec_eval."""
ASKED = {"map", "recip_rank", "P.1,5,10", "ndcg_cut.1,5,10", "success.1,5,50"}


@dataclass(frozen=True)
class RankingReport:
    """How high relevant documents stand."""

    rows: int
    """How many pairs of query and document were evaluated."""
    queries: int
    """How many different queries there are, those without a positive document included."""
    queries_without_positive: int
    """How many queries no document of which is relevant: they have no part in the scores."""
    scores: dict[str, float]
    """``map``, ``mrr``, ``p@k``, ``ndcg@k``, ``has_positive@k``: means over the queries that have a positive."""
    positive: int
    """The grade from which a document counted as relevant."""
    ties: Ties
    """How documents with equal scores were ordered."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            **self.scores,
            "rows": self.rows,
            "queries": self.queries,
            "queries_without_positive": self.queries_without_positive,
            "positive": self.positive,
            "ties": self.ties,
        }


def ranking_report(
    queries: Sequence[str],
    documents: Sequence[str],
    relevance: NDArray[np.integer],
    scores: NDArray[np.floating],
    *,
    positive: int = 1,
    ties: Ties = "worst",
) -> RankingReport:
    """MAP, MRR, P@k, nDCG@k and HasPositive@k of documents ranked by their scores, each query on its own.

    The measures are those of trec_eval, computed by pytrec_eval. A document is relevant from the grade ``positive``
    on; nDCG alone uses the grades themselves as gains, ``Σ grade / log2(1 + rank)`` over the best such sum. P@k
    divides by k, even where a query has fewer documents. MAP and MRR look at the whole ranking.

    Two things differ from trec_eval. A query without a relevant document is counted in ``queries_without_positive``
    and left out of every mean, where pytrec_eval gives it zeros (its nDCG apart, which looks at lower grades too):
    multiply a score by ``(queries - queries_without_positive) / queries`` for the mean over all. And equal scores are
    ordered by ``ties``, on the scores as they are, where trec_eval rounds them to single precision first.

    Args:
        queries: the query of each row.
        documents: the document of each row; no document twice for a query.
        relevance: (n,) grades from 0.
        scores: (n,) any numbers, the highest on top. Minus infinity stands for a document that was not retrieved: it is
            in no ranking, but what its query could have found.
        positive: the lowest grade that is relevant.
        ties: ``"worst"`` puts the lower grade first, so that a model that gives the same score to everything gains
            nothing; ``"id"`` puts the greater document id first, as trec_eval does.

    >>> report = ranking_report(["q", "q"], ["a", "b"], np.array([1, 0]), np.array([0.3, 0.9]))
    >>> report.scores["mrr"], report.scores["has_positive@1"], report.scores["p@5"]
    (0.5, 0.0, 0.2)
    """
    known = get_args(Ties)
    if ties not in known:
        raise SettingError(f"ties must be {' or '.join(known)}, got {ties!r}.{did_you_mean(ties, known)}")
    if positive < 1:
        raise SettingError(f"positive must be 1 or more, got {positive}: grade 0 means not relevant.")
    grades, values = _checked(queries, documents, relevance, scores)
    names: dict[str, int] = {}
    query = np.array([names.setdefault(name, len(names)) for name in queries], dtype=np.int64)  # (n,)
    _refuse_repeats(queries, documents)
    order = np.lexsort((grades if ties == "worst" else -_alphabetical(documents), -values, query))  # (n,)
    starts = np.flatnonzero(np.diff(query[order], prepend=-1))
    judged: dict[str, dict[str, int]] = {}
    ranked: dict[str, dict[str, float]] = {}
    for place, rows in enumerate(np.split(order, starts[1:])):
        if (grades[rows] >= positive).any():
            judged[str(place)] = {str(rank): grade for rank, grade in enumerate(grades[rows].tolist())}
            found = int(np.isfinite(values[rows]).sum())
            ranked[str(place)] = {str(rank): -float(rank) for rank in range(found)}  # whole numbers: no ties are left
    if not judged:
        raise SettingError(
            f"no document has relevance {positive} or more for any of {counted(len(names), 'query', 'queries')}, so "
            f"there is nothing to find; the highest grade is {grades.max()}. Lower positive, or check the relevance."
        )
    evaluator = _pytrec_eval().RelevanceEvaluator(judged, ASKED, relevance_level=positive)
    results = evaluator.evaluate(ranked)
    means = {ours: float(np.mean([results[name][theirs] for name in judged])) for ours, theirs in MEASURES.items()}
    return RankingReport(len(query), len(names), len(names) - len(judged), means, positive, ties)


def _checked(
    queries: Sequence[str], documents: Sequence[str], relevance: NDArray[np.integer], scores: NDArray[np.floating]
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
            f"scores must be numbers, got {scores[row]} for query {shorten(queries[row])} and document "
            f"{shorten(documents[row])} ({counted(len(wrong), 'such row')}); "
            "a model whose weights are NaN gives such scores."
        )
    wrong = np.flatnonzero((relevance < 0) | (relevance != np.floor(relevance)))
    if len(wrong):
        row = wrong[0]
        raise SettingError(
            f"relevance must be a whole number from 0, got {relevance[row]} for query {shorten(queries[row])} and "
            f"document {shorten(documents[row])}; map other grades to 0, 1, 2 and so on."
        )
    return relevance.astype(np.int64), scores.astype(np.float64)


def _refuse_repeats(queries: Sequence[str], documents: Sequence[str]) -> None:
    seen: set[tuple[str, str]] = set()
    for pair in zip(queries, documents, strict=True):
        if pair in seen:
            raise SettingError(
                f"document {shorten(pair[1])} is there twice for query {shorten(pair[0])}; keep one row of each, "
                "or give the documents ids of their own."
            )
        seen.add(pair)


def _alphabetical(documents: Sequence[str]) -> NDArray[np.int64]:
    """(n,) the place of each id in the order of all ids."""
    places = {name: place for place, name in enumerate(sorted(set(documents)))}
    return np.array([places[name] for name in documents], dtype=np.int64)


def _pytrec_eval() -> Any:
    try:
        return importlib.import_module("pytrec_eval")
    except ModuleNotFoundError as error:
        raise SettingError(
            "ranking measures need pytrec_eval, which is not installed: pip install 'nearfar[pairs]'."
        ) from error
