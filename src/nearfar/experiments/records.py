"""What a study leaves behind: one folder for each trial, there whole or not at all."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import OutputError, counted
from nearfar.files import flush_tree, new_mode

Setting: TypeAlias = str | int | float | bool | dict[str, float]
Settings: TypeAlias = dict[str, Setting]
"""Dotted recipe keys to values."""
Files: TypeAlias = dict[str, bytes]
"""What a trial keeps beside its record, by the names of the files."""


class SearchPoint(TypedDict):
    """Settings that a search tried."""

    settings: Settings
    scores: list[float]
    """Of the inner folds, or of the evaluations on the dev rows."""
    status: Literal["done", "pruned", "failed"]
    reason: NotRequired[str]
    """Why it failed."""


class Histogram(TypedDict):
    """How often cosines lie between two edges."""

    edges: list[float]
    positive: list[int]
    random: list[int]


class Space(TypedDict):
    """What pictures of an embedding space need."""

    histogram: Histogram
    layers: list[float | None]
    """The anisotropy behind each layer."""
    texts: int
    positives: int
    """Positive pairs that were measured."""


FORMAT = 1
STUDY = "study.json"
TRIALS = "trials"
RECORD = "record.json"
PREDICTIONS = "predictions.jsonl"
JOURNAL = "journal.jsonl"
MAP = "map.safetensors"
MEASURED = ("seconds", "cpu_seconds", "peak_mb")
"""Fields that differ from run to run; everything else follows from the trial."""

Status = Literal["done", "failed"]
Runs: TypeAlias = Literal["all", "best"]


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """The texts of a study, as they were found."""

    name: str
    file: str
    limits: tuple[int | None, ...]
    """How many rows are drawn; None for all."""
    digest: str
    """Of the rows, wherever they are stored."""
    rows: int
    kind: str
    """``classes``, ``scores``, ``pairs``, ``ranking``, ``triplets``, ``positives`` or ``plain``."""
    labels: tuple[str, ...] = ()
    test: str | None = None
    """The file with the official test rows, or those with scored pairs, in place of folds."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A place in the table of a study, and the trial that fills it."""

    id: str
    data: str
    limit: int | None
    contender: str
    seed: int
    fold: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A study with nothing left open."""

    name: str
    metric: str
    baseline: str
    seeds: tuple[int, ...]
    folds: int
    data: tuple[DataSet, ...]
    contenders: dict[str, dict[str, Any]]
    """What each says beyond the shared recipe, by its name."""
    cells: tuple[Cell, ...]
    runs: Runs = "all"
    """Which runs count, as ``study.runs`` has it."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One trial: a contender on one fold of a data set, with one seed."""

    id: str
    data: str
    limit: int | None
    contender: str
    seed: int
    fold: int
    status: Status
    metric: str
    kind: str = "classes"
    """What the rows are, as in :class:`DataSet`."""
    settings: Settings = field(default_factory=dict)
    """What the search chose; empty without a search."""
    searched: list[SearchPoint] = field(default_factory=list)
    """The points of the search, in order."""
    reason: str | None = None
    """Why a trial failed."""
    scores: dict[str, float] = field(default_factory=dict)
    dev: dict[str, float] = field(default_factory=dict)
    """Scores on the dev rows; empty without any."""
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)
    """Label to ``precision``, ``recall``, ``f1`` and ``support``."""
    labels: list[str] = field(default_factory=list)
    confusion: list[list[int]] = field(default_factory=list)
    """Rows are the truth, columns the prediction, in the order of ``labels``."""
    geometry: dict[str, dict[str, float]] = field(default_factory=dict)
    """``before`` and ``after`` training: ``alignment``, ``uniformity``, ``anisotropy`` and ``effective_rank`` of the
    test texts."""
    space: dict[str, Space] = field(default_factory=dict)
    """``before`` and ``after`` training, where scored pairs are the test."""
    before: dict[str, float] = field(default_factory=dict)
    """The scores of the pretrained encoder, where scored pairs are the test."""
    untrained: bool = False
    """Whether the weights from before training were kept, since no later ones were better on the dev rows."""
    texts: int = 0
    """Rows that were trained on."""
    test: int = 0
    """Rows that were tested on."""
    notes: list[str] = field(default_factory=list)
    recipe: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    threads: int = 0
    """With another number of threads sums are taken in another order, and differ in their last digits."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0
    format: int = FORMAT
    folder: Path | None = field(default=None, compare=False)
    """Where it was read from."""

    @property
    def done(self) -> bool:
        """Whether there are scores."""
        return self.status == "done"

    @property
    def score(self) -> float:
        """The score of the study's metric."""
        return self.scores[self.metric]

    @property
    def cell(self) -> str:
        """The data set with its size, as tables have it."""
        return cell_name(self.data, self.limit)

    def path(self, name: str) -> Path:
        """A file of the trial."""
        assert self.folder is not None, "this record was not read from a study"
        return self.folder / name


