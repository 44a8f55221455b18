"""A model on a file: what is measured follows from what the rows are, as it does for the dev and test rows of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Records, RowType, row_type_of, unit_scores
from nearfar.data.corpora import Corpus, judge
from nearfar.encoding import Model
from nearfar.errors import DataError, Problem, SettingError, counted
from nearfar.evaluation import ClusterReport, cluster_report, embed_table
from nearfar.evaluation.evaluators import EvaluationRows, Report, Truth, evaluate, report_on
from nearfar.evaluation.multi_label import THRESHOLD
from nearfar.evaluation.out_of_scope import ScopeReport, scope_report
from nearfar.evaluation.search import Search
from nearfar.pipeline.data import class_numbers, unmeasurable
from nearfar.pipeline.loaders import corpus_rows, distinct, targets_of, truth_of


def measure(
    model: Model,
    records: Records,
    *,
    corpus: Corpus | None = None,
    invalid: Literal["refuse", "drop"] = "refuse",
    thresholds: dict[str, float] | None = None,
    csls: int | None = None,
    batch_size: int = 64,
) -> tuple[Report, list[str]]:
    """How a model without a class head does on these rows, and what should be known about that.

    Pairs with scores are compared with the cosines, pairs with labels cut at a threshold; the candidates of a ranking
    are ordered by their cosine; triplets are right where the positive is nearer. Positive pairs, and any rows where
    there is a corpus, are a search for the right text of each left one.

    Args:
        model: an encoder of single texts.
        records: pairs, triplets or a ranking.
        corpus: what to search instead of the right texts of the rows.
        invalid: whether queries without a relevant text in the corpus are refused or left out.
        thresholds: the decision thresholds; None for those of the model's card, or the best ones of these rows.
        csls: neighbors of CSLS, in place of plain cosines, where a corpus or positive pairs are searched.
        batch_size: texts that are encoded together.
    """
    require_vectors(model)
    row_type = row_type_of(records, pairwise=True)
    if isinstance(row_type, Problem):
        remedy = "Name both columns of the pairs: --text and --pair; classes need a model with a class head."
        raise DataError([Problem(records.source, "vectors are compared, and the file has single texts", remedy)])
    if corpus is not None:
        judgments = judge(records, corpus, invalid=invalid)
        rows, notes = corpus_rows(judgments, corpus, model.tokenize), list(judgments.notes)
    else:
        rows, notes = _rows(model, records, row_type)
    if csls is not None:
        if not isinstance(rows.truth, Search):
            message = (
                f"--csls is for a search, and these rows are {row_type.wording}; leave it out, or name a --corpus."
            )
            raise SettingError(message)
        rows = replace(rows, truth=replace(rows.truth, csls=csls))
    thresholds = thresholds or card_thresholds(model)
    return evaluate(model.model, rows, batch_size=batch_size, thresholds=thresholds), notes


def _rows(model: Model, records: Records, row_type: RowType) -> tuple[EvaluationRows, list[str]]:
    """Rows as they are measured without a corpus, and what should be known about them."""
    if problems := unmeasurable(records):
        raise DataError(problems)
    texts, columns = distinct(records.texts)
    if row_type.has_scores:
        targets, notes = _targets(model, records)
    else:
        targets, notes = targets_of(row_type, records, None), []
    truth = truth_of(row_type, records, columns, targets)
    return EvaluationRows(model.tokenize(texts), columns, truth), notes


def measure_linking(
    model: Model, mentions: Records, dictionary: Records, *, csls: int | None = None, batch_size: int = 64
) -> tuple[Report, list[str]]:
    """Entity linking: how often the nearest names of a dictionary have the label of a mention.

    ``p@1`` is the accuracy, ``has_positive@5`` that of the five nearest names.

    Args:
        model: an encoder of single texts.
        mentions: texts with the id of their entity as label.
        dictionary: names and synonyms with the ids of their entities as labels.
        csls: neighbors of CSLS, in place of plain cosines.
        batch_size: texts that are encoded together.
    """
    require_vectors(model)
    for records, what in ((mentions, "mentions"), (dictionary, "the names of a dictionary")):
        if records.shape != "texts" or records.labels is None:
            message = f"{what} are single texts with the id of an entity as label"
            raise DataError([Problem(records.source, message, "Name the columns: --text and --label.")])
    names: dict[str, list[int]] = {}
    for place, label in enumerate(dictionary.labels or ()):
        names.setdefault(label, []).append(place)
    kept = [row for row, label in enumerate(mentions.labels or ()) if label in names]
    lost = len(mentions) - len(kept)
    if not kept:
        message = f"none of its entities is in {dictionary.source}, so there is nothing to find"
        raise DataError([Problem(mentions.source, message, "Give a dictionary with the same ids.")])
    known = mentions.take(kept)
    texts, (asked, documents) = distinct([known.texts[0], dictionary.texts[0]])
    judged = [(row, place) for row, label in enumerate(known.labels or ()) for place in names[label]]
    relevance = np.ones(len(judged), dtype=np.int64)
    search = Search(asked, documents, np.array(judged, dtype=np.int64), relevance, csls=csls)
    report = evaluate(model.model, EvaluationRows(model.tokenize(texts), (), search), batch_size=batch_size)
    note = f"{mentions.source}: {counted(lost, 'mention')} of an entity that is not in {dictionary.source} left out"
    return report, [note] if lost else []


def measure_clusters(model: Model, records: Records, *, seed: int = 0, batch_size: int = 64) -> ClusterReport:
    """How well k-means clusters of the embeddings agree with the classes of labeled texts."""
    require_vectors(model)
    if records.shape != "texts" or records.labels is None:
        message = "clusters are compared with the classes of single texts"
        raise DataError([Problem(records.source, message, "Give texts with labels; --label names the column.")])
    classes = records.classes()
    if len(classes) < 2:
        message = "all rows have the same label, so there is nothing to tell apart"
        raise DataError([Problem(records.source, message, "Add rows of another class.")])
    vectors = embed_table(model.model, model.tokenize(records.texts[0]), batch_size=batch_size)
    return cluster_report(vectors, class_numbers(records, classes), seed=seed)


def measure_classes(model: Model, texts: Any, records: Records, *, batch_size: int = 64) -> Report:
    """How a classifier does: its predictions for the texts against the labels of the records."""
    labels = model.labels
    assert labels is not None
    row_type = RowType.MULTILABEL if model.multilabel else RowType.LABELED
    truth = Truth(row_type, class_numbers(records, labels, row_type), labels)
    thresholds = dict.fromkeys(labels, THRESHOLD) | model.card.task.get("thresholds", {}) if model.multilabel else None
    return report_on(model.probabilities(texts, batch_size=batch_size), truth, thresholds)


def measure_scope(model: Model, inside: Any, outside: Any, *, level: float, batch_size: int = 64) -> ScopeReport:
    """How well a classifier tells texts of its classes from texts of none, by their typicality."""
    known, other = (model.typical_probabilities(texts, batch_size=batch_size)[1] for texts in (inside, outside))
    return scope_report(known, other, level)


def measure_text_scores(model: Model, texts: Any, records: Records, *, batch_size: int = 64) -> Report:
    """How a model of scores does: its predictions for the texts against the scores of the records."""
    truth = Truth(RowType.SCORED_TEXTS, np.array(records.scores, dtype=np.float64))
    return report_on(model.scores(texts, batch_size=batch_size)[:, None], truth)


def card_thresholds(model: Model) -> dict[str, float]:
    """The thresholds that the dev rows of the model's own training chose; none where there were no such rows."""
    chosen = {key: _number(model.card.task.get(key)) for key in ("threshold", "accuracy_threshold")}
    return {} if chosen["threshold"] is None else {key: value for key, value in chosen.items() if value is not None}


def require_vectors(model: Model) -> None:
    """Refuse a model that reads two texts as one, and so has no vector for either."""
    if model.card.joined:
        raise SettingError(
            "this model reads both texts of a pair joined into one, so there are no two vectors to compare. Label the "
            "pairs with 'nearfar predict', or train with an objective that compares pairs, such as batch-softmax."
        )


def _targets(model: Model, records: Records) -> tuple[NDArray[np.float32] | None, list[str]]:
    """(n,) scores from 0 to 1, by the range of the model's training where they lie in it, else by their own."""
    low, high = (_number(model.card.task.get(key)) for key in ("low", "high"))
    notes: list[str] = []
    scores = records.scores or []
    if low is not None and high is not None and not all(low <= score <= high for score in scores):
        notes.append(
            f"{records.source}: scores from {min(scores):g} to {max(scores):g} are outside the range of the model's "
            f"training, {low:g} to {high:g}; they are mapped by one of their own, on which only mse depends"
        )
        low = high = None
    values, note = unit_scores(records) if low is None else unit_scores(records, low=low, high=high)
    if note:
        notes.append(f"{records.source}: {note}")
    return np.array(values, dtype=np.float32), notes


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
