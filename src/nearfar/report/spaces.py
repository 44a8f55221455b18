"""Sections about the embedding space of encoders: scores per set, cosines of pairs, anisotropy by layer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nearfar.experiments.records import Record, set_scores
from nearfar.report import svg
from nearfar.report.elements import (
    Content,
    Markup,
    Missing,
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
from nearfar.report.metrics import Metric
from nearfar.report.sources import DataCell, Source

BEFORE = "before training"
NO_SINGLE_SPACE = (
    "Measured for runs on plain texts or pairs whose files and encoder still exist; 'nearfar report MODEL --data FILE' "
    "takes other texts."
)


def embeds(folder: Path) -> bool:
    """Whether a model folder holds an encoder of single texts without a class head."""
    try:
        card = json.loads((folder / "nearfar.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    task = card.get("task") or {}
    return card.get("labels") is None and not card.get("joined") and task.get("kind") not in ("tasks", "classes")


def finished(source: Source, cell: DataCell, contender: str) -> list[Record]:
    """The finished runs of a cell, including those without a score."""
    key = (*cell, contender)
    return [record for record in source.records if record.done and (record.data, record.limit, record.contender) == key]


def by_set(source: Source) -> Markup | Missing:
    """The score on each set of scored pairs, and the change from the untrained encoder."""
    rows = []
    sets = list(dict.fromkeys(name for record in source.done for name in set_scores(record)))
    metric, unit = source.plan.metric, source.metric.unit
    for cell in source.cells:
        for name in source.contenders:
            runs = [run for run in source.runs(cell, name) if set_scores(run)]
            if runs:
                keys = [*(f"{one}/{metric}" for one in sets), metric]
                rows.append([cell.name, *source.named(name), *(_change(runs, key, source.metric) for key in keys)])
    if not rows:
        return Missing("No trial was tested on scored pairs of several sets.")
    remark = (
        f"{unit[:1].upper()}{unit[1:]}, means over the seeds, and the change from the untrained encoder. "
        "Sets of single words are not in the mean where there are others."
    )
    return table(strings("Data", *source.named("Contender")) + numbers(*sets, "mean"), rows) + note(remark)


def cosines(source: Source) -> Markup | Missing:
    """Cosines of positive pairs beside those of random pairs, before and after training."""

    def build(cell: DataCell) -> Markup | None:
        known = {name: [run for run in runs if any(_pairs(run))] for name, runs in _measured(source, cell).items()}
        known = {name: runs for name, runs in known.items() if runs}
        pictures: list[Markup] = []
        for name, runs in known.items():
            if not pictures and runs[0].space.get("before") and not any(map(_untrained, known.values())):
                pictures.append(panel(_histogram(runs[:1], "before"), "Before training"))
            title = ": ".join(["Not trained" if _untrained(runs) else "After training", *source.named(name)])
            pictures.append(panel(_histogram(runs, "after"), title))
        return panels(pictures) if pictures else None

    known = any(_pairs(run)[0] for run in _all_measured(source))
    remark = ("" if known else "Which pairs are positive is not known here, so there are random pairs only. ") + (
        "Positive pairs have a score of at least 80 % of the range, or are labeled as such; random pairs are all pairs "
        f"of a sample of the texts. Each adds up to 100 %{'' if source.single else ', over all runs'}. The less they "
        "overlap, the better the cosine separates positive from random pairs."
    )
    return tabbed(source.by_cell(build), _no_space(source), remark, svg.legend(["positive pairs", "random pairs"]))


def layers(source: Source) -> Markup | Missing:
    """The anisotropy after every layer, before and after training."""
    curves = {cell.name: _layer_curves(source, cell) for cell in source.cells}
    names = [*source.contenders, *([BEFORE] if any(BEFORE in one for one in curves.values()) else [])]
    parts = [(name, _layer_chart(one, names)) for name, one in curves.items() if one]
    remark = (
        "Mean cosine of two texts, pooled after the embeddings (0) and after each layer; 0 is isotropic, 1 is one "
        "direction for all. A transform after the pooling, such as whitening, is not included."
        f"{'' if source.single else ' Means over the runs.'}"
    )
    return tabbed(parts, _no_space(source), remark, svg.legend(names))


def _measured(source: Source, cell: DataCell) -> dict[str, list[Record]]:
    """The runs of each contender whose embedding space was measured."""
    runs = {name: [run for run in finished(source, cell, name) if run.space.get("after")] for name in source.contenders}
    return {name: group for name, group in runs.items() if group}


def _all_measured(source: Source) -> list[Record]:
    return [run for cell in source.cells for group in _measured(source, cell).values() for run in group]


def _no_space(source: Source) -> Missing:
    """Why no space is shown: none was measured, or on fewer than two texts."""
    runs = _all_measured(source)
    if runs and not any(sum(_pairs(run)) for run in runs):
        return Missing("It takes at least two texts, and there were fewer.")
    why = "No trial measured it: it needs plain texts or pairs that are tested on scored pairs."
    return Missing(NO_SINGLE_SPACE if source.single else why)


def _pairs(run: Record) -> tuple[int, int]:
    """The number of positive and of random pairs that were measured after training."""
    histogram = run.space["after"]["histogram"]
    return sum(histogram["positive"]), sum(histogram["random"])


def _untrained(runs: Sequence[Record]) -> bool:
    """Whether these are runs of an untrained encoder, the same before and after."""
    return all(run.space.get("before") == run.space["after"] for run in runs)


def _change(runs: Sequence[Record], name: str, metric: Metric) -> Content:
    after = [run.scores[name] for run in runs if name in run.scores]
    before = [run.before[name] for run in runs if name in run.before and name in run.scores]
    if not after:
        return "–"
    shown = metric.shown(float(np.mean(after)))
    if len(before) < len(after):
        return shown
    change = metric.change(float(np.mean(after) - np.mean(before)))
    return join(shown, tag("span", change, class_="sd"))


def _histogram(runs: Sequence[Record], when: str) -> Markup:
    histograms = [run.space[when]["histogram"] for run in runs if run.space.get(when)]
    edges = np.asarray(histograms[0]["edges"], dtype=float)
    positive, random = (np.sum([one[kind] for one in histograms], axis=0) for kind in ("positive", "random"))
    used = np.flatnonzero(positive + random)
    first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, len(edges) - 1)
    shares = [100 * counts[first:last] / max(1, counts.sum()) for counts in (positive, random)]
    label = f"cosines of {int(positive.sum()):,} positive and {int(random.sum()):,} random pairs"
    return svg.histogram(edges[first : last + 1], shares, ("cosine", "% of the pairs"), label)


def _layer_means(runs: Sequence[Record], when: str) -> list[float]:
    """The mean over the runs for each layer; empty where none is known, or the depths differ."""
    known = [run.space[when].get("layers") or [] for run in runs if run.space.get(when)]
    whole = [[value for value in one if value is not None] for one in known if one and None not in one]
    if not whole or len({len(one) for one in whole}) > 1:
        return []
    return [float(value) for value in np.mean(whole, axis=0)]


def _layer_curves(source: Source, cell: DataCell) -> dict[str, list[float]]:
    """The anisotropy by layer for each contender, and before training where all of them were trained."""
    curves: dict[str, list[float]] = {}
    known = _measured(source, cell)
    for name, runs in known.items():
        before, after = (_layer_means(runs, when) for when in ("before", "after"))
        if before and not curves and not any(map(_untrained, known.values())):
            curves[BEFORE] = before
        if after:
            curves[name] = after
    return curves


def _layer_chart(curves: Mapping[str, list[float]], names: Sequence[str]) -> Markup:
    depth = max(map(len, curves.values()))
    y_range = svg.padded([0.0, *(value for values in curves.values() for value in values)], 0.06, least=0.02)
    chart = svg.Chart(svg.Scale(0, max(1, depth - 1), 62, 730), svg.Scale(*y_range, 230, 34))
    chart.axes("layer", "anisotropy", [(float(layer), str(layer)) for layer in range(0, depth, max(1, depth // 12))])
    for name, values in curves.items():
        series = names.index(name)
        chart.line(list(enumerate(values)), f"line {svg.color(series)}")
        for layer, value in enumerate(values):
            chart.mark((layer, value), series, size=3.2, title=f"{name}, layer {layer}: {value:.3f}")
    return chart.figure(760, 275, "anisotropy after each layer, before and after training")
