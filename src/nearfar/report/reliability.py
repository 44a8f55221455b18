"""The section on calibration: whether texts with a confidence of 80 % are right in 80 % of the cases."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nearfar.report import svg
from nearfar.report.analysis import Prediction
from nearfar.report.elements import Markup, Missing, numbers, panel, panels, strings, tabbed, table
from nearfar.report.predictions import no_predictions
from nearfar.report.sources import DataCell, Source

BINS = 15
"""As in ``nearfar.evaluation.calibration``, which loads torch."""
LEVEL = 0.05
"""The typicality below which texts count as rejected."""


def calibration(source: Source) -> Markup | Missing:
    """Reliability diagrams, expected calibration error, log-loss, and the texts that would be rejected."""

    def build(cell: DataCell) -> Markup | None:
        rows, pictures, rejecting = [], [], False
        for name in source.contenders:
            rated = [one for one in source.predictions(cell, name) if one.confidence is not None]
            if rated:
                confidence = np.array([one.confidence for one in rated], dtype=np.float64)
                correct = np.array([one.correct for one in rated])
                bins = reliability(confidence, correct)
                error = sum(count * abs(sure - right) for sure, right, count in bins) / len(rated)
                figures = (f"{100 * correct.mean():.2f}", f"{100 * confidence.mean():.2f}", f"{100 * error:.2f}")
                rejected = _rejected(rated)
                rejecting = rejecting or rejected is not None
                rows.append(
                    [
                        cell.name if source.single else name,
                        *figures,
                        f"{_log_loss(rated):.3f}",
                        "–" if rejected is None else rejected,
                    ]
                )
                pictures.append(panel(_diagram(bins), *source.named(name)))
        if not rows:
            return None
        columns = numbers("Accuracy, %", "Mean confidence, %", "ECE, %", "Log-loss")
        columns += strings("Rejected at 0.05: correct, wrong") if rejecting else []
        shown = rows if rejecting else [row[:-1] for row in rows]
        return table(strings("Data" if source.single else "Contender") + columns, shown) + panels(pictures)

    remark = (
        "Texts by the probability of the predicted class, in up to 15 bins: a calibrated model is right as often as it "
        "says, on the diagonal. ECE, the expected calibration error, is the mean distance from it. Rejected texts are "
        "those that “predict --reject 0.05” gives no label."
    )
    return tabbed(source.by_cell(build), no_predictions(source), remark)


def reliability(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> list[tuple[float, float, int]]:
    """Mean confidence, accuracy and number of texts of each bin that has some.

    >>> reliability(np.array([0.5, 0.5, 0.99]), np.array([True, False, True]))
    [(0.5, 0.5, 2), (0.99, 1.0, 1)]
    """
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    inside = [places == place for place in np.unique(places)]
    return [(float(confidence[rows].mean()), float(correct[rows].mean()), int(rows.sum())) for rows in inside]


def _log_loss(rated: Sequence[Prediction]) -> float:
    return -sum(math.log(max(one.probabilities.get(one.label, 0.0), 1e-12)) for one in rated) / len(rated)


def _rejected(rated: Sequence[Prediction]) -> str | None:
    """The shares of correct and of wrong predictions that would be rejected."""
    known = [(one.correct, one.typicality < LEVEL) for one in rated if one.typicality is not None]
    if not known:
        return None
    shares = ([below for correct, below in known if correct is group] for group in (True, False))
    return ", ".join(f"{100 * sum(group) / len(group):.1f} %" if group else "–" for group in shares)


def _diagram(bins: Sequence[tuple[float, float, int]]) -> Markup:
    width, height = 334, 250
    chart = svg.Chart(svg.Scale(0, 100, 50, width - 12), svg.Scale(0, 100, height - 46, 32))
    chart.axes("confidence, %", "accuracy, %")
    chart.line([(0, 0), (100, 100)], "zero")
    chart.line([(100 * sure, 100 * right) for sure, right, _ in bins], f"line {svg.color(0)}")
    most = max(count for *_, count in bins)
    for sure, right, count in bins:
        title = f"{count:,} texts: confidence {100 * sure:.1f} %, accuracy {100 * right:.1f} %"
        chart.mark((100 * sure, 100 * right), 0, size=2.5 + 4 * math.sqrt(count / most), title=title)
    return chart.figure(width, height, "accuracy of predictions by their confidence")
