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
from nearfar.exports.exported_model import ExportedModel

TEXTS = 500
"""Rows that are compared at most."""
SIMILAR = 200
"""Rows whose similarities are compared at most."""
REPEATS = 20
Rows = Sequence[Any]


@dataclass(frozen=True)
class Limits:
    """What is good enough; an export that is worse is not kept."""

    distance: float
    """Of vectors, at most."""
    points: float
    """Percentage points of accuracy that may be lost."""
    changed: float
    """Labels that may change, in percent, where there is no accuracy to compare."""


LIMITS = {"fp32": Limits(1e-4, 1, 1), "int8": Limits(1e-2, 1, 1), "static": Limits(0.5, 10, 25)}


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
    """The mean of 1 - cosine over the texts; of static vectors, 1 - correlation of the similarities of texts."""
    changed: float | None
    """The share of labels that change, in percent; None without a class head."""
    texts: int
    kind: str

    @property
    def limits(self) -> Limits:
        """What is good enough for an export of this kind."""
        return LIMITS[self.kind]

    @property
    def problem(self) -> str | None:
        """Why the export is not good enough; None where it is."""
        limits, static = self.limits, self.kind == "static"
        if not self.distance <= limits.distance and not (static and self.changed is not None):  # NaN is refused, too
            what = "1 - correlation of its similarities" if static else "mean 1 - cosine of its vectors"
            return f"the {what} is {self.distance:.2g}, and the limit is {limits.distance:.2g}"
        if self.before.accuracy is not None and self.after.accuracy is not None:
            lost = self.before.accuracy - self.after.accuracy
            if lost > limits.points:
                return f"it loses {lost:.1f} points of accuracy, and the limit is {limits.points:.1f}"
        elif self.changed is not None and self.changed > limits.changed:
            return f"{self.changed:.1f} % of the labels change, and the limit is {limits.changed:.1f} %"
        return None


@dataclass(frozen=True)
class _Subject:
    """What is asked of both models."""

    embed: Callable[[Rows], NDArray[np.float32]]
    labels: Callable[[Rows], list[str]] | None
    """The answer for each row, as a name; None for models without classes."""
    use: Callable[[Rows], Any]
    """What the speed is measured of."""
    bytes: int


def compare(
    model: Model,
    exported: ExportedModel | Model,
    rows: Rows,
    labels: Sequence[str] | None = None,
    *,
    answers: Sequence[str] | None = None,
) -> Quality:
    """The export of a plain model beside it, on texts or pairs, with their labels where there are some.

    ``answers`` are taken for the labels that the export predicts, where it has seen the rows and others are fairer.
    """
    chosen = rows[:TEXTS]
    subjects = (_of_model(model), _of_model(exported) if isinstance(exported, Model) else _of_export(exported))
    kind = "fp32" if isinstance(exported, Model) else exported.kind
    named = [None if one.labels is None else np.array(one.labels(chosen)) for one in subjects]
    if answers is not None:
        named[1] = np.array(list(answers[:TEXTS]))
    before, after = named
    truth = None if labels is None or before is None else np.array(list(labels[:TEXTS]))
    sides = [
        Side(one.bytes / 1e6, *_speed(one.use, chosen), None if truth is None else 100 * float(np.mean(said == truth)))
        for one, said in zip(subjects, named, strict=True)
    ]
    vectors = [one.embed(chosen) for one in subjects]
    changed = None if before is None or after is None else 100 * float((before != after).mean())
    distance = _unlike(*vectors) if kind == "static" else _distance(*vectors)
    return Quality(sides[0], sides[1], distance, changed, len(chosen), kind)


def _of_model(model: Model) -> _Subject:
    predicts = model.labels is not None or model.predicts_scores

    def labels(rows: Rows) -> list[str]:
        return [one.label or _joined(one.labels or ()) for one in model.predict(rows)]

    names = ("model.safetensors", "nearfar.safetensors", "tokenizer.json")
    size = 0 if model.folder is None else sum(_size(model.folder / name) for name in names)
    return _Subject(model.embed, labels if model.labels else None, model.predict if predicts else model.embed, size)


def _of_export(model: ExportedModel) -> _Subject:
    head = model.card.heads[0] if len(model.card.heads) == 1 and not model.card.heads[0].name else None

    def labels(rows: Rows) -> list[str]:
        found = model.predict(rows)
        if head is not None and head.kind == "multilabel":
            return [_joined(map(_name, one)) for one in found]
        return [_name(one) for one in found.tolist()]

    size = sum(_size(path) for path in model.path.parent.iterdir())
    return _Subject(model.embed, labels if model.labels else None, model.embed if head is None else model.predict, size)


def _name(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


def _joined(labels: Any) -> str:
    return ", ".join(sorted(labels))


def compare_tasks(tasks: TaskModel, exported: ExportedModel, rows: Rows) -> float:
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


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return np.asarray(vectors / lengths, dtype=np.float32)


def _distance(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    cosines = (_unit(one) * _unit(other)).sum(axis=1)
    return float(max(0.0, 1 - cosines.mean())) if len(cosines) else 0.0


def _unlike(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """1 - the correlation of the cosines of all pairs of texts: for vectors of different spaces."""
    pairs = np.triu_indices(min(len(one), SIMILAR), k=1)
    cosines = [(_unit(vectors[:SIMILAR]) @ _unit(vectors[:SIMILAR]).T)[pairs] for vectors in (one, other)]
    if len(cosines[0]) < 2 or min(float(np.std(values)) for values in cosines) < 1e-9:
        return 0.0
    first, second = cosines
    return float(1 - np.corrcoef(first, second)[0, 1])


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


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
