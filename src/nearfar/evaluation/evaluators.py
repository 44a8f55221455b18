"""Row type to evaluator: the only dispatch on row types in evaluation.

A model gives outputs for rows: logits of classes, or cosines of the first text with each of the others.
:func:`report_on` compares outputs with the truth, whoever computed them; :func:`evaluate` computes them and reports.
Positive pairs are a search: the right text of each pair has to be found among all right texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nearfar.data.row_types import RowType
from nearfar.encoding import TextModel, TokenTable
from nearfar.evaluation.classification import ClassReport, class_report, most_likely
from nearfar.evaluation.inference import classify, predict_scores, score_pairs
from nearfar.evaluation.multi_label import MultiLabelReport, multi_label_report
from nearfar.evaluation.pairs import PairReport, ScoreReport, TripletReport, pair_report, score_report, triplet_report
from nearfar.evaluation.ranking_metrics import RankingReport, ranking_report
from nearfar.evaluation.search import Search, evaluate_retrieval

Report: TypeAlias = ClassReport | MultiLabelReport | ScoreReport | PairReport | RankingReport | TripletReport
Thresholds: TypeAlias = Mapping[str, float]
"""The decision thresholds of binary pairs, ``threshold`` and ``accuracy_threshold``; of several labels, by label."""


@dataclass(frozen=True)
class Truth:
    """What the outputs of a model are compared with."""

    row_type: RowType
    values: NDArray[Any]
    """(n,) class numbers, scores from 0 to 1, binary labels, or grades of relevance; of no use for triplets.
    (n, c) indicators where texts have several labels."""
    classes: tuple[str, ...] = ()
    queries: Sequence[str] = ()
    """The id of each row's query, in a ranking."""
    documents: Sequence[str] | None = None
    """The id of each row's document; None: each row has a document of its own."""
    positive: int = 1
    """The lowest grade that is relevant, in a ranking."""


@dataclass(frozen=True)
class EvaluationRows:
    """Tokenized rows and what is known about them."""

    table: TokenTable
    """Each distinct text once; for classes each row."""
    columns: tuple[NDArray[np.int64], ...]
    """For each column of texts (n,) the rows of the texts in the table; none for classes."""
    truth: Truth | Search


def evaluate(
    model: TextModel, rows: EvaluationRows, *, batch_size: int, thresholds: Thresholds | None = None
) -> Report:
    """How a model does on rows. Binary pairs and labels are cut at ``thresholds``, or at the best ones here."""
    if isinstance(rows.truth, Search):
        return evaluate_retrieval(model, rows.table, rows.truth, batch_size=batch_size)
    return report_on(outputs(model, rows, batch_size=batch_size), rows.truth, thresholds)


def outputs(model: TextModel, rows: EvaluationRows, *, batch_size: int) -> NDArray[np.float32]:
    """(n, k) probabilities of k classes, cosines of the first text of each row with the k others, or (n, 1) scores."""
    if not rows.columns:
        assert isinstance(rows.truth, Truth)
        row_type = rows.truth.row_type
        if row_type.has_text_scores:
            return predict_scores(model, rows.table, batch_size=batch_size)
        return classify(model, rows.table, batch_size=batch_size, multilabel=row_type.multilabel)
    first, *others = rows.columns
    pairs = np.tile(first, len(others)), np.concatenate(others)
    return score_pairs(model, rows.table, *pairs, batch_size=batch_size).reshape(len(others), -1).T


def report_on(predicted: NDArray[np.float32], truth: Truth, thresholds: Thresholds | None = None) -> Report:
    """(n, k) outputs, of a class head, of a pair head or cosines, against the truth."""
    return _REPORTS[truth.row_type](predicted, truth, thresholds or {})


def _classes(predicted: NDArray[np.float32], truth: Truth, _: Thresholds) -> ClassReport:
    return class_report(truth.values, most_likely(predicted), truth.classes, predicted)


def _label_sets(predicted: NDArray[np.float32], truth: Truth, thresholds: Thresholds) -> MultiLabelReport:
    return multi_label_report(truth.values, predicted, truth.classes, thresholds or None)


def _scores(predicted: NDArray[np.float32], truth: Truth, _: Thresholds) -> ScoreReport:
    return score_report(truth.values, predicted[:, 0])


def _text_scores(predicted: NDArray[np.float32], truth: Truth, _: Thresholds) -> ScoreReport:
    return score_report(truth.values, predicted[:, 0], absolute=True)


def _binary(predicted: NDArray[np.float32], truth: Truth, thresholds: Thresholds) -> PairReport:
    return pair_report(truth.values > 0.5, predicted[:, 0], **thresholds)


def _triplets(predicted: NDArray[np.float32], _truth: Truth, _: Thresholds) -> TripletReport:
    return triplet_report(predicted[:, 0], predicted[:, 1])


def _ranking(predicted: NDArray[np.float32], truth: Truth, _: Thresholds) -> RankingReport:
    documents = truth.documents
    if documents is None:
        documents = [f"{row:0{len(str(len(predicted)))}}" for row in range(len(predicted))]  # in the order of the rows
    return ranking_report(truth.queries, documents, truth.values, predicted[:, 0], positive=truth.positive)


_REPORTS: dict[RowType, Callable[[NDArray[np.float32], Truth, Thresholds], Report]] = {
    RowType.LABELED: _classes,
    RowType.MULTILABEL: _label_sets,
    RowType.SCORED_TEXTS: _text_scores,
    RowType.SCORED_PAIRS: _scores,
    RowType.BINARY_PAIRS: _binary,
    RowType.TRIPLETS: _triplets,
    RowType.RANKING: _ranking,
}
