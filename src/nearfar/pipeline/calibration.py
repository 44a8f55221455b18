"""Calibrated probabilities and rejection: from texts that a model was not trained on to its temperature and scope.

The texts are dev rows, or those of the folds that :mod:`nearfar.pipeline.estimate` trains again. Their models are
trained for fewer steps, which leaves their classes nearer to each other: their logits are brought to the spread that
the logits of the whole model have on its own training texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.encoding import TextModel, TokenTable
from nearfar.encoding.model_folder import Calibration
from nearfar.encoding.scope import Scope, nearest_center
from nearfar.evaluation.calibration import TemperaturePrior, fit_temperature
from nearfar.evaluation.inference import logits_and_vectors

BATCH = 64
"""Texts encoded together."""
LEAST_SPREAD = 1e-3
"""Below this, classes are not apart at all, and a spread is no unit."""
PRIOR = TemperaturePrior(mean=0.5, deviation=0.4)
"""Of the logarithm of the temperature: docs/why/calibration.md has the development draws it was chosen on."""


OF_NAMES = 3.0
"""What the temperature of the folds is multiplied by where class names gave the labels: these texts are the surest ones
of their class, so that folds of them are easier than new texts."""


@dataclass(frozen=True)
class HeldOut:
    """What models say of texts that they were not trained on."""

    logits: NDArray[np.float32]
    """(n, c) before any temperature."""
    labels: NDArray[np.int64]
    """(n,) the classes of the texts."""
    scores: NDArray[np.float32]
    """(n,) how near they are to the centers of the training texts: :func:`nearfar.encoding.scope.nearest_center`."""
    by: Literal["folds", "dev"]

    @classmethod
    def join(cls, parts: list[HeldOut]) -> HeldOut:
        """Those of several folds."""
        columns = zip(*((part.logits, part.labels, part.scores) for part in parts), strict=True)
        logits, labels, scores = (np.concatenate(column) for column in columns)
        return cls(logits, labels, scores, parts[0].by)


@dataclass(frozen=True)
class TrainedOn:
    """The training texts of a model, as the model sees them."""

    vectors: NDArray[np.float32]
    """(n, d) L2-normalized."""
    labels: NDArray[np.int64]
    spread: float
    """How far the logit of the true class lies above the mean of the others."""
    counts: NDArray[np.int64]
    """(c,) the training texts of each class, also those that are not in a sample."""

    @classmethod
    def of(
        cls, model: TextModel, table: TokenTable, labels: NDArray[np.int64], counts: NDArray[np.int64] | None = None
    ) -> TrainedOn:
        """Compute logits and vectors of the training texts, or of a sample of them."""
        logits, vectors = logits_and_vectors(model, table, batch_size=BATCH)
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        sizes = np.bincount(labels, minlength=model.classes) if counts is None else counts
        return cls(unit.astype(np.float32), labels, spread_of(logits, labels), sizes)

    def centers(self) -> NDArray[np.float32]:
        """(c, d) the center of each class."""
        return class_centers(self.vectors, self.labels, len(self.counts))[0]


def spread_of(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """The mean distance of the true class's logit from the mean of the others; classes without texts do not count.

    >>> spread_of(np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 2.0]], dtype=np.float32), np.array([0, 1]))
    2.0
    """
    known = np.flatnonzero(np.bincount(labels, minlength=logits.shape[1]))
    true = logits[np.arange(len(labels)), labels].astype(np.float64)
    others = (logits[:, known].sum(axis=1, dtype=np.float64) - true) / max(1, len(known) - 1)
    return float((true - others).mean())


def class_centers(
    vectors: NDArray[np.float32], labels: NDArray[np.int64], classes: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(c, d) the mean of each class's vectors, zeros for a class without texts; (c,) their numbers."""
    counts = np.bincount(labels, minlength=classes)
    sums = np.zeros((classes, vectors.shape[1]), dtype=np.float64)
    np.add.at(sums, labels, vectors)
    return (sums / np.maximum(counts, 1)[:, None]).astype(np.float32), counts.astype(np.float32)


def held_out(
    model: TextModel, table: TokenTable, labels: NDArray[np.int64], trained: TrainedOn, *, by: Literal["folds", "dev"]
) -> HeldOut:
    """What a model says of texts that it was not trained on; logits of a fold in units of its spread.

    Args:
        model: the trained model with its head.
        table: the texts.
        labels: (n,) their classes.
        trained: its training texts.
        by: whether these are dev rows or those of a fold.
    """
    logits, vectors = logits_and_vectors(model, table, batch_size=BATCH)
    scores = nearest_center(torch.from_numpy(vectors), torch.from_numpy(trained.centers())).numpy()
    unit = max(trained.spread, LEAST_SPREAD) if by == "folds" else 1.0
    return HeldOut(logits / np.float32(unit), labels, scores, by)


def calibrate(
    model: TextModel, held: HeldOut, trained: TrainedOn, *, keep_vectors: bool = False, named: bool = False
) -> Calibration:
    """Set the temperature and the scope of a trained model.

    Args:
        model: the trained model with its head.
        held: texts that it was not trained on, or that models like it were not trained on.
        trained: its training texts.
        keep_vectors: whether the scope holds the vectors of all training texts.
        named: whether class names gave the labels of the held-out texts.
    """
    unit = max(trained.spread, LEAST_SPREAD) if held.by == "folds" else 1.0
    model.temperature = fit_temperature(unit * held.logits, held.labels, PRIOR) * (OF_NAMES if named else 1.0)
    tensors = [torch.from_numpy(values) for values in (trained.centers(), trained.counts, held.scores)]
    kept = [torch.from_numpy(values) for values in (trained.vectors, trained.labels)] if keep_vectors else []
    model.scope = Scope(*tensors, *kept).to(next(model.parameters()).device)
    return {"temperature": model.temperature, "by": held.by, "texts": len(held.labels)}
