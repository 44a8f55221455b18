"""Models of several tasks on the command line: ``train``, ``predict``, ``evaluate`` and ``export``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nearfar.errors import DataError, OutputError, Problem, SettingError

if TYPE_CHECKING:
    from nearfar.data import Layout, Records
    from nearfar.encoding.task_model import TaskCard, TaskModel


def holds_tasks(model: str) -> bool:
    """Whether a name is that of a folder with a model of several tasks."""
    try:
        card = json.loads((Path(model) / "nearfar.json").read_text(encoding="utf-8"))
        return bool(card["task"]["kind"] == "tasks")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def predict_tasks_command(
    model_name: str, task: str | None, source: str, out: str, layout: Layout, invalid: str | None, batch_size: int, *,
    overwrite: bool,
) -> None:  # fmt: skip
    """Write one JSON object a row: texts, and label with probabilities, or score."""
    from nearfar.cli.predict import check_target, handling, say_notes, write_target
    from nearfar.data import read
    from nearfar.encoding.task_model import load_tasks

    check_target(out, overwrite=overwrite)
    model = load_tasks(model_name)
    card = model.card(task)
    records = read(source, layout, invalid=handling(invalid), need="text")
    _check_shape(card, records)
    answers = model.predict(card.name, records.texts, batch_size=batch_size)
    names = ("text",) if card.reads == "texts" else ("text_a", "text_b")

    def write(file: IO[bytes]) -> None:
        for place, answer in enumerate(answers):
            row: dict[str, Any] = {name: column[place] for name, column in zip(names, records.texts, strict=True)}
            if answer.label is not None:
                row["label"] = answer.label
            if answer.probabilities:
                row["probabilities"] = {name: round(chance, 6) for name, chance in answer.probabilities.items()}
            if answer.score is not None:
                row["score"] = round(answer.score, 6)
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

    write_target(out, write)
    say_notes(f"{source}: {note}" for note in records.notes)


def evaluate_tasks_command(
    model_name: str, task: str | None, source: str | None, layout: Layout, invalid: str | None, batch_size: int, *,
    mistakes: int = 0, threshold: float | None = None, as_json: bool,
) -> None:  # fmt: skip
    """Measure one task on a file, or all tasks on the dev and test rows of their own recipe."""
    from rich.console import Console

    from nearfar.cli.predict import handling, say_notes
    from nearfar.cli.tables import report_table
    from nearfar.data import read
    from nearfar.encoding.task_model import load_tasks
    from nearfar.pipeline.task_outputs import judge, truth_of, worst

    model = load_tasks(model_name)
    if source is None:
        if mistakes:
            raise SettingError("--mistakes are those of one task on a file; give --task and FILE.")
        if threshold is not None:
            raise SettingError("--threshold is for one task on a file; give --task and FILE.")
        _evaluate_own_rows(model_name, model, task, batch_size, as_json=as_json)
        return
    card = _with_threshold(model.card(task), threshold)
    records = read(source, layout, invalid=handling(invalid))
    _check_shape(card, records)
    outputs = model.outputs(card.name, records.texts, batch_size=batch_size)
    truth = truth_of(card, records)
    report = judge(card, outputs, truth, _thresholds(card))
    wrong = worst(card, outputs, truth, records, mistakes)
    if as_json:
        own = report.to_dict() | ({"mistakes": wrong} if mistakes else {})
        sys.stdout.write(json.dumps(own, ensure_ascii=False, indent=2) + "\n")
    else:
        Console().print(report_table(report, f"{card.name}, {source}: {len(records):,} rows"))
        if mistakes:
            Console().print(_mistakes(wrong, card, len(records)))
    say_notes(f"{source}: {note}" for note in records.notes)


def _evaluate_own_rows(model_name: str, model: TaskModel, task: str | None, batch_size: int, *, as_json: bool) -> None:
    """Measure all tasks, or one, on the dev and test rows that the saved recipe names."""
    from rich.console import Console

    from nearfar.cli.predict import say_notes
    from nearfar.cli.tables import task_table
    from nearfar.pipeline.results import MEAN, mean_scores
    from nearfar.pipeline.saved_tasks import evaluate_saved

    named = None if task is None else model.card(task).name
    found, notes = evaluate_saved(Path(model_name), model, named, batch_size=batch_size)
    metrics = {card.name: card.metric for card in model.tasks.values()}
    if as_json:
        values: dict[str, Any] = {}
        for split, reports in found.items():
            values[split] = {name: report.to_dict() for name, report in reports.items()}
            if len(reports) == len(metrics):
                values[split][MEAN] = mean_scores(reports, metrics)[MEAN]
        sys.stdout.write(json.dumps(values, ensure_ascii=False, indent=2) + "\n")
    else:
        for split, reports in found.items():
            Console().print(task_table(split, reports, metrics))
    say_notes(notes)


def export_command(model_name: str, task: str | None, out: Path, *, overwrite: bool) -> None:
    """Write the classifier of one task as other tools know it."""
    from nearfar.encoding.task_export import export_task
    from nearfar.encoding.task_model import load_tasks

    if out.is_file():
        raise OutputError(f"{out}: this is a file; give a folder for the model.")
    if (out / "nearfar.json").exists():
        raise OutputError(f"{out}: the folder holds a model of nearfar, which would be lost; choose another --out.")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise OutputError(
            f"{out}: the folder is not empty. Replace its files with --overwrite, or choose another --out."
        )
    model: TaskModel = load_tasks(model_name)
    card = model.card(task)
    export_task(model, card.name, out)
    sys.stderr.write(f"saved to {out}; open it with AutoModelForSequenceClassification.from_pretrained\n")


def _with_threshold(card: TaskCard, threshold: float | None) -> TaskCard:
    """The task with another threshold, where one is asked for."""
    if threshold is None:
        return card
    if card.labels is None or card.head["kind"] != "cosine":
        raise SettingError(
            f"--threshold is the cosine from which a pair is a yes, and task {card.name!r} has "
            f"{'scores' if card.labels is None else 'the head ' + repr(card.head['kind'])}; leave it out."
        )
    return replace(card, threshold=threshold, accuracy_threshold=threshold)


def _thresholds(card: TaskCard) -> dict[str, float] | None:
    if card.threshold is None or card.accuracy_threshold is None:
        return None
    return {"threshold": card.threshold, "accuracy_threshold": card.accuracy_threshold}


def _check_shape(card: TaskCard, records: Records) -> None:
    if (records.shape == "texts") == (card.reads == "texts") and len(records.texts) <= 2:
        return
    wanted = "single texts" if card.reads == "texts" else "pairs of texts"
    has = "single texts" if records.shape == "texts" else records.shape
    flags = "--text" if card.reads == "texts" else "--text and --pair"
    message = f"task {card.name!r} reads {wanted}, and the file has {has}"
    raise DataError([Problem(records.source, message, f"Name what to read: {flags}; or another task: --task.")])


def _mistakes(rows: list[dict[str, Any]], card: TaskCard, total: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return Text(f"none of {total:,} rows is wrong")
    graded = card.labels is None
    sure = "error" if graded else "from the threshold" if card.head["kind"] == "cosine" else "probability"
    table = Table(title="largest errors" if graded else "most confident mistakes", title_justify="left")
    for column in ("line", "text", "truth", "said", sure):
        table.add_column(column)
    for row in rows:
        said = row["said"] if isinstance(row["said"], str) else f"{row['said']:.3g}"
        truth = row["truth"] if isinstance(row["truth"], str) else f"{row['truth']:.3g}"
        cells = (str(row["line"]), " | ".join(row["texts"]), truth, said, f"{row['sure']:.3f}")
        table.add_row(*map(Text, cells))  # texts and labels may have brackets, which are no markup
    return table
