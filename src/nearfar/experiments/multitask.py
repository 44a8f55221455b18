"""A published table of several tasks in one model: its contenders as recipes, each a trial for every seed.

A study compares contenders on one data set at a time; here a trial trains on several at once. What it leaves is a
study all the same, of one data set that has the names of all tasks, so that its records can be read, and its page made,
as those of any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nearfar.data import Records, limit, read
from nearfar.errors import DataError, Problem, SettingError
from nearfar.experiments.identity import digest, task_trial_id
from nearfar.experiments.published import Values, study_values
from nearfar.experiments.published.table_data import ROWS, DataFolder, TableOptions, store_rows, write_text
from nearfar.experiments.records import Cell, DataSet, Plan
from nearfar.experiments.search import SEPARATE, task_recipe_of
from nearfar.experiments.trial import MEAN, TASKS, Planned, Source, Trial
from nearfar.experiments.trial_runner import Executor, TrialRunner, Watcher, check_folder
from nearfar.recipe.tasks import task_toml

LAID_OVER = ("encoder", "batches", "training", "schedule")
"""Tables of a recipe that shared values, a contender and other settings have in common."""


@dataclass(frozen=True)
class TaskTable:
    """A table of several tasks that can begin."""

    planned: Planned
    recipes: dict[str, str]
    """Of each contender, as ``nearfar train`` takes it; of one with a model for each task, several."""
    files: dict[Path, Records]
    """Files to be written: dev rows, where there are fewer than the data has."""


def plan_table(data: DataFolder, out: Path, options: TableOptions) -> TaskTable:
    """Read the data and make a recipe of every contender; nothing is written.

    Args:
        data: the paper, the table, and the data that is there.
        out: where recipes and rows will be.
        options: what is to be other than in the paper; ``limit`` draws training and dev rows of each task.
    """
    table = data.table
    assert table.tasks is not None
    if options.folds is not None:
        raise SettingError("--folds is for tables of one task; this one has dev rows of its own. Leave it out.")
    if options.sets is not None:
        raise SettingError("--sets is for tables of one task; this one has all its tasks in one model. Leave it out.")
    values = study_values(table.tasks)
    rows = _Rows(data, out.absolute() / ROWS, options.limit)
    tables: dict[str, dict[str, Values]] = {"task": {}, "stage": {}}
    problems: list[Problem] = []
    for kind, entries in tables.items():
        for name, entry in values.get(kind, {}).items():
            try:
                entries[name] = rows.take(name, entry)
            except DataError as error:
                problems += error.problems
    if problems:
        raise DataError(problems)
    changes, encoder = options.changes(data.paper), options.encoder_of(table)
    name, digests = "+".join(tables["task"]), " ".join(rows.digests.values())
    seeds = options.seeds or tuple(values["seeds"])
    trial = Trial(
        id="",
        source=Source(name=name, file=str(data.path), given=data.given),
        limit=options.limit,
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
        each["name"]: _recipe(values, each, changes, tables, encoder, options.epochs) for each in values["contender"]
    }
    trials, cells, recipes = dict[str, Trial](), list[Cell](), dict[str, str]()
    for seed in seeds:
        for contender, recipe in contenders.items():
            recipes = {**_recipe_texts(contender, recipe, seed), **recipes}
            identity = task_trial_id(recipe, seed, rows.digests)
            trials.setdefault(identity, replace(trial, id=identity, contender=contender, values=recipe, seed=seed))
            cells.append(Cell(id=identity, data=name, limit=options.limit, contender=contender, seed=seed, fold=0))
    data_set = DataSet(
        name=name,
        file=data.given,
        limits=(options.limit,),
        digest=digest(digests, ascii_only=True),
        rows=rows.trained,
        kind=TASKS,
    )
    plan = Plan(
        name=f"{data.paper.name}, table {table.number}",
        metric=MEAN,
        baseline=table.baseline,
        seeds=seeds,
        folds=1,
        data=(data_set,),
        contenders={
            contender: {key: recipe[key] for key in ("schedule", "training", "batches") if key in recipe}
            for contender, recipe in contenders.items()
        },
        cells=tuple(cells),
    )
    notes = (*data.notes, *_same_runs(cells))
    return TaskTable(Planned(plan, trials, {}, notes), recipes, rows.files)


def _same_runs(cells: Sequence[Cell]) -> list[str]:
    """Which contenders do not differ with the settings that were chosen."""
    names: dict[str, list[str]] = {}
    for cell in cells:
        names.setdefault(cell.id, []).append(cell.contender)
    alike = dict.fromkeys(" and ".join(each) for each in names.values() if len(each) > 1)
    return [f"with these settings {each} are the same run" for each in alike]


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


def _recipe_texts(contender: str, values: Values, seed: int) -> dict[str, str]:
    """The recipes of a contender by the names of their files."""
    whole = {key: value for key, value in values.items() if key != SEPARATE}
    parts = {contender: whole["task"]}
    if values.get(SEPARATE):
        parts = {f"{contender}-{task['name']}": [task] for task in whole["task"]}
    return {
        name: task_toml(task_recipe_of({**whole, "task": tasks}, seed, f"contender {contender}"))
        for name, tasks in parts.items()
    }


class _Rows:
    """The rows of all tasks and stages: read, and drawn where fewer are wanted."""

    def __init__(self, data: DataFolder, place: Path, limit: int | None) -> None:
        self.data, self.place, self.limit = data, place, limit
        self.files: dict[Path, Records] = {}
        self.digests: dict[str, str] = {}
        self.trained = 0

    def take(self, name: str, entry: Values) -> Values:
        """The data of a task or a stage, as a recipe names it; DataError with what is needed."""
        files: dict[str, str] = {role: str(entry[role]) for role in ("train", "dev") if role in entry}
        paths = self.data.find(name, files, "is missing", "All tasks of the table are trained together.")
        if "test" in entry:
            test = self.data.look_for(str(entry["test"]))
            if test is None:
                self.data.notes.append(f"{name}: there is no {entry['test']}, so it has no test score")
            else:
                files["test"], paths["test"] = str(entry["test"]), test
        self.data.notes += self.data.substitutes(name, files, paths)
        values: Values = {"dev": 0, "invalid": "drop"}
        for role, path in paths.items():
            records = read(str(path), invalid="drop")
            values[role] = str(path)
            most = self.limit or len(records)
            if role == "train":
                if self.limit is None:
                    self.data.check_size(name, records, self.data.table.needs.get(name, 0), "is too small")
                self.trained += min(len(records), most)
                values |= {"limit": most} if most < len(records) else {}
            elif most < len(records):
                records = records.take(limit(records, most, seed=0))
                file = self.place / f"{name}-{role}-{most}.jsonl"
                self.files[file] = records
                values[role] = str(file)
            self.digests[f"{name}/{role}"] = records.fingerprint()
        return values


def _recipe(
    values: Values,
    contender: Values,
    changes: Values,
    tables: Mapping[str, Mapping[str, Values]],
    encoder: str | None,
    epochs: int | None,
) -> Values:
    """The recipe of a contender without its seed: shared values, then its own, then other settings and options.

    ``dropout`` is that of the text embeddings: in front of the shared layer, or of the heads where there is none.
    ``shared_layer_dropout`` drops as much of what the shared layer gives.
    """
    shared = contender.get("shared_layer", False)
    recipe: Values = {"shared_layer": shared}
    dropout = changes.get("dropout", contender["dropout"])
    if shared:
        recipe["shared_dropout"] = {"before": dropout}
        dropout = dropout if contender.get("shared_layer_dropout") else 0.0
    for key in LAID_OVER:
        own, other = contender.get(key, {}), changes.get(key, {})
        if key == "encoder":  # what a contender says of the encoder is what it is about
            own, other = other, own
        laid = {**values["recipe"].get(key, {}), **own, **other}
        if laid:
            recipe[key] = laid
    if epochs is not None:
        recipe["training"]["epochs"] = epochs
    if encoder is not None:
        recipe["encoder"] = {**recipe.get("encoder", {}), "name": encoder}
    recipe["task"] = []
    for name, data in tables["task"].items():
        task = values["task"][name]
        head = {"kind": "linear"} if task.get("texts") else dict(contender["head"])
        if task.get("single_logit"):
            head["single_logit"] = True
        head |= {**contender.get("heads", {}).get(name, {}), "dropout": dropout}
        recipe["task"].append({"name": name, "data": data, "head": head, "metric": task["metric"]})
    stages = []
    for name in contender.get("stages", ()):
        entry = values["stage"][name]
        stage = {"data": tables["stage"][name], "objective": {"name": entry["objective"]}}
        fewer = entry["epochs"] if epochs is None else min(entry["epochs"], epochs)
        stages.append({**stage, "epochs": fewer, "batch_size": entry["batch_size"]})
    if contender.get(SEPARATE):
        recipe[SEPARATE] = True
    return {**recipe, "stage": stages} if stages else recipe
