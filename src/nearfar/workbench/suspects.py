"""Labels that are probably wrong: by cross-validated probabilities (cleanlab), and by the vote of the neighbors."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from nearfar.seeds import stream

FOLDS = 5
VOTERS = 10
"""Nearest labeled texts that vote."""
FEWEST = 3
"""Labeled texts among the nearest ones without which they have no vote: one or two would doubt nearly every label."""
DOUBT = 0.7
"""Share of the neighbors with one other label from which a label is suspected."""
MOST = 20_000
"""Labeled texts up to which probabilities are cross-validated; of more, neighbors alone decide."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Suspicion:
    """A text whose label is doubted."""

    row: int
    suggested: int
    """The number of the class that it seems to have."""
    quality: float | None
    """The cross-validated probability of its label, adjusted by class (cleanlab); None where it was not computed."""
    share: float
    """The share of its nearest labeled texts that have the suggested class."""
    by: str
    """Who doubts it: ``both``, ``probabilities`` or ``neighbors``."""


def suspicions(vectors: NDArray[np.float32], labels: Rows, around: Rows, *, seed: int = 0) -> list[Suspicion]:
    """Texts whose labels are probably wrong, the most suspicious first.

    Args:
        vectors: (n, d) directions of all texts.
        labels: (n,) the number of the class; -1 without a label.
        around: (n, k) the nearest texts of each.
        seed: the seed of the folds.
    """
    known = np.flatnonzero(labels >= 0)
    if len(known) < 3 or len(np.unique(labels[known])) < 2:
        return []
    voters = [others[others >= 0][:VOTERS] for others in labels[around]]
    vote, share = neighbor_votes(voters)
    by_vote = (labels >= 0) & (vote >= 0) & (vote != labels) & (share >= DOUBT)
    quality, guess = np.full(len(labels), np.nan), np.full(len(labels), -1)
    by_chance = np.zeros(len(labels), dtype=np.bool_)
    chances = cross_validated(vectors[known], labels[known], seed=seed) if len(known) <= MOST else None
    if chances is not None:
        classes = np.unique(labels[known])
        numbers = np.searchsorted(classes, labels[known])
        quality[known], doubted = _cleanlab(numbers, chances)
        guess[known] = classes[chances.argmax(axis=1)]
        by_chance[known] = doubted & (guess[known] != labels[known])
    found = []
    for row in np.flatnonzero(by_vote | by_chance):
        both = bool(by_vote[row] and by_chance[row] and vote[row] == guess[row])
        name = "both" if both else "probabilities" if by_chance[row] else "neighbors"
        suggested = int(guess[row] if by_chance[row] else vote[row])
        value = None if np.isnan(quality[row]) else float(quality[row])
        agreeing = float(np.mean(voters[row] == suggested)) if len(voters[row]) else 0.0
        found.append(Suspicion(int(row), suggested, value, agreeing, name))
    return sorted(found, key=lambda one: (one.by != "both", 0.5 if one.quality is None else one.quality, -one.share))


def neighbor_votes(voters: Sequence[Rows]) -> tuple[Rows, NDArray[np.float64]]:
    """(n,) the most frequent class of the nearest labeled texts (-1 with too few of them), and (n,) its share.

    >>> neighbor_votes([np.array([1, 1, 0, 1]), np.array([1, 1])])
    (array([ 1, -1]), array([0.75, 0.  ]))
    """
    vote, share = np.full(len(voters), -1), np.zeros(len(voters))
    for row, votes in enumerate(voters):
        if len(votes) >= FEWEST:
            counts = np.bincount(votes)
            vote[row], share[row] = counts.argmax(), counts.max() / len(votes)
    return vote, share


def cross_validated(vectors: NDArray[np.float32], labels: Rows, *, seed: int) -> NDArray[np.float64] | None:
    """(n, c) probabilities of each text by a head that was fitted without it; None where classes are too small."""
    classes, counts = np.unique(labels, return_counts=True)
    folds = min(FOLDS, int(counts.min()))
    if len(classes) < 2 or folds < 2:
        return None
    split = StratifiedKFold(folds, shuffle=True, random_state=stream(seed, "suspects") % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged is good enough to rank by
        head = LogisticRegression(C=10.0, max_iter=200)
        chances: NDArray[np.float64] = cross_val_predict(head, vectors, labels, cv=split, method="predict_proba")
    return chances


def _cleanlab(labels: Rows, chances: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(n,) label quality from 0 to 1, and (n,) which labels are doubted; without cleanlab by probabilities alone."""
    if importlib.util.find_spec("cleanlab") is None:
        own = chances[np.arange(len(labels)), labels]
        return own, (own < 1 / chances.shape[1]) & (chances.max(axis=1) >= DOUBT)
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        doubted = find_label_issues(labels, chances, filter_by="prune_by_noise_rate", n_jobs=1)
        quality = get_label_quality_scores(labels, chances, method="normalized_margin")
    return np.asarray(quality, dtype=np.float64), np.asarray(doubted, dtype=np.bool_)
