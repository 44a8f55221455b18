"""A saved model of several tasks on the dev and test rows of its own recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nearfar.data import Records, read
from nearfar.encoding.task_model import TaskModel
from nearfar.errors import DataError, SettingError
from nearfar.pipeline.data import layout_of
from nearfar.pipeline.output import RECIPE
from nearfar.pipeline.results import Reports
from nearfar.pipeline.task_outputs import judge, truth_of
from nearfar.pipeline.tasks import read_task
from nearfar.recipe.tasks import Task, TaskRecipe, read_task_recipe


def evaluate_saved(
    folder: Path, model: TaskModel, task: str | None = None, *, batch_size: int = 64
) -> tuple[Reports, list[str]]:
    """All tasks of a saved model, or one, on the dev and test rows that its own recipe names; and what to know."""
    recipe = read_task_recipe(folder / RECIPE)
    notes: list[str] = []
    reports: Reports = {}
    for table in recipe.task:
        if task not in (None, table.name):
            continue
        card = model.card(table.name)
        rows, row_notes = _measured_rows(recipe, table)
        notes += row_notes
        thresholds = card.thresholds
        for split, records in rows.items():
            outputs = model.outputs(card.name, records.texts, batch_size=batch_size)
            report = judge(card, outputs, truth_of(card, records), thresholds)
            reports.setdefault(split, {})[card.name] = report
    if not reports:
        raise SettingError(
            f"{folder}: its recipe names no dev or test rows; give --task and FILE to measure a task on others."
        )
    return reports, notes


def _measured_rows(recipe: TaskRecipe, task: Task) -> tuple[dict[str, Records], list[str]]:
    """The dev and test rows of a task, and what to know. Files suffice; a share is drawn from the training rows."""
    named = {"dev": task.data.dev, "test": task.data.test}
    try:
        planned = read_task(recipe, task)
    except DataError as error:
        if any(part == "auto" or (isinstance(part, int | float) and part > 0) for part in named.values()):
            elsewhere = f"Other rows: --task {task.name} FILE."
            raise DataError(
                [
                    replace(
                        problem,
                        message=f"task {task.name!r}: {problem.message}",
                        remedy=f"{problem.remedy} {elsewhere}",
                    )
                    for problem in error.problems
                ]
            ) from None
        layout = layout_of(recipe.plain(task))
        files = {split: read(str(part), layout, invalid=task.data.invalid) for split, part in named.items() if part}
        return files, [f"task {task.name}: its training rows cannot be read: {error.problems[0]}"]
    parts = {"dev": planned.data.dev, "test": planned.data.test}
    return {split: part for split, part in parts.items() if part is not None and len(part)}, list(planned.notes)
