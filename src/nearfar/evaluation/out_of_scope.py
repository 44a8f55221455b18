"""Detection of texts that belong to none of the classes: AUROC, and false positives at 95 % true positives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError
from nearfar.evaluation.classification import ScoredReport
from nearfar.shapes import expect

KEPT = 0.95
"""The share of in-scope texts that are kept at the threshold of ``fpr_95``."""


@dataclass(frozen=True)
class ScopeReport(ScoredReport):
    """How well texts of the classes are told apart from texts of none.

    ``scores`` holds ``auroc``, the chance that a text of a class fits better than one of none; ``fpr_95``, the share of
    out-of-scope texts that are kept where 95 % of the in-scope texts are; and where there is a level, the shares of
    both that are rejected at it.
    """

    MEASURES: ClassVar[tuple[str, ...]] = ("auroc", "fpr_95")

    in_scope: int
    out_of_scope: int
    level: float | None = None
    """The share of in-scope texts that is meant to be rejected."""

    @property
    def rows(self) -> int:
        """How many texts were evaluated."""
        return self.in_scope + self.out_of_scope


def scope_report(
    inside: NDArray[np.floating], outside: NDArray[np.floating], level: float | None = None
) -> ScopeReport:
    """From scores of in-scope and of out-of-scope texts, higher for in-scope ones.

    Args:
        inside: (n,) scores of texts of the classes.
        outside: (m,) scores of texts of none.
        level: scores below it are rejected.

    >>> report = scope_report(np.array([0.9, 0.8, 0.4]), np.array([0.5, 0.1]), level=0.45)
    >>> {name: round(value, 3) for name, value in report.scores.items()}
    {'auroc': 0.833, 'fpr_95': 0.5, 'rejected_in_scope': 0.333, 'rejected_out_of_scope': 0.5}
    """
    n = expect(inside=(inside, "n"))["n"]
    m = expect(outside=(outside, "m"))["m"]
    if n == 0 or m == 0:
        raise SettingError("out-of-scope detection is measured on texts of both kinds, and one kind has no rows.")
    order = np.sort(outside)
    below, ties = np.searchsorted(order, inside, "left"), np.searchsorted(order, inside, "right")
    threshold = np.sort(inside)[int(np.floor((1 - KEPT) * n))]
    scores = {"auroc": float((below + ties).mean() / (2 * m)), "fpr_95": float((outside >= threshold).mean())}
    if level is not None:
        scores["rejected_in_scope"] = float((inside < level).mean())
        scores["rejected_out_of_scope"] = float((outside < level).mean())
    return ScopeReport(scores, n, m, level)