def cell_name(data: str, limit: int | None) -> str:
    """A data set with its size.

    >>> cell_name("trec", 1000), cell_name("trec", None)
    ('trec 1,000', 'trec')
    """
    return data if limit is None else f"{data} {limit:,}"


def best_by_dev(records: Iterable[Record]) -> list[Record]:
    """Of the runs of a contender on a fold, one for each seed, the finished one with the best dev score.

    Of equal ones it is the first, as it is where there are no dev scores.

    >>> one = Record(id="a", data="x", limit=None, contender="c", seed=2, fold=0, status="done", metric="map",
    ...              scores={"map": 0.9}, dev={"map": 0.5})
    >>> [each.seed for each in best_by_dev([one, replace(one, seed=3, scores={"map": 0.4}, dev={"map": 0.6})])]
    [3]
    """
    best: dict[tuple[str, str, int], Record] = {}
    for record in records:
        key = (record.cell, record.contender, record.fold)
        other = best.get(key)
        if record.done and (other is None or _dev_score(record) > _dev_score(other)):
            best[key] = record
    return list(best.values())


def _dev_score(record: Record) -> float:
    return record.dev.get(record.metric, -math.inf)


def read_results(study: Path) -> tuple[Plan, list[Record]]:
    """The plan of a study and the records that count: all, or of each fold the best run by its dev score.

    The best runs of contenders are compared with each other, so they all go by the first seed.
    """
    plan, records = read_plan(study), read_records(study)
    if plan.runs == "all":
        return plan, records
    first = plan.seeds[0]
    cells = tuple(cell for cell in plan.cells if cell.seed == first)
    return replace(plan, seeds=(first,), cells=cells), [replace(each, seed=first) for each in best_by_dev(records)]


def scores_of(records: Iterable[Record], metric: str | None = None) -> dict[tuple[str, str, int, int], float]:
    """Scores of finished trials, as :mod:`nearfar.experiments.statistics` takes them; by the study's metric if None.

    >>> one = Record(id="a", data="trec", limit=20, contender="ce", seed=2, fold=0, status="done", metric="accuracy",
    ...              scores={"accuracy": 0.5})
    >>> scores_of([one])
    {('trec 20', 'ce', 2, 0): 0.5}
    """
    return {
        (record.cell, record.contender, record.seed, record.fold): record.scores[metric or record.metric]
        for record in records
        if record.done and (metric or record.metric) in record.scores
    }


def untrained_notes(records: Iterable[Record]) -> list[str]:
    """For each contender on a data set, in how many trials training was undone; none where it never was.

    >>> one = Record(id="a", data="stsb", limit=None, contender="BSC", seed=2, fold=0, status="done", metric="f1",
    ...              untrained=True)
    >>> untrained_notes([one, replace(one, seed=16, untrained=False)])
    ['BSC on stsb: the untrained encoder was kept in 1 of 2 trials, being the best on the dev rows (seed 2, fold 0).']
    """
    runs: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.done:
            runs.setdefault((record.contender, record.cell), []).append(record)
    notes = []
    for (contender, cell), trials in runs.items():
        kept = [f"seed {trial.seed}, fold {trial.fold}" for trial in trials if trial.untrained]
        if kept:
            where = "" if len(kept) == len(trials) or len(kept) > 6 else f" ({'; '.join(kept)})"
            notes.append(
                f"{contender} on {cell}: the untrained encoder was kept in {len(kept)} of "
                f"{counted(len(trials), 'trial')}, being the best on the dev rows{where}."
            )
    return notes


