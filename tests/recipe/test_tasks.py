"""Recipes with tasks: what they say, what is refused, and that writing and reading agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nearfar.errors import RecipeError
from nearfar.recipe import Override
from nearfar.recipe.class_objectives import SupCon
from nearfar.recipe.keys import entries
from nearfar.recipe.reference import task_reference
from nearfar.recipe.schema import Training
from nearfar.recipe.tasks import (
    SharedDropout,
    Task,
    TaskBatches,
    TaskHead,
    TaskRecipe,
    TaskSchedule,
    TaskStage,
    TaskTraining,
    build_task_recipe,
    has_tasks,
    read_task_recipe,
    task_toml,
)

TEXT = """
shared_layer = true

[schedule]
kind = "sampled"
weights = { quora = 2.0 }

[training]
gradient_surgery = "pcgrad"

[[stage]]
objective = { name = "simcse" }
data = { train = "nli.jsonl" }

[[task]]
name = "sentiment"
data = { train = "sst.csv", dev = "dev.csv" }
objective = { name = "supcon", temperature = 0.2 }

[[task]]
name = "quora"
weight = 0.5
[task.data]
train = "../quora.jsonl"
[task.head]
kind = "concat"
difference = true
"""


def two(**changes: Any) -> dict[str, Any]:
    tasks = [{"name": "one", "data": {"train": "a.csv"}}, {"name": "two", "data": {"train": "b.csv"}}]
    for key, value in changes.items():
        tasks[1][key] = value
    return {"task": tasks}


def test_a_recipe_says_what_the_file_says_and_paths_count_from_it(tmp_path):
    path = tmp_path / "many.toml"
    path.write_text(TEXT)

    recipe = read_task_recipe(path)

    one, other = recipe.task
    assert (recipe.shared_layer, recipe.schedule.weights, recipe.training.gradient_surgery) == (
        True,
        {"quora": 2.0},
        "pcgrad",
    )
    assert one.objective == SupCon(temperature=0.2)
    assert one.data.train == str(tmp_path / "sst.csv")
    assert one.data.dev == str(tmp_path / "dev.csv")
    assert Path(other.data.train) == tmp_path / ".." / "quora.jsonl"
    assert other.data.dev == "auto"
    assert (other.head.kind, other.head.difference, other.head.product) == ("concat", True, False)
    assert recipe.stage[0].data.train == str(tmp_path / "nli.jsonl")


def test_writing_and_reading_agree(tmp_path):
    (tmp_path / "many.toml").write_text(TEXT)
    recipe = read_task_recipe(tmp_path / "many.toml")
    (tmp_path / "again.toml").write_text(task_toml(recipe))

    assert read_task_recipe(tmp_path / "again.toml") == recipe


def test_flags_lie_over_the_file(tmp_path):
    (tmp_path / "many.toml").write_text(TEXT)
    recipe = read_task_recipe(tmp_path / "many.toml", [Override(("training", "epochs"), 9, "--epochs 9")])

    assert recipe.training.epochs == 9


def test_only_files_with_tasks_are_recipes_with_tasks(tmp_path):
    for name, text, expected in (
        ("many.toml", TEXT, True), ("plain.toml", '[data]\ntrain = "a.csv"\n', False), ("broken.toml", "[[task", False),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
        assert has_tasks(tmp_path / name) == expected
    assert not has_tasks(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (two(name="one"), "two tasks have the name 'one', the first and the second. Rename one of them"),
        (two(name="mean"), "a task cannot have the name mean, which is the score over all tasks"),
        ({**two(), "training": {"combine": "sum"}}, "which has no effect without gradient surgery"),
        ({**two(), "shared_dropout": {"before": 0.5}}, "shared_dropout.before is 0.5, but there is no shared layer"),
        (two(name="a.b"), "a task cannot have this name (got 'a.b'). Use letters"),
        ({"task": []}, "there is no task. Add [[task]]"),
        ({"task": [{**one, "weight": 0} for one in two()["task"]]}, "the weights of all tasks (one, two) sum to zero"),
        (
            {**two(), "training": {"metric": "accuracy"}},
            "the mean of the tasks' scores selects the best weights. Remove it",
        ),
        (two(head={"kind": "join"}), "Did you mean 'joint'?"),
        (two(wieght=1), "Did you mean 'weight'?"),
        ({**two(), "data": {"train": "a.csv"}}, "there is no table [data]"),
        (two(weight=-1), "a number of at least 0"),
        ({}, "task is missing"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(values, message):
    with pytest.raises(RecipeError) as refused:
        build_task_recipe(values, where="many.toml")

    assert message in str(refused.value)


def test_two_tasks_of_one_name_are_refused_at_their_line(tmp_path):
    path = tmp_path / "many.toml"
    path.write_text(TEXT.replace('"quora"', '"sentiment"'))

    with pytest.raises(RecipeError, match=r"many.toml:20: two tasks have the name 'sentiment'"):
        read_task_recipe(path)


@pytest.mark.parametrize(("content", "message"), [(None, "no such file"), ("#" * 2**18 + TEXT, "262,144 bytes")])
def test_a_file_that_is_no_recipe_is_refused(tmp_path, content, message):
    path = tmp_path / "many.toml"
    if content is not None:
        path.write_text(content)

    with pytest.raises(RecipeError, match=message):
        read_task_recipe(path)


def test_every_key_has_one_sentence():
    tables = [TaskRecipe, SharedDropout, Task, TaskHead, TaskBatches, TaskSchedule, TaskTraining, TaskStage]
    sentences = [(table, entry) for table in tables for entry in entries(table).values()]
    assert len(sentences) > 60
    for table, entry in sentences:
        about = entry.key.about
        assert about.endswith("."), (table, entry.name)
        assert about[0].isupper() or about[0] == '"', (table, entry.name)
        assert about.count(". ") == 0, (table, entry.name)
    assert set(entries(TaskTraining)) == {*entries(Training), "gradient_surgery", "combine", "weighting"}


def test_the_committed_page_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "reference" / "task-recipe.md"
    command = ".venv/bin/python -m nearfar.recipe.reference tasks > docs/reference/task-recipe.md"
    assert page.read_text(encoding="utf-8") == task_reference(), f"The page is out of date. Run: {command}"
    for table in (SharedDropout, Task, TaskHead, TaskBatches, TaskSchedule, TaskTraining):
        for name in entries(table):
            assert f"| `{name}` |" in task_reference() or name in ("data", "head", "objective")
