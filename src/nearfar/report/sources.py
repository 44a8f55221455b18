"""What a report is made of: the records of a study, or what a single run left in its folder."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nearfar.errors import OutputError
from nearfar.experiments.records import (
    STUDY,
    DataSet,
    Plan,
    Record,
    cell_name,
    journals,
    read_journal,
    read_plan,
    read_predictions,
    read_records,
    scores_of,
)
from nearfar.experiments.statistics import Better, Family, Summary, compare_all, summarize
from nearfar.report.analysis import Prediction

METRICS = "metrics.json"

NAMES = {
    "f1_weighted": "weighted F1", "f1_macro": "macro F1", "f1": "F1", "spearman": "Spearman’s ρ",
    "pearson": "Pearson’s r", "mse": "mean squared error", "map": "MAP", "mrr": "MRR",
    "average_precision": "average precision", "mean": "mean over the tasks",
}  # fmt: skip
"""How people write metrics; others stand as they are."""

PLAIN = ("mse", "margin", "loss")
"""Metrics that are not multiplied by 100."""

LOWER = ("mse", "loss")
"""Metrics that are better the lower they are."""


@dataclass(frozen=True)
class TaskErrors:
    """What a run on several tasks got wrong in one of them, or why that is not known."""

    task: str
    rows: str
    """Which rows, as people say it."""
    seen: int = 0
    """How many were looked at."""
    total: int = 0
    """How many there are."""
    wrong: int | None = None
    """How many labels are wrong; None for scores, of which none is quite right."""
    worst: tuple[Mapping[str, Any], ...] = ()
    """The most confident mistakes: ``line``, ``texts``, ``truth``, ``said``, and ``sure``."""
    sure: str = ""
    """What ``sure`` is."""
    why: str | None = None
    """Why there is nothing to show."""


@dataclass(frozen=True)
class Source:
    """All a report can show."""

    plan: Plan
    records: tuple[Record, ...]
    home: Path | None = None
    """The folder of a single run; None for a study."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """The metric of each task, of a run on several."""
    means: Mapping[str, float] = field(default_factory=dict)
    """The mean over the tasks on the dev and test rows, of a run on several."""
    errors: tuple[TaskErrors, ...] = ()
    """The mistakes in each task, where somebody looked."""

    @property
    def single(self) -> bool:
        """Whether this is one run, and nothing is compared."""
        return self.home is not None

    @property
    def metric(self) -> str:
        """The metric as people write it."""
        return written(self.plan.metric)

    @property
    def scale(self) -> float:
        """What scores are multiplied by on the page."""
        return scale_of(self.plan.metric)

    @property
    def unit(self) -> str:
        """The metric with its factor, for axes and captions."""
        return unit(self.plan.metric)

    @property
    def better(self) -> Better:
        """Which scores are better."""
        return "lower" if self.plan.metric in LOWER else "higher"

    @property
    def contenders(self) -> tuple[str, ...]:
        """The baseline first, the others in their order."""
        return (self.plan.baseline, *(name for name in self.plan.contenders if name != self.plan.baseline))

    @cached_property
    def cells(self) -> tuple[tuple[str, int | None], ...]:
        """Data sets with their sizes, in the order of the plan."""
        return tuple((data.name, limit) for data in self.plan.data for limit in data.limits)

    @cached_property
    def done(self) -> tuple[Record, ...]:
        """The records that have a score."""
        return tuple(record for record in self.records if record.done and record.metric in record.scores)

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Every contender beside the baseline, corrected over the data sets."""
        scores = scores_of(self.done)
        if self.single or not any(record.contender == self.plan.baseline for record in self.done):
            return ()
        if len({record.contender for record in self.done}) < 2:
            return ()
        planned: dict[str, set[tuple[int, int]]] = {}
        for cell in self.plan.cells:
            planned.setdefault(cell_name(cell.data, cell.limit), set()).add((cell.seed, cell.fold))
        return compare_all(scores, baseline=self.plan.baseline, planned=planned, better=self.better)

    def of(self, cell: tuple[str, int | None], contender: str | None = None) -> list[Record]:
        """The finished runs of a cell, by seed and fold."""
        found = [record for record in self.done if (record.data, record.limit) == cell]
        return [record for record in found if contender is None or record.contender == contender]

    def summary(self, cell: tuple[str, int | None], contender: str) -> Summary | None:
        """Mean and deviation of the score; None without a finished run."""
        runs = self.of(cell, contender)
        return summarize([record.score for record in runs]) if runs else None

    def kind(self, cell: tuple[str, int | None]) -> str:
        """What the rows of a data set are."""
        return next(data.kind for data in self.plan.data if data.name == cell[0])

    def labels(self, cell: tuple[str, int | None]) -> list[str]:
        """The classes of a data set, as its runs have them; a small limit may leave out others for another seed."""
        return list(dict.fromkeys(label for record in self.of(cell) for label in record.labels))

    def predictions(self, cell: tuple[str, int | None], contender: str) -> list[Prediction]:
        """The predicted classes of all runs; none where they have none, or predict something else."""
        return [one for record in self.of(cell, contender) for one in self.predicted(record)]

    def predicted(self, record: Record) -> list[Prediction]:
        """The predicted classes of one run."""
        if record.folder not in self._seen:
            self._seen[record.folder] = list(_classes(read_predictions(record)))
        return self._seen[record.folder]

    @cached_property
    def _seen(self) -> dict[Path | None, list[Prediction]]:
        return {}

    def journals(self, cell: tuple[str, int | None], contender: str) -> list[list[dict[str, Any]]]:
        """What each run wrote down step by step."""
        if self.home is not None:
            return [_run_journal(self.home)]
        return [read_journal(record) for record in self.of(cell, contender)]


