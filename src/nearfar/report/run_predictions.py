"""The predictions of a single run on a labeled file, with geometry and map, like a trial of a study. Loads torch."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Records
from nearfar.encoding import Model, load
from nearfar.encoding.task_model import load_tasks
from nearfar.errors import DataError, NearfarError, Problem, SettingError
from nearfar.evaluation import class_report
from nearfar.experiments.diagnostics import (
    class_figures,
    geometry,
    map_sample,
    prediction_lines,
    pretrained_vectors,
    same_class_pairs,
)
from nearfar.experiments.records import MAP, PREDICTIONS, Record, find_record, map_bytes, write_record
from nearfar.pipeline.data import class_numbers
from nearfar.report.sources import Source, data_set


def add_predictions(
    source: Source, records: Records, scratch: Path, *, task: str | None = None, batch_size: int = 64
) -> tuple[Source, list[str]]:
    """Add a first data set with the predictions for these rows; the notes say what could not be done.

    Args:
        source: a single run of a classifier.
        records: rows with labels.
        scratch: a folder for the predictions, which must outlive the source.
        task: the task to predict, for a multi-task model.
        batch_size: texts encoded at once.
    """
    if source.home is None:
        raise SettingError("--data is for the report of a single model; the trials of a study have their predictions.")
    model = load(source.home)
    if records.labels is None:
        raise DataError([Problem(records.source, "the file has no label column", "Give a file with labels.")])
    answers = _predict(source.home, model, records, task, batch_size)
    labels = answers.labels
    truth = class_numbers(records, labels)
    report = class_report(truth, np.array([labels.index(label) for label in answers.predicted]), labels)
    notes = ["no map: the task compares two texts, and a pair has no vector of its own"]
    files: dict[str, bytes] = {}
    measured: dict[str, dict[str, float]] = {}
    if answers.single:
        files, measured, notes = _map(source.home, model, records, truth, batch_size)
    predictions = zip(answers.predicted, answers.probabilities, strict=True)
    files[PREDICTIONS] = prediction_lines(records, range(len(records)), [labels[index] for index in truth], predictions)
    record = Record(
        id="data",
        data=Path(records.source).name,
        limit=None,
        contender=source.plan.baseline,
        seed=0,
        fold=0,
        status="done",
        metric=source.plan.metric if source.plan.metric in report.scores else "f1_weighted",
        geometry=measured,
        test=len(records),
        **class_figures(report, labels),
    )
    write_record(scratch, record, files)
    written = find_record(scratch, record.id)
    assert written is not None
    added = data_set(record, file=records.source, digest=records.fingerprint())
    plan = replace(source.plan, data=(added, *source.plan.data))
    return replace(source, plan=plan, records=(written, *source.records)), notes


class _Answers(NamedTuple):
    """The predictions for the rows."""

    labels: tuple[str, ...]
    predicted: list[str]
    probabilities: list[dict[str, float]]
    single: bool
    """Whether each row is one text for the encoder, and so has a vector."""


def _predict(folder: Path, model: Model, records: Records, task: str | None, batch_size: int) -> _Answers:
    if task is not None or model.card.task.get("kind") == "tasks":
        tasks = load_tasks(folder, model)
        card = tasks.card(task)
        if card.labels is None:
            raise SettingError(f"task {card.name!r} predicts a score, and --data shows predicted classes.")
        answers = tasks.predict(card.name, records.texts, batch_size=batch_size)
        predicted = [str(answer.label) for answer in answers]
        probabilities = [answer.probabilities for answer in answers]
        return _Answers(tuple(card.labels), predicted, probabilities, card.reads == "texts")
    if model.labels is None:
        raise SettingError(f"{folder}: the model has no class head, and --data shows predicted classes.")
    found = model.predict(_rows(records, model), batch_size=batch_size)
    return _Answers(model.labels, [str(one.label) for one in found], [one.probabilities for one in found], single=True)


def _map(
    folder: Path, model: Model, records: Records, truth: NDArray[np.int64], batch_size: int
) -> tuple[dict[str, bytes], dict[str, dict[str, float]], list[str]]:
    """The map of a sample of the rows, its geometry, and notes."""
    shown = map_sample(len(records), 0)
    texts = _rows(records, model)
    after = model.embed([texts[index] for index in shown], batch_size=batch_size)
    pairs = same_class_pairs(truth[shown], 0)
    measured = {"after": geometry(after, pairs)}
    try:
        name = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))["encoder"]["name"]
        before = pretrained_vectors(name, model.card, records.take(shown), batch_size=batch_size)
    except (OSError, KeyError, ValueError, NearfarError) as cause:
        return {}, measured, [f"no map: the encoder the run started from cannot be opened ({cause})"]
    measured["before"] = geometry(before, pairs)
    return {MAP: map_bytes(shown, before, after)}, measured, []


def _rows(records: Records, model: Model) -> list[Any]:
    if model.card.joined and len(records.texts) == 2:
        return list(zip(*records.texts, strict=True))
    if model.card.joined or len(records.texts) != 1:
        wanted = "pairs of texts" if model.card.joined else "single texts"
        message = f"the model reads {wanted}, and the file has others"
        raise DataError([Problem(records.source, message, "Give a file with such rows.")])
    return records.texts[0]
