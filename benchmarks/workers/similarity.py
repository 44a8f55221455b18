"""How well cosines agree with graded pairs, in the same way for everybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def spearman(rows: Sequence[dict[str, Any]], embed: Callable[[list[str]], Any]) -> float:
    """The rank correlation of the scores with the cosines of the vectors that ``embed`` makes of the two texts."""
    from scipy.stats import spearmanr

    left, right = (
        np.asarray(embed([row[column] for row in rows]), dtype=np.float64) for column in ("text_a", "text_b")
    )
    cosines = (left * right).sum(axis=1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))
    return float(spearmanr(cosines, [row["score"] for row in rows]).statistic)
