"""Hard negatives against a slow ranking of every document, one anchor at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from nearfar.batching import cells
from nearfar.data import Records
from nearfar.errors import DataError, SettingError
from nearfar.pipeline import mining
from nearfar.pipeline.mined import Mined
from nearfar.pipeline.mining import Mining, mine


def pairs_of(rows: Sequence[tuple[str, str, int]]) -> Records:
    left, right, labels = (list(column) for column in zip(*rows, strict=True))
    return Records((left, right), [str(label) for label in labels], None, list(range(1, len(rows) + 1)), "pairs.csv")


class Vectors:
    """A random vector for every text, drawn from its name; records the requested texts."""

    def __init__(self, dim: int = 6) -> None:
        self.dim = dim
        self.asked: list[str] = []

    def of(self, text: str) -> np.ndarray:
        source = np.random.default_rng(list(" ".join(text.split()).casefold().encode()))
        return source.normal(size=self.dim).astype(np.float32)

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.asked.extend(texts)
        return np.stack([self.of(text) for text in texts])

    def cosine(self, one: str, other: str) -> float:
        return 1 - cosine(self.of(one).astype(float), self.of(other).astype(float))


ROWS = [
    ("a1", "p1", 1), ("a1", "p2", 1), ("a2", "p3", 1), ("a3", "p3", 1), ("a4", "p4", 1), ("a5", "p5", 0),
    ("p4", "p6", 1), ("a2", "p7", 0),
]  # fmt: skip
CONNECTED = {
    "a1": {"a1", "p1", "p2"}, "a2": {"a2", "a3", "p3"}, "a3": {"a2", "a3", "p3"},
    "a4": {"a4", "p4", "p6"}, "p4": {"a4", "p4", "p6"},
}  # fmt: skip
"""Which texts are connected, worked out by hand: a3 shares a positive with a2, and p6 comes to a4 through p4."""
POSITIVES = {"a1": ["p1", "p2"], "a2": ["p3"], "a3": ["p3"], "a4": ["p4"], "p4": ["p6"]}
CORPUS = ["p1", "a2", "P1 ", "p6", "a1", *(f"d{number}" for number in range(140)), "p4", "p3"]


def slow(vectors: Vectors, anchor: str, corpus: Sequence[str]) -> list[str]:
    """The documents an anchor may have, the nearest first."""
    levelled = {text.strip().lower(): text for text in reversed(corpus)}
    free = [text for text in levelled.values() if text.strip().lower() not in CONNECTED[anchor]]
    return sorted(free, key=lambda text: -vectors.cosine(anchor, text))


def test_vectors_on_disk_give_nearly_the_same_negatives_in_the_same_order(monkeypatch):
    """In several blocks of anchors, which go from cell to cell, and in several pieces; numbers have two bytes there."""
    records = pairs_of([(f"left {number}", f"right {number}", 1) for number in range(1500)])
    settings = Mining(window=(1, 10), per_anchor=10)
    vectors = Vectors(12)
    exact = mine(records, vectors, settings)
    monkeypatch.setattr(cells, "LEAST", 400)

    def pieces(texts: Sequence[str]) -> Iterator[np.ndarray]:
        for start in range(0, len(texts), 700):
            yield vectors(list(texts[start : start + 700]))

    found = mine(records, vectors, replace(settings, memory=1e-6), embed_all=pieces)
    assert exact.recall is None
    assert found.recall == 1.0
    assert list(found.negatives) == list(exact.negatives)
    shared = [len({*found.negatives[anchor]} & {*exact.negatives[anchor]}) for anchor in exact.negatives]
    assert np.mean(shared) > 9.9


@pytest.mark.parametrize("depth", [1_024, 0], ids=["searched", "sorted"])
def test_negatives_are_those_of_the_ranks_in_a_slow_ranking(depth, monkeypatch):
    """Whichever way the ranking is made; a window that is taken whole is in the order of the ranks."""
    monkeypatch.setattr(mining, "SHALLOW", depth)
    vectors = Vectors()
    mined = mine(pairs_of(ROWS), vectors, Mining(window=(3, 9), per_anchor=7), corpus=CORPUS)

    assert mined.positives == POSITIVES
    assert mined.negatives == {anchor: slow(vectors, anchor, CORPUS)[2:9] for anchor in POSITIVES}
    assert mined.documents == len(CORPUS) - 1
    assert mined.without_positive == 1
    assert sorted(vectors.asked) == sorted(set(vectors.asked))


@pytest.mark.parametrize("per_anchor", [None, 2])
def test_powers_are_the_ranks_of_the_paper(per_anchor):
    """101, 102, 104, ... as far as the corpus goes, the nearest of them first."""
    vectors = Vectors()
    mined = mine(pairs_of(ROWS), vectors, Mining(window=None, per_anchor=per_anchor), corpus=CORPUS)
    for anchor, negatives in mined.negatives.items():
        ranking = slow(vectors, anchor, CORPUS)
        ranks = [101, 102, 104, 108, 116, 132]
        assert len(ranking) >= 132
        assert negatives == [ranking[rank - 1] for rank in ranks][:per_anchor]


def test_ranks_beyond_the_corpus_are_left_out_and_counted():
    vectors = Vectors()
    mined = mine(pairs_of(ROWS), vectors, Mining(window=(2, 12), per_anchor=20), corpus=CORPUS[:10])
    expected = {anchor: slow(vectors, anchor, CORPUS[:10])[1:] for anchor in POSITIVES}
    assert mined.negatives == expected
    assert mined.beyond == sum(11 - len(found) for found in expected.values()) > 0


def test_margin_and_highest_score_keep_doubtful_negatives_out():
    """A negative is at least the margin below the lowest positive of its anchor; both kinds are counted."""
    vectors, settings = Vectors(), Mining(window=(1, 130), per_anchor=130, margin=0.2, max_score=-0.3)
    mined = mine(pairs_of(ROWS), vectors, settings, corpus=CORPUS)
    near = high = 0
    for anchor, negatives in mined.negatives.items():
        lowest = min(vectors.cosine(anchor, positive) for positive in POSITIVES[anchor])
        window = slow(vectors, anchor, CORPUS)[:130]
        free = [text for text in window if vectors.cosine(anchor, text) <= lowest - 0.2]
        near += len(window) - len(free)
        kept = [text for text in free if vectors.cosine(anchor, text) <= -0.3]
        high += len(free) - len(kept)
        assert negatives == kept
    assert (mined.too_near, mined.too_high) == (near, high)
    assert near > 0
    assert high > 0


def test_known_texts_before_the_last_rank_are_counted():
    vectors = Vectors()
    mined = mine(pairs_of(ROWS), vectors, Mining(window=(1, 140), per_anchor=5), corpus=CORPUS)
    known = 0
    for anchor in POSITIVES:
        last = vectors.cosine(anchor, slow(vectors, anchor, CORPUS)[139])
        positives = {text.strip().lower() for text in CORPUS} & CONNECTED[anchor]
        known += sum(vectors.cosine(anchor, text) > last for text in positives)
    assert mined.known == known > 0


def test_draws_follow_from_the_seed_and_the_anchor_alone():
    """Another seed draws others, of the same window; fewer anchors leave the others' draws as they are."""
    vectors, records = Vectors(), pairs_of(ROWS)
    first, again, other = (
        mine(records, vectors, Mining(window=(5, 40), per_anchor=4, seed=seed), corpus=CORPUS) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.negatives != other.negatives
    drawn = [[slow(vectors, anchor, CORPUS).index(text) for text in found] for anchor, found in first.negatives.items()]
    assert len(set(map(tuple, drawn))) > 1
    alone = mine(records.take([0, 1]), vectors, Mining(window=(5, 40), per_anchor=4, seed=1), corpus=CORPUS)
    assert alone.negatives["a1"] == first.negatives["a1"]
    for mined in (first, other):
        for anchor, negatives in mined.negatives.items():
            window = slow(vectors, anchor, CORPUS)[4:40]
            assert len(set(negatives)) == 4
            assert [text for text in window if text in negatives] == negatives


def test_case_and_blanks_do_not_hide_known_positives():
    records = pairs_of([("x", "Big Dog", 1), ("big  dog", "y", 1)])
    mined = mine(records, Vectors(), Mining(window=(1, 3)), corpus=["y", "z", "BIG DOG"])
    assert mined.negatives == {"x": ["z"], "big  dog": ["z"]}


def test_without_a_corpus_the_right_texts_are_ranked():
    mined = mine(pairs_of(ROWS), Vectors(), Mining(window=(1, 9), per_anchor=9))
    assert mined.documents == 7
    assert all(set(found) == {f"p{n}" for n in range(1, 8)} - CONNECTED[a] for a, found in mined.negatives.items())
    triplets = Records((["a1"], ["p1"], ["n1"]), None, None, [1], "t.csv")
    assert mine(triplets, Vectors(), Mining(window=(1, 1))).negatives == {"a1": ["n1"]}


MINED = Mined({"a": ["p", "q"], "b": ["r"]}, {"a": ["x", "y", "z"], "b": ["u", "v", "w", "t"]}, 9, 0, 0, 0, 0, 0, 9, 3)


def test_triplets_are_every_positive_with_every_negative():
    found = list(MINED.triplets())
    assert found == [*[("a", p, n) for p in "pq" for n in "xyz"], *[("b", "r", n) for n in "uvwt"]]


def test_oversampling_makes_as_many_positives_as_negatives():
    plain, even = list(MINED.pairs()), list(MINED.pairs(oversample=True))
    assert [row for row in plain if row[2]] == [("a", "p", 1), ("a", "q", 1), ("b", "r", 1)]
    assert [row for row in even if not row[2]] == [row for row in plain if not row[2]]
    times = {row: even.count(row) for row in plain if row[2]}
    assert sorted(times.values()) == [2, 2, 3]
    assert even == list(MINED.pairs(oversample=True))
    rich = Mined({"a": ["p", "q"]}, {"a": ["x"]}, 3, 0, 0, 0, 0, 0, 3)
    assert list(rich.pairs(oversample=True)) == list(rich.pairs())


BAD = {
    "no positives": (pairs_of([("a", "b", 0)]), "label or relevance 1"),
    "graded scores": (Records((["a"], ["b"]), None, [0.4], [7], "s.csv"), "s.csv:7"),
    "single texts": (Records((["a"],), None, None, [1], "t.csv"), "--pair"),
}


@pytest.mark.parametrize("case", BAD)
def test_rows_without_anchors_are_refused(case):
    records, remedy = BAD[case]
    with pytest.raises(DataError, match=remedy):
        mine(records, Vectors(), Mining())


@pytest.mark.parametrize(
    "settings", [{"window": (0, 4)}, {"window": (5, 4)}, {"per_anchor": 0}, {"margin": np.nan}, {"max_score": np.inf}]
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(SettingError):
        Mining(**settings)


def test_vectors_that_are_not_finite_are_refused():
    with pytest.raises(SettingError, match="NaN"):
        mine(pairs_of(ROWS), lambda texts: np.full((len(texts), 2), np.nan, dtype=np.float32), Mining())
