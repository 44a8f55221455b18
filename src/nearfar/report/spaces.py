"""Sections about encoders: each set of scored pairs, cosines of like and of random pairs, the layers one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nearfar.experiments.records import Record, cell_name, set_scores
from nearfar.report import svg
from nearfar.report.markup import (
    Column,
    Section,
    legend,
    missing,
    note,
    panel,
    said,
    section,
    side_by_side,
    table,
    tabs,
)
from nearfar.report.sources import Source
from nearfar.report.tables import points

WIDTH, HEIGHT = 334, 220
BEFORE = "before training"
LIKE, RANDOM = 0, 1
"""The colors of like and of random pairs."""

NO_SINGLE_SPACE = (
    "Measured of runs on plain texts or pairs, whose files and encoder are still there; 'nearfar report MODEL --data "
    "FILE' names other texts."
)
TOO_FEW = "It takes two texts at least, and fewer were looked at."
NO_LIKE = "Which pairs are like is not known here, so there are random pairs only. "
NO_SPACE = "No trial measured it: it needs plain texts or pairs that are tested on scored pairs."

Cell = tuple[str, int | None]


def embeds(folder: Path) -> bool:
    """Whether the model in a folder of nearfar gives each text a vector, and no class."""
    try:
        card = json.loads((folder / "nearfar.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    task = card.get("task") or {}
    return card.get("labels") is None and not card.get("joined") and task.get("kind") not in ("tasks", "classes")


def of(source: Source, cell: Cell, contender: str) -> list[Record]:
    """The ended runs of a cell, also those without a score."""
    return [
        record
        for record in source.records
        if record.done and (record.data, record.limit, record.contender) == (*cell, contender)
    ]


def by_set(source: Source) -> Section:
    """Spearman's correlation on each set of scored pairs, and that of the encoder as it was."""
    title = "Each set of scored pairs"
    rows = []
    sets = list(dict.fromkeys(name for record in source.done for name in set_scores(record)))
    for cell in source.cells:
        for name in source.contenders:
            runs = [run for run in source.of(cell, name) if set_scores(run)]
            if runs:
                cells = [_change(runs, f"{one}/{source.plan.metric}", source.scale) for one in sets]
                mean = _change(runs, source.plan.metric, source.scale)
                rows.append([said(cell_name(*cell)), said(name), *cells, mean])
    if not rows:
        return missing("sets", title, "No trial was tested on scored pairs of several sets.")
    columns = [Column("Data"), Column("Contender"), *(Column(said(one), "num") for one in (*sets, "mean"))]
    remark = (
        f"{source.unit[:1].upper()}{source.unit[1:]}, means over the seeds, and the change from the encoder as it was. "
        "Sets of single words are not in the mean where there are others."
    )
    return section("sets", title, table(columns, rows), note(remark))


def cosines(source: Source) -> Section:
    """Cosines of like pairs beside those of random pairs, before and after."""
    title = "Cosines of like and of random pairs"
    parts, like = [], False
    for cell in source.cells:
        panels: list[str] = []
        known = {
            name: some
            for name, runs in _by_contender(source, cell).items()
            if (some := [run for run in runs if any(_pairs(run))])
        }
        like = like or any(_pairs(run)[LIKE] for runs in known.values() for run in runs)
        for name, runs in known.items():
            if not panels and runs[0].space.get("before") and not any(map(_stayed, known.values())):
                panels.append(panel("Before training", _histogram(runs[:1], "before")))
            above = f"Not trained: {name}" if _stayed(runs) else f"After training: {name}"
            panels.append(panel(above, _histogram(runs, "after")))
        if panels:
            parts.append((cell_name(*cell), side_by_side(panels)))
    if not parts:
        return missing("cosines", title, _why_not(source))
    remark = ("" if like else NO_LIKE) + (
        "Like pairs have at least four fifths of the highest score, or belong together; random pairs are all pairs of "
        "a sample of the texts. Each adds up to 100 %, over all runs. The less they overlap, the better a cosine tells "
        "like from unlike."
    )
    return section("cosines", title, legend(["like pairs", "random pairs"]), tabs(parts), note(remark))


def layers(source: Source) -> Section:
    """The anisotropy behind every layer, before and after."""
    title = "Anisotropy layer by layer"
    parts, extra = [], False
    for cell in source.cells:
        curves: list[tuple[str, int, list[float]]] = []
        known = _by_contender(source, cell)
        for name, runs in known.items():
            before, after = (_layers(runs, when) for when in ("before", "after"))
            if before and not curves and not any(map(_stayed, known.values())):
                curves.append((BEFORE, len(source.contenders), before))
                extra = True
            if after:
                curves.append((name, source.contenders.index(name), after))
        if curves:
            parts.append((cell_name(*cell), _curves(curves)))
    if not parts:
        return missing("layers", title, _why_not(source))
    remark = (
        "Mean cosine of two texts, pooled behind the embeddings (0) and behind each layer; 0 is balanced, 1 is one "
        "direction for all. A map behind the pooling, such as whitening, has no part in it. Means over the runs."
    )
    names = [*source.contenders, *([BEFORE] if extra else [])]
    return section("layers", title, legend(names), tabs(parts), note(remark))


