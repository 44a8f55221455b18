"""The journal: one JSON object a line, kept consistent with the checkpoint a run resumes from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nearfar.files import write_errors
from nearfar.training.contracts import StepEntry


class Journal:
    """Appends entries to ``journal.jsonl``; a process that is not to write one gets ``path=None``."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def write(self, entry: Mapping[str, object]) -> None:
        """One line more; numbers that are not finite become null, so that every reader takes them."""
        if self.path is None:
            return
        with write_errors(self.path, "the journal"), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_plain(entry), ensure_ascii=False) + "\n")

    def size(self) -> int:
        """How many bytes it has now: a checkpoint stores this."""
        if self.path is None:
            return 0
        return self.path.stat().st_size

    def rewind(self, size: int) -> None:
        """Cut off what was written after a checkpoint, so that a resumed run writes it again and not twice."""
        if self.path is not None:
            os.truncate(self.path, min(size, self.size()))


def read_journal(path: Path) -> list[dict[str, Any]]:
    """All whole entries; a last line cut short by a kill is left out."""
    entries = []
    for line in path.read_bytes().split(b"\n"):
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return entries


def tracker_values(entry: StepEntry) -> dict[str, float]:
    """A step as trackers take it."""
    values: dict[str, dict[str, float]] = {
        "parts": entry["parts"],
        "temperatures": entry.get("temperatures", {}),
        "masked": {name: float(count) for name, count in entry.get("masked", {}).items()},
        "tasks": {name: task["loss"] for name, task in entry.get("tasks", {}).items()},
        "cosine": {pair: each["cosine"] or 0.0 for pair, each in entry.get("surgery", {}).items() if each["steps"]},
        "task_weight": entry.get("task_weights", {}),
        "learning_rate": entry["learning_rates"],
    }
    flat: dict[str, float] = {
        "train/loss": entry["loss"],
        "train/gradient_norm": entry["gradient_norm"],
        "train/texts_per_second": entry["texts_per_second"],
        "train/epoch": entry["epoch"],
    }
    return flat | {f"train/{kind}/{name}": value for kind, named in values.items() for name, value in named.items()}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            return None
        return float(f"{value:.7g}")
    return value
