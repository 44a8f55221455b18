"""Ranking reports: against the definitions as loops, against pytrec_eval on raw scores, and at their edges."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from nearfar.errors import SettingError, ShapeError
from nearfar.evaluation import ranking_metrics, ranking_report
from nearfar.evaluation.ranking_metrics import MEASURES

COARSE = st.integers(0, 4).map(lambda quarter: quarter / 4)
FINE = st.floats(-1, 1, width=32, allow_subnormal=False)


@st.composite
def judged_documents(draw, values, missing=False):
    """Rows of up to four queries and twelve documents, grades 0 to 3, in any order, one grade 3 at least."""
    pairs = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 11)), min_size=1, max_size=40, unique=True))
    grades = draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    kind = values | st.just(-np.inf) if missing else values
    scores = draw(st.lists(kind, min_size=len(pairs), max_size=len(pairs)))
    grades[draw(st.integers(0, len(pairs) - 1))] = 3
    queries, documents = [f"q{query}" for query, _ in pairs], [f"d{document}" for _, document in pairs]
    return queries, documents, np.array(grades), np.array(scores, dtype=np.float64)


def measures_by_the_book(grades: list[int], ideal: list[int], positive: int) -> dict[str, float]:
    """All measures of one query, from the grades down its ranking and the grades it could have had."""

    def gain(ranking, k):
        return sum(grade / math.log2(1 + rank) for rank, grade in enumerate(ranking[:k], start=1))

    hits = [grade >= positive for grade in grades]
    first = next((rank for rank, hit in enumerate(hits, start=1) if hit), math.inf)
    precisions = [sum(hits[:rank]) / rank for rank, hit in enumerate(hits, start=1) if hit]
    best = sorted(ideal, reverse=True)
    return {
        "map": sum(precisions) / sum(grade >= positive for grade in ideal),
        "mrr": 1 / first,
        **{f"p@{k}": sum(hits[:k]) / k for k in (1, 5, 10)},
        **{f"ndcg@{k}": gain(grades, k) / gain(best, k) for k in (1, 5, 10)},
        **{f"has_positive@{k}": float(any(hits[:k])) for k in (1, 5, 50)},
    }


def report_by_the_book(queries, documents, relevance, scores, positive, ties):
    every, without = [], 0
    for name in dict.fromkeys(queries):
        rows = [row for row, query in enumerate(queries) if query == name]
        if not any(relevance[row] >= positive for row in rows):
            without += 1
            continue
        found = [row for row in rows if scores[row] != -np.inf]
        if ties == "worst":
            found.sort(key=lambda row: (-scores[row], relevance[row]))
        else:
            found.sort(key=lambda row: documents[row], reverse=True)
            found.sort(key=lambda row: -scores[row])
        every.append(
            measures_by_the_book([relevance[row] for row in found], [relevance[row] for row in rows], positive)
        )
    return {name: float(np.mean([one[name] for one in every])) for name in every[0]}, without


@given(
    judged_documents(COARSE) | judged_documents(FINE) | judged_documents(COARSE, missing=True),
    st.integers(1, 3),
    st.sampled_from(["worst", "id"]),
)
def test_scores_are_their_definitions_written_as_loops(rows, positive, ties):
    """Grades, ties, queries without a positive and documents that were not retrieved included."""
    report = ranking_report(*rows, positive=positive, ties=ties)
    expected, without = report_by_the_book(*rows, positive=positive, ties=ties)

    assert report.scores == pytest.approx(expected, abs=1e-9)
    assert report.queries_without_positive == without
    assert report.queries == len(set(rows[0]))
    assert report.rows == len(rows[0])


@given(judged_documents(COARSE) | judged_documents(FINE), st.integers(1, 3))
def test_with_ties_by_id_the_scores_are_those_of_pytrec_eval_itself(rows, positive):
    """Handed the raw scores and ids; its zeros for queries without a positive are left out, or put back."""
    judged: dict[str, dict[str, int]] = {}
    run: dict[str, dict[str, float]] = {}
    for query, document, grade, score in zip(*rows, strict=True):
        judged.setdefault(query, {})[document] = int(grade)
        run.setdefault(query, {})[document] = float(score)
    asked = {"map", "recip_rank", "P.1,5,10", "ndcg_cut.1,5,10", "success.1,5,50"}
    theirs = pytrec_eval.RelevanceEvaluator(judged, asked, relevance_level=positive).evaluate(run)
    report = ranking_report(*rows, positive=positive, ties="id")
    with_positive = [query for query in judged if max(judged[query].values()) >= positive]
    share = (report.queries - report.queries_without_positive) / report.queries

    assert len(MEASURES) == len(theirs[with_positive[0]]) == 11
    for ours, name in MEASURES.items():
        assert report.scores[ours] == pytest.approx(np.mean([theirs[query][name] for query in with_positive]), abs=1e-9)
        if "ndcg" not in ours:
            over_all = np.mean([theirs[query][name] for query in judged])
            assert report.scores[ours] * share == pytest.approx(over_all, abs=1e-9)


@given(judged_documents(COARSE), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(rows, random):
    """Neither under ties."""
    places = list(range(len(rows[0])))
    random.shuffle(places)
    shuffled = (
        [rows[0][place] for place in places], [rows[1][place] for place in places], rows[2][places], rows[3][places],
    )  # fmt: skip

    for ties in ("worst", "id"):
        assert ranking_report(*shuffled, ties=ties).scores == pytest.approx(ranking_report(*rows, ties=ties).scores)


@given(judged_documents(COARSE))
def test_no_order_of_equal_scores_is_worse_than_the_worst(rows):
    """The pessimistic report bounds the one by id from below, in every measure."""
    worst, by_id = (ranking_report(*rows, ties=ties).scores for ties in ("worst", "id"))
    assert all(worst[name] <= by_id[name] + 1e-9 for name in worst)


def test_a_model_that_scores_everything_alike_gains_nothing():
    """One positive among ten, ten equal scores: it stands last, whatever its id."""
    for place in range(10):
        grades = np.zeros(10, dtype=np.int64)
        grades[place] = 1
        report = ranking_report(["q"] * 10, list("abcdefghij"), grades, np.full(10, 0.5))
        assert report.scores["mrr"] == pytest.approx(0.1)
        assert report.scores["has_positive@5"] == 0.0


def test_scores_closer_than_single_precision_are_no_tie():
    """trec_eval by itself would round both to 0.5 and take the greater id."""
    report = ranking_report(["q", "q"], ["a", "b"], np.array([1, 0]), np.array([0.5 + 1e-12, 0.5]), ties="id")
    assert report.scores["mrr"] == 1.0


def test_one_query_with_one_document():
    """The smallest ranking there is."""
    report = ranking_report(["q"], ["d"], np.array([2]), np.array([-0.3]))
    assert report.scores["map"] == report.scores["mrr"] == report.scores["ndcg@10"] == 1.0
    assert report.scores["p@5"] == pytest.approx(0.2)


def test_a_query_without_a_positive_is_counted_and_left_out():
    """It neither raises nor lowers the means."""
    with_one = (["q", "q"], ["a", "b"], np.array([0, 1]), np.array([0.9, 0.8]))
    both = ([*with_one[0], "r"], ["a", "b", "a"], np.array([0, 1, 0]), np.array([0.9, 0.8, 0.7]))
    report = ranking_report(*both)

    assert (report.queries, report.queries_without_positive) == (2, 1)
    assert report.scores == ranking_report(*with_one).scores
    written = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert written["queries_without_positive"] == 1
    assert written["mrr"] == 0.5


def test_a_relevant_document_that_was_not_retrieved_lowers_map():
    """Minus infinity keeps it out of the ranking, not out of what there was to find."""
    whole = ranking_report(["q"], ["a"], np.array([1]), np.array([0.9]))
    half = ranking_report(["q", "q"], ["a", "b"], np.array([1, 1]), np.array([0.9, -np.inf]))
    none = ranking_report(["q"], ["a"], np.array([1]), np.array([-np.inf]))
    assert [report.scores["map"] for report in (whole, half, none)] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relevance": np.array([0, 0])}, "relevance 1 or more for any of 1 query, .*highest grade is 0"),
        ({"positive": 3}, "relevance 3 or more"),
        ({"positive": 0}, "positive must be 1 or more, got 0"),
        ({"scores": np.array([0.5, np.nan])}, "got nan for query 'q' and document 'b'"),
        ({"scores": np.array([np.inf, 0.5])}, "got inf for query 'q' and document 'a'"),
        ({"relevance": np.array([1, -1])}, "whole number from 0, got -1 for query 'q' and document 'b'"),
        ({"relevance": np.array([1, 0.5])}, "whole number from 0, got 0.5"),
        ({"documents": ["a", "a"]}, "document 'a' occurs twice for query 'q'"),
        ({"documents": ["a"]}, "documents must have one id for each of the 2 rows, got 1"),
        ({"queries": ["q"] * 3}, "queries must have one id for each of the 2 rows, got 3"),
        ({"ties": "best"}, "ties must be worst or id, got 'best'"),
    ],
)
def test_rankings_that_cannot_be_judged_are_refused(changes, message):
    """What came, for which query, and what to do."""
    rows = {
        "queries": ["q", "q"],
        "documents": ["a", "b"],
        "relevance": np.array([1, 0]),
        "scores": np.array([0.9, 0.1]),
    }
    with pytest.raises(SettingError, match=message):
        ranking_report(**{**rows, **changes})


def test_no_rows_and_uneven_rows_are_refused():
    """Nothing to rank, or one score too many."""
    with pytest.raises(SettingError, match="no rows"):
        ranking_report([], [], np.zeros(0, dtype=np.int64), np.zeros(0))
    with pytest.raises(ShapeError):
        ranking_report(["q"], ["a"], np.array([1]), np.array([0.1, 0.2]))


def test_without_pytrec_eval_the_extra_is_named(monkeypatch):
    """The remedy is one command."""
    monkeypatch.setitem(sys.modules, "pytrec_eval", None)
    with pytest.raises(SettingError, match=r"pip install pytrec-eval-terrier"):
        ranking_report(["q"], ["a"], np.array([1]), np.array([0.1]))


@pytest.mark.parametrize("ties", ["worst", "id"])
def test_numbers_and_few_queries_at_a_time_give_the_same_report(ties, monkeypatch):
    """As names do, all queries at once."""
    source = np.random.default_rng(4)
    pairs = np.column_stack([np.repeat(np.arange(30), 12), np.tile(np.arange(12), 30)])
    grades, scores = source.integers(0, 3, 360), source.integers(0, 5, 360).astype(np.float32)
    grades[:12] = 0  # a query without a relevant document
    names = [column.astype(str).tolist() for column in pairs.T]
    whole = ranking_report(*names, grades, scores, ties=ties)
    monkeypatch.setattr(ranking_metrics, "QUERIES", 7)
    assert ranking_metrics.numbered_report(pairs, grades, scores, ties=ties) == whole
    assert whole.queries_without_positive >= 1
    with pytest.raises(SettingError, match="relevance must be a whole number from 0, got -1 for query"):
        ranking_metrics.numbered_report(pairs, np.where(pairs[:, 0] == 3, -1, grades), scores)
