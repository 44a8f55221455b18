"""Grades and scores with a stated range: read, refused outside it, mapped to 0..1, and cut where they are relevant."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from nearfar.data import (
    Layout,
    Records,
    contradictions,
    grades_of,
    pair_targets,
    positive_above,
    queries_without_positive,
    read,
    relevant_grade,
    score_range,
    unit_scores,
)
from nearfar.errors import DataError, SettingError

ANTIQUE = Layout(scale=(1, 4), relevant=3)


def ranking(grades: list[float], *, layout: Layout = ANTIQUE) -> Records:
    rows = len(grades)
    texts = [f"question {n // 2}" for n in range(rows)], [f"answer {n}" for n in range(rows)]
    return Records(
        texts, None, grades, list(range(1, rows + 1)), "antique.jsonl", queries=[f"q{n // 2}" for n in range(rows)],
        scale=layout.scale, relevant=layout.relevant,
    )  # fmt: skip


def test_grades_of_antique_are_normalized_as_in_the_paper():
    """Section 4: relevance on a scale from 1 to 4 is normalized to [0, 1]; 3 and 4 count as relevant."""
    records = ranking([1, 2, 3, 4])
    assert unit_scores(records)[0] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert pair_targets(records) == [0, 0, 1, 1]
    assert queries_without_positive(records) == ["q0"]
    assert (grades_of(records), relevant_grade(records)) == ([0, 1, 2, 3], 2)
    targets = np.array(unit_scores(records)[0], dtype=np.float32)
    assert (targets > positive_above(records)).tolist() == [False, False, True, True]


@pytest.mark.parametrize("low", [0, 1, 2])
@pytest.mark.parametrize("high", [3, 4, 7, 10])
def test_the_threshold_cuts_where_the_grades_do_whatever_the_rounding(low, high):
    for relevant in range(low + 1, high + 1):
        records = ranking(
            [float(grade) for grade in range(low, high + 1)], layout=Layout(scale=(low, high), relevant=relevant)
        )
        targets = np.array(unit_scores(records)[0], dtype=np.float32)
        assert (targets > positive_above(records)).tolist() == [bool(one) for one in pair_targets(records)]


def test_without_a_stated_range_all_is_as_it_was():
    """The lowest grade is 0, and any above it is relevant."""
    records = ranking([0, 1, 2, 0], layout=Layout())
    assert score_range(records) == (0, 2)
    assert (pair_targets(records), relevant_grade(records), positive_above(records)) == ([0, 1, 1, 0], 1, 0)
    assert records.fingerprint() != ranking([0, 1, 2, 0], layout=Layout(scale=(0, 2))).fingerprint()


def test_contradictions_are_about_relevance_not_grades():
    twice = Records(
        (["a", "a", "b", "b"], ["x", "x", "y", "y"]), None, [1, 2, 2, 3], [1, 2, 3, 4], "f.csv",
        queries=["a", "a", "b", "b"], scale=(1, 4), relevant=3,
    )  # fmt: skip
    assert contradictions(twice) == [[2, 3]]


def write(path: Path, scores: list[float]) -> str:
    rows = [
        {"query_id": "q", "query": "who", "doc_id": f"d{n}", "doc": f"d {n}", "relevance": s}
        for n, s in enumerate(scores)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_grades_outside_their_range_are_refused_by_line(tmp_path):
    """All of them, with the value; --invalid drop leaves them out."""
    file = write(tmp_path / "r.jsonl", [1, 4, 5, 3, 0])
    with pytest.raises(DataError) as raised:
        read(file, ANTIQUE)
    assert [(problem.line, problem.value) for problem in raised.value.problems] == [(3, "5"), (5, "0")]
    assert "the score is outside data.scale, which is from 1 to 4" in str(raised.value)
    kept = read(file, ANTIQUE, invalid="drop")
    assert (kept.scores, kept.scale, kept.relevant) == ([1, 4, 3], (1, 4), 3)
    assert any("2 rows dropped because the score is outside data.scale" in note for note in kept.notes)
    with pytest.raises(DataError, match="not a whole number"):
        grades_of(read(write(tmp_path / "half.jsonl", [1, 2.5]), ANTIQUE))


@pytest.mark.parametrize("scale", [(1,), (4, 1), (1, 1), (0, float("nan")), (1, 2, 3)])
def test_a_range_that_is_none_is_refused(scale):
    with pytest.raises(SettingError, match=r"data\.scale is the lowest and the highest score"):
        Layout(scale=scale)


@pytest.mark.parametrize("relevant", [1, 5])
def test_a_relevant_grade_outside_the_range_is_refused(relevant):
    with pytest.raises(SettingError, match=r"no grade above the lowest of data\.scale, 1 to 4"):
        Layout(scale=(1, 4), relevant=relevant)
