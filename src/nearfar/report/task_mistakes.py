"""The mistakes of a multi-task model, task by task, on the dev rows of its recipe or on a file. Loads torch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from nearfar.data import Records, read
from nearfar.encoding.predictor import task_predictor
from nearfar.encoding.task_model import TaskCard, TaskModel, load_tasks
from nearfar.errors import DataError, NearfarError
from nearfar.pipeline.data import layout_of
from nearfar.pipeline.task_outputs import truth_of, worst
from nearfar.pipeline.tasks import read_task
from nearfar.recipe.tasks import Task, TaskRecipe, read_task_recipe
from nearfar.report.sources import Source, TaskErrors, TaskMistake
from nearfar.seeds import generator

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
