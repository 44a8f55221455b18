"""Votes of the neighbors on labels."""

from __future__ import annotations

import numpy as np

from nearfar.workbench.suspects import suspicions


def test_too_few_labeled_neighbors_doubt_nothing():
    """Among few labels, one or two neighbors have another one nearly always; the share is that of labeled texts."""
    vectors = np.eye(12, dtype=np.float32)
    around = np.array([[other for other in range(12) if other != row] for row in range(12)])
    labels = np.full(12, -1)
    labels[[0, 1, 2]] = 0, 1, 1
    assert suspicions(vectors, labels, around) == []
    labels[3] = 1
    (found,) = suspicions(vectors, labels, around)
    assert (found.row, found.suggested, found.by, found.share) == (0, 1, "neighbors", 1.0)