def written(metric: str) -> str:
    """A metric as people write it.

    >>> written("f1_weighted"), written("has_positive@5")
    ('weighted F1', 'has positive@5')
    """
    return NAMES.get(metric, metric.replace("_", " "))


def scale_of(metric: str) -> float:
    """What scores of a metric are multiplied by on the page."""
    return 1.0 if metric in PLAIN else 100.0


def unit(metric: str) -> str:
    """A metric with its factor.

    >>> unit("accuracy"), unit("mse")
    ('accuracy × 100', 'mean squared error')
    """
    return written(metric) if scale_of(metric) == 1 else f"{written(metric)} × 100"


def read_source(folder: Path) -> Source:
    """A study's folder, or the folder of a single run."""
    if (folder / STUDY).is_file():
        plan, records = read_plan(folder), read_records(folder)
        if not records:
            raise OutputError(f"{folder}: no trial of the study has ended yet; run it first with 'nearfar study run'.")
        return Source(plan, tuple(records))
    if (folder / METRICS).is_file():
        return _run(folder)
    if not folder.is_dir():
        raise OutputError(f"{folder}: there is no such folder; give that of a study or of a trained model.")
    raise OutputError(
        f"{folder}: neither a study ({STUDY}) nor a finished run ({METRICS}) is in the folder; give the folder that "
        "'nearfar study run' or 'nearfar train --out' wrote."
    )


