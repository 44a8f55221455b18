"""``nearfar objectives``: all objectives, the data they read, and their papers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nearfar.cli import options
from nearfar.errors import SettingError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console


def objectives(
    name: Annotated[str | None, typer.Argument(help="One objective, with all its settings.")] = None,
    json_: options.Json = False,
) -> None:
    """List the training objectives, the data they read, and their papers."""
    from rich.table import Table

    from nearfar.recipe import OBJECTIVES
    from nearfar.recipe.reference import describe

    if name is not None and name not in OBJECTIVES:
        raise SettingError(
            f"there is no objective {name!r}.{did_you_mean(name, list(OBJECTIVES))} There are: {', '.join(OBJECTIVES)}."
        )
    descriptions: dict[str, dict[str, Any]] = {
        key: describe(table) for key, table in OBJECTIVES.items() if name in (None, key)
    }
    if json_:
        sys.stdout.write(json.dumps(descriptions, ensure_ascii=False, indent=2) + "\n")
        return
    console = options.open_console()
    if name is not None:
        _print_one(console, name, descriptions[name])
        return
    table = Table("objective", "what it does", "reads", "paper")
    for key, about in descriptions.items():
        table.add_row(key, about["summary"], about.get("reads", ""), about.get("paper", ""))
    console.print(table, highlight=False)
    console.print("nearfar objectives NAME shows the settings of one of them", highlight=False)


def _print_one(console: Console, name: str, about: dict[str, Any]) -> None:
    from rich.table import Table

    console.print(f"{name}: {about['summary']}\n", highlight=False, soft_wrap=True, markup=False)
    for key in ("formula", "reads", "batches", "related", "paper"):
        if about.get(key):
            console.print(f"{key:<9} {about[key]}", highlight=False, soft_wrap=True, markup=False)
    table = Table(title="settings, in the table \\[objective] of a recipe", title_justify="left")
    for column in ("key", "value", "default", "meaning"):
        table.add_column(column, overflow="fold")  # a long key is broken, never cut off
    for row in about["settings"]:
        table.add_row(row["key"], row["kind"], row["default"], row["doc"])
    console.print(table, highlight=False, markup=False)
