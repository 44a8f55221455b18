"""``nearfar export``: the classifier of a task as other tools open it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli import options
from nearfar.errors import OutputError, SettingError


def export(
    model: options.Model,
    out: Annotated[Path, typer.Option("--out", help="Folder for the classifier.")],
    task: options.Task = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write the classifier of one of several tasks as a folder that AutoModelForSequenceClassification opens."""
    from nearfar.encoding.task_model import export_task, holds_tasks, load_tasks

    if out.is_file():
        raise OutputError(f"{out}: this is a file; give a folder for the model.")
    if (out / "nearfar.json").exists():
        raise OutputError(f"{out}: the folder holds a model of nearfar, which would be lost; choose another --out.")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise OutputError(
            f"{out}: the folder is not empty. Replace its files with --overwrite, or choose another --out."
        )
    if not holds_tasks(model):
        raise SettingError(
            f"{model}: export writes the classifier of one of several tasks, and this model was trained without "
            "[[task]] tables. Trained with cross-entropy and no encoder.pooling, its folder opens with "
            "AutoModelForSequenceClassification as it is; nearfar.load opens every folder."
        )
    tasks = load_tasks(model)
    export_task(tasks, tasks.card(task).name, out)
    sys.stderr.write(f"saved to {out}; open it with AutoModelForSequenceClassification.from_pretrained\n")
