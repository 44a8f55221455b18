"""Shares, folds and samples keep their promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.data import Records, folds, holdout, limit, per_class
from nearfar.errors import DataError, SettingError


def labeled(labels: list[str], texts: list[str] | None = None) -> Records:
    texts = texts or [f"text {i}" for i in range(len(labels))]
    return Records((texts,), labels, None, list(range(1, 1 + len(labels))), "a.csv")


tables = st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.sampled_from("xyz")), min_size=1, max_size=40).map(
    lambda rows: labeled([label for _, label in rows], [text for text, _ in rows])
)


@settings(max_examples=150, deadline=None)
@given(tables, st.floats(0.01, 0.99), st.integers(0, 5))
def test_share_promises(records: Records, fraction: float, seed: int) -> None:
    """Both sides together are all rows, no text is on both, every class stays, and again the same."""
    try:
        stay, apart = holdout(records, fraction, seed=seed)
    except DataError:
        keys, labels = records.normalized_texts(), records.labels or []
        for key in set(keys):  # indeed no group could go
            rest = {label for other, label in zip(keys, labels, strict=True) if other != key}
            assert rest != set(labels)
        return
    assert sorted(stay + apart) == list(range(len(records)))
    assert (stay, apart) == (sorted(stay), sorted(apart))
    assert apart
    assert not {records.normalized_texts()[i] for i in stay} & {records.normalized_texts()[i] for i in apart}
    assert records.take(stay).classes() == records.classes()
    assert (stay, apart) == holdout(records, fraction, seed=seed)


def test_share_is_stratified() -> None:
    """Each class gives its proportion; names and seeds draw differently."""
    records = labeled(["x"] * 100 + ["y"] * 50 + ["z"] * 10)
    stay, apart = holdout(records, 0.2, seed=1)
    assert Counter(records.take(apart).labels) == {"x": 20, "y": 10, "z": 2}
    assert len(stay) == 128
    assert len({tuple(holdout(records, 0.2, seed=s, name=n)[1]) for s in (1, 2) for n in ("dev", "test")}) == 4


def test_share_spreads_scores() -> None:
    """Scores are spread by tenths of their order."""
    scores = np.linspace(0, 5, 100).tolist()
    records = Records(([f"{i}" for i in range(100)],), None, scores, list(range(100)), "a")
    apart = holdout(records, 0.2, seed=3)[1]
    assert Counter(i // 10 for i in apart) == dict.fromkeys(range(10), 2)
    assert len(holdout(Records((["a", "b"],), None, [1.0, 1.0], [1, 2], "a"), 0.5, seed=3)[1]) == 1


def test_share_without_target() -> None:
    """Plain texts and pairs are divided too; pairs are the same when both texts are."""
    plain = Records(([f"{i}" for i in range(50)],), None, None, list(range(50)), "a")
    assert len(holdout(plain, 0.1, seed=0)[1]) == 5
    pairs = Records((["a", "A "] * 10, [str(i // 2) for i in range(20)]), None, None, list(range(20)), "a")
    stay, apart = holdout(pairs, 0.3, seed=0)
    assert {i // 2 for i in stay}.isdisjoint({i // 2 for i in apart})


def test_share_keeps_the_last_row_of_a_class() -> None:
    """A class of one row is not divided; if no class can spare a row there is no share."""
    records = labeled(["x"] * 20 + ["rare"])
    for seed in range(20):
        assert 20 in holdout(records, 0.9, seed=seed)[0]
    with pytest.raises(DataError, match="every class would lose its last row"):
        holdout(labeled(["x", "y"]), 0.5, seed=0)
    with pytest.raises(DataError):
        holdout(labeled(["x", "x"], ["same", "Same "]), 0.5, seed=0)
    assert len(holdout(labeled(["x", "x", "y", "y"]), 0.01, seed=0)[1]) == 1


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_share_outside_its_range(fraction: float) -> None:
    """A share is more than nothing and less than all."""
    with pytest.raises(SettingError, match="between 0 and 1"):
        holdout(labeled(["x"] * 10), fraction, seed=0)


@settings(max_examples=150, deadline=None)
@given(tables, st.integers(2, 5), st.integers(0, 5))
def test_folds_promises(records: Records, k: int, seed: int) -> None:
    """Each row is tested once, no text on both sides, every class in every training part."""
    try:
        parts = folds(records, k, seed=seed)
    except DataError:
        groups = len(set(records.normalized_texts()))
        texts = [
            len({k for k, c in zip(records.normalized_texts(), records.labels or [], strict=True) if c == name})
            for name in "xyz"
        ]
        mixed = len(set(zip(records.normalized_texts(), records.labels or [], strict=True))) > groups
        assert groups < k or 1 in texts or mixed  # a text under two labels can tie a class to one fold
        return
    assert len(parts) == k
    assert sorted(i for _, test in parts for i in test) == list(range(len(records)))
    for train, test in parts:
        assert test
        assert (train, test) == (sorted(train), sorted(test))
        assert sorted(train + test) == list(range(len(records)))
        assert not {records.normalized_texts()[i] for i in train} & {records.normalized_texts()[i] for i in test}
        assert records.take(train).classes() == records.classes()
    assert parts == folds(records, k, seed=seed)


def test_folds_are_stratified() -> None:
    """Every fold has its part of each class; another seed gives other folds."""
    records = labeled(["x"] * 50 + ["y"] * 20)
    for _, test in folds(records, 5, seed=1):
        assert Counter(records.take(test).labels) == {"x": 10, "y": 4}
    assert folds(records, 5, seed=1) != folds(records, 5, seed=2)


def test_folds_level_each_class_by_itself() -> None:
    """A large group of one class does not draw the other classes out of its fold."""
    texts = ["same"] * 10 + [f"{i}" for i in range(20)]
    records = labeled(["x"] * 20 + ["y"] * 10, texts)
    assert [Counter(records.take(test).labels)["y"] for _, test in folds(records, 5, seed=1)] == [2] * 5


def test_folds_that_cannot_be() -> None:
    """Too few rows, one fold, and a class that would be missing in training are refused."""
    with pytest.raises(DataError, match="3 rows with 3 distinct texts cannot make 4 folds"):
        folds(labeled(["x"] * 3), 4, seed=0)
    with pytest.raises(SettingError):
        folds(labeled(["x"] * 3), 1, seed=0)
    with pytest.raises(DataError) as caught:
        folds(labeled(["x"] * 5 + ["rare"]), 3, seed=0)
    assert [(p.line, p.value) for p in caught.value.problems] == [(6, "rare")]


def test_limit() -> None:
    """A sample in proportion, with a row of each class if there are enough rows, in order."""
    records = labeled(["x"] * 90 + ["y"] * 9 + ["z"])
    chosen = limit(records, 20, seed=1)
    assert chosen == sorted(chosen)
    assert Counter(records.take(chosen).labels) == {"x": 18, "y": 1, "z": 1}
    assert limit(records, 20, seed=1) == chosen != limit(records, 20, seed=2)
    assert limit(records, 1_000, seed=1) == list(range(100))
    assert set(records.take(limit(records, 3, seed=1)).labels or ()) == {"x", "y", "z"}
    assert len(limit(records, 2, seed=1)) == 2


@settings(max_examples=100, deadline=None)
@given(tables, st.integers(1, 50))
def test_limit_promises(records: Records, n: int) -> None:
    """Exactly n rows or all, and every class if n allows."""
    chosen = limit(records, n, seed=0)
    assert len(set(chosen)) == len(chosen) == min(n, len(records))
    if n >= len(records.classes()):
        assert records.take(chosen).classes() == records.classes()


def test_per_class() -> None:
    """The same number of each class, all of a class that has fewer."""
    records = labeled(["x"] * 30 + ["y"] * 5 + ["z"])
    chosen = per_class(records, 4, seed=1)
    assert chosen == sorted(chosen)
    assert Counter(records.take(chosen).labels) == {"x": 4, "y": 4, "z": 1}
    assert per_class(records, 4, seed=1) == chosen != per_class(records, 4, seed=2)
    with pytest.raises(DataError, match="there are no labels"):
        per_class(Records((["a"],), None, None, [1], "a"), 1, seed=0)


@pytest.mark.parametrize("draw", [limit, per_class])
def test_samples_of_nothing(draw: Callable[..., list[int]]) -> None:
    """A sample has at least one row."""
    with pytest.raises(SettingError):
        draw(labeled(["x"]), 0, seed=0)


kinships = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd"), st.sampled_from("123456")), min_size=2, max_size=12
)


@settings(max_examples=150, deadline=None)
@given(kinships, st.floats(0.1, 0.9), st.integers(0, 3))
def test_labeled_pairs_with_ids_share_nothing_across_a_split(
    rows: list[tuple[str, str, str]], fraction: float, seed: int
) -> None:
    """Neither an id, nor a left text, nor a pair, whichever way round, even where ids and texts disagree."""
    lefts, rights, ids = (list(column) for column in zip(*rows, strict=True))
    records = Records((lefts, rights), ["x"] * len(rows), None, list(range(len(rows))), "p", queries=ids)
    try:
        stay, apart = holdout(records, fraction, seed=seed)
    except DataError:
        return
    pairs = [frozenset((left, right)) for left, right, _ in rows]
    for column in (ids, lefts, pairs):
        assert {column[row] for row in stay}.isdisjoint(column[row] for row in apart)


def test_a_chain_of_ids_and_texts_is_one_group() -> None:
    """a and b share an id, b is asked under another id, and a swapped pair ties the next to it; the last is free."""
    texts = (["a", "b", "b", "c", "e"], ["u", "v", "c", "b", "z"])
    records = Records(texts, list("xxxxx"), None, [1, 2, 3, 4, 5], "p", queries=["1", "1", "2", "3", "4"])
    assert {tuple(test) for _, test in folds(records, 2, seed=0)} == {(0, 1, 2, 3), (4,)}


def ranking(rows: list[tuple[str, float]], ids: list[str] | None = None) -> Records:
    queries = [query for query, _ in rows]
    documents = [f"d{n}" for n in range(len(rows))]
    lines = list(range(1, 1 + len(rows)))
    scores = [score for _, score in rows]
    return Records((queries, documents), None, scores, lines, "r", queries=ids or queries, documents=documents)


rankings = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([0.0, 1.0])), min_size=1, max_size=40).map(
    ranking
)


def asked(records: Records, rows: list[int]) -> set[str]:
    return {records.texts[0][row] for row in rows}


@settings(max_examples=150, deadline=None)
@given(rankings, st.floats(0.01, 0.99), st.integers(2, 4), st.integers(0, 3))
def test_a_query_stays_together(records: Records, fraction: float, k: int, seed: int) -> None:
    """In shares, in folds and in samples; only a single query cannot be divided."""
    number = len(set(records.texts[0]))
    try:
        stay, apart = holdout(records, fraction, seed=seed)
    except DataError:
        assert number == 1
    else:
        assert sorted(stay + apart) == list(range(len(records)))
        assert stay
        assert apart
        assert asked(records, stay).isdisjoint(asked(records, apart))
    try:
        parts = folds(records, k, seed=seed)
    except DataError:
        assert number < k
    else:
        assert sorted(row for _, test in parts for row in test) == list(range(len(records)))
        assert all(asked(records, train).isdisjoint(asked(records, test)) for train, test in parts)
    sizes = Counter(records.texts[0])
    try:
        chosen = limit(records, 5, seed=seed)
    except DataError:
        assert min(sizes.values()) > 5
    else:
        assert 0 < len(chosen) <= 5
        assert all(
            Counter(records.texts[0][row] for row in chosen)[query] == sizes[query] for query in asked(records, chosen)
        )


def test_rankings_are_spread_by_whether_there_is_an_answer() -> None:
    """Queries with and without a relevant document are divided in proportion."""
    rows = [(f"{n}", float(n < 20 and place == 1)) for n in range(60) for place in range(3)]
    records = ranking(rows)
    _, apart = holdout(records, 0.1, seed=0)
    assert Counter(int(query) < 20 for query in asked(records, apart)) == {True: 2, False: 4}
    for _, test in folds(records, 5, seed=0):
        assert Counter(int(query) < 20 for query in asked(records, test)) == {True: 4, False: 8}
    chosen = limit(records, 20, seed=0)
    assert Counter(int(query) < 20 for query in asked(records, chosen)) == {True: 2, False: 4}
    assert limit(records, 20, seed=0) == chosen != limit(records, 20, seed=1)
    with pytest.raises(DataError, match="every query has more than 2 rows"):
        limit(records, 2, seed=0)
    with pytest.raises(DataError, match="2 distinct queries cannot make 3 folds"):
        folds(ranking([("a", 1.0), ("a", 0.0), ("b", 1.0)]), 3, seed=0)


def test_a_query_under_two_ids_is_one_query() -> None:
    """And rows of a ranking that is read as classes stay together by query as well."""
    records = ranking([(f"{n % 10}", 1.0) for n in range(20)], [str(n) for n in range(20)])
    classes = Records(records.texts, ["x", "y"] * 10, None, records.lines, "r", queries=records.queries)
    for each in (records, classes):
        for seed in range(5):
            stay, apart = holdout(each, 0.3, seed=seed)
            assert asked(each, stay).isdisjoint(asked(each, apart))


def test_swapped_pairs_stay_together() -> None:
    """A pair and its mirror image are the same for a split; so are triplets of the same anchor and positive."""
    left, right = [str(n) for n in range(20)], [f"{n}x" for n in range(20)]
    for extra in ((), ([f"n{n}" for n in range(40)],)):
        records = Records((left + right, right + left, *extra), None, None, list(range(40)), "p")
        for seed in range(3):
            stay, apart = holdout(records, 0.3, seed=seed)
            assert {row % 20 for row in stay}.isdisjoint({row % 20 for row in apart})
