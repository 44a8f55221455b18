"""Sections about predictions: F1 per class, confusion matrix, most confused classes, confidence, mistakes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import counted
from nearfar.report import svg
from nearfar.report.analysis import accuracy_within, confident_mistakes, entropy, most_confused
from nearfar.report.elements import (
    NOTHING,
    Column,
    Content,
    Markup,
    Missing,
    cut,
    details,
    join,
    note,
    numbers,
    panel,
    panels,
    strings,
    tabbed,
    table,
    tabs,
    tag,
)
from nearfar.report.sources import DataCell, Source, TaskErrors

SHOWN_CLASSES = 30
"""Most classes in the chart of F1; the table has them all."""
DRAWN_CONFUSION = 20
"""Most classes for which the confusion matrix is drawn; of more, the most common mistakes are listed."""
BINS = 20
CONFUSED = 4
"""Number of classes in the section on the most confused classes."""

NO_CLASSES = Missing("No data set here has classes.")


def no_predictions(source: Source) -> Missing:
    """Why there are no predictions."""
    if source.single:
        return Missing("The run's folder has no predictions; 'nearfar report MODEL --data FILE' makes some.")
    return Missing("No run left predictions of classes (predictions.jsonl).")


def per_class(source: Source) -> Markup | Missing:
    """F1 of every class for each contender."""

    def build(cell: DataCell) -> Markup | None:
        values: dict[str, dict[int, float]] = {}
        for series, name in enumerate(source.contenders):
            for label in source.labels(cell):
                entries = [run.per_class.get(label, {}) for run in source.runs(cell, name)]
                if scores := [entry["f1"] for entry in entries if entry.get("support", 0) > 0]:
                    values.setdefault(label, {})[series] = 100 * float(np.mean(scores))
        return _class_scores(source, cell, values) if values else None

    remark = "F1 × 100, mean over the runs whose test rows have the class; the hardest class of the baseline first."
    if source.single:
        remark = "F1 × 100 of the classes that the rows have, the hardest first."
    legend = svg.legend([] if source.single else source.contenders)
    return tabbed(source.by_cell(build), NO_CLASSES, remark, legend)


def confusion(source: Source) -> Markup | Missing:
    """Which class is predicted for which."""

    def build(cell: DataCell) -> Markup | None:
        labels, pictures = source.labels(cell), []
        for name in source.contenders:
            counts = total_confusion(source, cell, name)
            if counts is not None and len(labels) <= DRAWN_CONFUSION:
                remark = f"{int(counts.sum() - np.trace(counts)):,} of {counts.sum():,} predictions wrong"
                pictures.append(panel(_heatmap(counts, labels), *source.named(name), remark))
            elif counts is not None:
                remark = "the most frequent mistakes"
                pictures.append(panel(_common_mistakes(counts, labels), *source.named(name), remark))
        return panels(pictures) if pictures else None

    every = "" if source.single else ", over all runs"
    remark = (
        f"Rows are the true classes, columns the predicted ones: percent of the row{every}. Correct is blue, wrong is "
        "orange."
    )
    drawn = any(len(source.labels(cell)) <= DRAWN_CONFUSION for cell in source.cells)
    return tabbed(source.by_cell(build), NO_CLASSES, remark if drawn else "")


def confused_classes(source: Source) -> Markup | Missing:
    """Accuracy among the classes that are confused most."""
    rows = []
    for cell in source.cells:
        labels = source.labels(cell)
        counts = [total_confusion(source, cell, name) for name in source.contenders]
        shares = [one / max(1, one.sum()) for one in counts if one is not None]  # every contender has equal weight
        if len(labels) > CONFUSED and shares:
            chosen = {labels[index] for index in most_confused((1e6 * np.sum(shares, axis=0)).tolist(), CONFUSED)}
            accuracies = [accuracy_within(source.predictions(cell, name), chosen) for name in source.contenders]
            if any(accuracy is not None for accuracy in accuracies):
                shown = ["–" if accuracy is None else f"{100 * accuracy:.2f}" for accuracy in accuracies]
                rows.append([cell.name, ", ".join(sorted(chosen)), *shown])
    if not rows:
        enough = any(len(source.labels(cell)) > CONFUSED for cell in source.cells)
        return no_predictions(source) if enough else Missing(f"Needs a data set with more than {CONFUSED} classes.")
    remark = (
        f"Accuracy × 100 on the rows of the {CONFUSED} classes that all contenders together confuse most, when only "
        "these may be predicted. They were chosen on the same rows, so the figures compare contenders and say nothing "
        "beyond that."
    )
    if source.single:
        remark = (
            f"Accuracy × 100 on the rows of the {CONFUSED} classes that are confused most, when only these may be "
            "predicted."
        )
    names = ["Accuracy × 100"] if source.single else source.contenders
    return table([*strings("Data"), Column("Labels", "wide"), *numbers(*names)], rows) + note(remark)


def confidence(source: Source) -> Markup | Missing:
    """Entropy of the predicted probabilities, for correct and for wrong predictions."""
    columns = numbers("Accuracy, %", "Mean confidence, %", "Entropy, bits", "of correct ones", "of wrong ones")

    def build(cell: DataCell) -> Markup | None:
        rows, pictures = [], []
        for name in source.contenders:
            rated = [one for one in source.predictions(cell, name) if one.probabilities]
            if rated:
                bits = np.array([entropy(list(one.probabilities.values())) for one in rated])
                correct = np.array([one.correct for one in rated])
                mean = np.mean([one.confidence or 0.0 for one in rated])
                groups = (bits, bits[correct], bits[~correct])
                entropies = [f"{group.mean():.3f}" if len(group) else "–" for group in groups]
                figures = [f"{100 * correct.mean():.2f}", f"{100 * mean:.2f}", *entropies]
                rows.append([cell.name if source.single else name, *figures])
                classes = max(2, len(source.labels(cell)), *(len(one.probabilities) for one in rated))
                picture = _entropies(bits[correct], bits[~correct], math.log2(classes))
                pictures.append(panel(picture, *source.named(name)))
        first = strings("Data" if source.single else "Contender")
        return table(first + columns, rows) + panels(pictures) if rows else None

    remark = (
        "Entropy of the predicted probabilities, −Σ s log₂ s: 0 bits where the model is certain. Correct and wrong "
        "predictions each add up to 100 %. A well calibrated model is uncertain where it is wrong."
    )
    legend = svg.legend(["correct predictions", "wrong predictions"])
    return tabbed(source.by_cell(build), no_predictions(source), remark, legend)


def mistakes(source: Source) -> Markup | Missing:
    """The wrong predictions with the highest confidence."""
    if source.errors:
        return _task_mistakes(source.errors)
    columns = [Column("Text", "wide"), *strings("Label", "Predicted"), *numbers("Confidence, %", *source.named("Runs"))]

    def build(cell: DataCell) -> Markup | None:
        tables = []
        for name in source.contenders:
            rows = []
            for one in confident_mistakes(source.predictions(cell, name)):
                figures = [f"{100 * one.confidence:.1f}", *source.named(f"{one.runs} of {one.tested}")]
                rows.append([cut(one.text, 300), one.label, one.predicted, *figures])
            if rows:
                tables.append((NOTHING if source.single else tag("h4", name)) + table(columns, rows))
        return join(*tables) if tables else None

    groups = [source.predictions(cell, name) for cell in source.cells for name in source.contenders]
    clean = any(group and all(one.correct for one in group) for group in groups)
    missing = Missing("No prediction was wrong.") if clean else no_predictions(source)
    remark = (
        "Ten of each; runs: how many of those that tested the text make this mistake. A confident mistake may be a "
        "label error."
    )
    if source.single:
        remark = "At most ten. A confident mistake may be a label error."
    return tabbed(source.by_cell(build), missing, remark)


def _task_mistakes(errors: Sequence[TaskErrors]) -> Markup | Missing:
    """A table for each task, and a line for each task that has none."""
    parts, without = [], []
    for one in errors:
        if one.reason is not None:
            without.append(f"{one.task}: {one.reason}")
        elif not one.worst:
            without.append(f"{one.task}, {one.rows}: none of {counted(one.checked, 'row')} is wrong.")
        else:
            parts.append((f"{one.task}, {one.rows}", _task_table(one)))
    if not parts:
        return Missing(" ".join(without))
    remark = "At most ten of each task, the worst first. A confident mistake may be a label error."
    return join(tabs(parts), *map(note, without), note(remark))


def _task_table(one: TaskErrors) -> Markup:
    scored = one.wrong is None
    columns = [*numbers("Line"), Column("Text", "wide"), *strings("Score" if scored else "Label", "Predicted")]
    rows = []
    for row in one.worst:
        answers = [value if isinstance(value, str) else f"{value:.2f}" for value in (row.truth, row.predicted)]
        rows.append([f"{row.line:,}", cut(" ⟷ ".join(row.texts), 300), *answers, f"{row.size:.3f}"])
    checked = f"{one.checked:,} of " if one.checked < one.total else ""
    checked += counted(one.total, "row")
    remark = f"{checked} evaluated." if scored else f"{one.wrong:,} of {checked} wrong."
    return table(columns + numbers(one.measure), rows) + note(remark)


def total_confusion(source: Source, cell: DataCell, contender: str) -> NDArray[np.int64] | None:
    """The confusion matrix over all runs, in the order of :meth:`Source.labels`; None without classes."""
    index = {label: number for number, label in enumerate(source.labels(cell))}
    total = np.zeros((len(index), len(index)), dtype=np.int64)
    runs = [run for run in source.runs(cell, contender) if run.confusion]
    for run in runs:
        rows = [index[label] for label in run.labels]
        total[np.ix_(rows, rows)] += np.asarray(run.confusion, dtype=np.int64)
    return total if runs else None


def _class_scores(source: Source, cell: DataCell, values: dict[str, dict[int, float]]) -> Markup:
    """F1 by label and contender: a chart of the hardest classes, and a table of all."""
    runs = source.runs(cell, source.contenders[0])
    known = [label for label in source.labels(cell) if label in values]
    order = sorted(known, key=lambda label: values[label].get(0, 200.0))
    drawn = order[:SHOWN_CLASSES]
    height, left = 24, 180
    low = min(min(values[label].values()) for label in drawn)
    x = svg.Scale(math.floor(low / 10) * 10 if low < 100 else 90, 100, left, 490)
    bottom = 30 + height * len(drawn)
    parts = [svg.text(left - 26, 16, "F1 × 100", class_="title", text_anchor="end")]
    for value in x.ticks(6):
        parts.append(svg.line(x(value), 24, x(value), bottom - 4, "grid"))
        parts.append(svg.text(x(value), 16, svg.plain(value), class_="tick", text_anchor="middle"))
    for row, label in enumerate(drawn):
        y = 30 + height * row + height / 2 - 4
        dots = {series: x(value) for series, value in values[label].items()}
        parts.append(svg.row_name(left - 12, y, cut(label, 24)))
        parts.append(svg.line(min(dots.values()), y, max(dots.values()), y, "join"))
        for series, across in reversed(dots.items()):
            title = ", ".join([*source.named(source.contenders[series]), f"{label}: {values[label][series]:.2f}"])
            parts.append(svg.mark(across, y, series, title=title))
    picture = svg.figure(520, bottom + 4, *parts, label="F1 of each class")
    rows = []
    for label in order:
        tested = sum(run.per_class.get(label, {}).get("support", 0) for run in runs)
        scores = [values[label].get(series) for series in range(len(source.contenders))]
        rows.append([label, f"{tested:,.0f}", *("–" if score is None else f"{score:.2f}" for score in scores)])
    cutoff = note(f"The {SHOWN_CLASSES} hardest of {len(order)} classes; the table has all.")
    columns = strings("Class") + numbers("Texts tested", *(["F1 × 100"] if source.single else source.contenders))
    return picture + (cutoff if drawn != order else NOTHING) + details("All figures", table(columns, rows))


def _heatmap(counts: NDArray[np.int64], labels: Sequence[str]) -> Markup:
    side = next((size for most, size in ((3, 54), (6, 36), (10, 31)) if len(labels) <= most), 24)
    longest = max(len(cut(label, 16)) for label in labels)
    left, top = 16 + 6.2 * longest, 18 + 4.6 * min(14, longest)
    parts = []
    for i, label in enumerate(labels):
        middle = side * i + side / 2
        parts.append(svg.row_name(left - 8, top + middle, cut(label, 16)))
        parts.append(svg.tilted(left + middle + 3, top - 7, 45, cut(label, 14), "tick name"))
        total = int(counts[i].sum())
        for j, other in enumerate(labels):
            share = counts[i, j] / total if total else 0.0
            x, y = left + side * j, top + side * i
            title = tag("title", f"{label} predicted as {other}: {counts[i, j]:,} of {total:,}")
            box = {"x": x + 0.75, "y": y + 0.75, "width": side - 1.5, "height": side - 1.5}
            color = {"class_": f"heat {'s0' if i == j else 's1'}", "fill_opacity": f"{0.05 + 0.9 * share:.3f}"}
            parts.append(tag("rect", title, **box, rx=2, **color))
            if counts[i, j]:
                shown = f"{100 * share:.0f}" if share >= 0.005 else "<1"
                center = {"text_anchor": "middle", "dominant_baseline": "central"}
                class_ = "count strong" if share > 0.6 else "count"
                parts.append(svg.text(x + side / 2, y + side / 2, shown, **center, class_=class_))
    width = side * len(labels)
    return svg.figure(left + width + 30, top + width + 6, *parts, label="confusion of classes", class_=svg.MATRIX)


def _common_mistakes(counts: NDArray[np.int64], labels: Sequence[str]) -> Markup:
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    rows: list[list[Content]] = []
    for flat in np.argsort(-wrong, axis=None, kind="stable")[:15].tolist():
        i, j = divmod(flat, len(labels))
        if wrong[i, j]:
            share = 100 * wrong[i, j] / max(1, counts[i].sum())
            rows.append([labels[i], labels[j], f"{wrong[i, j]:,}", f"{share:.1f}"])
    return table(strings("Class", "Predicted as") + numbers("Times", "% of the class"), rows)


def _entropies(correct: NDArray[np.float64], wrong: NDArray[np.float64], highest: float) -> Markup:
    edges = np.linspace(0, highest, BINS + 1)
    shares = [
        100 * np.histogram(np.minimum(group, highest), bins=edges)[0] / max(1, len(group)) for group in (correct, wrong)
    ]
    titles = ("entropy of the prediction, bits", "% of the predictions")
    label = f"entropy of {counted(len(correct), 'correct prediction')} and {counted(len(wrong), 'wrong one')}"
    return svg.histogram(edges, shares, titles, label)
