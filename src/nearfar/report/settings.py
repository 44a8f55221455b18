"""The section on how it was done: data, settings that differ, what a search chose, versions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from nearfar.experiments.records import Record
from nearfar.report.markup import Column, Section, cut, folded, note, paragraph, said, section, table
from nearfar.report.sources import Source

NOT_SETTINGS = ("data.", "seed")
"""Keys that vary from trial to trial, and are told elsewhere."""


def provenance(source: Source) -> Section:
    """What anybody needs to do it again."""
    parts = []
    plan = source.plan
    if not source.single:
        columns = [Column("Data"), Column("File", "wide"), Column("Rows", "num"), Column("Kind"), Column("Digest")]
        rows = [
            [said(data.name), said(data.file), f"{data.rows:,}", said(data.kind), _code(data.digest[:12])]
            for data in plan.data
        ]
        seeds = ", ".join(map(str, plan.seeds))
        parts += [
            paragraph(f"Seeds {said(seeds)}; {plan.folds} {'fold' if plan.folds == 1 else 'folds'}."),
            table(columns, rows),
        ]
    differing = _differing(source)
    if differing:
        names = [name for name in source.contenders if source_runs(source, name)]
        columns = [Column("Setting"), *(Column(said(name)) for name in names)]
        rows = [
            [f"<code>{said(key)}</code>", *(said(values.get(name, "–")) for name in names)] for key, values in differing
        ]
        parts.append(table(columns, rows) + note("Settings in which the contenders differ."))
    chosen = [(record, json.dumps(record.settings, ensure_ascii=False)) for record in source.done if record.settings]
    if chosen:
        counts = Counter((record.cell, record.contender, settings) for record, settings in chosen)
        columns = [Column("Data"), Column("Contender"), Column("Chosen settings", "wide"), Column("Trials", "num")]
        rows = [[said(cell), said(name), f"<code>{said(settings)}</code>", str(count)]
                for (cell, name, settings), count in counts.items()]  # fmt: skip
        parts.append(table(columns, rows) + note("What the search chose on the training part of each fold."))
    runs = source.records if source.single else source.done  # a single run need not have a score
    first = next((record for record in runs if record.recipe), None)
    if first is not None:
        listing = "\n".join(f"{key} = {value}" for key, value in flat(first.recipe))
        title = "Settings of the run" if source.single else "All settings of the first trial"
        parts.append(folded(f"{title} ({first.contender})", f"<pre>{said(listing)}</pre>"))
    versions = Counter(f"{name} {value}" for record in runs for name, value in record.versions.items())
    if versions:
        parts.append(note(f"Computed with {', '.join(sorted(versions))}."))
    return section("settings", "How it was done", *parts)


def source_runs(source: Source, name: str) -> list[Record]:
    """The finished runs of a contender."""
    return [record for record in source.done if record.contender == name]


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested tables as dotted keys with their values as TOML or JSON would have them.

    >>> list(flat({"training": {"epochs": 3}, "seed": 2}))
    [('training.epochs', '3'), ('seed', '2')]
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)


def _code(text: str) -> str:
    return f"<code>{said(text)}</code>"


def _differing(source: Source) -> list[tuple[str, dict[str, str]]]:
    """Keys that are not the same for all contenders, with the values of each."""
    if source.single:
        return []
    seen: dict[str, dict[str, dict[str, None]]] = {}
    for record in source.done:
        for key, value in flat(record.recipe):
            if not key.startswith(NOT_SETTINGS):
                seen.setdefault(key, {}).setdefault(record.contender, {})[value] = None
    shown = {
        key: {name: cut(" | ".join(values), 60) for name, values in by_name.items()} for key, by_name in seen.items()
    }
    names = {record.contender for record in source.done}
    return [(key, values) for key, values in shown.items() if len(set(values.values())) > 1 or values.keys() != names]
