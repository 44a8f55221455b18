"""A model on pairs, rankings and a corpus: against the vectors of the model itself, compared one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cosine
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from nearfar.data import RowType
from nearfar.encoding import load as open_model
from nearfar.errors import SettingError, ShapeError
from nearfar.evaluation import (
    EvaluationRows,
    Search,
    Truth,
    embed_table,
    evaluate,
    evaluate_retrieval,
    inference,
    pair_scores,
    ranking_report,
    score_pairs,
)

TEXTS = [
    "a cat sat", "the cat sat on a mat", "dogs bark", "a dog barks at the cat", "rain", "it will rain all day tomorrow",
    "sun", "the sun is out and so are we", "one more text", "and the last of them",
]  # fmt: skip
LEFT = np.array([0, 0, 2, 4, 6, 8, 1])
RIGHT = np.array([1, 3, 3, 5, 7, 9, 1])


def measured(model, table, row_type, values, columns=(LEFT, RIGHT), thresholds=None, **ids):
    """The report of a model on rows of a type."""
    rows = EvaluationRows(table, columns, Truth(row_type, values, **ids))
    return evaluate(model, rows, batch_size=4, thresholds=thresholds)


@pytest.fixture(scope="module")
def opened():
    return open_model("toy")


@pytest.fixture(scope="module")
def table(opened):
    return opened.tokenize(TEXTS)


@pytest.fixture(scope="module")
def cosines(opened):
    """(7,) SciPy's cosines of the pairs, each text embedded by Model.embed."""
    vectors = opened.embed(TEXTS).astype(np.float64)
    return np.array([1 - cosine(vectors[left], vectors[right]) for left, right in zip(LEFT, RIGHT, strict=True)])


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_vectors_are_those_of_the_model_in_the_order_of_the_table(opened, table, batch_size):
    """Whatever the batches, which go by length."""
    vectors = embed_table(opened.model, table, batch_size=batch_size)
    np.testing.assert_allclose(vectors, opened.embed(TEXTS), rtol=1e-4, atol=1e-6)
    assert vectors.dtype == np.float32


def test_each_text_is_encoded_once_and_without_dropout(opened, table):
    """However many pairs it is in; the model is left in the mode it came in."""
    calls = []
    handle = opened.model.register_forward_hook(
        lambda module, _, output: calls.append((module.training, len(output.embedding)))
    )
    opened.model.train()
    try:
        first = score_pairs(opened.model, table, np.tile(LEFT, 9), np.tile(RIGHT, 9), batch_size=4)
        second = score_pairs(opened.model, table, LEFT, RIGHT, batch_size=4)
        assert opened.model.training
    finally:
        handle.remove()
        opened.model.eval()
    assert calls == [(False, 4), (False, 4), (False, 2)] * 2
    assert first[:7].tolist() == second.tolist()


def test_pair_scores_are_cosines_by_row(monkeypatch):
    """In blocks that end unevenly; a zero vector is 0 to everything, a vector is 1 to itself."""
    monkeypatch.setattr(inference, "ROWS", 4)
    source = np.random.default_rng(5)
    left, right = (source.standard_normal((11, 6)).astype(np.float32) for _ in range(2))
    right[3] = 7 * left[3]
    left[9] = 0
    scores = pair_scores(left, right)
    expected = [0 if row == 9 else 1 - cosine(left[row].astype(float), right[row].astype(float)) for row in range(11)]
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert scores[3] == 1.0
    assert scores[9] == 0.0


def test_scores_are_evaluated_against_the_graded_truth(opened, table, cosines):
    """Spearman of SciPy's cosines, and their squared differences."""
    truth = np.array([0.9, 0.1, 0.6, 0.8, 0.4, 0.2, 1.0])
    report = measured(opened.model, table, RowType.SCORED_PAIRS, truth)
    assert report.scores["spearman"] == pytest.approx(spearmanr(truth, cosines).statistic)
    assert report.scores["mse"] == pytest.approx(((truth - cosines) ** 2).mean(), rel=1e-4)


def test_pairs_are_evaluated_at_the_threshold_given(opened, table, cosines):
    """Chosen on these pairs, or brought along."""
    truth = np.array([1, 0, 0, 1, 1, 0, 1])
    here = measured(opened.model, table, RowType.BINARY_PAIRS, truth)
    assert here.chosen_here
    assert here.scores["average_precision"] == pytest.approx(average_precision_score(truth, cosines))
    limit, other = np.sort(cosines)[[2, 4]] + 1e-4
    thresholds = {"threshold": limit, "accuracy_threshold": other}
    given = measured(opened.model, table, RowType.BINARY_PAIRS, truth, thresholds=thresholds)
    predicted = cosines >= limit
    assert given.scores["recall"] == pytest.approx((predicted & (truth == 1)).sum() / 4)
    assert given.scores["accuracy"] == pytest.approx(((cosines >= other) == (truth == 1)).mean())


def test_candidates_are_ranked_by_their_cosine(opened, table, cosines):
    """Queries are grouped by their ids; each row is a document of its own unless ids say otherwise."""
    relevance = np.array([1, 0, 1, 2, 1, 0, 1])
    names, ids = [str(row) for row in LEFT], [str(row) for row in range(7)]
    report = measured(opened.model, table, RowType.RANKING, relevance, queries=names)
    assert report.scores == ranking_report(names, ids, relevance, cosines).scores
    assert (report.queries, report.queries_without_positive) == (6, 1)
    alone = measured(opened.model, table, RowType.RANKING, relevance, queries=ids, documents=["d"] * 7)
    assert (alone.queries, alone.queries_without_positive) == (7, 2)


