"""Sections about the embeddings of test texts: the map, the geometry, suspected label errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearfar.experiments.records import Record, read_map
from nearfar.report import spaces, svg
from nearfar.report.analysis import DOUBT, NEIGHBORS, Prediction, label_suspects, neighbor_agreement, principal_plane
from nearfar.report.elements import (
    NOTHING,
    Column,
    Markup,
    Missing,
    cut,
    join,
    note,
    numbers,
    panel,
    panels,
    strings,
    tabbed,
    table,
    tag,
)
from nearfar.report.metrics import signed
from nearfar.report.sources import DataCell, Source

SIDE = 334
LEGEND = 32
"""Most classes for which the map has a legend."""
MEASURES = ("alignment", "uniformity", "anisotropy", "effective_rank")

NO_VECTORS = np.zeros((0, 0), dtype=np.float32)

Map = tuple[list[Prediction | None], NDArray[np.float32], NDArray[np.float32]]
"""The prediction for each text, where it is known, and (n, d), (n, d) the vectors before and after training."""


def embedding_map(source: Source) -> Markup | Missing:
    """Test texts in the plane, before and after training."""

    def build(cell: DataCell) -> Markup | None:
        labels = source.labels(cell)
        pictures: list[Markup] = []
        for name in source.contenders:
            vectors = read_vectors(source, cell, name)
            if vectors is not None:
                texts, before, after = vectors
                if not pictures:
                    picture, remark = _scatter(before, texts, labels, wrong=False)
                    pictures.append(panel(picture, "Before training", remark))
                title = ": ".join(["After training", *source.named(name)])
                picture, remark = _scatter(after, texts, labels, wrong=True)
                pictures.append(panel(picture, title, remark))
        key = svg.legend(labels) if 1 < len(labels) <= LEGEND else NOTHING
        return key + panels(pictures) if pictures else None

    remark = (
        "Test texts on the first two principal components of their normalized vectors, computed for each picture. "
        "Point at a mark to read its text; marks with a rim are predicted wrongly. Two components show only a part of "
        f"the variance: texts that are close here may be far apart. Neighbors: the {NEIGHBORS} nearest by cosine, in "
        "all dimensions."
    )
    return tabbed(source.by_cell(build), _no_map(source), remark)


def geometry(source: Source) -> Markup | Missing:
    """Alignment, uniformity, anisotropy and effective rank before and after training."""
    rows, arrows = [], []
    for cell in source.cells:
        for series, name in enumerate(source.contenders):
            runs = [run for run in spaces.finished(source, cell, name) if run.geometry.get("after")]
            if not runs:
                continue
            before, after = (
                {measure: _mean(runs, when, measure) for measure in MEASURES} for when in ("before", "after")
            )
            values = [side[measure] for measure in MEASURES for side in (before, after)]
            rows.append([cell.name, *source.named(name), *map(signed, values)])
            ends = [(side["uniformity"], side["alignment"]) for side in (before, after)]
            points = [(x, y) for x, y in ends if x is not None and y is not None]
            if len(points) == 2:
                arrows.append((f"{name} on {cell.name}", series, points))
    if not rows:
        why = "No trial measured it: it needs texts with classes, or scored pairs as the test."
        return Missing(spaces.NO_SINGLE_SPACE if source.single else why)
    titles = [
        join(measure.capitalize().replace("_", " "), tag("br"), tag("small", when))
        for measure in MEASURES
        for when in ("before", "after")
    ]
    columns = strings("Data", *source.named("Contender")) + numbers(*titles)
    remark = (
        "Alignment: mean squared distance of two test texts of one class, or of a positive pair; lower is closer. "
        "Uniformity: log of the mean of exp(−2 × squared distance) over all pairs; lower is more even on the sphere. "
        "Anisotropy: mean cosine of two texts. Effective rank: how many directions the texts use. "
        f"{'' if source.single else 'Means over the runs. '}In the chart an arrow leads from before to after; down "
        "and left is better."
    )
    picture = svg.legend([] if source.single else source.contenders) + _arrows(arrows) if arrows else NOTHING
    return picture + table(columns, rows) + note(remark)


def label_errors(source: Source) -> Markup | Missing:
    """Texts most of whose neighbors have another label."""
    columns = [Column("Text", "wide"), *numbers("Row"), *strings("Label", "Label of neighbors")]
    columns += numbers("Neighbors, %", "Prediction agrees" if source.single else "Runs that agree")
    parts, checked = [], 0
    for cell in source.cells:
        maps = (read_vectors(source, cell, name) for name in reversed(source.contenders))
        texts, _, after = next((one for one in maps if one is not None), ([], NO_VECTORS, NO_VECTORS))
        known = [one for one in texts if one is not None]
        if len(known) < 3:
            continue
        checked += len(known)
        votes: dict[int, list[str]] = {}
        for name in source.contenders:
            for one in source.predictions(cell, name):
                votes.setdefault(one.row, []).append(one.predicted)
        rows = []
        for suspect in label_suspects(after[[one is not None for one in texts]], known, votes):
            where = [cut(suspect.text, 300), f"{suspect.row + 1:,}", suspect.label, suspect.suggested]
            agreed = f"{suspect.runs} of {suspect.tested}"
            if source.single:
                agreed = "yes" if suspect.runs else "no"
            rows.append([*where, f"{100 * suspect.share:.0f}", agreed])
        if rows:
            parts.append((cell.name, table(columns, rows)))
    agree = "Runs that agree tested the text, did not train on it, and predict the label of its neighbors."
    if source.single:
        agree = "A prediction agrees if it is the label of the neighbors."
    none = f"None: of {checked:,} texts, none has {100 * DOUBT:.0f} % of its neighbors in one other class."
    remark = (
        f"Of {checked:,} test texts, those with at least {100 * DOUBT:.0f} % of the {NEIGHBORS} nearest test texts in "
        f"one other class, after training. {agree} Row: counted from 1 among the usable rows, so without the header, "
        "blank lines and dropped rows."
    )
    return tabbed(parts, Missing(none) if checked else _no_map(source), remark)


def read_vectors(source: Source, cell: DataCell, contender: str) -> Map | None:
    """The vectors of a contender's first run that kept some, with the predictions; None where there are none."""
    for run in source.runs(cell, contender):
        vectors = read_map(run) if run.folder is not None else None
        if vectors is not None and len(vectors[0]):
            rows, before, after = vectors
            known = {one.row: one for one in source.predicted(run)}
            return [known.get(row) for row in rows.tolist()], before, after
    return None


