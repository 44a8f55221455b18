"""Small real runs, shared by the tests of training: the toy encoder on a few made-up texts."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from typing import Any

from nearfar.recipe import Recipe, build_recipe
from nearfar.training import Callback, EvaluationEntry, StepEntry, read_journal

WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "melon", "grape"],
    "tool": ["hammer", "saw", "pliers", "wrench", "drill", "file"],
    "animal": ["horse", "otter", "heron", "badger", "lynx", "mole"],
}


def write_texts(path: Path, rows: int = 60) -> Path:
    """A labelled CSV file, the same every time."""
    lines = ["text,label"]
    kinds = list(WORDS)
    for row in range(rows):
        kind = kinds[row % len(kinds)]
        words = WORDS[kind]
        lines.append(f"a {words[row % 6]} and a {words[(row // 6 + 1) % 6]} number {row},{kind}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_pairs(path: Path, rows: int = 40) -> Path:
    """A file of scored pairs, the same every time; some right texts come twice."""
    kinds = list(WORDS)
    lines = []
    for row in range(rows):
        one, other = kinds[row % 3], kinds[(row * row) % 3]
        left = f"a {WORDS[one][row % 6]} number {row}"
        right = f"some {WORDS[other][(row // 2) % 6]} of {row // 2}"
        lines.append(json.dumps({"text_a": left, "text_b": right, "score": float(one == other)}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def recipe_for(train: Path, *, objective: str = "cross-entropy", **changes: Any) -> Recipe:
    """A recipe of a few steps; ``changes`` are tables laid over it."""
    values: dict[str, Any] = {
        "seed": 7,
        "data": {"train": str(train), "dev": 0.2},
        "encoder": {"name": "toy", "max_length": 24},
        "objective": {"name": objective},
        "batches": {"size": 8},
        "training": {"epochs": 3, "learning_rate": 1e-3, "checkpoint_every": 2, "precision": "fp32"},
    }
    for table, keys in changes.items():
        values[table] = {**values.get(table, {}), **keys}
    return build_recipe(values, [], where="test")


def digest(folder: Path) -> dict[str, str]:
    """SHA-256 of every weight file of a model folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.safetensors"))}


def losses(folder: Path) -> list[tuple[int, float]]:
    """The loss of every step: what the weights were on the way, whichever of them are saved in the end."""
    return [
        (entry["step"], entry["loss"]) for entry in read_journal(folder / "journal.jsonl") if entry["kind"] == "step"
    ]


class StopAt(Callback):
    """A listener that asks the run to stop, as Ctrl-C does, once it has seen a step."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, entry: StepEntry) -> None:
        if entry["step"] == self.at:
            os.kill(os.getpid(), signal.SIGTERM)

    def evaluation(self, entry: EvaluationEntry) -> None:
        pass

    def message(self, text: str) -> None:
        pass


class KillAt(Callback):
    """A listener that ends the process without warning, as ``kill -9`` does, once it has seen a step."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, entry: StepEntry) -> None:
        if entry["step"] >= self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def evaluation(self, entry: EvaluationEntry) -> None:
        pass

    def message(self, text: str) -> None:
        pass


def train_in_child(
    train: str, out: str, objective: str, changes: dict[str, Any], kill_at: int | None, resume: bool, threads: int = 1
) -> None:
    """What a child process runs; the parent looks at what it leaves behind."""
    import torch

    from nearfar.encoding import cpu_parallel
    from nearfar.pipeline import train as train_recipe

    torch.set_num_threads(threads)
    if threads > 1:
        cpu_parallel.LEAST = 16  # the texts are short: each thread gets a part of them all the same
    recipe = recipe_for(Path(train), objective=objective, **changes)
    callbacks = () if kill_at is None else (KillAt(kill_at),)
    train_recipe(recipe, Path(out), resume=resume, callbacks=callbacks)
