"""The section on settings: data, settings that differ, results of a search, versions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from nearfar.errors import counted
from nearfar.report.elements import Column, details, note, numbers, strings, table
from nearfar.report.markup import Content, Markup, cut, join, tag
from nearfar.report.sources import Source

NOT_SETTINGS = ("data.", "seed")
"""Keys that vary from trial to trial and are shown elsewhere."""


def provenance(source: Source) -> Markup:
    """What is needed to reproduce the results."""
    parts = []
    plan = source.plan
    if not source.single:
        columns = [*strings("Data"), Column("File", "wide"), *numbers("Rows"), *strings("Row type", "Digest")]
        rows: list[list[Content]] = [
            [data.name, data.file, f"{data.rows:,}", data.kind, tag("code", data.digest[:12])] for data in plan.data
        ]
        seeds = f"Seeds {', '.join(map(str, plan.seeds))}; {counted(plan.folds, 'fold')}."
        parts += [tag("p", seeds), table(columns, rows)]
    differing = _differing(source)
    if differing:
        names = [name for name in source.contenders if any(record.contender == name for record in source.done)]
        rows = [[tag("code", key), *(values.get(name, "–") for name in names)] for key, values in differing.items()]
        parts += [table(strings("Setting", *names), rows), note("Settings in which the contenders differ.")]
    chosen = Counter(
        (record.cell, record.contender, json.dumps(record.settings, ensure_ascii=False))
        for record in source.done
        if record.settings
    )
    if chosen:
        columns = [*strings("Data", "Contender"), Column("Chosen settings", "wide"), *numbers("Trials")]
        rows = [[cell, name, tag("code", settings), str(count)] for (cell, name, settings), count in chosen.items()]
        parts += [table(columns, rows), note("Chosen by the search on the training part of each fold.")]
    runs = source.records if source.single else source.done  # a single run may have no score
    first = next((record for record in runs if record.recipe), None)
    if first is not None:
        listing = "\n".join(f"{key} = {value}" for key, value in flat(first.recipe))
        title = "Settings of the run" if source.single else "All settings of the first trial"
        parts.append(details(f"{title} ({first.contender})", tag("pre", listing)))
    versions = {f"{name} {value}" for record in runs for name, value in record.versions.items()}
    if versions:
        parts.append(note(f"Computed with {', '.join(sorted(versions))}."))
    return join(*parts)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested tables as dotted keys with their values in JSON.

    >>> list(flat({"training": {"epochs": 3}, "seed": 2}))
    [('training.epochs', '3'), ('seed', '2')]
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)


def _differing(source: Source) -> dict[str, dict[str, str]]:
    """Keys that are not the same for all contenders, with the values of each."""
    if source.single:
        return {}
    values: dict[str, dict[str, dict[str, None]]] = {}
    for record in source.done:
        for key, value in flat(record.recipe):
            if not key.startswith(NOT_SETTINGS):
                values.setdefault(key, {}).setdefault(record.contender, {})[value] = None
    shown = {
        key: {name: cut(" | ".join(each), 60) for name, each in by_name.items()} for key, by_name in values.items()
    }
    names = {record.contender for record in source.done}
    return {key: each for key, each in shown.items() if len(set(each.values())) > 1 or each.keys() != names}
