"""A published table of several tasks in one model: its contenders as recipes, run for every seed, none of them twice.

A study compares contenders on one data set at a time; here a run trains on several at once. What it leaves behind is a
study all the same, of one data set that has the names of all tasks, so that its records can be read, and its page made,
as those of any other.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar import __version__
from nearfar.data import Records, limit, read
from nearfar.errors import DataError, Interrupted, Problem, SettingError, counted
from nearfar.experiments.local_executor import run_local
from nearfar.experiments.multitask_runs import MEAN, TASKS, task_recipe_of
from nearfar.experiments.published import Paper, PublishedTable, Values, study_values
from nearfar.experiments.records import STUDY, Cell, DataSet, Plan, Record, clear_leftovers, find_record, plan_text
from nearfar.experiments.reproduce import ROWS, Wishes, encoder_of, find_file, settings_of, store_rows, write_text
from nearfar.experiments.runner import alone, check_folder, interruptible
from nearfar.experiments.runs import Source, Trial
from nearfar.experiments.worker import SCRATCH
from nearfar.files import write_atomic
from nearfar.recipe.tasks import task_toml

NAME = 16
"""Letters of a trial's name."""
LAID_OVER = ("encoder", "batches", "training", "schedule")
"""Tables of a recipe that shared values, a contender and other settings have in common."""


@dataclass(frozen=True)
class TaskTable:
    """A table of several tasks that can begin."""

    plan: Plan
    trials: dict[str, Trial]
    recipes: dict[str, str]
    """Of each contender, as ``nearfar train`` takes it."""
    rows: dict[Path, Records]
    """Files to be written: dev rows, where there are fewer than the data has."""
    notes: tuple[str, ...]

    def standing(self, folder: Path) -> tuple[list[str], list[str], list[str]]:
        """The trials that are done, that failed, and that are still to run."""
        done, failed, waiting = list[str](), list[str](), list[str]()
        for name in self.trials:
            record = find_record(folder, name)
            (waiting if record is None else done if record.done else failed).append(name)
        return done, failed, waiting


def plan_table(paper: Paper, table: PublishedTable, data: Path, out: Path, wishes: Wishes) -> TaskTable:
    """Read the data and make a recipe of every contender; nothing is written.

    Args:
        paper: whose table it is.
        table: what to do again.
        data: the folder of the data, with a folder for each set.
        out: where recipes and rows will be.
        wishes: what is to be other than in the paper; ``limit`` draws training and dev rows of each task.
    """
    assert table.tasks is not None
    if wishes.folds is not None:
        raise SettingError("--folds is for tables of one task; this one has dev rows of its own. Leave it out.")
    if wishes.sets is not None:
        raise SettingError("--sets is for tables of one task; this one has all its tasks in one model. Leave it out.")
    if not data.is_dir():
        remedy = "Name the folder that has one folder for each data set, such as cs224n_sst/train.jsonl.gz."
        raise DataError([Problem(str(data), "there is no such folder", remedy)])
    values = study_values(table.tasks)
    found = _Files(paper, table, data.absolute(), out.absolute(), wishes)
    tasks, stages, problems = dict[str, Values](), dict[str, Values](), list[Problem]()
    for kind, tables in (("task", tasks), ("stage", stages)):
        for name, entry in values.get(kind, {}).items():
            try:
                tables[name] = found.take(name, entry)
            except DataError as error:
                problems += error.problems
    if problems:
        raise DataError(problems)
    changes = settings_of(paper, wishes.settings)
    seeds = wishes.seeds or tuple(values["seeds"])
    whole, name = " ".join(found.prints.values()), "+".join(tasks)
    source = Source(name=name, file=str(data.absolute()), given=str(data))
    trials, cells, recipes = dict[str, Trial](), list[Cell](), dict[str, str]()
    contenders = {each["name"]: _recipe(values, each, changes, tasks, stages, table, wishes)
                  for each in values["contender"]}  # fmt: skip
    for seed in seeds:
        for contender, own in contenders.items():
            recipe = task_recipe_of(own, seed, f"contender {contender}")
            if contender not in recipes:
                recipes[contender] = task_toml(recipe)
            trial = Trial(id=_identity(own, seed, found.prints), source=source, limit=wishes.limit, contender=contender,
                          values=own, seed=seed, fold=0, folds=1, metric=MEAN, kind=TASKS, digest=whole)  # fmt: skip
            trials.setdefault(trial.id, trial)
            cells.append(Cell(id=trial.id, data=name, limit=wishes.limit, contender=contender, seed=seed, fold=0))
    plan = Plan(
        name=f"{paper.name}, table {table.number}", metric=MEAN, baseline=table.baseline, seeds=seeds, folds=1,
        data=(DataSet(name=name, file=str(data), limits=(wishes.limit,), digest=_digest(whole), rows=found.trained,
                      kind=TASKS),),
        contenders={name: {key: own[key] for key in ("schedule", "training", "batches") if key in own}
                    for name, own in contenders.items()},
        cells=tuple(cells),
    )  # fmt: skip
    return TaskTable(plan, trials, recipes, found.rows, tuple(found.notes))


