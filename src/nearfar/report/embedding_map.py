"""Sections about the space of texts: the map before and after training, its geometry, labels that neighbors doubt."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearfar.experiments.records import Record, cell_name, read_map
from nearfar.report import spaces, svg
from nearfar.report.analysis import DOUBT, NEIGHBORS, Prediction, agreement, principal_plane, suspects
from nearfar.report.markup import (
    Column,
    Section,
    cut,
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

SIDE = 334
LEGEND = 32
"""Classes up to which the map says which mark is whose."""

NO_MAP = "No trial kept vectors (map.safetensors)."
NO_SINGLE_MAP = "The run's folder has no vectors; 'nearfar report MODEL --data FILE' makes some."

Cell = tuple[str, int | None]
Vectors = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32]]


def embedding_map(source: Source) -> Section:
    """Test texts in the plane, before training and after it."""
    title = "Map of the texts"
    parts = []
    for cell in source.cells:
        labels = source.labels(cell)
        panels: list[str] = []
        for name in source.contenders:
            found = mapped(source, cell, name)
            if found is None:
                continue
            (rows, before, after), seen = found
            known = {one.row: one for one in seen}
            texts = [known.get(int(row)) for row in rows]
            if not panels:
                panels.append(panel("Before training", *_scatter(before, texts, labels, wrong=False)))
            panels.append(panel(f"After training: {name}", *_scatter(after, texts, labels, wrong=True)))
        if panels:
            key = legend(labels) if 1 < len(labels) <= LEGEND else ""
            parts.append((cell_name(*cell), key + side_by_side(panels)))
    if not parts:
        return missing("map", title, NO_SINGLE_MAP if source.single else NO_MAP)
    remark = (
        "Test texts, on the two axes along which their directions spread most (principal components, of each picture "
        "its own). Point at a mark to read its text; marks with a rim are predicted wrongly. Two axes show only a "
        "part of the variance: texts that lie together here may be apart. Neighbors: the "
        f"{NEIGHBORS} nearest by cosine, in all dimensions."
    )
    return section("map", title, tabs(parts), note(remark))


def geometry(source: Source) -> Section:
    """Alignment, uniformity, anisotropy and effective rank before and after."""
    title = "Geometry of the vectors"
    measures = ("alignment", "uniformity", "anisotropy", "effective_rank")
    rows, arrows = [], []
    for cell in source.cells:
        for place, name in enumerate(source.contenders):
            runs = [run for run in spaces.of(source, cell, name) if run.geometry.get("after")]
            if not runs:
                continue
            before = {measure: _mean(runs, "before", measure) for measure in measures}
            after = {measure: _mean(runs, "after", measure) for measure in measures}
            rows.append([said(cell_name(*cell)), said(name), *(
                _number(side[measure]) for measure in measures for side in (before, after))])  # fmt: skip
            ends = [(side["uniformity"], side["alignment"]) for side in (before, after)]
            if all(value is not None for end in ends for value in end):
                arrows.append((f"{name} on {cell_name(*cell)}", place, ends))
    if not rows:
        why = "No trial measured it: it needs texts with classes, or scored pairs as the test."
        return missing("geometry", title, spaces.NO_SINGLE_SPACE if source.single else why)
    columns = [Column("Data"), Column("Contender"), *(
        Column(f"{measure.capitalize().replace('_', ' ')}<br><small>{when}</small>", "num")
        for measure in measures for when in ("before", "after"))]  # fmt: skip
    remark = (
        "Alignment: mean squared distance of two test texts of one class, or of a like pair, small where these are "
        "tight. Uniformity: log of the mean of exp(−2 × squared distance) over all pairs, small where texts fill "
        "the sphere. Anisotropy: mean cosine of two texts. Effective rank: how many directions the texts use. Means "
        "over the runs. In the picture an arrow leads from before to after; down and left is better."
    )
    picture = _arrows(arrows) if arrows else ""
    key = legend(source.contenders) if arrows else ""
    return section("geometry", title, key, picture, table(columns, rows), note(remark))


def label_errors(source: Source) -> Section:
    """Texts most of whose neighbors have another label."""
    title = "Suspected label errors"
    parts, looked = [], 0
    for cell in source.cells:
        found = next((found for name in reversed(source.contenders) if (found := mapped(source, cell, name))), None)
        if found is None:
            continue
        (rows, _, after), seen = found
        known = {one.row: one for one in seen}
        kept = [place for place, row in enumerate(rows.tolist()) if row in known]
        if len(kept) < 3:
            continue
        votes: dict[int, list[str]] = {}
        for name in source.contenders:
            for one in source.predictions(cell, name):
                votes.setdefault(one.row, []).append(one.predicted)
        asked = [known[int(rows[place])] for place in kept]
        looked += len(kept)
        doubted = suspects(after[kept], [one.row for one in asked], [one.text for one in asked],
                           [one.label for one in asked], votes)  # fmt: skip
        if doubted:
            columns = [Column("Text", "wide"), Column("Row", "num"), Column("Label"), Column("Neighbors say"),
                       Column("Neighbors, %", "num"), Column("Runs that agree", "num")]  # fmt: skip
            body = [[said(cut(one.text, 300)), f"{one.row + 1:,}", said(one.label), said(one.suggested),
                     f"{100 * one.share:.0f}", f"{one.said} of {one.tested}"] for one in doubted]  # fmt: skip
            parts.append((cell_name(*cell), table(columns, body)))
    if not looked:
        return missing("labels", title, NO_SINGLE_MAP if source.single else NO_MAP)
    if not parts:
        why = f"None: of {looked:,} texts, no one has {100 * DOUBT:.0f} % of its neighbors in one other class."
        return missing("labels", title, why)
    remark = (
        f"Of {looked:,} test texts, those with at least {100 * DOUBT:.0f} % of the {NEIGHBORS} nearest test texts in "
        "one other class, after training. Runs that agree tested the text, did not train on it, and predict what its "
        "neighbors say. Row: counted from 1 among the rows that can be used, so without the header, blank lines and "
        "rows that were dropped."
    )
    return section("labels", title, tabs(parts), note(remark))


def mapped(source: Source, cell: Cell, contender: str) -> tuple[Vectors, list[Prediction]] | None:
    """The vectors of a contender's first run that kept some, and its predictions; None where there are none."""
    for run in source.of(cell, contender):
        found = read_map(run) if run.folder is not None else None
        if found is not None and len(found[0]):
            return found, source.predicted(run)
    return None