def set_scores(record: Record) -> dict[str, float]:
    """The score of each set of scored pairs that a trial was tested on; none where rows of its own were.

    >>> one = Record(id="a", data="words", limit=None, contender="simcse", seed=2, fold=0, status="done",
    ...              metric="spearman", scores={"spearman": 0.5, "stsb/spearman": 0.5})
    >>> set_scores(one)
    {'stsb': 0.5}
    """
    ending = f"/{record.metric}"
    return {name.removesuffix(ending): score for name, score in record.scores.items() if name.endswith(ending)}


def write_record(study: Path, record: Record, files: Mapping[str, bytes]) -> bool:
    """Put a trial into the study; False, and nothing changes, where it has a finished one already.

    The files are written aside and the folder is moved in when it is complete.
    """
    trials = study / TRIALS
    target = trials / record.id
    trials.mkdir(parents=True, exist_ok=True)
    if is_done(study, record.id):
        return False
    aside = Path(tempfile.mkdtemp(dir=trials, prefix=f".{record.id}-"))
    try:
        values = {name: value for name, value in asdict(record).items() if name != "folder"}
        text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        for name, content in {**files, RECORD: text.encode()}.items():
            (aside / name).write_bytes(content)
        flush_tree(aside)
        os.chmod(aside, new_mode(folder=True))  # a temporary one is for its owner alone
        if target.exists():  # a failed one
            failed = trials / f".{record.id}-failed"
            shutil.rmtree(failed, ignore_errors=True)
            os.replace(target, failed)
            shutil.rmtree(failed)
        try:
            os.rename(aside, target)
        except OSError:
            if is_done(study, record.id):
                return False
            raise
    except OSError as cause:
        raise OutputError(f"{target}: the record cannot be written: {cause.strerror}. Make room, and go on.") from cause
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return True


def clear_leftovers(study: Path) -> None:
    """Remove what processes that were killed had begun to write."""
    if (study / TRIALS).is_dir():
        for path in (study / TRIALS).glob(".*"):
            shutil.rmtree(path, ignore_errors=True)


def has_records(study: Path) -> bool:
    """Whether there are trials in a folder, also where nothing says any more of which study they are."""
    return any((study / TRIALS).glob(f"*/{RECORD}"))


def is_done(study: Path, name: str) -> bool:
    """Whether a trial has finished with scores."""
    return (record := find_record(study, name)) is not None and record.done


def find_record(study: Path, name: str) -> Record | None:
    """The record of a trial, finished or failed; None where there is none."""
    folder = study / TRIALS / name
    if not (folder / RECORD).is_file():
        return None
    values = _json(folder / RECORD)
    known = {entry.name for entry in fields(Record)}
    if values.get("format") != FORMAT:
        raise OutputError(f"{folder / RECORD}: format {values.get('format')!r} is not {FORMAT}; use the nearfar of it.")
    try:
        record = Record(**{name: value for name, value in values.items() if name in known}, folder=folder)
        fault = _fault(record) if record.done else None
    except TypeError as cause:
        fault = str(cause)
    if fault is not None:
        raise OutputError(
            f"{folder / RECORD}: this is no record of a trial ({fault}). Remove the folder, and run the study again."
        )
    return record


def _fault(record: Record) -> str | None:
    """What a finished trial lacks, if somebody else than nearfar has written it."""
    scores: Any = record.scores
    if not isinstance(scores, dict):
        return f"scores is {scores!r}"
    for name, score in scores.items():
        if not (isinstance(score, int | float) and math.isfinite(score)):
            return f"the score {name} is {score!r}"
    return None if record.metric in scores else f"there is no score {record.metric}"