def _no_map(source: Source) -> Missing:
    if source.single:
        return Missing("The run's folder has no vectors; 'nearfar report MODEL --data FILE' makes some.")
    return Missing("No trial kept vectors (map.safetensors).")


def _scatter(
    vectors: NDArray[np.float32], texts: Sequence[Prediction | None], labels: Sequence[str], *, wrong: bool
) -> tuple[Markup, str]:
    """The map with a mark for each text, and a remark; with ``wrong``, mistakes get a rim."""
    plane, share = principal_plane(vectors)
    x = svg.Scale(*svg.padded(plane[:, 0], 0.05), 8, SIDE - 8)
    y = svg.Scale(*svg.padded(plane[:, 1], 0.05), SIDE - 68, 8)
    series = {label: index for index, label in enumerate(labels)}
    parts = [tag("rect", x=0.5, y=0.5, width=SIDE - 1, height=SIDE - 61, rx=3, class_="frame")]
    for (across, up), one in zip(plane.tolist(), texts, strict=True):
        if one is None:
            parts.append(tag("circle", cx=x(across), cy=y(up), r=2.2, class_="unknown"))
            continue
        title, class_ = f"{one.label}: {cut(one.text, 160)}", "dot"
        if wrong and not one.correct:
            title, class_ = f"{title} (predicted: {one.predicted})", "dot missed"
        parts.append(svg.mark(x(across), y(up), series.get(one.label, 0), size=3.1, title=title, class_=class_))
    remark = f"{100 * share:.0f} % of the variance"
    known = [one.label for one in texts if one is not None]
    if len(known) > 2:
        agreement = neighbor_agreement(vectors[[one is not None for one in texts]], known)
        remark += f"; {100 * agreement:.1f} % of neighbors share the label"
    return svg.figure(SIDE, SIDE - 60, *parts, label="map of the test texts"), remark


def _arrows(arrows: Sequence[tuple[str, int, list[svg.Point]]]) -> Markup:
    """Alignment over uniformity: an arrow from before to after training for each contender."""
    points = [point for _, _, ends in arrows for point in ends]
    x = svg.Scale(*svg.padded((u for u, _ in points), 0.08, least=0.05), 62, 730)
    y = svg.Scale(*svg.padded((a for _, a in points), 0.1, least=0.02), 250, 34)
    chart = svg.Chart(x, y)
    chart.axes("uniformity", "alignment")
    for name, series, (before, after) in arrows:
        start, end = ((x(u), y(a)) for u, a in (before, after))
        chart.line([before, after], f"thin {svg.color(series)}")
        if math.dist(start, end) > 14:
            back = math.atan2(start[1] - end[1], start[0] - end[0])
            left, right = (
                (end[0] + 11 * math.cos(back + turn), end[1] + 11 * math.sin(back + turn)) for turn in (-0.35, 0.35)
            )
            chart.content.append(svg.path([left, end, right], f"thin {svg.color(series)}"))
        chart.mark(before, series, size=3, class_="mark hollow", title=f"{name}, before")
        chart.mark(after, series, title=f"{name}, after")
    return chart.figure(760, 300, "alignment against uniformity, before and after training")


def _mean(runs: Sequence[Record], when: str, measure: str) -> float | None:
    values = [run.geometry.get(when, {}).get(measure) for run in runs]
    known = [value for value in values if isinstance(value, int | float)]
    return float(np.mean(known)) if known else None
