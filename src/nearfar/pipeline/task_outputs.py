"""The outputs of a task's head: compared with labels or scores, and the most confident mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.data import Records, pair_targets, unit_scores
from nearfar.encoding import Built
from nearfar.encoding.pair_heads import ConcatHead, JointHead
from nearfar.encoding.task_model import TaskCard, TaskNetwork, lay_out
from nearfar.errors import DataError, Problem, SettingError, counted
from nearfar.evaluation import Report, ScoreReport, Truth, embed_table, report_on
from nearfar.pipeline.data import class_numbers
from nearfar.pipeline.results import Measure
from nearfar.pipeline.rows import EVALUATION_BATCH
from nearfar.pipeline.tasks import PlannedTask, measured_as, task_targets

LEVEL_ROWS = 64
"""Training rows by which the outputs of a score are centered."""


def check_measured(planned: PlannedTask) -> list[str]:
    """Refuse dev and test rows that the task cannot be measured by, before it is trained; what to know of others."""
    notes = []
    for split, records in (("dev", planned.data.dev), ("test", planned.data.test)):
        if records is None or not len(records):
            continue
        nothing = np.zeros((len(records), planned.card.outputs), dtype=np.float32)
        try:
            report = judge(planned.card, nothing, truth_of(planned.card, records))
        except SettingError as error:
            raise SettingError(f"task {planned.name!r}, its {split} rows: {error}") from None
        if isinstance(report, ScoreReport) and "truth" in report.constant:
            notes.append(
                f"task {planned.name}: all scores of its {split} rows are alike, so that its correlation is 0 whatever "
                "is learned"
            )
    return notes


def center_scores(planned: PlannedTask, built: Built, network: TaskNetwork) -> None:
    """Let the outputs of a task with scores begin around the mean of its training scores.

    A head of random weights may begin far beside them. What then moves first is what all pairs have in common, and a
    head with tanh inside can end where it gives the same for every pair.
    """
    card, train = planned.card, planned.data.train
    head = network.head.of(card.name)
    if card.labels is not None or not isinstance(head, ConcatHead | JointHead):
        return
    some = train.take(range(min(LEVEL_ROWS, len(train))))
    table, columns = lay_out(built.tokenizer, some.texts, card.reads, built.max_length)
    outputs = network.answers(card.name, embed_table(network.encoder, table, batch_size=EVALUATION_BATCH), columns)
    beside = float(task_targets(planned, train).mean()) - float(outputs.mean())
    with torch.no_grad():
        head.last.bias.add_(round(beside, 3))  # the same on machines that differ in the last digits


def judge(
    card: TaskCard, outputs: NDArray[np.float32], truth: NDArray[Any], thresholds: Mapping[str, float] | None = None
) -> Report:
    """(n, k) outputs of a head against (n,) classes, binary labels, or scores from 0 to 1."""
    measured = Truth(measured_as(card.kind, card.head["kind"]), truth, card.labels or ())
    return report_on(outputs, measured, thresholds)


def truth_of(card: TaskCard, records: Records) -> NDArray[Any]:
    """(n,) what the outputs of a task should be, of rows with labels or scores."""
    wanted = "score" if card.labels is None else "label"
    if (records.scores if card.labels is None else records.labels) is None:
        message = f"task {card.name!r} is measured by {wanted}s, and the file has no {wanted} column"
        remedy = f"Name the column: --{wanted}, or {wanted} in [task.data]."
        raise DataError([Problem(records.source, message, remedy, line=records.lines[0] if records.lines else None)])
    if card.labels is None:
        inside = all(card.low <= score <= card.high for score in records.scores or ())
        values, _ = unit_scores(records, low=card.low, high=card.high) if inside else unit_scores(records)
        return np.array(values, dtype=np.float32)
    if card.head["kind"] == "cosine":
        return np.array(pair_targets(records), dtype=np.int64)
    _check_labels(card, card.labels, records)
    return class_numbers(records, card.labels)


def _check_labels(card: TaskCard, known: tuple[str, ...], records: Records) -> None:
    """Refuse labels that the task does not have, each of them once."""
    unknown: dict[str, list[int]] = {}
    for label, line in zip(records.labels or (), records.lines, strict=True):
        if label not in known:
            unknown.setdefault(label, []).append(line)
    remedy = f"It knows: {', '.join(known[:12])}{' ...' if len(known) > 12 else ''}."
    problems = []
    for label, lines in unknown.items():
        message = f"task {card.name!r} does not know this label, in {counted(len(lines), 'row')}"
        problems.append(Problem(records.source, message, remedy, line=lines[0], value=label))
    if problems:
        raise DataError(problems)


def task_measure(planned: PlannedTask, built: Built, network: TaskNetwork, records: Records) -> Measure:
    """How a task does on these rows, whenever it is asked; under a cosine head, by ``thresholds`` if given."""
    card = planned.card
    table, columns = lay_out(built.tokenizer, records.texts, card.reads, built.max_length)
    truth = truth_of(card, records)

    def measure(thresholds: Mapping[str, float] | None = None) -> Report:
        vectors = embed_table(network.encoder, table, batch_size=EVALUATION_BATCH)
        return judge(card, network.answers(card.name, vectors, columns), truth, thresholds)

    return measure


def worst(
    card: TaskCard, outputs: NDArray[np.float32], truth: NDArray[Any], records: Records, count: int
) -> list[dict[str, Any]]:
    """The most confident mistakes, the worst first: wrong labels by their probability, scores by how far off they are.

    ``sure`` is the probability of the wrong label, the distance of the cosine from the threshold, or the error of the
    score in the range of the training scores.
    """
    said: list[Any]
    right: list[Any]
    if card.labels is None:
        wide = card.high - card.low
        sure = np.abs(outputs[:, 0] - truth) * wide
        wrong = sure > 0
        said, right = (card.low + outputs[:, 0] * wide).tolist(), (card.low + truth * wide).tolist()
    elif card.head["kind"] == "cosine":
        numbers = (outputs[:, 0] >= card.cut).astype(np.int64)
        sure, wrong = np.abs(outputs[:, 0] - card.cut), numbers != truth
        said, right = [card.labels[place] for place in numbers], [card.labels[int(place)] for place in truth]
    else:
        chances = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        numbers = outputs.argmax(axis=1)
        sure, wrong = chances.max(axis=1), numbers != truth
        said, right = [card.labels[place] for place in numbers], [card.labels[int(place)] for place in truth]
    places = np.flatnonzero(wrong)
    places = places[np.argsort(-sure[places], kind="stable")][:count]
    return [
        {
            "line": records.lines[place], "texts": [column[place] for column in records.texts],
            "truth": right[place], "said": said[place], "sure": float(sure[place]),
        }
        for place in places.tolist()
    ]  # fmt: skip
