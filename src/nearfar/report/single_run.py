"""A single run on rows: predictions, mistakes and embedding geometry. Loads torch."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Layout, Records, read
from nearfar.encoding import Model, load
from nearfar.encoding.predictor import Predictor, predictor_of, task_predictor
from nearfar.encoding.task_model import TaskCard, TaskModel, is_task_model, load_tasks
from nearfar.errors import DataError, NearfarError, Problem, SettingError
from nearfar.evaluation import MultiLabelReport, class_report
from nearfar.experiments import diagnostics
from nearfar.experiments.diagnostics import POSITIVES, pretrained, space_of
from nearfar.experiments.records import MAP, PREDICTIONS, find_record, map_bytes, write_record
from nearfar.pipeline.data import class_numbers, layout_of
from nearfar.pipeline.evaluate import measure_classes
from nearfar.pipeline.geometry import Positives, positive_pairs
from nearfar.pipeline.tasks import read_task, truth_of, worst
from nearfar.recipe.tasks import Task, TaskRecipe, read_task_recipe
from nearfar.report.sources import RUN, Source, TaskErrors, TaskMistake
from nearfar.seeds import generator

SPLITS = ("test", "dev", "train")
"""The files of a run that are tried, in this order."""
COLUMNS = ("text", "pair", "label", "score", "negative", "query_id", "doc_id")


def add_geometry(source: Source, records: Records | None, *, batch_size: int = 64) -> tuple[Source, list[str]]:
    """Add a data set with the geometry of its texts before and after training; the notes say what could not be done.

    Args:
        source: a single run of an encoder.
        records: texts, pairs or triplets; None takes the test, dev or training file of the run, if it still exists.
        batch_size: texts encoded at once.
    """
    assert source.home is not None
    try:
        recipe = tomllib.loads((source.home / "recipe.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        recipe = {}
    notes: list[str] = []
    if records is None:
        records, notes = _run_rows(recipe.get("data") or {})
    if records is None:
        return source, [*notes, "no geometry: no file of the run exists any more; --data FILE takes other texts"]
    texts = list(dict.fromkeys(text for column in records.texts for text in column))
    positives = _positives(records)
    model = load(source.home)
    geometry, space = {}, {}
    geometry["after"], space["after"] = space_of(model, texts, positives, batch_size=batch_size)
    try:
        before = pretrained(recipe["encoder"]["name"], model.card)
        geometry["before"], space["before"] = space_of(before, texts, positives, batch_size=batch_size)
    except (KeyError, NearfarError) as cause:
        notes.append(f"no geometry before training: the encoder the run started from cannot be opened ({cause})")
    name = f"texts of {Path(records.source).name}"
    record = replace(RUN, id="space", data=name, contender=source.plan.baseline, metric=source.plan.metric)
    record = replace(record, kind="plain", geometry=geometry, space=space, test=len(records))
    return source.with_data(record, records), notes


def _run_rows(data: Mapping[str, Any]) -> tuple[Records | None, list[str]]:
    """The rows of the first file of the run that can be read, and a note on each that cannot."""
    columns = {key: data[key] for key in COLUMNS if key in data}
    if "columns" in data:
        columns["columns"] = tuple(data["columns"])
    notes: list[str] = []
    for split in SPLITS:
        name = data.get(split)
        if not isinstance(name, str) or name in ("auto", "-") or name.startswith("hub:"):
            continue
        try:
            return read(name, Layout(**columns), invalid="drop"), notes
        except DataError as error:
            notes.append(f"the geometry is not that of the {split} rows: {error.problems[0]}")
    return None, notes


def _positives(records: Records) -> Positives | None:
    """A sample of the positive pairs, where the rows say which these are."""
    if records.shape == "texts":
        return None
    try:
        return positive_pairs(records).sample(POSITIVES)
    except DataError:
        return None


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
    if not records.is_labeled:
        raise DataError(Problem(records.source, "the file has no label column", "Give a file with labels."))
    if model.multilabel and task is None:
        return _add_label_sets(source, records, scratch, model, batch_size)
    predictor, labels = _class_head(source.home, model, task)
    predictor.check(records)
    answers = predictor.predict(records.texts, batch_size=batch_size, typicality=predictor.typical is not None)
    truth, predicted = class_numbers(records, labels), [str(answer.label) for answer in answers]
    report = class_report(truth, np.array([labels.index(label) for label in predicted]), labels)
    outputs = zip(predicted, (answer.probabilities for answer in answers), strict=True)
    names, typical = [labels[index] for index in truth], [answer.typicality for answer in answers]
    files = {PREDICTIONS: diagnostics.prediction_lines(records, range(len(records)), names, outputs, typical)}
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


def _add_label_sets(
    source: Source, records: Records, scratch: Path, model: Model, batch_size: int
) -> tuple[Source, list[str]]:
    """Add a first data set with the scores of a model of several labels a text, in all and for each label."""
    predictor = predictor_of(model)
    predictor.check(records)
    report = measure_classes(model, predictor.texts(records.texts), records, batch_size=batch_size)
    assert isinstance(report, MultiLabelReport)
    metric = source.plan.metric if source.plan.metric in report.scores else "f1_micro"
    record = replace(RUN, id="data", data=Path(records.source).name, contender=source.plan.baseline, metric=metric)
    record = diagnostics.with_label_figures(replace(record, test=len(records)), report)
    write_record(scratch, record, {})
    written = find_record(scratch, record.id)
    assert written is not None
    notes = ["no confusion matrix and no map: texts have several labels"]
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


MOST = 10
"""Mistakes shown for each task."""
ROWS = 2_000
"""Most rows of a task that are predicted: joint heads read every pair twice."""
ELSEWHERE = "'nearfar report MODEL --task NAME --data FILE' takes other rows"


def add_dev_mistakes(source: Source, *, batch_size: int = 64) -> tuple[Source, list[str]]:
    """Add the mistakes on the dev rows of each task; the notes say which tasks have none to show.

    Args:
        source: a single run on several tasks.
        batch_size: texts encoded at once.
    """
    assert source.home is not None
    model = load_tasks(source.home)
    try:
        recipe = read_task_recipe(source.home / "recipe.toml")
    except (OSError, NearfarError) as cause:
        return source, [f"no mistakes are shown: the recipe of the run cannot be read ({cause}); {ELSEWHERE}"]
    tables = {table.name: table for table in recipe.task}
    errors = [
        _dev_mistakes(model, card, recipe, tables[name], batch_size)
        if name in tables
        else TaskErrors(name, "dev rows", reason=f"its recipe does not have this task; {ELSEWHERE}.")
        for name, card in model.tasks.items()
    ]
    notes = [f"task {one.task}: no mistakes are shown: {one.reason}" for one in errors if one.reason is not None]
    return replace(source, errors=tuple(errors)), notes


def add_file_mistakes(source: Source, records: Records, task: str | None, *, batch_size: int = 64) -> Source:
    """Add the mistakes in one task on the rows of a file."""
    assert source.home is not None
    model = load_tasks(source.home)
    card = model.card(task)
    task_predictor(model, card.name).check(records)
    return replace(source, errors=(_mistakes(model, card, records, Path(records.source).name, batch_size),))


def lacks_probabilities(folder: Path, task: str | None) -> bool:
    """Whether a task of a model predicts a score or a cosine instead of class probabilities."""
    try:
        cards = json.loads((folder / "nearfar.json").read_text(encoding="utf-8"))["task"]["tasks"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    chosen = [card for card in cards if card["name"] == task or (task is None and len(cards) == 1)]
    return any(card["labels"] is None or card["head"].get("kind") == "cosine" for card in chosen)


def _dev_mistakes(model: TaskModel, card: TaskCard, recipe: TaskRecipe, table: Task, batch_size: int) -> TaskErrors:
    """The mistakes on the dev rows of the recipe, or on its test rows where it has no dev rows."""
    try:
        split, records = _rows(recipe, table)
        if records is None:
            return TaskErrors(card.name, "dev rows", reason=f"its recipe has no dev rows; {ELSEWHERE}.")
        return _mistakes(model, card, records, f"{split} rows", batch_size)
    except NearfarError as error:
        problem = error.problems[0] if isinstance(error, DataError) else error
        return TaskErrors(card.name, "dev rows", reason=f"its rows cannot be read: {problem}")


def _rows(recipe: TaskRecipe, table: Task) -> tuple[str, Records | None]:
    """A dev file is read without the other files; a share of the training rows is drawn from them again."""
    data = table.data
    if isinstance(data.dev, str) and data.dev != "auto":
        return "dev", read(data.dev, layout_of(recipe.plain(table)), invalid=data.invalid)
    ready = read_task(recipe, table)
    for split, records in (("dev", ready.data.dev), ("test", ready.data.test)):
        if records is not None and len(records):
            return split, records
    return "dev", None


def _mistakes(model: TaskModel, card: TaskCard, records: Records, rows: str, batch_size: int) -> TaskErrors:
    total = len(records)
    if total > ROWS:
        records = records.take(sorted(generator(0, "mistakes", card.name).permutation(total)[:ROWS].tolist()))
    outputs = model.outputs(card.name, records.texts, batch_size=batch_size)
    wrong = worst(card, outputs, truth_of(card, records), records, len(records))
    shown = (
        TaskMistake(row["line"], tuple(row["texts"]), row["truth"], row["said"], row["sure"]) for row in wrong[:MOST]
    )
    measure = "Probability"
    if card.labels is None:
        measure = "Error"
    elif card.head["kind"] == "cosine":
        measure = "Distance to threshold"
    count = None if card.labels is None else len(wrong)
    return TaskErrors(card.name, rows, len(records), total, count, tuple(shown), measure)