def run_table(
    ready: TaskTable, out: Path, folder: Path, say: Callable[[str], None], *, workers: int | None = None,
    retry_failed: bool = False,
) -> int:  # fmt: skip
    """Run what is left of a table; returns how many trials ran. The same call goes on where one was stopped.

    Args:
        ready: what to run.
        out: where the recipes of the contenders, and rows that are drawn, are written.
        folder: of the study.
        say: is told a line for each trial.
        workers: processes on this machine; None for as many as there are cores.
        retry_failed: run failed trials again, too.
    """
    check_folder(folder)
    with alone(folder):  # another process may need the rows as they are
        for path, records in ready.rows.items():
            store_rows(records, path)
        for name, text in ready.recipes.items():
            write_text(out / f"{name}.toml", text)
        return _run_trials(ready, folder, say, workers=workers, retry_failed=retry_failed)


def _run_trials(
    ready: TaskTable, folder: Path, say: Callable[[str], None], *, workers: int | None, retry_failed: bool
) -> int:
    """Run the trials that are left, in a folder that nobody else writes to."""
    done, failed, waiting = ready.standing(folder)
    trials = [trial for name, trial in ready.trials.items() if name in waiting or (retry_failed and name in failed)]
    total, over = len(ready.trials), 0

    def told(event: str, name: str) -> None:
        nonlocal over
        if event == "lost":
            say(f"the process of {_title(ready.trials[name])} is gone; the trial is begun again")
        if event in ("done", "failed"):
            over += 1
            record = find_record(folder, name)
            assert record is not None
            say(f"{total - len(trials) + over}/{total}  {_title(ready.trials[name])}: {_outcome(record)}")

    say(f"{counted(total, 'trial')}, {len(done):,} of them there already")
    if failed and not retry_failed:
        one = len(failed) == 1
        say(
            f"{counted(len(failed), 'trial')} failed before and {'stays' if one else 'stay'} so; --retry-failed runs "
            f"{'it' if one else 'them'} again"
        )
    write_atomic(folder / STUDY, plan_text(ready.plan))
    clear_leftovers(folder)
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    try:
        with interruptible():
            if trials:
                run_local(trials, folder, told, workers=workers, total=total)
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped: {total - len(trials) + over:,} of {counted(total, 'trial')} are in {folder}; the same "
            "command goes on with the others."
        ) from None
    finally:
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    return len(trials)


