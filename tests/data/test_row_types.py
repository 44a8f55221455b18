"""The table of row types: one default metric whichever command reads a file, and everything a new row needs."""

from __future__ import annotations

import json
import pickle
from typing import get_args

import pytest

from nearfar.data import Records, RowType, row_type_of
from nearfar.data.row_types import Score
from nearfar.errors import Problem
from nearfar.recipe import OBJECTIVES
from nearfar.recipe.schema import Metric


def test_a_recipe_can_name_every_metric_of_every_row_type():
    known = {metric for row_type in RowType for metric in row_type.metrics}
    assert set(get_args(Metric)) == {"auto", *known}
    assert set(get_args(Score)) == known


def test_the_default_metrics():
    defaults = {row_type.value: row_type.metrics[:1] for row_type in RowType}
    assert defaults == {
        "classes": ("f1_weighted",),
        "multilabel": ("f1_micro",),
        "text-scores": ("spearman",),
        "scores": ("spearman",),
        "pairs": ("f1",),
        "positives": ("mrr",),
        "triplets": ("accuracy",),
        "ranking": ("map",),
        "plain": (),
    }


def test_every_row_type_has_an_objective_and_a_wording_of_its_own():
    assert {row_type.objective for row_type in RowType} < set(OBJECTIVES)
    assert len({row_type.wording for row_type in RowType}) == len(RowType) == 9


def test_a_row_type_is_the_string_that_files_have():
    for row_type in RowType:
        assert json.dumps({"kind": row_type}) == f'{{"kind": "{row_type.value}"}}'
        assert pickle.loads(pickle.dumps(row_type)) is row_type is RowType(row_type.value)


@pytest.mark.parametrize(
    ("columns", "labels", "scores", "pairwise", "expected"),
    [
        (1, True, False, None, RowType.LABELED),
        (2, True, False, None, RowType.LABELED),
        (2, True, False, True, RowType.BINARY_PAIRS),
        (2, False, True, None, RowType.SCORED_PAIRS),
        (2, False, False, None, RowType.POSITIVE_PAIRS),
        (3, False, False, None, RowType.TRIPLETS),
    ],
)
def test_what_rows_are(columns, labels, scores, pairwise, expected):
    records = Records(
        tuple(["a", "b"] for _ in range(columns)),
        ["x", "y"] if labels else None,
        [0.1, 0.2] if scores else None,
        [1, 2],
        "f",
    )
    found = row_type_of(records, pairwise=pairwise)
    assert found is expected
    assert records.shape in expected.shapes


def test_what_does_not_fit_is_a_problem_with_its_line():
    texts = Records((["a"],), None, None, [7], "f")
    assert row_type_of(texts, pairwise=False, plain=True) is RowType.PLAIN
    for pairwise, message in ((True, "compares pairs of texts"), (False, "needs a class for every text")):
        problem = row_type_of(texts, pairwise=pairwise)
        assert isinstance(problem, Problem)
        assert message in problem.message
        assert problem.line == 7
