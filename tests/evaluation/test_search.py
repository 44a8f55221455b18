"""Search: every document compared, in NumPy and in faiss, in any blocks, with the same result."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.errors import SettingError, ShapeError
from nearfar.evaluation import search, top_documents


def top_by_the_book(queries, corpus, top):
    """All inner products in double precision, rounded, sorted by score and then by row."""
    scores = (queries.astype(np.float64)[:, None, :] * corpus.astype(np.float64)[None]).sum(axis=2).astype(np.float32)
    places = np.array([sorted(range(len(corpus)), key=lambda row: (-line[row], row))[:top] for line in scores])
    return np.take_along_axis(scores, places, axis=1), places


def vectors(rows: int, seed: int, width: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


@pytest.fixture(params=["numpy", "faiss"])
def way(request, monkeypatch):
    """Small blocks that end unevenly, by either library."""
    monkeypatch.setattr(search, "FAISS_ROWS", 0 if request.param == "faiss" else 10**9)
    monkeypatch.setattr(search, "QUERIES", 3)
    monkeypatch.setattr(search, "DOCUMENTS", 32)
    monkeypatch.setattr(search, "NUMBERS", 700)
    return request.param


@pytest.mark.parametrize("top", [1, 7, 40, 100])
def test_the_best_documents_are_found_in_order(way, top):
    """100 documents in blocks of 32, 7 queries in groups of 3."""
    queries, corpus = vectors(7, seed=1), vectors(100, seed=2)
    scores, places = top_documents(queries, corpus, top=top)
    expected = top_by_the_book(queries, corpus, top)

    assert places.tolist() == expected[1].tolist()
    np.testing.assert_allclose(scores, expected[0], rtol=1e-6, atol=1e-7)
    assert scores.dtype == np.float32
    assert places.dtype == np.int64


def test_the_lower_row_stands_first_among_equal_documents(way):
    """Six copies of one document, in different blocks, next to ten others."""
    corpus = vectors(100, seed=3)
    copies = [2, 31, 32, 33, 70, 99]
    corpus[copies] = 2 * corpus[2]
    _, places = top_documents(corpus[2:3], corpus, top=6)
    assert places.tolist() == [copies]
    assert top_documents(corpus[2:3], corpus, top=3)[1].tolist() == [copies[:3]]  # though six tie for three places


@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 50), st.integers(0, 2**16))
def test_blocks_and_libraries_do_not_change_the_result(queries, documents, top, seed):
    """Bit for bit, and never more documents than there are; small whole numbers make many ties."""
    source = np.random.default_rng(seed)
    left, right = (source.integers(-1, 2, (rows, 6)).astype(np.float32) for rows in (queries, documents))
    results = []
    for rows, size in ((10**9, 10**6), (10**9, 7), (0, 10**6), (0, 7)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(search, "FAISS_ROWS", rows)
            patch.setattr(search, "DOCUMENTS", size)
            patch.setattr(search, "SPARE", documents)
            results.append(top_documents(left, right, top=top))
    expected = top_by_the_book(left, right, min(top, documents))
    for scores, places in results:
        assert scores.shape == (queries, min(top, documents))
        assert places.tolist() == expected[1].tolist()
        assert scores.tolist() == expected[0].tolist()


def test_normalized_vectors_are_compared_by_direction(way):
    """A long document does not win by its length; a zero one is 0 to all."""
    corpus = np.array([[0, 0], [100, 100], [0.1, 0], [-1, 0]], dtype=np.float32)
    queries = np.array([[5, 0], [0, 0]], dtype=np.float32)
    scores, places = top_documents(queries, corpus, top=4, normalize=True)
    assert places[0].tolist() == [2, 1, 0, 3]
    assert scores[0] == pytest.approx([1, 0.5**0.5, 0, -1])
    assert scores[1].tolist() == [0, 0, 0, 0]
    assert top_documents(queries, corpus, top=1)[1][0].tolist() == [1]
    assert corpus[1].tolist() == [100, 100]  # the caller's vectors stay as they are


def test_candidates_that_rounding_misplaced_are_put_right():
    """In single precision 1e4 + 1e-4 is 1e4: only the second look tells the documents apart."""
    corpus = np.zeros((12, 3), dtype=np.float32)
    corpus[:, 0], corpus[:, 2] = 1e4, -1e4
    corpus[:, 1] = np.arange(12) * 1e-4
    _, places = top_documents(np.ones((1, 3), dtype=np.float32), corpus, top=3)
    assert places.tolist() == [[11, 10, 9]]


def test_no_queries_find_nothing():
    """An empty result of the right width."""
    scores, places = top_documents(np.zeros((0, 4), dtype=np.float32), vectors(9, seed=1, width=4), top=3)
    assert scores.shape == places.shape == (0, 3)


@pytest.mark.parametrize(
    ("queries", "corpus", "top", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 3)), 0, "top must be 1 or more, got 0"),
        (np.ones((2, 3)), np.ones((0, 3)), 1, "the corpus has no documents"),
        (np.ones((2, 3)), np.array([[1, 1, 1], [1, np.nan, 1]]), 1, "corpus must be finite, row 1 is not"),
        (np.array([[1, np.inf, 1]]), np.ones((2, 3)), 1, "queries must be finite, row 0 is not"),
    ],
)
def test_searches_that_make_no_sense_are_refused(queries, corpus, top, message):
    """What came, and what fits."""
    with pytest.raises(SettingError, match=message):
        top_documents(queries.astype(np.float32), corpus.astype(np.float32), top=top)


def test_vectors_of_different_widths_are_refused():
    """Two models, or the wrong file."""
    with pytest.raises(ShapeError):
        top_documents(vectors(2, seed=1, width=4), vectors(2, seed=1, width=5), top=1)


def test_faiss_is_needed_above_a_size_only(monkeypatch):
    """And then the extra is named."""
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(search, "FAISS_ROWS", 10)
    assert top_documents(vectors(1, seed=1), vectors(10, seed=2), top=1)[1].shape == (1, 1)
    with pytest.raises(SettingError, match=r"more than 10 documents needs faiss.*pip install faiss-cpu"):
        top_documents(vectors(1, seed=1), vectors(11, seed=2), top=1)


@pytest.mark.parametrize("neighbors", [1, 3, 50])
def test_csls_ranks_as_its_formula_does(neighbors):
    """Written as loops: twice the cosine, minus the mean cosine of either side with its nearest ones."""
    sources, targets = vectors(9, seed=5), vectors(14, seed=6)
    cosines = [[_cosine(x, y) for y in targets] for x in sources]
    near = min(neighbors, len(sources))
    hubs = [sum(sorted((row[y] for row in cosines), reverse=True)[:near]) / near for y in range(len(targets))]
    left, right = search.csls_vectors(sources, targets, neighbors)
    _, ranked = top_documents(left, right, top=len(targets))
    for x, line in enumerate(cosines):
        few = min(neighbors, len(targets))
        own = sum(sorted(line, reverse=True)[:few]) / few
        scores = [2 * line[y] - own - hubs[y] for y in range(len(targets))]
        assert ranked[x].tolist() == sorted(range(len(targets)), key=lambda y: -scores[y])


def test_csls_brings_hubs_down_and_needs_a_neighbor():
    """The first target is nearest to both sources by cosine; CSLS finds the second source its own."""
    sources = np.array([[1.0, 0.1], [1.0, -0.6]], dtype=np.float32)
    targets = np.array([[1.0, -0.2], [1.0, -1.4]], dtype=np.float32)
    assert top_documents(sources, targets, top=1, normalize=True)[1].ravel().tolist() == [0, 0]
    left, right = search.csls_vectors(sources, targets, 2)
    assert top_documents(left, right, top=1)[1].ravel().tolist() == [0, 1]
    with pytest.raises(SettingError, match="CSLS needs 1 neighbor or more, got 0"):
        search.csls_vectors(sources, targets, 0)


def _cosine(x, y) -> float:
    dot = sum(float(a) * float(b) for a, b in zip(x, y, strict=True))
    return dot / (sum(float(a) ** 2 for a in x) * sum(float(b) ** 2 for b in y)) ** 0.5
