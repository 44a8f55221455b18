"""What a trained model is worth on the test rows of a trial: scores, predictions, and how its vectors moved."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from nearfar.data import Records
from nearfar.experiments import diagnostics
from nearfar.experiments.records import MAP, PREDICTIONS, Record, map_bytes
from nearfar.experiments.results import Files
from nearfar.experiments.rows import Split, columns_of
from nearfar.experiments.suites import Examined, examine
from nearfar.experiments.trial import Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nearfar.encoding import Model

BATCH = 64
KEPT = 4
"""Test sets whose vectors under pretrained encoders are remembered: contenders on one fold share them."""

Key = tuple[object, ...]
Value = TypeVar("Value")
_VECTORS: dict[Key, NDArray[np.float32]] = {}
_EXAMINED: dict[Key, Examined] = {}


def measure_classes(record: Record, trial: Trial, model: Model, part: Split) -> tuple[Record, Files]:
    """Predictions, what they are worth, and how the vectors of the test texts moved from the pretrained encoder."""
    import torch

    from nearfar.encoding import tokenize
    from nearfar.encoding.model import in_batches
    from nearfar.evaluation import class_report
    from nearfar.pipeline import class_numbers

    labels, test, card = model.labels, part.test, model.card
    assert labels is not None
    truth = class_numbers(test, labels)
    table = tokenize(model.tokenizer, test.texts, max_length=card.max_length)
    width = len(labels) + model.model.dim
    both = in_batches(
        model.model, table, BATCH, lambda output: torch.cat([output.logits, output.embedding], dim=1), width=width
    )
    probabilities = both[:, : len(labels)].softmax(dim=1).numpy()
    predicted = probabilities.argmax(axis=1)
    answers = (
        (labels[place], dict(zip(labels, line, strict=True)))
        for place, line in zip(predicted, probabilities, strict=True)
    )
    files = {PREDICTIONS: diagnostics.prediction_lines(test, part.rows, [labels[number] for number in truth], answers)}
    sample = diagnostics.map_sample(len(test), trial.seed, trial.fold)
    after, rows, encoder = both[sample, len(labels) :].numpy(), test.take(sample), record.recipe["encoder"]["name"]
    before = _remembered(
        _VECTORS,
        _key(model, encoder, rows),
        lambda: diagnostics.pretrained_vectors(encoder, card, rows, batch_size=BATCH),
    )
    pairs = diagnostics.same_class_pairs(truth[sample], trial.seed)
    if trial.keeps_map:
        files[MAP] = map_bytes([part.rows[place] for place in sample], before, after)
    moved = {"before": diagnostics.geometry(before, pairs), "after": diagnostics.geometry(after, pairs)}
    return replace(
        diagnostics.with_class_figures(record, class_report(truth, predicted, labels), labels), geometry=moved
    ), files


def measure_pairs(record: Record, model: Model, part: Split) -> tuple[Record, Files]:
    """What an encoder is worth on pairs, triplets or a ranking, and the cosines of its rows."""
    from nearfar.evaluation import PairReport, score_pairs
    from nearfar.pipeline.evaluate import card_thresholds, measure
    from nearfar.pipeline.rows import distinct

    test, thresholds, notes = part.test, None, list[str]()
    if test.labels is not None and not card_thresholds(model):
        report, _ = measure(model, part.train, batch_size=BATCH)
        if isinstance(report, PairReport):
            thresholds = report.thresholds
            notes.append(
                "the decision threshold is the best threshold of the training rows, for there were no dev rows"
            )
    report, more = measure(model, test, thresholds=thresholds, batch_size=BATCH)
    texts, (first, *others) = distinct(test.texts)
    both = score_pairs(
        model.model, model.tokenize(texts), np.tile(first, len(others)), np.concatenate(others), batch_size=BATCH
    )
    cosines = [[round(cosine, 6) for cosine in row] for row in both.reshape(len(others), -1).T.tolist()]
    columns: dict[str, Sequence[object]] = {"row": part.rows}
    columns |= {name: values for key, (name, values) in columns_of(test).items() if not key.endswith("_id")}
    columns["predicted"] = [row[0] if len(row) == 1 else row for row in cosines]
    entries = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    lines = "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries)
    scores = {name: float(value) for name, value in report.scores.items()}
    return replace(record, scores=scores, notes=[*notes, *more]), {PREDICTIONS: lines.encode()}


def examine_pretrained(model: Model, encoder: str, test: Records) -> Examined:
    """The pretrained encoder of a model on scored pairs, pooled and cut as the model does."""
    return _remembered(
        _EXAMINED,
        _key(model, encoder, test),
        lambda: examine(diagnostics.pretrained(encoder, model.card), test, batch_size=BATCH),
    )


def _key(model: Model, encoder: str, test: Records) -> Key:
    return encoder, model.card.pooling, model.card.max_length, test.fingerprint()


def _remembered(memory: dict[Key, Value], key: Key, make: Callable[[], Value]) -> Value:
    """The value of a key, made where it is not among the last few."""
    if key not in memory:
        while len(memory) >= KEPT:
            del memory[next(iter(memory))]
        memory[key] = make()
    return memory[key]