def _by_contender(source: Source, cell: Cell) -> dict[str, list[Record]]:
    """The runs of each contender whose space was measured."""
    found = {name: [run for run in of(source, cell, name) if run.space.get("after")] for name in source.contenders}
    return {name: runs for name, runs in found.items() if runs}


def _why_not(source: Source) -> str:
    """Why no space is shown: nobody looked at one, or at no two texts of it."""
    counts = [_pairs(run) for cell in source.cells for runs in _by_contender(source, cell).values() for run in runs]
    if counts and not any(map(any, counts)):
        return TOO_FEW
    return NO_SINGLE_SPACE if source.single else NO_SPACE


def _pairs(run: Record) -> tuple[int, int]:
    """How many like and how many random pairs a run looked at after training."""
    histogram = run.space["after"]["histogram"]
    return sum(histogram["positive"]), sum(histogram["random"])


def _stayed(runs: Sequence[Record]) -> bool:
    """Whether these are of an encoder as it is, which stands for itself before training."""
    return all(run.space.get("before") == run.space["after"] for run in runs)


def _change(runs: Sequence[Record], name: str, scale: float) -> str:
    after = [run.scores[name] for run in runs if name in run.scores]
    before = [run.before[name] for run in runs if name in run.before and name in run.scores]
    if not after:
        return "–"
    shown = points(float(np.mean(after)), scale)
    if len(before) < len(after):
        return shown
    moved = points(float(np.mean(after) - np.mean(before)), scale, sign=True)
    return f'{shown}<span class="sd">{moved}</span>'


def _histogram(runs: Sequence[Record], when: str) -> str:
    found = [run.space[when]["histogram"] for run in runs if run.space.get(when)]
    edges = np.asarray(found[0]["edges"], dtype=float)
    counts = [np.sum([one[kind] for one in found], axis=0) for kind in ("positive", "random")]
    shares = [100 * one / max(1, one.sum()) for one in counts]
    used = np.flatnonzero(shares[LIKE] + shares[RANDOM])
    first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, len(edges) - 1)
    x = svg.Scale(edges[first], edges[last], 50, WIDTH - 12)
    y = svg.Scale(0, max(5.0, *(float(share.max()) for share in shares)) * 1.05, HEIGHT - 46, 32)
    parts = [svg.axes(x, y, x_title="cosine", y_title="% of the pairs")]
    for place, share in enumerate(shares):
        if not share.any():
            continue
        steps = [(x(edges[first]), y(0))]
        for at in range(first, last):
            steps += [(x(edges[at]), y(share[at])), (x(edges[at + 1]), y(share[at]))]
        steps.append((x(edges[last]), y(0)))
        parts += [svg.path(steps, f"area {svg.color(place)}"), svg.path(steps, f"line {svg.color(place)}")]
    told = f"cosines of {int(counts[LIKE].sum()):,} like and {int(counts[RANDOM].sum()):,} random pairs"
    return svg.figure(WIDTH, HEIGHT, "".join(parts), label=told)


def _layers(runs: Sequence[Record], when: str) -> list[float]:
    """The mean of each layer; empty where a run has none, or they are of several depths."""
    found = [run.space[when].get("layers") or [] for run in runs if run.space.get(when)]
    whole = [one for one in found if one and all(isinstance(value, int | float) for value in one)]
    if not whole or len({len(one) for one in whole}) > 1:
        return []
    return [float(value) for value in np.mean(whole, axis=0)]


def _curves(curves: Sequence[tuple[str, int, list[float]]]) -> str:
    depth = max(len(values) for _, _, values in curves)
    x = svg.Scale(0, max(1, depth - 1), 62, 730)
    y = svg.Scale(
        *svg.padded([0.0, *(value for _, _, values in curves for value in values)], 0.06, least=0.02), 230, 34
    )
    ticks = [(float(layer), str(layer)) for layer in range(0, depth, max(1, depth // 12))]
    parts = [svg.axes(x, y, x_title="layer", y_title="anisotropy", x_ticks=ticks)]
    for name, place, values in curves:
        dots = [(x(layer), y(value)) for layer, value in enumerate(values)]
        parts.append(svg.path(dots, f"line {svg.color(place)}"))
        parts += [
            svg.mark(*dot, place, size=3.2, title=f"{name}, layer {layer}: {value:.3f}")
            for layer, (dot, value) in enumerate(zip(dots, values, strict=True))
        ]
    return svg.figure(760, 275, "".join(parts), label="anisotropy behind each layer, before and after training")