class _Files:
    """The folder of the data: finds files, and draws rows of them."""

    def __init__(self, paper: Paper, table: PublishedTable, data: Path, out: Path, wishes: Wishes) -> None:
        self.paper, self.table, self.data, self.out, self.wishes = paper, table, data, out, wishes
        self.notes: list[str] = []
        self.rows: dict[Path, Records] = {}
        self.prints: dict[str, str] = {}
        self.trained = 0

    def take(self, name: str, entry: Mapping[str, Any]) -> Values:
        """The data of a task or a stage, as a recipe names it; DataError with what is needed."""
        spec = self.paper.data[name]
        roles = [role for role in ("train", "dev") if role in entry]
        paths = {role: find_file(self.data, self.paper, str(entry[role])) for role in roles}
        lacking = [str(entry[role]) for role, path in paths.items() if path is None]
        if lacking:
            message = f"{name} is missing: there is no {' and no '.join(lacking)}"
            remedy = f"Put it there: {spec.about}. All tasks of the table are trained together."
            raise DataError([Problem(str(self.data), message, remedy)])
        told: Values = {"dev": 0, "invalid": "drop"}
        for role, path in paths.items():
            assert path is not None
            records = read(str(path), invalid="drop")
            told[role] = str(path)
            if path.name.split(".")[0] != Path(str(entry[role])).name.split(".")[0]:
                self.notes.append(f"{name}: {path.relative_to(self.data)} takes the place of {entry[role]}")
            most = self.wishes.limit
            if role == "train":
                self._enough(name, records)
                self.trained += min(len(records), most or len(records))
                if most is not None and most < len(records):
                    told["limit"] = most
            elif most is not None and most < len(records):
                records = records.take(limit(records, most, seed=0))
                file = self.out / ROWS / f"{name}-dev-{most}.jsonl"
                self.rows[file] = records
                told[role] = str(file)
            self.prints[f"{name}/{role}"] = records.fingerprint()
        return told

    def _enough(self, name: str, records: Records) -> None:
        needed = self.table.needs.get(name, 0)
        if self.wishes.limit is None and len(records) < needed:
            message = f"{name} is too small: there are {counted(len(records), 'row')}, and the table has {needed:,}"
            remedy = f"Bring all of it: {self.paper.data[name].about}. Or look at less with --limit."
            raise DataError([Problem(records.source, message, remedy)])


def _recipe(
    values: Values, contender: Values, changes: Values, tasks: dict[str, Values], stages: dict[str, Values],
    table: PublishedTable, wishes: Wishes,
) -> Values:  # fmt: skip
    """The recipe of a contender without its seed: what all share, its own words, other settings, and wishes."""
    own: Values = {"shared_layer": contender.get("shared_layer", False)}
    for key in LAID_OVER:
        laid = {**values["recipe"].get(key, {}), **contender.get(key, {}), **changes.get(key, {})}
        if laid:
            own[key] = laid
    if wishes.epochs is not None:
        own["training"]["epochs"] = wishes.epochs
    encoder = encoder_of(table, wishes)
    if encoder is not None:
        own["encoder"] = {**own.get("encoder", {}), "name": encoder}
    own["task"] = []
    for name, data in tasks.items():
        head = {**contender["head"], **contender.get("heads", {}).get(name, {}), **changes.get("head", {})}
        if values["task"][name].get("texts"):
            head = {"kind": "linear", "dropout": head["dropout"]}
        own["task"].append({"name": name, "data": data, "head": head, "metric": values["task"][name]["metric"]})
    named = contender.get("stages", ())
    if named:
        own["stage"] = [_stage(values["stage"][name], stages[name], wishes) for name in named]
    return own


def _stage(entry: Values, data: Values, wishes: Wishes) -> Values:
    own: Values = {key: entry[key] for key in ("epochs", "batch_size")}
    if wishes.epochs is not None:
        own["epochs"] = min(own["epochs"], wishes.epochs)
    return {"data": data, "objective": {"name": entry["objective"]}, **own}


def _identity(values: Values, seed: int, prints: Mapping[str, str]) -> str:
    """The name of a trial: a hash of everything that determines its numbers, wherever the rows are stored."""
    plain = json.loads(json.dumps(values))
    for part in (*plain["task"], *plain.get("stage", ())):
        part["data"] = {"limit": part["data"].get("limit")}
    return _digest(".".join(__version__.split(".")[:2]), plain, seed, dict(prints))[:NAME]


def _digest(*values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _title(trial: Trial) -> str:
    return f"{trial.contender}, seed {trial.seed}"


def _outcome(record: Record) -> str:
    if not record.done:
        return f"failed: {record.reason}"
    parts = ", ".join(f"{name} {score:.3f}" for name, score in record.scores.items() if name != MEAN)
    return f"mean {record.scores[MEAN]:.3f} ({parts})"
