"""A published table of several tasks in one model: its contenders as recipes, each a trial for every seed.

A study compares contenders on one data set at a time; here a trial trains on several at once. What it leaves is a
study all the same, of one data set that has the names of all tasks, so that its records can be read, and its page made,
as those of any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nearfar.data import Records, limit, read
from nearfar.errors import DataError, Problem, SettingError, counted
from nearfar.experiments.executor import Executor
from nearfar.experiments.identity import digest, task_trial_id
from nearfar.experiments.published import Paper, PublishedTable, Values, study_values
from nearfar.experiments.records import Cell, DataSet, Plan
from nearfar.experiments.reproduce import ROWS, Wishes, encoder_of, find_file, settings_of, store_rows, write_text
from nearfar.experiments.runs import task_recipe_of
from nearfar.experiments.trial import MEAN, TASKS, Planned, Source, Trial
from nearfar.experiments.trial_runner import TrialRunner, Watcher, check_folder
from nearfar.recipe.tasks import task_toml

LAID_OVER = ("encoder", "batches", "training", "schedule")
"""Tables of a recipe that shared values, a contender and other settings have in common."""


@dataclass(frozen=True)
class TaskTable:
    """A table of several tasks that can begin."""

    planned: Planned
    recipes: dict[str, str]
    """Of each contender, as ``nearfar train`` takes it."""
    files: dict[Path, Records]
    """Files to be written: dev rows, where there are fewer than the data has."""


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
    folder = _DataFolder(paper, table, data.absolute(), out.absolute(), wishes)
    tables: dict[str, dict[str, Values]] = {"task": {}, "stage": {}}
    problems: list[Problem] = []
    for kind, entries in tables.items():
        for name, entry in values.get(kind, {}).items():
            try:
                entries[name] = folder.take(name, entry)
            except DataError as error:
                problems += error.problems
    if problems:
        raise DataError(problems)
    changes = settings_of(paper, wishes.settings)
    name, digests = "+".join(tables["task"]), " ".join(folder.digests.values())
    trial = Trial(
        id="",
        source=Source(name=name, file=str(data.absolute()), given=str(data)),
        limit=wishes.limit,
        contender="",
        values={},
        seed=0,
        fold=0,
        folds=1,
        metric=MEAN,
        kind=TASKS,
        digest=digests,
    )
    contenders = {
        each["name"]: _recipe(values, each, changes, tables, encoder_of(table, wishes), wishes)
        for each in values["contender"]
    }
    trials, cells, recipes = dict[str, Trial](), list[Cell](), dict[str, str]()
    for seed in wishes.seeds or tuple(values["seeds"]):
        for contender, recipe in contenders.items():
            recipes.setdefault(contender, task_toml(task_recipe_of(recipe, seed, f"contender {contender}")))
            identity = task_trial_id(recipe, seed, folder.digests)
            trials.setdefault(identity, replace(trial, id=identity, contender=contender, values=recipe, seed=seed))
            cells.append(Cell(id=identity, data=name, limit=wishes.limit, contender=contender, seed=seed, fold=0))
    data_set = DataSet(
        name=name,
        file=str(data),
        limits=(wishes.limit,),
        digest=digest(digests, ascii_only=True),
        rows=folder.trained,
        kind=TASKS,
    )
    plan = Plan(
        name=f"{paper.name}, table {table.number}",
        metric=MEAN,
        baseline=table.baseline,
        seeds=wishes.seeds or tuple(values["seeds"]),
        folds=1,
        data=(data_set,),
        contenders={
            contender: {key: recipe[key] for key in ("schedule", "training", "batches") if key in recipe}
            for contender, recipe in contenders.items()
        },
        cells=tuple(cells),
    )
    return TaskTable(Planned(plan, trials, {}, tuple(folder.notes)), recipes, folder.files)


def run_table(
    table: TaskTable, out: Path, folder: Path, watcher: Watcher, executor: Executor, *, retry_failed: bool = False
) -> int:
    """Run what is left of a table; returns how many trials ran. The same call goes on where one was stopped.

    Args:
        table: what to run.
        out: where the recipes of the contenders, and rows that are drawn, are written.
        folder: of the study.
        watcher: is told how it goes.
        executor: where trials run.
        retry_failed: run failed trials again, too.
    """
    check_folder(folder)
    runner = TrialRunner(folder, table.planned, watcher, executor)
    with runner.session():  # another process may need the rows as they are
        for path, records in table.files.items():
            store_rows(records, path)
        for name, text in table.recipes.items():
            write_text(out / f"{name}.toml", text)
        return runner.run_all(retry_failed=retry_failed)


class _DataFolder:
    """The folder of the data: finds files, and draws rows of them."""

    def __init__(self, paper: Paper, table: PublishedTable, data: Path, out: Path, wishes: Wishes) -> None:
        self.paper, self.table, self.data, self.out, self.wishes = paper, table, data, out, wishes
        self.notes: list[str] = []
        self.files: dict[Path, Records] = {}
        self.digests: dict[str, str] = {}
        self.trained = 0

    def take(self, name: str, entry: Values) -> Values:
        """The data of a task or a stage, as a recipe names it; DataError with what is needed."""
        wanted = {role: str(entry[role]) for role in ("train", "dev") if role in entry}
        paths = {role: find_file(self.data, self.paper, file) for role, file in wanted.items()}
        lacking = [wanted[role] for role, path in paths.items() if path is None]
        if lacking:
            message = f"{name} is missing: there is no {' and no '.join(lacking)}"
            remedy = f"Put it there: {self.paper.data[name].about}. All tasks of the table are trained together."
            raise DataError([Problem(str(self.data), message, remedy)])
        values: Values = {"dev": 0, "invalid": "drop"}
        most = self.wishes.limit
        for role, path in paths.items():
            assert path is not None
            records = read(str(path), invalid="drop")
            values[role] = str(path)
            if path.name.split(".")[0] != Path(wanted[role]).name.split(".")[0]:
                self.notes.append(f"{name}: {path.relative_to(self.data)} takes the place of {wanted[role]}")
            fewer = most is not None and most < len(records)
            if role == "train":
                self._check_size(name, records)
                self.trained += min(len(records), most or len(records))
                values |= {"limit": most} if fewer else {}
            elif most is not None and fewer:
                records = records.take(limit(records, most, seed=0))
                file = self.out / ROWS / f"{name}-dev-{most}.jsonl"
                self.files[file] = records
                values[role] = str(file)
            self.digests[f"{name}/{role}"] = records.fingerprint()
        return values

    def _check_size(self, name: str, records: Records) -> None:
        needed = self.table.needs.get(name, 0)
        if self.wishes.limit is None and len(records) < needed:
            message = f"{name} is too small: there are {counted(len(records), 'row')}, and the table has {needed:,}"
            remedy = f"Bring all of it: {self.paper.data[name].about}. Or look at less with --limit."
            raise DataError([Problem(records.source, message, remedy)])


def _recipe(
    values: Values,
    contender: Values,
    changes: Values,
    tables: Mapping[str, Mapping[str, Values]],
    encoder: str | None,
    wishes: Wishes,
) -> Values:
    """The recipe of a contender without its seed: shared values, then its own, then other settings and wishes."""
    recipe: Values = {"shared_layer": contender.get("shared_layer", False)}
    for key in LAID_OVER:
        laid = {**values["recipe"].get(key, {}), **contender.get(key, {}), **changes.get(key, {})}
        if laid:
            recipe[key] = laid
    if wishes.epochs is not None:
        recipe["training"]["epochs"] = wishes.epochs
    if encoder is not None:
        recipe["encoder"] = {**recipe.get("encoder", {}), "name": encoder}
    recipe["task"] = []
    for name, data in tables["task"].items():
        head = {**contender["head"], **contender.get("heads", {}).get(name, {}), **changes.get("head", {})}
        if values["task"][name].get("texts"):
            head = {"kind": "linear", "dropout": head["dropout"]}
        recipe["task"].append({"name": name, "data": data, "head": head, "metric": values["task"][name]["metric"]})
    stages = []
    for name in contender.get("stages", ()):
        entry = values["stage"][name]
        epochs = entry["epochs"] if wishes.epochs is None else min(entry["epochs"], wishes.epochs)
        objective = {"name": entry["objective"]}
        data = tables["stage"][name]
        stages.append({"data": data, "objective": objective, "epochs": epochs, "batch_size": entry["batch_size"]})
    return {**recipe, "stage": stages} if stages else recipe
