"""``nearfar objectives``: what exists, for which data, from which paper."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from nearfar.errors import SettingError, did_you_mean
from nearfar.recipe import OBJECTIVES
from nearfar.recipe.reference import describe


def objectives_command(name: str | None, *, as_json: bool) -> None:
    """All objectives in a table, or one of them whole."""
    if name is not None and name not in OBJECTIVES:
        raise SettingError(
            f"there is no objective {name!r}.{did_you_mean(name, list(OBJECTIVES))} There are: {', '.join(OBJECTIVES)}."
        )
    found: dict[str, dict[str, Any]] = {
        key: describe(table) for key, table in OBJECTIVES.items() if name in (None, key)
    }
    if as_json:
        sys.stdout.write(json.dumps(found, ensure_ascii=False, indent=2) + "\n")
        return
    console = Console()
    if name is not None:
        _one(console, name, found[name])
        return
    table = Table()
    for column in ("objective", "what it does", "reads", "paper"):
        table.add_column(column)
    for key, about in found.items():
        table.add_row(key, about["summary"], about["reads"], about["paper"])
    console.print(table, highlight=False)
    console.print("nearfar objectives NAME shows the settings of one of them", highlight=False)


def _one(console: Console, name: str, about: dict[str, Any]) -> None:
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
