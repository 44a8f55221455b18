"""Small real runs of several tasks, shared by tests: the toy encoder on a few made-up texts and pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nearfar.recipe.tasks import TaskRecipe, build_task_recipe

from .runs import WORDS, KillAt, write_pairs, write_texts


def write_labels(path: Path, rows: int = 48) -> Path:
    """A file of pairs with yes or no, the same every time."""
    kinds = list(WORDS)
    lines = []
    for row in range(rows):
        one, other = kinds[row % 3], kinds[(row * row + row // 5) % 3]
        left = f"a {WORDS[one][row % 6]} number {row}"
        right = f"some {WORDS[other][(row // 2) % 6]} of {row // 2}"
        lines.append(json.dumps({"text_a": left, "text_b": right, "label": int(one == other)}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_all(folder: Path) -> Path:
    """The data of three tasks."""
    write_texts(folder / "texts.csv", 40)
    write_labels(folder / "labels.jsonl", 24)
    write_pairs(folder / "scores.jsonl", 32)
    return folder


def task_recipe(folder: Path, *, tasks: tuple[str, ...] = ("kind", "same", "close"), **changes: Any) -> TaskRecipe:
    """A recipe of a few steps; ``changes`` are laid over its tables, those of tasks by their names."""
    files = {"kind": "texts.csv", "same": "labels.jsonl", "close": "scores.jsonl"}
    values: dict[str, Any] = {
        "seed": 7,
        "encoder": {"name": "toy", "max_length": 24},
        "batches": {"size": 8},
        "training": {"epochs": 2, "learning_rate": 1e-3, "checkpoint_every": 1, "precision": "fp32"},
        "task": [],
    }
    for name in tasks:
        own: dict[str, Any] = {"name": name, "data": {"train": str(folder / files[name]), "dev": 0.25}}
        own |= {key: value for key, value in changes.pop(name, {}).items() if key != "data"} | {
            "data": {**own["data"], **changes.get(f"{name}_data", {})}
        }
        changes.pop(f"{name}_data", None)
        values["task"].append(own)
    for key, value in changes.items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    return build_task_recipe(values, where="test")


def train_tasks_in_child(folder: str, out: str, changes: dict[str, Any], kill_at: int | None, resume: bool) -> None:
    """What a child process runs; the parent looks at what it leaves behind."""
    import torch

    from nearfar.pipeline import train

    torch.set_num_threads(1)
    callbacks = () if kill_at is None else (KillAt(kill_at),)
    recipe = task_recipe(Path(folder), **changes)
    train(recipe, Path(out), resume=resume, callbacks=callbacks)
