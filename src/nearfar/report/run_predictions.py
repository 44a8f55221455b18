"""A single run on a labeled file: predictions, geometry and a map, as a study's trials have them. Loads torch."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Records
from nearfar.encoding import Model, load
from nearfar.errors import DataError, NearfarError, Problem, SettingError
from nearfar.evaluation import class_report
from nearfar.experiments.diagnostics import classmates, figures, geometry, mapped, prediction_lines, vectors_before
from nearfar.experiments.records import MAP, PREDICTIONS, DataSet, Record, find_record, map_bytes, write_record
from nearfar.pipeline.data import class_numbers
from nearfar.report.sources import Source


def probe(
    source: Source, records: Records, scratch: Path, *, task: str | None = None, batch_size: int = 64
) -> tuple[Source, list[str]]:
    """The run with one more data set in front: what it predicts for these rows. Notes say what could not be done.

    Args:
        source: a single run of a classifier.
        records: rows with labels.
        scratch: a folder for the predictions, which must outlive the source.
        task: which task, of a model with several.
        batch_size: texts computed at once.
    """
    if source.home is None:
        raise SettingError("--data is for the report of a single model; the trials of a study have their predictions.")
    model = load(source.home)
    if records.labels is None:
        raise DataError([Problem(records.source, "the file has no label column", "Give a file with labels.")])
    answers = _answers(source.home, model, records, task, batch_size)
    labels = answers.labels
    truth = class_numbers(records, labels)
    report = class_report(truth, np.array([labels.index(one) for one in answers.predicted]), labels)
    files, space, notes = _space(source.home, model, records, truth, batch_size, answers.single)
    said = zip(answers.predicted, answers.probabilities, strict=True)
    files[PREDICTIONS] = prediction_lines(records, range(len(records)), [labels[right] for right in truth], said)
    metric = source.plan.metric if source.plan.metric in report.scores else "f1_weighted"
    name = Path(records.source).name
    record = Record(
        id="data", data=name, limit=None, contender=source.plan.baseline, seed=0, fold=0, status="done", metric=metric,
        geometry=space, test=len(records), **figures(report, labels),
    )  # fmt: skip
    write_record(scratch, record, files)
    written = find_record(scratch, record.id)
    assert written is not None
    added = DataSet(name=name, file=records.source, limits=(None,), digest=records.fingerprint(), rows=len(records),
                    kind="classes", labels=tuple(labels))  # fmt: skip
    plan = replace(source.plan, data=(added, *source.plan.data))
    return replace(source, plan=plan, records=(written, *source.records)), notes


class _Answers(NamedTuple):
    """What the model says of each row."""

    labels: tuple[str, ...]
    predicted: list[str]
    probabilities: list[dict[str, float]]
    single: bool
    """Whether each row is one text for the encoder, so that it has a vector of its own."""


def _answers(folder: Path, model: Model, records: Records, task: str | None, batch_size: int) -> _Answers:
    if task is not None or model.card.task.get("kind") == "tasks":
        from nearfar.encoding.task_model import load_tasks

        tasks = load_tasks(folder, model)
        card = tasks.card(task)
        if card.labels is None:
            raise SettingError(f"task {card.name!r} predicts a score, and --data shows predicted classes.")
        said = tasks.predict(card.name, records.texts, batch_size=batch_size)
        predicted = [str(one.label) for one in said]
        return _Answers(tuple(card.labels), predicted, [one.probabilities for one in said], card.reads == "texts")
    if model.labels is None:
        raise SettingError(f"{folder}: the model has no class head, and --data shows predicted classes.")
    found = model.predict(_rows(records, model), batch_size=batch_size)
    return _Answers(model.labels, [one.label for one in found], [one.probabilities for one in found], single=True)


def _space(
    folder: Path, model: Model, records: Records, truth: NDArray[np.int64], batch_size: int, single: bool
) -> tuple[dict[str, bytes], dict[str, dict[str, float]], list[str]]:
    """The map of some rows and its geometry, where rows have vectors of their own."""
    if not single:
        return {}, {}, ["no map: the task compares two texts, and a pair has no vector of its own"]
    shown = mapped(len(records), 0)
    texts = _rows(records, model)
    after = model.embed([texts[place] for place in shown], batch_size=batch_size)
    pairs = classmates(truth[shown], 0)
    found = {"after": geometry(after, pairs)}
    try:
        name = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))["encoder"]["name"]
        before = vectors_before(name, model.card, records.take(shown), batch_size=batch_size)
    except (OSError, KeyError, ValueError, NearfarError) as cause:
        return {}, found, [f"no map: the encoder the run started from cannot be opened ({cause})"]
    found["before"] = geometry(before, pairs)
    return {MAP: map_bytes(shown, before, after)}, found, []


def _rows(records: Records, model: Model) -> list[Any]:
    if model.card.joined and len(records.texts) == 2:
        return list(zip(*records.texts, strict=True))
    if model.card.joined or len(records.texts) != 1:
        wanted = "pairs of texts" if model.card.joined else "single texts"
        raise DataError(
            [Problem(records.source, f"the model reads {wanted}, and the file has others", "Give its rows.")]
        )
    return records.texts[0]
