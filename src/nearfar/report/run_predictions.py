"""The predictions of a single run on a labeled file, with geometry and map, like a trial of a study. Loads torch."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Records
from nearfar.encoding import Model, load
from nearfar.encoding.predictor import Predictor, predictor_of, task_predictor
from nearfar.encoding.task_model import is_task_model, load_tasks
from nearfar.errors import DataError, NearfarError, Problem, SettingError
from nearfar.evaluation import class_report
from nearfar.experiments import diagnostics
from nearfar.experiments.records import MAP, PREDICTIONS, find_record, map_bytes, write_record
from nearfar.pipeline.data import class_numbers
from nearfar.report.sources import RUN, Source


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
        raise DataError(Problem(records.source, "the file has no label column", "Give a file with labels."))
    predictor, labels = _class_head(source.home, model, task)
    predictor.check(records)
    answers = predictor.predict(records.texts, batch_size=batch_size)
    truth, predicted = class_numbers(records, labels), [str(answer.label) for answer in answers]
    report = class_report(truth, np.array([labels.index(label) for label in predicted]), labels)
    outputs = zip(predicted, (answer.probabilities for answer in answers), strict=True)
    names = [labels[index] for index in truth]
    files = {PREDICTIONS: diagnostics.prediction_lines(records, range(len(records)), names, outputs)}
    metric = source.plan.metric if source.plan.metric in report.scores else "f1_weighted"
    record = replace(RUN, id="data", data=Path(records.source).name, contender=source.plan.baseline, metric=metric)
    record = diagnostics.with_class_figures(replace(record, test=len(records)), report, labels)
    notes = ["no map: the task compares two texts, and a pair has no vector of its own"]
    if model.card.joined or not predictor.paired:
        geometry, vectors, notes = _geometry(source.home, model, predictor, records, truth, batch_size)
        record, files = replace(record, geometry=geometry), files | vectors
    write_record(scratch, record, files)
    written = find_record(scratch, record.id)
    assert written is not None
    return source.with_data(written, records, first=True), notes


def _class_head(folder: Path, model: Model, task: str | None) -> tuple[Predictor, tuple[str, ...]]:
    """The class head of a model, or of one of its tasks, and its classes."""
    if task is None and not is_task_model(model.card):
        if model.labels is None:
            raise SettingError(f"{folder}: the model has no class head, and --data shows predicted classes.")
        return predictor_of(model), model.labels
    tasks = load_tasks(folder, model)
    card = tasks.card(task)
    if card.labels is None:
        raise SettingError(f"task {card.name!r} predicts a score, and --data shows predicted classes.")
    return task_predictor(tasks, card.name), tuple(card.labels)


def _geometry(
    folder: Path, model: Model, predictor: Predictor, records: Records, truth: NDArray[np.int64], batch_size: int
) -> tuple[dict[str, dict[str, float]], dict[str, bytes], list[str]]:
    """The geometry of a sample of the rows before and after training, the file with their map, and notes."""
    sample = diagnostics.map_sample(len(records), 0)
    shown, pairs = records.take(sample), diagnostics.same_class_pairs(truth[sample], 0)
    after = model.embed(predictor.texts(shown.texts), batch_size=batch_size)
    geometry = {"after": diagnostics.geometry(after, pairs)}
    try:
        name = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))["encoder"]["name"]
        before = diagnostics.pretrained_vectors(name, model.card, shown, batch_size=batch_size)
    except (OSError, KeyError, ValueError, NearfarError) as cause:
        return geometry, {}, [f"no map: the encoder the run started from cannot be opened ({cause})"]
    geometry["before"] = diagnostics.geometry(before, pairs)
    return geometry, {MAP: map_bytes(sample, before, after)}, []
