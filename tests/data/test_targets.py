"""Scores on any scale to 0..1, binary labels of pairs, and problems with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearfar.data import (
    Records,
    contradictions,
    pair_targets,
    queries_without_positive,
    score_range,
    target_problems,
    unit_scores,
    without_contradictions,
)
from nearfar.data.targets import NEGATIVE_LABELS, POSITIVE_LABELS, SCALES, contradictions_message
from nearfar.errors import DataError, SettingError


def scored(scores: list[float]) -> Records:
    numbers = [str(n) for n in range(len(scores))]
    return Records((numbers, [f"{n} too" for n in numbers]), None, scores, list(range(2, 2 + len(scores))), "a.csv")


def labeled(labels: list[str], left: list[str] | None = None, right: list[str] | None = None) -> Records:
    numbers = [str(n) for n in range(len(labels))]
    return Records((left or numbers, right or numbers), labels, None, list(range(2, 2 + len(labels))), "a.csv")


def ranking(queries: list[str], relevance: list[float], documents: list[str] | None = None) -> Records:
    documents = documents or [str(n) for n in range(len(queries))]
    lines = list(range(1, 1 + len(queries)))
    return Records((queries, documents), None, relevance, lines, "a.jsonl", queries=queries, documents=documents)


RANGES = [
    ([0.2, 0.9], (0, 1)),
    ([0, 1], (0, 1)),
    ([1, 1], (0, 1)),
    ([-0.3, 0.9], (-1, 1)),
    ([0, 4], (0, 4)),
    ([0, 5], (0, 5)),
    ([1, 5], (1, 5)),
    ([0, 10], (0, 10)),
    ([0, 100], (0, 100)),
    ([0.23, 9.8], (0, 10)),
    ([0.2, 4.8], (0, 5)),
    ([1.5, 4.5], (0, 5)),
    ([5, 5], (0, 5)),
    ([3, 87.5], (0, 100)),
    ([0, 3], (0, 3)),
    ([1, 4], (1, 4)),
    ([-3.7, 3.85], (-3.7, 3.85)),
    ([0, 20], (0, 20)),
    ([0, 1000], (0, 1000)),
    ([-1, 5], (-1, 5)),
]


@pytest.mark.parametrize(("scores", "expected"), RANGES)
def test_scales_are_recognized(scores: list[float], expected: tuple[float, float]) -> None:
    """Usual ones by both ends or by the largest score, all others from the smallest to the largest."""
    assert score_range(scored(scores)) == expected
    assert len(SCALES) == 7


def test_relevance_begins_at_0() -> None:
    """Whatever the smallest is, and with a single grade."""
    assert score_range(ranking(["a", "b"], [1, 2])) == (0, 2)
    assert score_range(ranking(["a", "b"], [3, 3])) == (0, 3)
    assert score_range(ranking(["a", "b"], [0, 0])) == (0, 1)


def test_one_score_for_all_tells_no_scale() -> None:
    """Outside 0..1 it could be the best or the worst."""
    with pytest.raises(DataError, match=r"a\.csv:2: all 2 scores are 3, which gives no scale"):
        score_range(scored([3, 3]))


NOTES = [
    ([0, 1], None),
    ([0, 2.5, 5], "scores from 0 to 5 are divided by 5"),
    ([1, 3, 5], "scores from 1 to 5 are mapped to (score - 1) / 4"),
    ([-1, 0, 1], "scores from -1 to 1 are mapped to (score + 1) / 2"),
    ([0, 2, 4], "scores from 0 to 4 are divided by 4"),
    ([-0.5, 0.5], "scores from -0.5 to 0.5 are assumed to be on a scale from -1 to 1 and mapped to (score + 1) / 2"),
    ([0.23, 9.8], "scores from 0.23 to 9.8 are assumed to be on a scale from 0 to 10 and divided by 10"),
]


@pytest.mark.parametrize(("scores", "note"), NOTES)
def test_unit_scores_say_what_was_done(scores: list[float], note: str | None) -> None:
    """By the formula, and nothing is said of scores that stay."""
    low, high = score_range(scored(scores))
    assert unit_scores(scored(scores)) == ([(score - low) / (high - low) for score in scores], note)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_unit_scores_lie_in_0_to_1_in_the_same_order(scores: list[float]) -> None:
    """The order is that of the scores, ties included, and both ends are within."""
    try:
        unit, _ = unit_scores(scored(scores))
    except DataError:
        assert len(set(scores)) == 1
        return
    assert all(0 <= each <= 1 for each in unit)
    for a, x in zip(scores, unit, strict=True):
        for b, y in zip(scores, unit, strict=True):
            assert (a <= b) <= (x <= y)


def test_another_file_on_the_scale_of_training() -> None:
    """The scale is that of the training file even where its ends do not occur."""
    low, high = score_range(scored([0, 2.5, 5]))
    dev = scored([1, 2])
    assert unit_scores(dev, low=low, high=high) == ([0.2, 0.4], "scores from 0 to 5 are divided by 5")
    assert unit_scores(dev)[0] == [0, 1]
    assert unit_scores(dev, high=4)[0] == [0, 1 / 3]
    assert unit_scores(dev, low=0, high=1e300)[0] == [1e-300, 2e-300]


def test_scores_outside_the_stated_range_are_refused_by_line() -> None:
    """All of them, with value and remedy; the ends are inside."""
    with pytest.raises(DataError) as caught:
        unit_scores(scored([0, 5, 5.5, -1]), low=0, high=5)
    assert [(p.where, p.line, p.value) for p in caught.value.problems] == [("a.csv", 4, "5.5"), ("a.csv", 5, "-1")]
    assert "outside the range from 0 to 5" in caught.value.problems[0].message
    assert "one scale" in caught.value.problems[0].remedy


@pytest.mark.parametrize(("low", "high"), [(1, 1), (2, 1), (0, float("inf")), (float("nan"), 1)])
def test_impossible_ranges(low: float, high: float) -> None:
    """A range has two finite ends."""
    with pytest.raises(SettingError, match="the lower one first"):
        unit_scores(scored([0, 1]), low=low, high=high)


def test_scores_that_are_not_there() -> None:
    """Labels and nothing at all are refused with the setting to name."""
    for records in (labeled(["1", "0"]), Records((["a"],), None, None, [1], "a.csv")):
        for take in (score_range, unit_scores):
            with pytest.raises(DataError, match=r"no scores.*data\.score \(--score\)"):
                take(records)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["1", "0"], [1, 0]),
        (["true", "false"], [1, 0]),
        (["Yes", "NO"], [1, 0]),
        (["1.0", "0.0"], [1, 0]),
        (["duplicate", "not_duplicate"], [1, 0]),
        (["paraphrase", "non-paraphrase"], [1, 0]),
        (["similar", "dissimilar"], [1, 0]),
        (["entailment", "not_entailment"], [1, 0]),
        (["1", "1"], [1, 1]),
        (["0", "0"], [0, 0]),
    ],
)
def test_labels_of_two_kinds(labels: list[str], expected: list[float]) -> None:
    """By their usual names, in any case, with _ or - for blanks."""
    assert pair_targets(labeled(labels)) == expected


def test_no_label_is_of_both_kinds() -> None:
    """The lists of names exclude each other."""
    assert not set(POSITIVE_LABELS) & set(NEGATIVE_LABELS)
    assert (len(POSITIVE_LABELS), len(NEGATIVE_LABELS)) == (16, 36)


def test_other_labels_are_refused_by_line() -> None:
    """All of them, and how to read them as scores."""
    with pytest.raises(DataError) as caught:
        pair_targets(labeled(["1", "2", "maybe", "0", "-1"]))
    assert [(p.line, p.value) for p in caught.value.problems] == [(3, "2"), (4, "maybe"), (6, "-1")]
    assert all("data.score (--score)" in p.remedy for p in caught.value.problems)


def test_targets_of_scores_rankings_triplets_and_bare_pairs() -> None:
    """0 and 1 are taken, any relevance above 0 is a 1, and pairs without a target are positive."""
    assert pair_targets(scored([0, 1, 1])) == [0, 1, 1]
    with pytest.raises(DataError, match=r"a\.csv:3: a score that is neither 0 nor 1 \(got '0\.5'\)"):
        pair_targets(scored([0, 0.5]))
    assert pair_targets(ranking(["a", "b", "c"], [0, 0.5, 2])) == [0, 1, 1]
    assert pair_targets(Records((["a"], ["b"]), None, None, [1], "f")) == [1]
    assert pair_targets(Records((["a"], ["b"], ["c"]), None, None, [1], "f")) == [1]
    with pytest.raises(DataError, match="single texts"):
        pair_targets(Records((["a"],), ["1"], None, [1], "f"))


@pytest.mark.parametrize("records", [labeled(["0", "no"]), scored([0, 0]), ranking(["a", "b"], [0, 0])])
def test_nothing_but_negative_pairs(records: Records) -> None:
    """A problem with the number of pairs and the remedy."""
    problems, _ = target_problems(records)
    assert [p.line for p in problems] == [records.lines[0]]
    assert "2 pairs, but none of them is positive" in problems[0].message
    assert "Add positive pairs" in problems[0].remedy


def test_pairs_that_contradict_each_other() -> None:
    """Swapped and in another case, too; repeated ones that agree do not."""
    records = labeled(["1", "0", "0", "1", "yes"], ["a", "B", "c", "A ", "c"], ["b", "a", "d", "b", "d"])
    assert contradictions(records) == [[0, 1, 3], [2, 4]]
    assert (
        contradictions_message(records, contradictions(records))
        == "2 pairs are both positive and negative (first on line 2)"
    )
    assert contradictions(labeled(["1", "1"], ["a", "b"], ["b", "a"])) == []
    again = Records((["a", "b"], ["b", "a"]), None, [1, 0], [2, 3], "a.csv")
    assert contradictions(again) == [[0, 1]]
    assert without_contradictions(again, invalid="refuse")[1][0].message.startswith("the score 0 contradicts line 2")


def test_a_ranking_has_an_order() -> None:
    """A document and a query that change places are another question; the same document twice may contradict."""
    assert contradictions(ranking(["a", "b"], [1, 0], ["b", "a"])) == []
    assert contradictions(ranking(["a", "a"], [1, 0], ["b", "b"])) == [[0, 1]]
    assert contradictions(ranking(["a", "a"], [1, 2], ["b", "b"])) == []


def test_pairs_that_contradict_each_other_are_refused_with_both_lines_and_both_texts() -> None:
    """One problem for each pair of texts, however many rows it has."""
    records = labeled(
        ["yes", "yes", "no", "0", "1"], ["a" * 90, "A" * 90, "b", "c", "d"], ["b", "b", "a" * 90, "d", "c"]
    )
    kept, problems = without_contradictions(records, invalid="refuse")
    assert kept is records
    assert [problem.line for problem in problems] == [4, 6]
    assert problems[0].where == records.source
    assert problems[0].message == (
        "the label no contradicts line 2, where the same two texts have yes: 'b' and '" + "a" * 35 + "...'"
    )
    assert problems[1].message == "the label 1 contradicts line 5, where the same two texts have 0: 'd' and 'c'"
    assert "Keep the row that is right" in problems[0].remedy
    assert "--invalid drop" in problems[0].remedy
    _, (problem,) = without_contradictions(ranking(["a", "a"], [2, 0], ["b", "b"]), invalid="refuse")
    assert problem.message == "the relevance 0 contradicts line 1, where the same two texts have 2: 'a' and 'b'"


def test_dropping_leaves_out_all_rows_of_a_contradiction_and_says_so() -> None:
    """Nobody knows which of them is right."""
    records = labeled(["1", "0", "0", "1", "1"], ["a", "B", "c", "A ", "e"], ["b", "a", "d", "b", "f"])
    kept, problems = without_contradictions(replace(records, notes=("read",)), invalid="drop")
    assert problems == []
    assert kept.texts == (["c", "e"], ["d", "f"])
    assert kept.notes == ("read", "3 rows dropped because 1 pair is both positive and negative (first on line 2)")
    assert without_contradictions(kept, invalid="drop") == (kept, [])
    _, (problem,) = without_contradictions(labeled(["1", "0"], ["a", "a"], ["b", "b"]), invalid="drop")
    assert problem.message.startswith("no rows are left that can be used: 2 rows dropped because 1 pair is both")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc"), st.sampled_from("01")), min_size=1))
def test_what_is_left_does_not_contradict_itself_and_nothing_else_is_gone(rows: list[tuple[str, str, str]]) -> None:
    """Against a loop over all pairs of rows."""
    records = labeled([row[2] for row in rows], [row[0] for row in rows], [row[1] for row in rows])
    bad = {
        place
        for place, (left, right, label) in enumerate(rows)
        for other_left, other_right, other in rows
        if {left, right} == {other_left, other_right} and label != other
    }
    assert {place for found in contradictions(records) for place in found} == bad
    kept, problems = without_contradictions(records, invalid="drop")
    if len(bad) == len(rows):
        assert problems
    else:
        assert kept.lines == [line for place, line in enumerate(records.lines) if place not in bad]


def test_queries_without_a_relevant_document_are_counted() -> None:
    """By query, not by row, in the order of the file."""
    records = ranking(["a", "b", "a", "c", "c"], [0, 0, 2, 0, 0])
    assert queries_without_positive(records) == ["b", "c"]
    assert target_problems(records)[1] == ["2 queries of 3 without a relevant document (such as 'b' on line 2)"]
    assert queries_without_positive(Records((["a"],), None, None, [1], "f")) == []


def test_other_classes_are_left_alone() -> None:
    """Three classes, graded scores, single texts and nothing at all give no target_problems."""
    for records in (
        labeled(["entailment", "neutral", "contradiction"]),
        scored([0, 0.5]),
        Records((["a"],), ["0"], None, [1], "f"),
        Records((["a"], ["b"]), None, None, [1], "f"),
    ):
        assert target_problems(records) == ([], [])
        assert contradictions(records) == []
