"""The input of a report: the records of a study, or the folder of a single run with its journal."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, cast

from nearfar.data import Records
from nearfar.errors import OutputError, SettingError
from nearfar.experiments.comparisons import Comparison, ComparisonSettings, Family, compare_all
from nearfar.experiments.conditions import Conditions, conditions_of
from nearfar.experiments.records import (
    STUDY,
    DataSet,
    Plan,
    Record,
    cell_name,
    journals,
    read_journal,
    read_predictions,
    read_results,
    scores_of,
)
from nearfar.experiments.statistics import Summary, summarize
from nearfar.experiments.training_checks import Flag, doubts, flags_of
from nearfar.report.analysis import Curve, Prediction, thinned
from nearfar.report.metrics import Metric


class Conflicts(TypedDict):
    """The gradients of two tasks in some steps: steps they share, negative dot products, and the mean cosine."""

    steps: int
    conflicts: int
    cosine: float | None


class TaskLoss(TypedDict):
    """The loss of one task in a step."""

    loss: float | None


class Entry(TypedDict, total=False):
    """One line of a journal, as far as a report shows it."""

    kind: str
    stage: int
    step: int
    loss: float | None
    scores: dict[str, float]
    metric: str
    """The metric that decides which weights are kept."""
    tasks: dict[str, TaskLoss]
    surgery: dict[str, Conflicts]
    """Pairs of tasks, under PCGrad."""


Journal = list[Entry]


def read_run_journal(folder: Path) -> Journal:
    """The journal of a single run; those of several stages one after the other."""
    paths = journals(folder)
    entries: Journal = []
    for stage, path in enumerate(paths, 1):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = json.loads(line)
            except ValueError as cause:
                raise OutputError(f"{path}:{number}: this is no entry ({cause}). Remove the line.") from cause
            if len(paths) > 1:
                entry.setdefault("stage", stage)
            entries.append(entry)
    return entries


def losses(journal: Journal) -> Curve:
    """Steps and training losses."""
    return _curve((step, entry.get("loss")) for step, entry in _by_step(journal) if entry.get("kind") == "step")


def task_losses(journal: Journal, task: str) -> Curve:
    """Steps and training losses of one task."""
    entries = [(step, entry.get("tasks")) for step, entry in _by_step(journal)]
    return _curve((step, tasks[task]["loss"]) for step, tasks in entries if isinstance(tasks, dict) and task in tasks)


def dev_scores(journal: Journal, metric: str) -> Curve:
    """Steps and dev scores by a metric, or by the one that decides where that is not measured."""
    entries = [(step, entry) for step, entry in _by_step(journal) if entry.get("kind") == "evaluation"]
    scores = [(step, entry.get("scores") or {}, entry.get("metric", "")) for step, entry in entries]
    return _curve((step, known.get(metric, known.get(decides))) for step, known, decides in scores)


def total_conflicts(entries: Iterable[Entry]) -> dict[str, Conflicts]:
    """Pairs of tasks to their conflicts over all entries."""
    met: dict[str, list[Conflicts]] = {}
    for entry in entries:
        for pair, one in (entry.get("surgery") or {}).items():
            met.setdefault(pair, []).append(one)
    totals: dict[str, Conflicts] = {}
    for pair, group in met.items():
        steps, conflicts = (sum(one[key] for one in group) for key in ("steps", "conflicts"))
        cosine = sum(one["steps"] * (one["cosine"] or 0.0) for one in group) / steps if steps else None
        totals[pair] = {"steps": steps, "conflicts": conflicts, "cosine": cosine}
    return totals


def conflict_curves(journal: Journal, pair: str) -> tuple[Curve, Curve]:
    """Along the steps of two tasks: the percentage of conflicts, and the cosine of their gradients.

    In a long run each point is the mean of ten steps or more, because a single step is in conflict or is not.
    """
    entries = [(step, (entry.get("surgery") or {}).get(pair)) for step, entry in _by_step(journal)]
    met = [(step, one) for step, one in entries if one and one["steps"]]
    points = max(4, min(40, len(met) // 10))
    shares = _curve((step, 100 * one["conflicts"] / one["steps"]) for step, one in met)
    return thinned(shares, points), thinned(_curve((step, one["cosine"]) for step, one in met), points)


def _by_step(journal: Journal) -> Iterator[tuple[int, Entry]]:
    """The entries with a step, which is counted over all stages."""
    stage, before, last = None, 0, 0
    for entry in journal:
        if entry.get("stage") != stage:
            stage, before = entry.get("stage"), last
        step = entry.get("step")
        if isinstance(step, int):
            last = before + step
            yield last, entry


def _curve(points: Iterable[tuple[int, float | None]]) -> Curve:
    return [(float(x), float(y)) for x, y in points if isinstance(y, int | float)]


T = TypeVar("T")
METRICS = "metrics.json"
RUN = Record(id="run", data="train rows", limit=None, contender="", seed=0, fold=0, status="done", metric="loss")
"""A single run without any results."""


class DataCell(NamedTuple):
    """A data set in one size: one row of the tables."""

    data: str
    limit: int | None

    @property
    def name(self) -> str:
        """The data set with its size."""
        return cell_name(self.data, self.limit)


@dataclass(frozen=True)
class TaskMistake:
    """One wrong prediction in a task."""

    line: int
    texts: tuple[str, ...]
    truth: str | float
    predicted: str | float
    size: float
    """How bad it is: a probability, an error, or a distance from the threshold."""


@dataclass(frozen=True)
class TaskErrors:
    """The mistakes of a multi-task run in one task, or why they are not known."""

    task: str
    rows: str
    """Which rows, in words."""
    checked: int = 0
    """Rows that were predicted."""
    total: int = 0
    """Rows there are."""
    wrong: int | None = None
    """Wrong labels; None for scores, which are never exactly right."""
    worst: tuple[TaskMistake, ...] = ()
    """The worst mistakes first."""
    measure: str = ""
    """What their ``size`` is."""
    reason: str | None = None
    """Why there is nothing to show."""


@dataclass(frozen=True)
class Source:
    """Everything a report shows."""

    plan: Plan
    records: tuple[Record, ...]
    home: Path | None = None
    """The folder of a single run; None for a study."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """The metric of each task of a multi-task run."""
    means: Mapping[str, float] = field(default_factory=dict)
    """The mean over the tasks on the dev and test rows of a multi-task run."""
    errors: tuple[TaskErrors, ...] = ()
    """The mistakes in each task, where they were computed."""

    @property
    def single(self) -> bool:
        """Whether this is one run, and nothing is compared."""
        return self.home is not None

    @property
    def metric(self) -> Metric:
        """The metric of the study or run."""
        return Metric(self.plan.metric)

    def named(self, contender: str) -> list[str]:
        """The name of a contender, or the title of their column; nothing for a single run."""
        return [] if self.single else [contender]

    @property
    def contenders(self) -> tuple[str, ...]:
        """The baseline first, the others in the order of the plan."""
        return (self.plan.baseline, *(name for name in self.plan.contenders if name != self.plan.baseline))

    @cached_property
    def cells(self) -> tuple[DataCell, ...]:
        """Data sets in each size, in the order of the plan."""
        return tuple(DataCell(data.name, limit) for data in self.plan.data for limit in data.limits)

    @cached_property
    def done(self) -> tuple[Record, ...]:
        """The records that have a score."""
        return tuple(record for record in self.records if record.done and record.metric in record.scores)

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """Every contender against the baseline, corrected over the data sets."""
        names = {record.contender for record in self.done}
        if self.single or self.plan.baseline not in names or len(names) < 2:
            return ()
        planned: dict[str, set[tuple[int, int]]] = {}
        for cell in self.plan.cells:
            planned.setdefault(cell_name(cell.data, cell.limit), set()).add((cell.seed, cell.fold))
        settings = ComparisonSettings(better=self.metric.better)
        return compare_all(scores_of(self.done), baseline=self.plan.baseline, planned=planned, settings=settings)

    @cached_property
    def conditions(self) -> Conditions:
        """What the contenders share, and in what they differ."""
        return Conditions((), {}) if self.single else conditions_of(self.done)

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """Contenders that did not train well, and on which data."""
        return flags_of(self.done)

    def doubts(self, comparison: Comparison) -> list[str]:
        """What is known against a comparison."""
        return doubts(self.flags, comparison.data, comparison.contender, comparison.baseline)

    def with_data(self, record: Record, records: Records, *, first: bool = False) -> Source:
        """The source with one more data set, and the record on it."""
        added = (_data_set(record, file=records.source, digest=records.fingerprint()),)
        data = added + self.plan.data if first else self.plan.data + added
        kept = (record, *self.records) if first else (*self.records, record)
        return replace(self, plan=replace(self.plan, data=data), records=kept)

    def runs(self, cell: DataCell, contender: str | None = None) -> list[Record]:
        """The finished runs of a cell, by seed and fold."""
        matches = [record for record in self.done if (record.data, record.limit) == cell]
        return [record for record in matches if contender is None or record.contender == contender]

    def by_cell(self, build: Callable[[DataCell], T | None]) -> list[tuple[str, T]]:
        """What is built for each cell, with its name; cells for which nothing is built are left out."""
        return [(cell.name, made) for cell in self.cells if (made := build(cell)) is not None]

    def summary(self, cell: DataCell, contender: str) -> Summary | None:
        """Mean and standard deviation of the score; None without a finished run."""
        runs = self.runs(cell, contender)
        return summarize([record.score for record in runs]) if runs else None

    def labels(self, cell: DataCell) -> list[str]:
        """The classes of a data set over all its runs; with a small limit, runs may have different ones."""
        return list(dict.fromkeys(label for record in self.runs(cell) for label in record.labels))

    def predictions(self, cell: DataCell, contender: str) -> list[Prediction]:
        """The predicted classes of all runs; empty where no classes are predicted."""
        return [one for record in self.runs(cell, contender) for one in self.predicted(record)]

    def predicted(self, record: Record) -> list[Prediction]:
        """The predicted classes of one run."""
        if record.folder not in self._predicted:
            self._predicted[record.folder] = list(_class_predictions(read_predictions(record)))
        return self._predicted[record.folder]

    @cached_property
    def _predicted(self) -> dict[Path | None, list[Prediction]]:
        return {}

    def journals(self, cell: DataCell, contender: str) -> list[Journal]:
        """The journal of each run."""
        if self.home is not None:
            return [read_run_journal(self.home)]
        return [cast(Journal, read_journal(record)) for record in self.runs(cell, contender)]


def read_source(folder: Path) -> Source:
    """Read the folder of a study or of a single run."""
    if (folder / STUDY).is_file():
        plan, records = read_results(folder)
        if not records:
            raise OutputError(f"{folder}: no trial of the study has ended yet; run it first with 'nearfar study run'.")
        return Source(plan, tuple(records))
    if (folder / METRICS).is_file():
        return _read_run(folder)
    if not folder.is_dir():
        raise OutputError(f"{folder}: there is no such folder; give that of a study or of a trained model.")
    raise OutputError(
        f"{folder}: neither a study ({STUDY}) nor a finished run ({METRICS}) is in the folder; give the folder that "
        "'nearfar study run' or 'nearfar train --out' wrote."
    )


def merged(sources: Sequence[Source], name: str) -> Source:
    """Several studies of the same contenders, metric and baseline as one: data sets of all, corrected together."""
    first = sources[0].plan
    for other in sources[1:]:
        for what, ours, theirs in (
            ("baseline", first.baseline, other.plan.baseline),
            ("metric", first.metric, other.plan.metric),
        ):
            if ours != theirs:
                raise SettingError(
                    f"{first.name} and {other.plan.name} have different values of {what} ({ours} and {theirs}), so "
                    "they cannot be shown as one study."
                )
    plans = [source.plan for source in sources]
    plan = replace(
        first,
        name=name,
        seeds=tuple(dict.fromkeys(seed for plan in plans for seed in plan.seeds)),
        folds=max(plan.folds for plan in plans),
        data=tuple(data for plan in plans for data in plan.data),
        contenders={name: changes for plan in plans for name, changes in plan.contenders.items()},
        cells=tuple(cell for plan in plans for cell in plan.cells),
    )
    return Source(plan, tuple(record for source in sources for record in source.records))


def _read_run(folder: Path) -> Source:
    """A single run as a study of one contender, each evaluated split being a data set."""
    try:
        metrics, card = _object(folder / METRICS), _object(folder / "nearfar.json")
    except (OSError, ValueError) as cause:
        raise OutputError(f"{folder}: the run cannot be read ({cause}). Train it again.") from cause
    splits = {split: metrics[split] for split in ("test", "dev") if isinstance(metrics.get(split), dict)}
    tasks: dict[str, str] = metrics["metrics"] if isinstance(metrics.get("metrics"), dict) else {}
    metric = _metric(folder, splits)
    objective = card.get("objective") or {}
    name, kind = str(objective.get("name") or "model"), str((card.get("task") or {}).get("kind") or "classes")
    recipe = _task_settings(folder) if tasks else {"objective": objective}
    seconds = float((metrics.get("training") or {}).get("seconds") or 0.0)
    run = replace(RUN, contender=name, metric=metric, kind=kind, seconds=seconds, folder=folder, recipe=recipe)
    untrained = (metrics.get("training") or {}).get("untrained") is True
    run = replace(run, versions=card.get("versions") or {}, untrained=untrained)
    records = []
    for split, values in splits.items():
        for task, task_metric in tasks.items():
            if task in values:
                records.append(_split_record(run, f"{task}, {split} rows", values[task], task_metric))
        if not tasks:
            known = metric if metric in values else _first(values) or metric
            records.append(_split_record(run, f"{split} rows", values, known))
    records = records or [run]
    data = tuple(_data_set(record) for record in records)
    title = folder.resolve().name
    plan = Plan(
        name=title, metric=metric, baseline=name, seeds=(0,), folds=1, data=data, contenders={name: {}}, cells=()
    )
    means = {split: values["mean"] for split, values in splits.items() if tasks and "mean" in values}
    return Source(plan, tuple(records), folder, tasks, means)


def _data_set(record: Record, *, file: str = "", digest: str = "") -> DataSet:
    """The rows of a record as a data set of the plan."""
    name, rows, kind, labels = record.data, record.test, record.kind, tuple(record.labels)
    return DataSet(name=name, file=file, limits=(None,), digest=digest, rows=rows, kind=kind, labels=labels)


def _object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} is no object")
    return value


def _task_settings(folder: Path) -> dict[str, Any]:
    """The recipe of a multi-task run without its files, each task under its name."""
    try:
        values = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))
        tables = {table.pop("name"): table for table in values["task"]}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    for table in (*tables.values(), *values.get("stage", ())):
        table.pop("data", None)
    stages = {str(number): table for number, table in enumerate(values.pop("stage", ()), 1)}
    return {**values, "task": tables, **({"stage": stages} if stages else {})}


def _split_record(run: Record, name: str, values: Mapping[str, Any], metric: str) -> Record:
    """The results in metrics.json for some rows as a record."""
    per_class = {
        label: {key: value for key, value in entry.items() if key != "texts"} | {"support": entry.get("texts", 0)}
        for label, entry in (values.get("per_class") or {}).items()
    }
    confusion = values.get("confusion") or []
    scores = {key: value for key, value in values.items() if isinstance(value, float)}
    named = replace(run, id=name, data=name, metric=metric, scores=scores, per_class=per_class)
    return replace(named, labels=values.get("classes") or [], confusion=confusion, test=sum(map(sum, confusion)))


def _metric(folder: Path, splits: Mapping[str, Mapping[str, Any]]) -> str:
    """The metric that chose the weights; without dev rows, the first score there is."""
    entries = [entry for entry in read_run_journal(folder) if entry.get("kind") == "evaluation"]
    chosen = [entry["metric"] for entry in entries if entry.get("metric")]
    firsts = (_first(values) for values in splits.values())
    return next(iter(chosen), None) or next((name for name in firsts if name), "loss")


def _first(scores: Mapping[str, Any]) -> str | None:
    """The usual score of some rows, or the first that they have; dev and test rows may be of different types."""
    return next((name for name in ("f1_weighted", "spearman", *scores) if isinstance(scores.get(name), float)), None)


def _class_predictions(entries: list[dict[str, Any]]) -> Iterator[Prediction]:
    for entry in entries:
        label, predicted = entry.get("label"), entry.get("predicted")
        if isinstance(label, str) and isinstance(predicted, str):
            text = entry.get("text") or " ⟷ ".join(str(entry[key]) for key in ("text_a", "text_b") if key in entry)
            probabilities, typicality = entry.get("probabilities") or {}, entry.get("typicality")
            yield Prediction(int(entry["row"]), str(text), label, predicted, probabilities, typicality)
