"""Records as a model reads them: texts tokenized once, rows that point to them, and how they are evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfar.data import Records, RowType, pair_targets, score_range, unit_scores
from nearfar.encoding import Built, TokenTable, tokenize
from nearfar.evaluation.evaluators import EvaluationRows, Truth
from nearfar.evaluation.retrieval import Search, positives_search
from nearfar.pipeline.data import RunData, class_numbers

EVALUATION_BATCH = 64


@dataclass(frozen=True)
class Rows:
    """A part of the data, tokenized."""

    row_type: RowType
    table: TokenTable
    """Each distinct text once; for classification each row."""
    columns: tuple[NDArray[np.int64], ...]
    """For each column of texts (n,) where in the table a row's text is; none means row i is text i."""
    labels: NDArray[np.int64]
    targets: NDArray[np.float32] | None = None

    def groups(self, threshold: float = 0.5) -> tuple[NDArray[np.int64], ...]:
        """For each column (n,) ids: texts joined by positive pairs, however many there are between them, share one.

        Pairs with a target above the ``threshold`` are positive.
        """
        ends = self.columns
        positive = np.ones(len(ends[0]), dtype=np.bool_) if self.targets is None else self.targets > threshold
        left, right = ends[0][positive], ends[1][positive]
        size = len(self.table)
        graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=(size, size))
        _, group = connected_components(graph, directed=False)
        return tuple(group.astype(np.int64)[column] for column in ends)


@dataclass(frozen=True)
class Scale:
    """The range of the training scores, by which all scores become numbers from 0 to 1."""

    low: float
    high: float
    note: str | None = None
    """How scores are mapped, in words."""


def scale_of(data: RunData) -> Scale | None:
    """The range of the scores of the training rows, or of the first rows that have some."""
    for records in (data.train, data.dev, data.test):
        if records is not None and data.row_type_of(records).has_scores:
            low, high = score_range(records)
            _, note = unit_scores(records, low=low, high=high)
            return Scale(low, high, note)
    return None


def tokenized(built: Built, data: RunData, records: Records, scale: Scale | None) -> Rows:
    """A part of the data as the model reads it."""
    row_type = data.row_type_of(records)
    if row_type.has_classes:
        table = tokenize(built.tokenizer, records.texts, max_length=built.max_length)
        return Rows(row_type, table, (), class_numbers(records, data.classes))
    texts, columns = distinct(records.texts)
    if row_type.views:
        columns = (columns[0], columns[0])
    table = tokenize(built.tokenizer, [texts], max_length=built.max_length)
    return Rows(row_type, table, columns, np.zeros(len(records), dtype=np.int64), targets_of(row_type, records, scale))


def distinct(columns: Sequence[Sequence[str]]) -> tuple[list[str], tuple[NDArray[np.int64], ...]]:
    """Every text once, in the order they come, and for each column where the text of a row is.

    >>> distinct([["a", "b"], ["b", "c"]])
    (['a', 'b', 'c'], (array([0, 1]), array([1, 2])))
    """
    places: dict[str, int] = {}
    rows = tuple(
        np.array([places.setdefault(text, len(places)) for text in column], dtype=np.int64) for column in columns
    )
    return list(places), rows


def targets_of(row_type: RowType, records: Records, scale: Scale | None) -> NDArray[np.float32] | None:
    """(n,) what each pair should be, from 0 to 1; None where all rows are positives."""
    if row_type.has_scores:
        assert scale is not None
        values, _ = unit_scores(records, low=scale.low, high=scale.high)
        return np.array(values, dtype=np.float32)
    if row_type.has_binary_labels:
        return np.array(pair_targets(records), dtype=np.float32)
    if row_type is RowType.RANKING and records.scores is not None:
        return (np.array(records.scores) > 0).astype(np.float32)
    return None


def check_targets(data: RunData) -> None:
    """Raise what :func:`tokenized` would of labels that are not binary, and of scores off their scale."""
    scale = scale_of(data)
    for records in (data.train, data.dev, data.test):
        if records is not None:
            targets_of(data.row_type_of(records), records, scale)


def truth_of(
    row_type: RowType, records: Records, columns: tuple[NDArray[np.int64], ...], targets: NDArray[np.float32] | None
) -> Truth | Search:
    """What the cosines of pairs, triplets or a ranking are compared with."""
    if row_type is RowType.TRIPLETS:
        return Truth(row_type, np.zeros(len(records)))
    if targets is None:
        return positives_search(*columns)
    if row_type is RowType.RANKING:
        grades = np.array(records.scores, dtype=np.int64)
        return Truth(row_type, grades, queries=records.queries or (), documents=records.documents)
    return Truth(row_type, targets)


def evaluation_rows(rows: Rows, records: Records, classes: tuple[str, ...]) -> EvaluationRows:
    """The rows with the truth to compare a model with."""
    if rows.row_type.has_classes:
        return EvaluationRows(rows.table, (), Truth(rows.row_type, rows.labels, classes))
    return EvaluationRows(rows.table, rows.columns, truth_of(rows.row_type, records, rows.columns, rows.targets))