def _scatter(
    vectors: NDArray[np.float32], texts: Sequence[Prediction | None], labels: Sequence[str], *, wrong: bool
) -> tuple[str, str]:
    places, share = principal_plane(vectors)
    x = svg.Scale(*svg.padded(places[:, 0], 0.05), 8, SIDE - 8)
    y = svg.Scale(*svg.padded(places[:, 1], 0.05), SIDE - 68, 8)
    of = {label: at for at, label in enumerate(labels)}
    marks = []
    for (across, down), one in zip(places.tolist(), texts, strict=True):
        if one is None:
            marks.append(svg.tag("circle", cx=x(across), cy=y(down), r=2.2, class_="unknown"))
            continue
        told = f"{one.label}: {cut(one.text, 160)}"
        missed = wrong and not one.right
        told += f" (predicted: {one.predicted})" if missed else ""
        class_ = "dot missed" if missed else "dot"
        marks.append(svg.mark(x(across), y(down), of.get(one.label, 0), size=3.1, title=told, class_=class_))
    frame = svg.tag("rect", x=0.5, y=0.5, width=SIDE - 1, height=SIDE - 61, rx=3, class_="frame")
    known = [one for one in texts if one is not None]
    kept = [place for place, one in enumerate(texts) if one is not None]
    remark = f"{100 * share:.0f} % of the variance"
    if len(known) > 2:
        remark += f"; {100 * agreement(vectors[kept], [one.label for one in known]):.1f} % of neighbors share the label"
    return svg.figure(SIDE, SIDE - 60, frame + "".join(marks), label="map of the test texts"), remark


def _arrows(arrows: Sequence[tuple[str, int, list[tuple[float | None, float | None]]]]) -> str:
    points = [(float(u or 0), float(a or 0)) for _, _, ends in arrows for u, a in ends]
    x = svg.Scale(*svg.padded((u for u, _ in points), 0.08, least=0.05), 62, 730)
    y = svg.Scale(*svg.padded((a for _, a in points), 0.1, least=0.02), 250, 34)
    parts = [svg.axes(x, y, x_title="uniformity", y_title="alignment")]
    for told, place, ((u0, a0), (u1, a1)) in arrows:
        start, end = (x(u0 or 0), y(a0 or 0)), (x(u1 or 0), y(a1 or 0))
        parts.append(svg.path([start, end], f"thin {svg.color(place)}"))
        length = math.hypot(end[0] - start[0], end[1] - start[1])
        if length > 14:
            back = [(end[0] + 11 * math.cos(turn), end[1] + 11 * math.sin(turn)) for turn in (
                math.atan2(start[1] - end[1], start[0] - end[0]) + side for side in (-0.35, 0.35))]  # fmt: skip
            parts.append(svg.path([back[0], end, back[1]], f"thin {svg.color(place)}"))
        parts.append(svg.mark(*start, place, size=3, class_="mark hollow", title=f"{told}, before"))
        parts.append(svg.mark(*end, place, title=f"{told}, after"))
    return svg.figure(760, 300, "".join(parts), label="alignment against uniformity, before and after training")


def _mean(runs: Sequence[Record], when: str, measure: str) -> float | None:
    found = [value for run in runs if isinstance(value := run.geometry.get(when, {}).get(measure), int | float)]
    return float(np.mean(found)) if found else None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".replace("-", "−")
