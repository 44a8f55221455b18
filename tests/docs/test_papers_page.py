"""The page of the papers is up to date, and every key, command and table that it names exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import typer

from nearfar.cli.app import app
from nearfar.errors import NearfarError
from nearfar.experiments.published import find_figure, find_paper, find_table
from nearfar.experiments.study_schema import ContenderTable, DataTable, Search, StudyTable
from nearfar.recipe import build_recipe
from nearfar.recipe.capabilities import OBJECTIVES
from nearfar.recipe.keys import entries
from nearfar.recipe.schema import Recipe, Stage
from nearfar.recipe.tasks import Task, TaskHead, TaskRecipe, TaskStage, build_task_recipe
from tests.docs.blocks import ROOT

VALUES = tomllib.loads((ROOT / "docs" / "papers.toml").read_text(encoding="utf-8"))
ROWS: list[dict[str, Any]] = VALUES["row"]
USES = sorted({use for row in ROWS for use in row.get("use", ())})
TABLES = {
    "[study]": (StudyTable,), "[[data]]": (DataTable,), "[[contender]]": (ContenderTable,),
    "[contender.search]": (Search,), "[[stage]]": (Stage, TaskStage),
}  # fmt: skip
KEY = re.compile(r"(?P<key>[a-z_.]+)(?: = (?P<value>.+?))?(?: of (?P<objective>[a-z+-]+))?")


def test_the_committed_page_is_up_to_date():
    script = ROOT / "docs" / "generate_papers.py"
    run = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, check=True)
    page = ROOT / "docs" / "reference" / "papers.md"
    told = "The page is out of date. Run: make pages"
    assert page.read_text(encoding="utf-8") == run.stdout.decode("utf-8"), told


def test_every_row_is_there_once_with_a_status():
    """43 rows of TripleEntropy, 62 of batch-softmax, 44 of several tasks, 36 of the slides."""
    expected = [
        f"{letter}{n}" for letter, many in (("A", 43), ("C", 62), ("D", 44), ("E", 36)) for n in range(1, many + 1)
    ]
    assert [row["id"] for row in ROWS] == expected
    assert {row["status"] for row in ROWS} <= {"works", "exists", "partial", "differs", "missing", "n/a"}
    for row in ROWS:
        assert row.get("use") or row["status"] in ("missing", "n/a"), f"{row['id']} names no key and no command"
        assert row["status"] in ("works", "n/a") or row.get("remark"), f"{row['id']} does not say what is lacking"
        assert set(row) <= {"id", "place", "what", "use", "status", "remark"}
    assert len(USES) > 100


@pytest.mark.parametrize("use", USES)
def test_what_a_row_names_exists(use):
    problem = problem_of(use)
    assert problem is None, f"{use}: {problem}"


@pytest.mark.parametrize(
    "wrong",
    [
        "objective.centres of soft-triple", 'objective.name = "soft-tripel"', "training.epoch", 'batches.shuffle = "word"',
        "[study] seed", "[[stages]] keep", "nearfar reproduce triple-entropy --table 9", "nearfar evaluate M F --cluster",
        "nearfar reproduce triple-entropy --figure 1", "nearfar embedd M F", 'head.kind = "linaer"', "nearfar mine",
        "nearfar reproduce triple-entropy --table 2 --settings grit",
    ],
)  # fmt: skip
def test_names_that_do_not_exist_are_found(wrong):
    """The check can fail."""
    assert problem_of(wrong) is not None


def problem_of(use: str) -> str | None:
    """Why there is no such key, value or command; None where there is."""
    if use.startswith("nearfar "):
        return _command(shlex.split(use)[1:])
    if use.startswith("["):
        table, _, key = use.partition(" ")
        known = [name for schema in TABLES.get(table, ()) for name in entries(schema)]
        return None if key in known else f"{table} has {', '.join(known) or 'no keys'}"
    parts = KEY.fullmatch(use)
    if parts is None:
        return "this is no key"
    key, value, objective = parts["key"], parts["value"], parts["objective"]
    given = None if value is None else tomllib.loads(f"x = {value}")["x"]
    table, _, name = key.partition(".")
    if table == "objective":
        if objective is None:
            return None if name == "name" and given in OBJECTIVES else "name an objective"
        if name not in entries(OBJECTIVES[objective]):
            return f"{objective} has no such key"
        return None if value is None else _built({"objective": {"name": objective, name: given}})
    return _recipe_key(table, name, given)


def _recipe_key(table: str, name: str, given: object) -> str | None:
    """A key of a plain recipe or of one with tasks, with a value that one of them takes."""
    if table == "task":
        return None if name in entries(Task) else "[[task]] has no such key"
    values = {table: {name: given} if name else given}
    plain = table in entries(Recipe) and name in _inner(Recipe, table)
    tasks = table in entries(TaskRecipe) and (not name or name in _inner(TaskRecipe, table))
    head = table == "head" and name in entries(TaskHead)
    if not (plain or tasks or head):
        return "there is no such key"
    if given is None:
        return None
    problems = []
    if plain:
        problems.append(_built(values))
    if tasks:
        problems.append(_built_tasks(values, {}))
    if head:
        problems.append(_built_tasks({}, values))
    return None if None in problems else str(problems[0])


def _inner(schema: type, table: str) -> dict[str, Any]:
    try:
        return dict(entries(entries(schema)[table].kind))
    except (TypeError, AttributeError):
        return {}


def _built(values: dict[str, Any]) -> str | None:
    data = {"train": "-", **values.get("data", {})}
    try:
        build_recipe({**values, "data": data}, where="papers.toml")
    except NearfarError as error:
        return str(error)
    return None


def _built_tasks(values: dict[str, Any], task: dict[str, Any]) -> str | None:
    tasks = [{"name": name, "data": {"train": f"{name}.csv"}, **task} for name in ("a", "b")]
    try:
        build_task_recipe({**values, "task": tasks}, where="papers.toml")
    except NearfarError as error:
        return str(error)
    return None


def _command(words: list[str]) -> str | None:
    """Parse the options of a command without running it; a table or figure of a paper must exist."""
    command: Any = typer.main.get_command(app)
    name: str | None = "nearfar"
    try:
        while hasattr(command, "commands"):
            context = command.make_context(name, list(words), resilient_parsing=True)
            name, command, words = command.resolve_command(context, words)
        if command is None:
            return "there is no such command"
        found = command.make_context(name, list(words))
    except Exception as error:  # click's own, or those of the click that typer brings
        if not hasattr(error, "format_message"):
            raise
        return str(error.format_message())
    if name == "reproduce" and found.params["paper"] is not None:
        given = found.params
        try:
            paper = find_paper(given["paper"])
            if given["figure"] is not None:
                find_figure(paper, given["figure"])
            else:
                find_table(paper, given["table"])
        except NearfarError as error:
            return str(error)
        if given["settings"] not in ("published", *paper.settings):
            return f"{paper.name} has no settings {given['settings']}"
    return None