def test_one_text_may_be_two_documents_of_a_query(opened, table):
    """Without ids every row is a document of its own; with ids, the same one twice is refused."""
    columns, relevance, queries = (np.array([0, 0]), np.array([1, 1])), np.array([1, 0]), ["q", "q"]
    report = measured(opened.model, table, RowType.RANKING, relevance, columns, queries=queries)
    assert report.scores["mrr"] == 0.5  # equal scores: the worst order
    with pytest.raises(SettingError, match="twice"):
        measured(opened.model, table, RowType.RANKING, relevance, columns, queries=queries, documents=["d", "d"])


@pytest.fixture(scope="module")
def library(opened):
    """3 queries, 70 documents (one text twice), and 6 judgments, one of them grade 0."""
    texts = [f"{word} {number}" for number in range(25) for word in ("cat", "dogs and", "the rain of")][:72]
    table = opened.tokenize(texts)
    queries, corpus = np.array([0, 30, 71]), np.array([*range(1, 70), 5])
    judged = np.array([[0, 3], [0, 60], [1, 28], [0, 20], [1, 69], [2, 1]])
    return table, opened.embed(texts), queries, corpus, judged, np.array([2, 1, 1, 0, 3, 0])


def test_retrieval_is_a_ranking_of_the_whole_corpus(opened, library):
    """With room for every document it equals the ranking of all pairs, unjudged ones being irrelevant."""
    table, vectors, queries, corpus, judged, relevance = library
    search = Search(queries, corpus, judged, relevance)
    report = evaluate_retrieval(opened.model, table, search, batch_size=16, top=100)

    grades = np.zeros((3, 70), dtype=np.int64)
    grades[judged[:, 0], judged[:, 1]] = relevance
    rows = [(query, document) for query in range(3) for document in range(70)]
    scores = pair_scores(vectors[[queries[q] for q, _ in rows]], vectors[[corpus[d] for _, d in rows]])
    expected = ranking_report([str(q) for q, _ in rows], [str(d) for _, d in rows], grades.ravel(), scores)
    assert report.scores == pytest.approx(expected.scores)
    assert (report.queries, report.queries_without_positive) == (3, 1)


def test_relevant_documents_below_the_top_are_missed(opened, library):
    """The last document of the whole ranking is not found in the first 50, and MAP halves."""
    table, vectors, queries, corpus, _, _ = library
    cosines = pair_scores(np.repeat(vectors[queries[:1]], 70, axis=0), vectors[corpus])
    judged = np.array([[0, cosines.argmax()], [0, cosines.argmin()]])
    search = Search(queries[:1], corpus, judged, np.array([1, 1]))
    report = evaluate_retrieval(opened.model, table, search, batch_size=16, top=50)
    assert report.scores["map"] == 0.5
    assert report.scores["mrr"] == 1.0
    assert report.rows == 51


def test_retrieval_refuses_what_it_cannot_judge(opened, library):
    """A pair judged twice, places that do not exist, a top that is too short to look at."""
    table, _, queries, corpus, judged, relevance = library

    def evaluate(top=50, **changes):
        search = replace(Search(queries, corpus, judged, relevance), **changes)
        return evaluate_retrieval(opened.model, table, search, batch_size=16, top=top)

    with pytest.raises(SettingError, match="twice"):
        evaluate(judged=judged[[0, 1, 2, 3, 4, 0]])
    with pytest.raises(SettingError, match="judged documents must be indices of 70 rows, from 0 on; got 70 at index 2"):
        evaluate(judged=np.where(judged == 28, 70, judged))
    with pytest.raises(SettingError, match="judged queries must be indices of 3 rows"):
        evaluate(judged=np.add(judged, (1, 0)))
    with pytest.raises(SettingError, match="corpus must be indices of 72 rows"):
        evaluate(corpus=corpus + 3)
    with pytest.raises(SettingError, match="queries must be indices of 72 rows"):
        evaluate(queries=queries - 1)
    with pytest.raises(SettingError, match="top must be 50 or more, got 49"):
        evaluate(top=49)
    with pytest.raises(SettingError, match="nothing to find"):
        evaluate(relevance=np.zeros(6, dtype=np.int64))


@pytest.mark.parametrize("place", [-1, len(TEXTS)])
def test_pairs_of_texts_that_are_not_there_are_refused(opened, table, place):
    """Minus one is no text from the end."""
    with pytest.raises(SettingError, match=f"right must be indices of 10 rows, from 0 on; got {place} at index 1"):
        score_pairs(opened.model, table, LEFT[:2], np.array([0, place]), batch_size=4)


def test_uneven_sides_and_empty_batches_are_refused(opened, table):
    """Before anything is encoded."""
    with pytest.raises(ShapeError):
        score_pairs(opened.model, table, LEFT, RIGHT[:3], batch_size=4)
    with pytest.raises(ShapeError):
        measured(opened.model, table, RowType.SCORED_PAIRS, np.zeros(3))
    with pytest.raises(SettingError, match="batch_size must be 1 or more, got 0"):
        embed_table(opened.model, table, batch_size=0)


def test_a_model_of_nan_is_refused():
    """A run that went wrong says so here at the latest."""
    opened = open_model("toy")
    for weight in opened.model.parameters():
        weight.data.fill_(float("nan"))
    table = opened.tokenize(TEXTS)
    with pytest.raises(SettingError, match="predicted must be finite, got nan in row 0"):
        measured(opened.model, table, RowType.SCORED_PAIRS, np.zeros(7))
    with pytest.raises(SettingError, match="scores must be numbers, got nan"):
        measured(opened.model, table, RowType.RANKING, np.ones(7, dtype=np.int64), queries=list("abcdefg"))
