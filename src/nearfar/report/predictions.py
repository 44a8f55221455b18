"""Sections that look into the predictions: classes, confusion, hard labels, confidence, mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import counted
from nearfar.experiments.records import cell_name
from nearfar.report import svg
from nearfar.report.analysis import Prediction, accuracy_within, confident_mistakes, entropy, hardest
from nearfar.report.markup import (
    Column,
    Section,
    cut,
    folded,
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
from nearfar.report.sources import Source, TaskErrors

SHOWN_CLASSES = 30
"""Classes in the picture of F1; the table has them all."""
DRAWN_CONFUSION = 20
"""Classes up to which the confusion is drawn; of more, the most common mistakes are listed."""
BINS = 20
HARD = 4

NO_CLASSES = "No data set here has classes."
NO_PREDICTIONS = "No run left predictions of classes (predictions.jsonl)."
NO_SINGLE_PREDICTIONS = "The run's folder has no predictions; 'nearfar report MODEL --data FILE' makes some."


def per_class(source: Source) -> Section:
    """F1 of every class, contender by contender."""
    parts = []
    for cell in source.cells:
        labels = source.labels(cell)
        values = {
            (label, place): float(np.mean(found))
            for place, name in enumerate(source.contenders)
            for label in labels
            if (found := [run.per_class[label]["f1"] for run in source.of(cell, name)
                          if run.per_class.get(label, {}).get("support", 0) > 0])
        }  # fmt: skip
        if values:
            parts.append((cell_name(*cell), _class_part(source, cell, labels, values)))
    if not parts:
        return missing("per-class", "F1 of each class", NO_CLASSES)
    remark = "F1 × 100, mean over the runs whose test rows have the class; the hardest class of the baseline first."
    names = [] if source.single else source.contenders
    return section("per-class", "F1 of each class", legend(names), tabs(parts), note(remark))


def confusion(source: Source) -> Section:
    """Which class is taken for which."""
    parts = []
    for cell in source.cells:
        labels = source.labels(cell)
        panels = []
        for name in source.contenders:
            counts = total_confusion(source, cell, name)
            if counts is not None and len(labels) <= DRAWN_CONFUSION:
                wrong = int(counts.sum() - np.trace(counts))
                remark = f"{wrong:,} of {counts.sum():,} predictions wrong"
                panels.append(panel(name, _heatmap(counts, labels), remark))
            elif counts is not None:
                panels.append(panel(name, _common_mistakes(counts, labels), "the most common mistakes"))
        if panels:
            parts.append((cell_name(*cell), side_by_side(panels)))
    if not parts:
        return missing("confusion", "Confusion", NO_CLASSES)
    remark = (
        "Rows are the true classes, columns the predicted ones: percent of the row, over all runs. Right is blue, "
        "wrong is orange."
    )
    return section("confusion", "Confusion", tabs(parts), note(remark))


def hard_labels(source: Source) -> Section:
    """Accuracy among the classes that are most taken for each other."""
    title = "A hard set of labels"
    rows = []
    for cell in source.cells:
        labels = source.labels(cell)
        tables = [found for name in source.contenders if (found := total_confusion(source, cell, name)) is not None]
        if len(labels) <= HARD or not tables:
            continue
        shares = sum(found / max(1, found.sum()) for found in tables)  # every contender has the same say
        chosen = {labels[place] for place in hardest((1e6 * np.asarray(shares)).tolist(), HARD)}
        reached = [accuracy_within(source.predictions(cell, name), chosen) for name in source.contenders]
        if any(entry is not None for entry in reached):
            shown = ["–" if entry is None else f"{100 * entry[0]:.2f}" for entry in reached]
            rows.append([said(cell_name(*cell)), said(", ".join(sorted(chosen))), *shown])
    if not rows:
        enough = any(len(source.labels(cell)) > HARD for cell in source.cells)
        why = (NO_SINGLE_PREDICTIONS if source.single else NO_PREDICTIONS) if enough else (
            f"Needs a data set with more than {HARD} classes.")  # fmt: skip
        return missing("hard", title, why)
    columns = [Column("Data"), Column("Labels"), *(Column(said(name), "num") for name in source.contenders)]
    remark = (
        f"Accuracy × 100 on the rows of the {HARD} classes that all contenders together take most for each other, when "
        "only these may be predicted. They were chosen on the same rows, so the figures compare contenders and say "
        "nothing beyond that."
    )
    return section("hard", title, table(columns, rows), note(remark))


def confidence(source: Source) -> Section:
    """How sure the models are, when they are right and when they are wrong."""
    title = "Confidence"
    parts = []
    for cell in source.cells:
        rows, panels = [], []
        for name in source.contenders:
            rated = [one for one in source.predictions(cell, name) if one.probabilities]
            if rated:
                rows.append([said(name), *_confidence_row(rated)])
                panels.append(panel(name, _entropies(rated, len(source.labels(cell)))))
        if rows:
            columns = [Column("Contender"), *(Column(title, "num") for title in (
                "Accuracy, %", "Mean confidence, %", "Entropy, bits", "of right ones", "of wrong ones"))]  # fmt: skip
            parts.append((cell_name(*cell), table(columns, rows) + side_by_side(panels)))
    if not parts:
        return missing("confidence", title, NO_SINGLE_PREDICTIONS if source.single else NO_PREDICTIONS)
    remark = (
        "Entropy of the predicted probabilities, −Σ s log₂ s: 0 bits where the model is certain. Right and wrong "
        "predictions each add up to 100 %. A model that knows what it does not know is undecided where it is wrong."
    )
    return section("confidence", title, legend(["right predictions", "wrong predictions"]), tabs(parts), note(remark))


def mistakes(source: Source) -> Section:
    """The wrong predictions that were surest of themselves."""
    title = "Most confident mistakes"
    if source.errors:
        return _task_mistakes(source.errors, title)
    parts, clean = [], False
    for cell in source.cells:
        tables = []
        for name in source.contenders:
            seen = source.predictions(cell, name)
            found = confident_mistakes(seen)
            clean = clean or bool(seen and all(one.right for one in seen))
            if found:
                columns = [Column("Text", "wide"), Column("Label"), Column("Predicted"), Column("Confidence, %", "num"),
                           Column("Runs", "num")]  # fmt: skip
                rows = [[said(cut(one.text, 300)), said(one.label), said(one.predicted), f"{100 * one.confidence:.1f}",
                         f"{one.runs} of {one.tested}"] for one in found]  # fmt: skip
                tables.append((f"<h4>{said(name)}</h4>" if not source.single else "") + table(columns, rows))
        if tables:
            parts.append((cell_name(*cell), "".join(tables)))
    if not parts:
        why = NO_SINGLE_PREDICTIONS if source.single else NO_PREDICTIONS
        return missing("mistakes", title, "No prediction was wrong." if clean else why)
    remark = (
        "Ten of each; runs: how many of those that tested the text make this mistake. A sure mistake may be a wrong "
        "label."
    )
    return section("mistakes", title, tabs(parts), note(remark))


def _task_mistakes(errors: Sequence[TaskErrors], title: str) -> Section:
    """A table for each task, and a line for each task that has none."""
    parts, without = [], []
    for one in errors:
        if one.why is not None:
            without.append(f"{one.task}: {one.why}")
        elif not one.worst:
            without.append(f"{one.task}, {one.rows}: none of {counted(one.seen, 'row')} is wrong.")
        else:
            parts.append((f"{one.task}, {one.rows}", _task_table(one)))
    if not parts:
        return missing("mistakes", title, " ".join(without))
    remark = "At most ten of each task, the worst first. A sure mistake may be a wrong label."
    return section("mistakes", title, tabs(parts), *map(note, without), note(remark))


def _task_table(one: TaskErrors) -> str:
    scored = one.wrong is None
    columns = [Column("Line", "num"), Column("Text", "wide"), Column("Score" if scored else "Label"),
               Column("Predicted"), Column(said(one.sure), "num")]  # fmt: skip
    rows = [
        [f"{row['line']:,}", said(cut(" ⟷ ".join(row["texts"]), 300)), said(_answer(row["truth"])),
         said(_answer(row["said"])), f"{row['sure']:.3f}"]
        for row in one.worst
    ]  # fmt: skip
    seen = f"{one.seen:,} of {counted(one.total, 'row')}" if one.seen < one.total else counted(one.seen, "row")
    remark = f"{seen} looked at." if scored else f"{one.wrong:,} of {seen} wrong."
    return table(columns, rows) + note(remark)


def _answer(value: Any) -> str:
    """A label as it is, a score in short."""
    return value if isinstance(value, str) else f"{value:.2f}"


def total_confusion(source: Source, cell: tuple[str, int | None], contender: str) -> NDArray[np.int64] | None:
    """The confusion of all runs added up, in the order of :meth:`Source.labels`; None without classes."""
    labels = source.labels(cell)
    place = {label: at for at, label in enumerate(labels)}
    total = np.zeros((len(labels), len(labels)), dtype=np.int64)
    found = [run for run in source.of(cell, contender) if run.confusion]
    for run in found:
        at = [place[label] for label in run.labels]
        total[np.ix_(at, at)] += np.asarray(run.confusion, dtype=np.int64)
    return total if found else None


def _class_part(
    source: Source, cell: tuple[str, int | None], labels: Sequence[str], values: dict[tuple[str, int], float]
) -> str:
    support = {
        label: sum(run.per_class.get(label, {}).get("support", 0) for run in source.of(cell, source.contenders[0]))
        for label in labels
    }
    order = sorted((label for label in labels if any((label, at) in values for at in range(len(source.contenders)))),
                   key=lambda label: values.get((label, 0), 2.0))  # fmt: skip
    drawn = order if len(order) <= SHOWN_CLASSES else order[:SHOWN_CLASSES]
    height, left = 24, 190
    low = min(values[key] for key in values if key[0] in drawn)
    x = svg.Scale(math.floor(10 * low) * 10 if low < 1 else 90, 100, left, 700)
    bottom = 30 + height * len(drawn)
    parts = [svg.text(left - 26, 16, "F1 × 100", class_="title", text_anchor="end")]
    for value in x.ticks(6):
        parts.append(svg.line(x(value), 24, x(value), bottom - 4, "grid"))
        parts.append(svg.text(x(value), 16, svg.plain(value), class_="tick", text_anchor="middle"))
    for row, label in enumerate(drawn):
        y = 30 + height * row + height / 2 - 4
        dots = [(x(100 * values[label, at]), at) for at in range(len(source.contenders)) if (label, at) in values]
        parts.append(
            svg.text(left - 12, y, cut(label, 26), class_="tick name", text_anchor="end", dominant_baseline="central")
        )
        parts.append(svg.line(min(d for d, _ in dots), y, max(d for d, _ in dots), y, "join"))
        parts += [
            svg.mark(across, y, at, title=f"{source.contenders[at]}, {label}: {100 * values[label, at]:.2f}")
            for across, at in reversed(dots)
        ]
    picture = svg.figure(770, bottom + 4, "".join(parts), label="F1 of each class")
    columns = [
        Column("Class"),
        Column("Texts tested", "num"),
        *(Column(said(name), "num") for name in source.contenders),
    ]
    rows = [
        [said(label), f"{support[label]:,.0f}",
         *(f"{100 * values[label, at]:.2f}" if (label, at) in values else "–" for at in range(len(source.contenders)))]
        for label in order
    ]  # fmt: skip
    cutoff = note(f"The {SHOWN_CLASSES} hardest of {len(order)} classes; the table has all.") if drawn != order else ""
    return picture + cutoff + folded("All figures", table(columns, rows))


def _heatmap(counts: NDArray[np.int64], labels: Sequence[str]) -> str:
    side = 54 if len(labels) <= 3 else 36 if len(labels) <= 6 else 31 if len(labels) <= 10 else 24
    longest = max(len(cut(label, 16)) for label in labels)
    left, top = 16 + 6.2 * longest, 18 + 4.6 * min(14, longest)
    parts = []
    for i, label in enumerate(labels):
        middle = side * i + side / 2
        parts.append(svg.text(left - 8, top + middle, cut(label, 16), class_="tick name", text_anchor="end",
                              dominant_baseline="central"))  # fmt: skip
        turned = f"translate({svg.number(left + middle + 3)} {svg.number(top - 7)}) rotate(-45)"
        parts.append(svg.text(0, 0, cut(label, 14), class_="tick name", transform=turned))
        total = int(counts[i].sum())
        for j, other in enumerate(labels):
            share = counts[i, j] / total if total else 0.0
            x, y = left + side * j, top + side * i
            told = f"{label} taken for {other}: {counts[i, j]:,} of {total:,}"
            parts.append(svg.tag("rect", svg.tag("title", said(told)), x=x + 0.75, y=y + 0.75, width=side - 1.5,
                                 height=side - 1.5, rx=2, class_=f"heat {'s0' if i == j else 's1'}",
                                 fill_opacity=f"{0.05 + 0.9 * share:.3f}"))  # fmt: skip
            if counts[i, j]:
                shown = f"{100 * share:.0f}" if share >= 0.005 else "<1"
                class_ = "count strong" if share > 0.6 else "count"
                parts.append(svg.text(x + side / 2, y + side / 2, shown, text_anchor="middle",
                                      dominant_baseline="central", class_=class_))  # fmt: skip
    return svg.figure(
        left + side * len(labels) + 30, top + side * len(labels) + 6, "".join(parts), label="confusion of classes"
    )


def _common_mistakes(counts: NDArray[np.int64], labels: Sequence[str]) -> str:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    pairs = [np.unravel_index(int(place), wrong.shape) for place in np.argsort(-wrong, axis=None, kind="stable")[:15]]
    rows = [
        [
            said(labels[int(i)]),
            said(labels[int(j)]),
            f"{wrong[i, j]:,}",
            f"{100 * wrong[i, j] / max(1, counts[i].sum()):.1f}",
        ]
        for i, j in pairs
        if wrong[i, j]
    ]
    return table([Column("Class"), Column("Taken for"), Column("Times", "num"), Column("% of the class", "num")], rows)


def _confidence_row(rated: Sequence[Prediction]) -> list[str]:
    bits = np.array([entropy(list(one.probabilities.values())) for one in rated])
    right = np.array([one.right for one in rated])
    sure = np.mean([one.confidence or 0.0 for one in rated])
    groups = (bits, bits[right], bits[~right])
    return [f"{100 * right.mean():.2f}", f"{100 * sure:.2f}",
            *(f"{group.mean():.3f}" if len(group) else "–" for group in groups)]  # fmt: skip


def _entropies(rated: Sequence[Prediction], classes: int) -> str:
    highest = math.log2(max(2, classes, *(len(one.probabilities) for one in rated)))
    bits = np.array([entropy(list(one.probabilities.values())) for one in rated])
    right = np.array([one.right for one in rated])
    edges = np.linspace(0, highest, BINS + 1)
    shares = [
        100 * np.histogram(np.minimum(group, highest), bins=edges)[0] / len(group) if len(group) else np.zeros(BINS)
        for group in (bits[right], bits[~right])
    ]
    width, height = 334, 220
    x = svg.Scale(0, highest, 50, width - 12)
    y = svg.Scale(0, max(5.0, *(float(share.max()) for share in shares)) * 1.05, height - 46, 32)
    parts = [svg.axes(x, y, x_title="entropy of the prediction, bits", y_title="% of the predictions")]
    for place, share in enumerate(shares):
        if not share.any():
            continue
        steps = [(x(edges[0]), y(0))]
        for at, value in enumerate(share.tolist()):
            steps += [(x(edges[at]), y(value)), (x(edges[at + 1]), y(value))]
        steps.append((x(edges[-1]), y(0)))
        parts += [svg.path(steps, f"area {svg.color(place)}"), svg.path(steps, f"line {svg.color(place)}")]
    told = f"entropy of {counted(int(right.sum()), 'right prediction')} and {counted(int((~right).sum()), 'wrong one')}"
    return svg.figure(width, height, "".join(parts), label=told)
