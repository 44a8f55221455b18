"""The geometry of a model: which pairs count as like, and what is measured of vectors and layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Records, pair_targets, score_range
from nearfar.encoding import Model
from nearfar.errors import DataError, Problem
from nearfar.evaluation import GeometryReport, embed_table, geometry_report, layer_anisotropy
from nearfar.pipeline.evaluate import require_vectors
from nearfar.pipeline.rows import distinct

LIKE = 0.8
"""From this part of the range of the scores on, the texts of a pair count as like: 4 of 0 to 5."""
LAYER_TEXTS = 1_000
"""So many texts stand for all where every layer is looked at."""


@dataclass(frozen=True)
class Positives:
    """Pairs of texts that are like, and why these."""

    left: list[str]
    right: list[str]
    words: str
    """Which pairs of the file they are, for the reader."""

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True)
class Space:
    """What the vectors of one model look like."""

    model: str
    report: GeometryReport
    layers: tuple[float | None, ...] | None
    """The anisotropy behind the embeddings and behind each layer; None where nobody asked."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        layers = None if self.layers is None else list(self.layers)
        return {"model": self.model, **self.report.to_dict(), "layer_anisotropy": layers}


def positive_pairs(records: Records) -> Positives:
    """The pairs of a file whose texts are like: by score, by label, or all where there is neither.

    Of graded scores those from four fifths of their range on count, so 4 and 5 of 0 to 5; of triplets the anchor and
    the positive.
    """
    if records.shape == "texts":
        remedy = "Call the columns of the pairs text_a and text_b, or give a file that has pairs, such as one of STS."
        raise DataError([Problem(records.source, "alignment needs pairs, and the file has single texts", remedy)])
    graded = records.shape == "pairs" and records.scores is not None and not {0.0, 1.0}.issuperset(records.scores)
    if graded:
        low, high = score_range(records)
        limit = low + LIKE * (high - low)
        like = [score >= limit - 1e-9 for score in records.scores or ()]
        words = f"a score of {limit:g} or more on a scale from {low:g} to {high:g}"
    else:
        like = [target > 0.5 for target in pair_targets(records)]
        words = "all of them" if records.target is None else "those that belong together"
    left, right = ([text for text, same in zip(side, like, strict=True) if same] for side in records.texts[:2])
    return Positives(left, right, f"{sum(like):,} of {len(records):,} pairs count as like: {words}")


def measure_space(
    name: str,
    model: Model,
    vectors: NDArray[np.float32],
    *,
    positives: Positives | None = None,
    layer_texts: Sequence[str] | None = None,
    seed: int = 0,
    batch_size: int = 64,
) -> Space:
    """The geometry of vectors that the model gave, of its positives, and of its layers.

    Args:
        name: what the model is called.
        model: an encoder of single texts.
        vectors: (n, d) vectors of any texts; they may lie on the disk.
        positives: like pairs, for the alignment.
        layer_texts: the texts that the layers are looked at with; None: not at all.
        seed: which sample of random pairs.
        batch_size: texts that are encoded together.
    """
    require_vectors(model)
    sides = None
    if positives is not None and len(positives):
        texts, (left, right) = distinct([positives.left, positives.right])
        found = embed_table(model.model, model.tokenize(texts), batch_size=batch_size)
        sides = (found[left], found[right])
    layers = None
    if layer_texts is not None:
        layers = layer_anisotropy(model.model, model.tokenize(layer_texts), batch_size=batch_size)
    return Space(name, geometry_report(vectors, positives=sides, seed=seed), layers)
