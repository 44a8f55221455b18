"""A study: its file read, its trials run, its results summarized."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nearfar.errors import Problem, RecipeError, counted
from nearfar.experiments.local_executor import LocalExecutor
from nearfar.experiments.plan import plan_study
from nearfar.experiments.records import STUDY, Plan, Record, cell_name, read_plan, read_records
from nearfar.experiments.search import require_optuna
from nearfar.experiments.study_schema import (
    ELSEWHERE,
    Contender,
    Lines,
    Problems,
    Range,
    Study,
    StudyFile,
    Values,
    check_contender,
    check_file,
    with_paths,
)
from nearfar.experiments.trial import Planned, TrialStates
from nearfar.experiments.trial_runner import Executor, TrialRunner, Watcher, check_folder
from nearfar.recipe import Override, Recipe, read_recipe, resolve_paths
from nearfar.recipe.keys import KeyPath, printable
from nearfar.recipe.reader import build_table, parse, present_names, present_override

SHARED = "recipe"
RECIPE_TABLES = ("data", "encoder", "objective", "head", "batches", "training", "stage")


def read_study(path: Path) -> Study:
    """Read a study file and check every recipe in it, at every end of its search space; nothing is run."""
    where = printable(str(path))
    values, lines = parse(_content(path, where), where)
    problems = Problems(where, lines)
    shared = values.pop(SHARED, {})
    if not isinstance(shared, dict):
        problems.add("recipe is a table", "Write [recipe.training] and so on.", (SHARED,))
        shared = {}
    for kind in ("data", "contender"):
        values.setdefault(kind, [])  # that there is none is reported below, in the words of a study
    tables = values["contender"]
    changes: list[tuple[Values, Lines]] = []
    for place, table in enumerate(tables if isinstance(tables, list) else ()):
        if isinstance(table, dict):
            _flatten_space(table, lines, ("contender", place, "search", "space"))
            recipe = {name: table.pop(name) for name in RECIPE_TABLES if name in table}
            changes.append((recipe, _below(lines, ("contender", place))))
    file: StudyFile = build_table(StudyFile, values, where=where, lines=lines)
    check_file(file, problems)
    contenders = []
    for table, change in zip(file.contender, changes, strict=True):
        layers = [(shared, _below(lines, (SHARED,))), change]
        if table.recipe is not None:
            layers.insert(1, (_recipe_file((path.absolute().parent / table.recipe).absolute()), {}))
        merged, merged_lines = _merged(layers)
        contenders.append(
            Contender(
                table.name,
                merged,
                change[0],
                table.search,
                merged_lines,
                table.untrained,
                table.random_letters,
                table.mined,
            )
        )
    study = Study(path, where, file.study, file.data, tuple(contenders))
    study = replace(study, contenders=tuple(_with_fractions(study, contender) for contender in contenders))
    for contender in study.contenders:
        problems.entries += check_contender(study, contender)
    if problems.entries:
        unique = dict.fromkeys(problems.entries)
        raise RecipeError(sorted(unique, key=lambda problem: (problem.line is None, problem.line or 0)))
    return study


def _content(path: Path, where: str) -> bytes:
    remedy = "Name a study file, such as study.toml."
    try:
        return path.read_bytes()
    except FileNotFoundError:
        problem = Problem(where, "there is no such file", remedy)
    except IsADirectoryError:
        problem = Problem(where, "this is a folder", "Name the study file; 'nearfar study show' takes a folder.")
    except OSError as error:
        problem = Problem(where, f"the file cannot be read: {error.strerror}", remedy)
    raise RecipeError([problem])


def _below(lines: Lines, path: KeyPath) -> Lines:
    """The lines of the keys of a table."""
    depth = len(path)
    return {key[depth:]: line for key, line in lines.items() if key[:depth] == path and len(key) > depth}


def _flatten_space(table: Values, lines: Lines, path: KeyPath) -> None:
    """``objective.beta = [...]`` without quotes is a table in a table; a search has dotted keys."""
    search = table.get("search")
    space = search.get("space") if isinstance(search, dict) else None
    if not isinstance(space, dict):
        return
    flat: Values = {}

    def visit(values: Values, keys: tuple[str, ...]) -> None:
        for name, value in values.items():
            inner = (*keys, name)
            if isinstance(value, dict) and not {"low", "high", "log"} & value.keys():
                visit(value, inner)
            else:
                keys_in_recipe = tuple(".".join(inner).split("."))
                key = ".".join(present_override(Recipe, Override(keys_in_recipe, None, "")).path)
                flat[key] = value
                lines.setdefault((*path, key), lines.get((*path, *inner), 0))

    visit(space, ())
    assert isinstance(search, dict)
    search["space"] = flat


def _recipe_file(path: Path) -> Values:
    """The values of a recipe file that a contender begins with; its paths count from its own folder."""
    recipe = resolve_paths(read_recipe(path), path.parent)  # says what is wrong in that file
    values = with_paths(tomllib.loads(path.read_text(encoding="utf-8-sig")), recipe)
    values.pop("seed", None)
    data = {key: value for key, value in values.pop("data", {}).items() if key not in ELSEWHERE and key != "limit"}
    return {**values, "data": data} if data else values


def _merged(layers: list[tuple[Values, Lines]]) -> tuple[Values, Lines]:
    """Later layers over earlier ones, table by table; another objective, or stages, replace those before."""
    values: Values = {}
    lines: Lines = {}
    for layer, layer_lines in layers:
        layer, layer_lines, _ = present_names(Recipe, layer, layer_lines)  # a layer may have a key by its former name
        if "objective" in layer and "stage" not in layer:  # stages would be trained in place of it
            values.pop("stage", None)
            lines = {path: line for path, line in lines.items() if path[0] != "stage"}
        for name, table in layer.items():
            before = values.get(name)
            other = name == "objective" and isinstance(table, dict) and "name" in table
            if not (isinstance(before, dict) and isinstance(table, dict)) or (
                other and table["name"] != before.get("name", table["name"])
            ):
                values[name] = table
                lines = {path: line for path, line in lines.items() if path[0] != name}
            else:
                values[name] = {**before, **table}
        lines.update(layer_lines)
    return values, lines


def _with_fractions(study: Study, contender: Contender) -> Contender:
    """The contender with its ranges as they are meant: from 0 to 1 there are fractions, where a key takes them."""
    if contender.search is None:
        return contender
    space = dict(contender.search.space)
    for key, choices in space.items():
        if isinstance(choices, Range) and isinstance(choices.low, int) and isinstance(choices.high, int):
            try:
                study.recipe(contender, {key: choices.low + 0.5})
            except RecipeError:
                continue
            space[key] = replace(choices, low=float(choices.low), high=float(choices.high))
    return replace(contender, search=replace(contender.search, space=space))


@dataclass(frozen=True)
class StudyStatus:
    """A study, and what of it has run."""

    planned: Planned
    states: TrialStates
    notes: tuple[str, ...]
    """What should be known about the rows, what an edited file changes, and contenders that share trials."""


@dataclass(frozen=True)
class Outcome:
    """What became of a study."""

    ran: int
    """Trials that this call has run."""
    failed: tuple[Record, ...] = ()


def folder_of(path: Path, out: Path | None) -> Path:
    """Where the study of a file is kept: beside it, under its name, unless told otherwise."""
    if out is not None or not path.name:
        return out or Path("study")
    return path.with_suffix("") if path.suffix else path.with_name(f"{path.name}-study")


def study_status(path: Path, out: Path) -> StudyStatus:
    """Read and plan a study, and see which trials have run; nothing is written."""
    planned = plan_study(read_study(path))
    check_folder(out)
    before = read_plan(out) if (out / STUDY).is_file() else None
    states = planned.states(out)
    return StudyStatus(planned, states, (*planned.notes, *_sharing(planned), *_edits(planned, before, states)))


def run_study(
    path: Path, out: Path, watcher: Watcher, executor: Executor | None = None, *, retry_failed: bool = False
) -> Outcome:
    """Run what is left of a study.

    Args:
        path: the study file.
        out: the folder of the study.
        watcher: is told how it goes.
        executor: where trials run; None for the processes of this machine.
        retry_failed: run failed trials again, too.
    """
    status = study_status(path, out)
    if any(trial.search is not None for trial in status.planned.trials.values()):
        require_optuna()
    runner = TrialRunner(out, status.planned, watcher, executor or LocalExecutor())
    with runner.session():
        for note in status.notes:
            watcher.message(note)
        ran = runner.run_all(retry_failed=retry_failed)
    failed = {record.id: record for record in reversed(read_records(out)) if not record.done}
    return Outcome(ran, tuple(reversed(failed.values())))


def _sharing(planned: Planned) -> list[str]:
    spared = len(planned.plan.cells) - len(planned.trials)
    if not spared:
        return []
    needs = "needs" if spared == 1 else "need"
    return [f"{counted(spared, 'trial')} {needs} not run: contenders with the same recipe share theirs"]


def _edits(planned: Planned, before: Plan | None, states: TrialStates) -> list[str]:
    """What an edited study file changes in a study that was begun."""
    if before is None:
        return []
    old, new = {cell.id for cell in before.cells}, set(planned.trials)
    if old == new:
        return []
    kept, waiting = len(states.done), len(states.waiting)
    stay = "stays as it is" if kept == 1 else "stay as they are"
    notes = [
        f"the study was edited: {counted(kept, 'finished trial')} {stay}, {counted(waiting, 'trial')} "
        f"{'is' if waiting == 1 else 'are'} to run"
    ]
    changed = [name for name in states.waiting if name not in old]
    if changed:
        notes.append(f"new or changed: {_listed(planned, changed)}")
    gone = len(old - new)
    if gone:
        notes.append(
            f"{counted(gone, 'trial')} of before {'is' if gone == 1 else 'are'} no part of it any more; "
            f"{'its record is' if gone == 1 else 'their records are'} kept"
        )
    return notes


def _listed(planned: Planned, names: Sequence[str], most: int = 8) -> str:
    """Trials by contender and data set, with their number."""
    trials = [planned.trials[name] for name in names]
    counts = Counter(f"{trial.contender} on {cell_name(trial.source.name, trial.limit)}" for trial in trials)
    parts = [f"{name} ({number:,})" for name, number in counts.items()]
    return ", ".join(parts[:most]) + (f" and {len(parts) - most:,} more" if len(parts) > most else "")