def read_records(study: Path) -> list[Record]:
    """The trials of the study as it is planned now, one for each cell that has one, finished or failed, in order.

    Contenders that share a trial each have it under their own name.
    """
    plan = read_plan(study)
    records = {name: find_record(study, name) for name in {cell.id for cell in plan.cells}}
    cells = ((cell, records[cell.id]) for cell in plan.cells)
    return [replace(record, **asdict(cell), metric=plan.metric) for cell, record in cells if record is not None]


def read_predictions(record: Record) -> list[dict[str, Any]]:
    """One entry for each test row, where something is predicted for single rows.

    ``row`` (from 0, among the usable rows of the data file), ``text`` or ``text_a`` and ``text_b``, then ``label``,
    ``predicted`` and ``probabilities`` by label for classes; ``label`` or ``score`` and ``predicted``, the cosine, for
    pairs; for triplets ``anchor``, ``positive``, ``negative`` and both cosines. None for scored pairs of other files.
    """
    return _lines(record.path(PREDICTIONS))


def read_journal(record: Record) -> list[dict[str, Any]]:
    """The entries of the run's journal."""
    return _lines(record.path(JOURNAL))


def read_map(record: Record) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]] | None:
    """(m,) rows in the data file and (m, d), (m, d) their vectors before and after training; None where not kept."""
    from safetensors.numpy import load_file

    path = record.path(MAP)
    if not path.is_file():
        return None
    tensors = load_file(path)
    return tensors["rows"], tensors["before"], tensors["after"]


def map_bytes(rows: Sequence[int], before: NDArray[np.float32], after: NDArray[np.float32]) -> bytes:
    """What :func:`read_map` reads."""
    from safetensors.numpy import save

    return save({"rows": np.asarray(rows, dtype=np.int64), "before": before, "after": after})


def read_plan(study: Path) -> Plan:
    """What the study in this folder is."""
    path = study / STUDY
    if not path.is_file():
        raise OutputError(f"{study}: there is no study here; give the folder that 'nearfar study run' wrote.")
    values = _json(path)
    if values.get("format") != FORMAT:
        raise OutputError(f"{path}: format {values.get('format')!r} is not {FORMAT}; use the nearfar that wrote it.")
    try:
        data = (entry | {key: tuple(entry[key]) for key in ("limits", "labels")} for entry in values["data"])
        return Plan(
            name=values["name"],
            metric=values["metric"],
            baseline=values["baseline"],
            seeds=tuple(values["seeds"]),
            folds=values["folds"],
            data=tuple(DataSet(**entry) for entry in data),
            contenders=values["contenders"],
            cells=tuple(Cell(**entry) for entry in values["cells"]),
            runs=values.get("runs", "all"),
        )
    except (KeyError, TypeError) as cause:
        raise OutputError(
            f"{path}: this is no study of nearfar ({cause}). Remove it, and run the study again."
        ) from cause


def plan_text(plan: Plan) -> str:
    """A plan, as :func:`read_plan` reads it."""
    return json.dumps({"format": FORMAT, **asdict(plan)}, indent=1, ensure_ascii=False) + "\n"


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        try:
            return [json.loads(line) for line in file]
        except ValueError as cause:
            raise OutputError(
                f"{path}: this cannot be read ({cause}). Remove the folder of the trial, and run the study again."
            ) from cause


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise OutputError(f"{path}: this cannot be read ({cause}). Remove it, and run the study again.") from cause
    if not isinstance(values, dict):
        raise OutputError(f"{path}: this is not what nearfar wrote. Remove it, and run the study again.")
    return values


def journals(folder: Path) -> list[Path]:
    """The journals of a run, one for each of its stages, in the order they were trained in."""
    single = folder / JOURNAL
    if single.is_file():
        return [single]
    staged = folder.glob(JOURNAL.replace(".", "-*.", 1))
    return sorted(staged, key=lambda path: int(path.stem.rpartition("-")[2]))
