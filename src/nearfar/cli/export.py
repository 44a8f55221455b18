"""``nearfar export``: the classifier of a task as other tools open it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nearfar.cli import options
from nearfar.errors import OutputError


def export(
    model: options.Model,
    out: Annotated[Path, typer.Option("--out", help="Folder for the classifier.")],
    task: options.Task = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Write the classifier of one of several tasks as a folder that AutoModelForSequenceClassification opens."""
    from nearfar.encoding.task_model import export_task, load_tasks

    if out.is_file():
        raise OutputError(f"{out}: this is a file; give a folder for the model.")
    if (out / "nearfar.json").exists():
        raise OutputError(f"{out}: the folder holds a model of nearfar, which would be lost; choose another --out.")
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise OutputError(
            f"{out}: the folder is not empty. Replace its files with --overwrite, or choose another --out."
        )
    tasks = load_tasks(model)
    export_task(tasks, tasks.card(task).name, out)
    sys.stderr.write(f"saved to {out}; open it with AutoModelForSequenceClassification.from_pretrained\n")
