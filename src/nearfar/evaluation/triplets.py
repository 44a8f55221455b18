"""Triplets: is the positive nearer to its anchor than the negative?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding import TextModel, TokenTable
from nearfar.errors import SettingError
from nearfar.evaluation.pairs import finite
from nearfar.evaluation.similarity import embed_table, pair_scores, refuse_outside
from nearfar.shapes import expect


@dataclass(frozen=True)
class TripletReport:
    """How often a positive is nearer than a negative."""

    rows: int
    scores: dict[str, float]
    """``accuracy``, and ``margin``, the mean difference of the two cosines."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {**self.scores, "rows": self.rows}


def triplet_report(near: NDArray[np.floating], far: NDArray[np.floating]) -> TripletReport:
    """Cosines with the positive and with the negative to a report; equal ones count as a mistake.

    >>> triplet_report(np.array([0.9, 0.1]), np.array([0.5, 0.1])).scores["accuracy"]
    0.5
    """
    n = expect(near=(near, "n"), far=(far, "n"))["n"]
    if n == 0:
        raise SettingError("there is nothing to evaluate: no rows.")
    near, far = finite("near", near), finite("far", far)
    return TripletReport(n, {"accuracy": float(np.mean(near > far)), "margin": float(np.mean(near - far))})


def evaluate_triplets(
    model: TextModel,
    table: TokenTable,
    anchor: NDArray[np.int64],
    positive: NDArray[np.int64],
    negative: NDArray[np.int64],
    *,
    batch_size: int,
) -> TripletReport:
    """Compare the cosines of triplets of texts, named by their rows in the table."""
    expect(anchor=(anchor, "n"), positive=(positive, "n"), negative=(negative, "n"))
    for name, rows in (("anchor", anchor), ("positive", positive), ("negative", negative)):
        refuse_outside(name, rows, len(table))
    vectors = embed_table(model, table, batch_size=batch_size)
    near = pair_scores(vectors[anchor], vectors[positive])
    return triplet_report(near, pair_scores(vectors[anchor], vectors[negative]))
