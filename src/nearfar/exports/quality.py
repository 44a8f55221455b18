"""What an export costs: size, speed, and how far vectors and labels are from those of the model it was made of."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding.model import Model
from nearfar.encoding.task_model import TaskModel
from nearfar.exports.onnx_model import OnnxModel

TEXTS = 500
"""Rows that are compared at most."""
REPEATS = 20
LIMITS = {"fp32": 1e-4, "int8": 1e-2}
"""The largest mean 1 - cosine of vectors, by precision."""
POINTS = 1.0
"""How many percentage points of labels may change, and of accuracy may be lost."""
Rows = Sequence[Any]


@dataclass(frozen=True)
class Side:
    """One of the two models."""

    megabytes: float
    texts_per_second: float
    milliseconds: float
    """Of one text, the median."""
    accuracy: float | None
    """In percent; None without labeled rows."""


@dataclass(frozen=True)
class Quality:
    """An export beside the model it was made of."""

    before: Side
    after: Side
    distance: float
    """The mean of 1 - cosine over the texts."""
    changed: float | None
    """The share of labels that are others, in percent; None without a class head."""
    texts: int
    limit: float

    @property
    def problem(self) -> str | None:
        """Why the export is not good enough; None where it is."""
        if not self.distance <= self.limit:  # NaN is not good enough either
            return f"the mean 1 - cosine of its vectors is {self.distance:.2g}, and the limit is {self.limit:.2g}"
        if self.before.accuracy is not None and self.after.accuracy is not None:
            lost = self.before.accuracy - self.after.accuracy
            if lost > POINTS:
                return f"it loses {lost:.1f} points of accuracy, and the limit is {POINTS:.1f}"
        elif self.changed is not None and self.changed > POINTS:
            return f"{self.changed:.1f} % of its labels are others, and the limit is {POINTS:.1f} %"
        return None


def compare(model: Model, exported: OnnxModel, rows: Rows, labels: Sequence[str] | None = None) -> Quality:
    """The export of a plain model beside it, on texts or pairs, with their labels where there are some."""
    chosen = rows[:TEXTS]
    one, other = model.embed(chosen), exported.embed(chosen)
    classes = model.labels is not None and not model.multilabel
    before = np.array([prediction.label for prediction in model.predict(chosen)]) if classes else None
    after = exported.predict(chosen).astype(str) if classes else None
    if after is not None and exported.card.heads[0].label_type == "bool":
        after = np.char.lower(after)
    truth = None if labels is None or before is None else np.array(list(labels[:TEXTS]))
    use: tuple[Callable[[Rows], Any], ...] = (model.embed, exported.embed)
    if model.labels is not None:
        use = (model.predict, exported.predict)
    folder = model.folder
    sizes = (
        0 if folder is None else _size(folder, ("model.safetensors", "nearfar.safetensors", "tokenizer.json")),
        _size(exported.path.parent, (exported.path.name, "tokenizer.json")),
    )
    sides = [
        Side(size / 1e6, *_speed(answer, chosen), None if truth is None else 100 * float(np.mean(found == truth)))
        for size, answer, found in zip(sizes, use, (before, after), strict=True)
    ]
    changed = None if before is None else 100 * float((before != after).mean())
    return Quality(sides[0], sides[1], _distance(one, other), changed, len(chosen), LIMITS[exported.card.precision])


def compare_tasks(tasks: TaskModel, exported: OnnxModel, rows: Rows) -> float:
    """The largest difference of any output of any task, on single texts or on each text with the next one."""
    worst = 0.0
    texts = list(rows[:TEXTS])
    shifted = [*texts[1:], *texts[:1]]
    for card in tasks.tasks.values():
        columns = [texts] if card.reads == "texts" else [texts, shifted]
        ours = tasks.outputs(card.name, columns)
        given = texts if card.reads == "texts" else list(zip(*columns, strict=True))
        theirs = exported.outputs(given, task=card.name)
        worst = max(worst, float(np.abs(ours - theirs).max(initial=0.0)))
    return worst


def _distance(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines = (one * other).sum(axis=1) / np.maximum(norms, 1e-12)
    return float(max(0.0, 1 - cosines.mean())) if len(cosines) else 0.0


def _speed(use: Callable[[Rows], Any], rows: Rows) -> tuple[float, float]:
    """Texts per second, and the milliseconds of one text."""
    began = time.perf_counter()
    use(rows)
    seconds = time.perf_counter() - began
    single = []
    for place in range(REPEATS):
        start = time.perf_counter()
        use(rows[place % len(rows) : place % len(rows) + 1])
        single.append(time.perf_counter() - start)
    return len(rows) / max(seconds, 1e-9), 1_000 * statistics.median(single)


def _size(folder: Path, names: Sequence[str]) -> int:
    return sum((folder / name).stat().st_size for name in names if (folder / name).is_file())
