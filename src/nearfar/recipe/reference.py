"""The reference pages of all recipe keys, from the schema: ``python -m nearfar.recipe.reference [tasks]``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any

from nearfar.recipe.capabilities import OBJECTIVES
from nearfar.recipe.keys import Entry, entries, fits, literal, phrase, tag
from nearfar.recipe.reader import former_names
from nearfar.recipe.schema import Data, Encoder, Recipe
from nearfar.recipe.tasks import TaskRecipe

LABELS = ("Formula", "Reads", "Batches", "Related", "Paper")
"""The parts of an objective's docstring after the summary."""

_INTRODUCTION = """\
# Recipe

A recipe is a TOML file that describes a training run: `nearfar train recipe.toml`. Only `data.train` is required; every
other key has a default. [Hyperparameters](../how-to/hyperparameters.md) lists the keys that are worth trying. A typical
recipe:

```toml
[data]
train = "tickets.csv"
dev = 0.1

[encoder]
name = "minilm"

[objective]
name = "supcon"
temperature = 0.1

[batches]
size = 64

[training]
epochs = 3
learning_rate = 1e-4
```

A key is named by its table: `training.epochs` is the key `epochs` of the table `[training]`. Any key can also be set on
the command line, `--set training.epochs=3`, where `none` unsets a key, and in Python,
`settings={"training.epochs": 3}`. "Unset" in the column *Default* means that the value is chosen by the data or by
other keys, as the last column says. The table `[objective]` has other keys for each `name`.
"""

_TASK_INTRODUCTION = """\
# Multi-task recipe

A recipe with `[[task]]` tables trains several tasks with one encoder: [Multi-task training](../how-to/multi-task.md).
Every task needs a `name` and `data.train`; every other key has a default. A small example, with one task of texts with
classes and one of pairs with scores:

```toml
[training]
epochs = 3

[[task]]
name = "reviews"
data = { train = "reviews.csv", dev = 0.1 }

[[task]]
name = "similar"
data = { train = "similar.csv", dev = 0.1 }
```

Keys can also be set on the command line: `--set training.epochs=3`, and `--set task.0.weight=2` for the first task.
"""


def reference() -> str:
    """The page of a recipe in Markdown."""
    return "\n".join([_INTRODUCTION, *_sections(Recipe, "", "Top of the file", {}), _former_names(Recipe)])


def task_reference() -> str:
    """The page of a recipe of several tasks in Markdown."""
    elsewhere = "of [the recipe](recipe.md)"
    known: dict[type, str] = {Data: f"`[data]` {elsewhere}", Encoder: f"`[encoder]` {elsewhere}"}
    known |= dict.fromkeys(OBJECTIVES.values(), f"`[objective]` {elsewhere}")
    sections = _sections(TaskRecipe, "", "Top of the file", known)
    return "\n".join([_TASK_INTRODUCTION, *sections, _former_names(TaskRecipe)])


def _former_names(root: type) -> str:
    """The section of names that are still accepted."""
    rows = [f"| `{former}` | `{present}` |" for former, present in former_names(root)]
    head = ["## Former names", "", "These names are still accepted, with a note.", "", "| Former | Now |", "|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _sections(table: type, path: str, title: str, known_as: dict[type, str], level: int = 2) -> list[str]:
    known = entries(table)
    rows = [_row(entry) for entry in known.values() if not _inner(entry)]
    sections = []
    if rows:
        head = ["| Key | Value | Default | Meaning |", "|---|---|---|---|"]
        about = _about(table) if path else ""
        sections.append(f"{'#' * level} {title}\n\n{about}" + "\n".join([*head, *rows]) + "\n")
    for entry in known.values():
        full, inner = f"{path}{entry.name}", _inner(entry)
        full += ".NAME" if fits(entry.kind).values is not None else ""
        header = f"`[[{full}]]`" if fits(entry.kind).items is not None else f"`[{full}]`"
        repeated = [part for part in inner if part in known_as]
        if repeated:
            sections.append(f"{'#' * level} {header}\n\n{entry.key.about} {_elsewhere(repeated, known_as)}\n")
        fresh = [part for part in inner if part not in known_as]
        known_as.update(dict.fromkeys(fresh, header))
        for part in fresh:
            name = f"{header} with `name = {literal(tag(part))}`" if len(inner) > 1 else header
            sections += _sections(part, f"{full}.", name, known_as)
    return sections


def _elsewhere(repeated: Sequence[type], known_as: dict[type, str]) -> str:
    """Which section has the keys of tables that occur twice."""
    places = list(dict.fromkeys(known_as[part] for part in repeated))
    missing = [f"`{literal(tag(part))}`" for part in known_as if known_as[part] in places and part not in repeated]
    names = f", with any `name` but {' and '.join(missing)}" if missing else ""
    return f"The keys are those of {', '.join(places)}{names}."


def _about(table: type) -> str:
    parts = description(table)
    lines = [f"- {label}: {parts[label.lower()]}" for label in LABELS if label.lower() in parts]
    return "\n".join([parts["summary"], "", *lines, *([""] if lines else [])]) + "\n"


def description(table: type) -> dict[str, str]:
    """The parts of a table's docstring: its summary, and the text of each of the :data:`LABELS`."""
    paragraphs = inspect.cleandoc(table.__doc__ or "").split("\n\n")
    parts = {"summary": " ".join(paragraphs[0].split())}
    current = None
    for line in "\n".join(paragraphs[1:]).splitlines():
        label, colon, text = line.partition(":")
        if colon and label in LABELS:
            current = label.lower()
            parts[current] = text.strip()
        elif current is not None:  # a part may have several lines
            parts[current] = f"{parts[current]} {line.strip()}".strip()
    return parts


def describe(table: type) -> dict[str, Any]:
    """An objective as plain data: its docstring and its settings."""
    settings = [
        {"key": entry.name, "kind": phrase(entry.kind, entry.key), "default": _default(entry), "doc": entry.key.about}
        for entry in entries(table).values()
        if entry.name != "name"
    ]
    return {**description(table), "settings": settings}


def _default(entry: Entry) -> str:
    if entry.default is MISSING:
        return "required"
    return "unset" if entry.default is None else literal(entry.default)


def _inner(entry: Entry) -> tuple[type, ...]:
    form = fits(entry.kind)
    inner = form.items if form.items is not None else form.values
    return form.tables if inner is None else fits(inner).tables


def _row(entry: Entry) -> str:
    plain = entry.default is MISSING or entry.default is None
    default = _default(entry) if plain else f"`{_default(entry)}`"
    cells = [f"`{entry.name}`", phrase(entry.kind, entry.key), default, entry.key.about]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.buffer.write((task_reference() if "tasks" in sys.argv[1:] else reference()).encode())
