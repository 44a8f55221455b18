"""Records as a model reads them: texts tokenized once, rows that point to them, and how they are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nearfar.data import Records, pair_targets, score_range, unit_scores
from nearfar.encoding import Built, TextModel, TokenTable, tokenize
from nearfar.evaluation import (
    ClassReport,
    PairReport,
    RankingReport,
    ScoreReport,
    TripletReport,
    evaluate_classes,
    evaluate_pairs,
    evaluate_ranking,
    evaluate_retrieval,
    evaluate_scores,
    evaluate_triplets,
)
from nearfar.pipeline.data import Kind, RunData, class_numbers

Report = ClassReport | ScoreReport | PairReport | RankingReport | TripletReport
EVALUATION_BATCH = 64


@dataclass(frozen=True)
class Rows:
    """A part of the data, tokenized."""

    kind: Kind
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
        if records is not None and data.kind_of(records) == "scores":
            low, high = score_range(records)
            _, note = unit_scores(records, low=low, high=high)
            return Scale(low, high, note)
    return None


def tokenized(built: Built, data: RunData, records: Records, scale: Scale | None) -> Rows:
    """A part of the data as the model reads it."""
    kind = data.kind_of(records)
    if kind == "classes":
        table = tokenize(built.tokenizer, records.texts, max_length=built.max_length)
        return Rows(kind, table, (), class_numbers(records, data.classes))
    texts, columns = distinct(records.texts)
    if kind == "plain":
        columns = (columns[0], columns[0])
    table = tokenize(built.tokenizer, [texts], max_length=built.max_length)
    return Rows(kind, table, columns, np.zeros(len(records), dtype=np.int64), targets_of(kind, records, scale))


def distinct(columns: Sequence[Sequence[str]]) -> tuple[list[str], tuple[NDArray[np.int64], ...]]:
    """Every text once, in the order they come, and for each column where the text of a row is.

    >>> distinct([["a", "b"], ["b", "c"]])
    (['a', 'b', 'c'], (array([0, 1]), array([1, 2])))
    """
    places: dict[str, int] = {}
    found = tuple(
        np.array([places.setdefault(text, len(places)) for text in column], dtype=np.int64) for column in columns
    )
    return list(places), found


def targets_of(kind: Kind, records: Records, scale: Scale | None) -> NDArray[np.float32] | None:
    """(n,) what each pair should be, from 0 to 1; None where all rows are positives."""
    if kind == "scores":
        assert scale is not None
        values, _ = unit_scores(records, low=scale.low, high=scale.high)
        return np.array(values, dtype=np.float32)
    if kind == "pairs":
        return np.array(pair_targets(records), dtype=np.float32)
    if kind == "ranking" and records.scores is not None:
        return (np.array(records.scores) > 0).astype(np.float32)
    return None


def check_targets(data: RunData) -> None:
    """Raise what :func:`tokenized` would of labels that say neither yes nor no, and of scores off their scale."""
    scale = scale_of(data)
    for records in (data.train, data.dev, data.test):
        if records is not None:
            targets_of(data.kind_of(records), records, scale)


def evaluator(
    model: TextModel,
    rows: Rows,
    records: Records,
    classes: Sequence[str],
    *,
    thresholds: dict[str, float] | None = None,
) -> Callable[[], Report]:
    """How the model does on these rows, whenever it is asked. ``thresholds`` are those the dev rows chose."""
    size: dict[str, Any] = {"batch_size": EVALUATION_BATCH}
    table = rows.table
    if rows.kind == "classes":
        return lambda: evaluate_classes(model, table, rows.labels, classes, **size)
    if rows.kind == "triplets":
        return lambda: evaluate_triplets(model, table, *rows.columns, **size)
    left, right = rows.columns[:2]
    if rows.kind == "positives" or rows.targets is None:
        queries, judged_left = np.unique(left, return_inverse=True)
        corpus, judged_right = np.unique(right, return_inverse=True)
        judged = np.unique(np.column_stack([judged_left, judged_right]), axis=0)
        relevance = np.ones(len(judged), dtype=np.int64)
        return lambda: evaluate_retrieval(model, table, queries, corpus, judged, relevance, **size)
    if rows.kind == "scores":
        targets = rows.targets
        return lambda: evaluate_scores(model, table, left, right, targets, **size)
    if rows.kind == "pairs":
        truth = rows.targets > 0.5
        chosen = {} if thresholds is None else thresholds
        return lambda: evaluate_pairs(
            model, table, left, right, truth, threshold=chosen.get("threshold"),
            accuracy_threshold=chosen.get("accuracy_threshold"), **size,
        )  # fmt: skip
    grades = np.array(records.scores, dtype=np.int64)
    return lambda: evaluate_ranking(
        model, table, left, right, grades, queries=records.queries, documents=records.documents, **size
    )
