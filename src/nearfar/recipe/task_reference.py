"""The page of all keys of a recipe with tasks, from its schema: ``python -m nearfar.recipe.task_reference``."""

from __future__ import annotations

import sys

from nearfar.recipe.objectives import OBJECTIVES
from nearfar.recipe.reference import _sections
from nearfar.recipe.schema import Data, Encoder
from nearfar.recipe.tasks import TaskRecipe

_INTRODUCTION = """\
# The recipe of several tasks

A TOML file with `[[task]]` tables is a recipe of several tasks over one encoder:
[Many tasks, one model](../how-to/many-tasks.md) shows how. Every task needs a `name` and `data.train`; every other key
has a default. Keys outside of lists can be set on the command line, too: `--set training.epochs=3`.
"""


def task_reference() -> str:
    """The whole page in Markdown."""
    elsewhere = "of [the recipe](recipe.md)"
    known: dict[type, str] = {Data: f"`[data]` {elsewhere}", Encoder: f"`[encoder]` {elsewhere}"}
    known |= dict.fromkeys(OBJECTIVES.values(), f"`[objective]` {elsewhere}")
    return "\n".join([_INTRODUCTION, *_sections(TaskRecipe, "", "Top of the file", known)])


if __name__ == "__main__":
    sys.stdout.buffer.write(task_reference().encode())