def _run(folder: Path) -> Source:
    """A single run as a study of one contender, each measured split being a data set."""
    try:
        metrics, card = _object(folder / METRICS), _object(folder / "nearfar.json")
    except (OSError, ValueError) as cause:
        raise OutputError(f"{folder}: the run cannot be read ({cause}). Train it again.") from cause
    metric = _metric(folder, metrics)
    name = str((card.get("objective") or {}).get("name") or "model")
    kind = str((card.get("task") or {}).get("kind") or "classes")
    several = metrics.get("metrics")
    tasks: dict[str, str] = several if isinstance(several, dict) else {}
    splits = [split for split in ("test", "dev") if isinstance(metrics.get(split), dict)]
    spent = float((metrics.get("training") or {}).get("seconds") or 0.0)
    shared = Record(
        id="run", data="train rows", limit=None, contender=name, seed=0, fold=0, status="done", metric=metric,
        kind=kind, versions=card.get("versions") or {}, seconds=spent, folder=folder,
        recipe=_task_settings(folder) if tasks else {"objective": card.get("objective") or {}},
    )  # fmt: skip
    measured = [
        (f"{split} rows", metrics[split], metric if metric in metrics[split] else _first(metrics[split]) or metric)
        if not tasks
        else (f"{task}, {split} rows", metrics[split][task], own)
        for split in splits
        for task, own in (tasks or {"": metric}).items()
        if not tasks or task in metrics[split]
    ]
    records = tuple(_measured(shared, *entry) for entry in measured) or (shared,)
    plan = Plan(
        name=folder.resolve().name, metric=metric, baseline=name, seeds=(0,), folds=1,
        data=tuple(
            DataSet(name=record.data, file="", limits=(None,), digest="", rows=record.test, kind=record.kind,
                    labels=tuple(record.labels))
            for record in records
        ),
        contenders={name: {}}, cells=(),
    )  # fmt: skip
    means = {split: metrics[split]["mean"] for split in splits if tasks and "mean" in metrics[split]}
    return Source(plan, records, folder, tasks, means)


def _object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is no object")
    return value


def _task_settings(folder: Path) -> dict[str, Any]:
    """What the recipe of a run on several tasks says, but for the files: each task under its name."""
    try:
        values = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))
        tables = {table.pop("name"): table for table in values["task"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    for table in (*tables.values(), *values.get("stage", ())):
        table.pop("data", None)
    stages = {str(number): table for number, table in enumerate(values.pop("stage", ()), 1)}
    return {**values, "task": tables, **({"stage": stages} if stages else {})}


def _measured(shared: Record, name: str, values: dict[str, Any], metric: str) -> Record:
    """What metrics.json says of some rows, as a record."""
    per_class = {
        label: {key: value for key, value in entry.items() if key != "texts"} | {"support": entry.get("texts", 0)}
        for label, entry in (values.get("per_class") or {}).items()
    }
    confusion = values.get("confusion") or []
    return replace(
        shared, id=name, data=name, metric=metric, per_class=per_class, labels=values.get("classes") or [],
        confusion=confusion, scores={key: value for key, value in values.items() if isinstance(value, float)},
        test=sum(map(sum, confusion)),
    )  # fmt: skip


def _metric(folder: Path, metrics: dict[str, Any]) -> str:
    """What the run was chosen by; without dev rows, the first score there is."""
    for entry in _run_journal(folder):
        if entry.get("kind") == "evaluation" and entry.get("metric"):
            return str(entry["metric"])
    return _first(metrics.get("test") or {}) or _first(metrics.get("dev") or {}) or "loss"


def _first(scores: Mapping[str, Any]) -> str | None:
    """The usual score of some rows, or the first that they have; dev and test rows need not be of one kind."""
    return next((name for name in ("f1_weighted", "spearman", *scores) if isinstance(scores.get(name), float)), None)


def _run_journal(folder: Path) -> list[dict[str, Any]]:
    """The journal of a run; of several stages one after the other, each entry with its stage."""
    paths = journals(folder)
    staged = len(paths) > 1
    found = []
    for stage, path in enumerate(paths, 1):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
            except ValueError as cause:
                raise OutputError(f"{path}:{number}: this is no entry ({cause}). Remove the line.") from cause
            found.append({"stage": stage, **entry} if staged else entry)
    return found


def _classes(entries: list[dict[str, Any]]) -> Iterator[Prediction]:
    for entry in entries:
        if isinstance(entry.get("predicted"), str) and isinstance(entry.get("label"), str):
            text = entry.get("text") or " ⟷ ".join(str(entry[key]) for key in ("text_a", "text_b") if key in entry)
            yield Prediction(
                int(entry["row"]), str(text), entry["label"], entry["predicted"], entry.get("probabilities") or {}
            )
