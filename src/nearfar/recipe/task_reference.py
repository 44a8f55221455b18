"""The page of all keys of a recipe with tasks, from its schema: ``python -m nearfar.recipe.task_reference``."""

from __future__ import annotations

import sys

from nearfar.recipe import OBJECTIVES
from nearfar.recipe.reference import _sections
from nearfar.recipe.schema import Data, Encoder
from nearfar.recipe.tasks import TaskRecipe

_INTRODUCTION = """\
# Multi-task recipe

A recipe with `[[task]]` tables trains several tasks with one encoder: [Multi-task training](../how-to/multi-task.md).
Every task needs a `name` and `data.train`; every other key has a default. Keys outside of lists can also be set on the
command line: `--set training.epochs=3`.
"""


def task_reference() -> str:
    """The whole page in Markdown."""
    elsewhere = "of [the recipe](recipe.md)"
    known: dict[type, str] = {Data: f"`[data]` {elsewhere}", Encoder: f"`[encoder]` {elsewhere}"}
    known |= dict.fromkeys(OBJECTIVES.values(), f"`[objective]` {elsewhere}")
    return "\n".join([_INTRODUCTION, *_sections(TaskRecipe, "", "Top of the file", known)])


if __name__ == "__main__":
    sys.stdout.buffer.write(task_reference().encode())
