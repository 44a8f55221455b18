"""The embedding geometry of a model: which pairs count as positive, and what is measured of vectors and layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Records, pair_targets, score_range
from nearfar.encoding import Model
from nearfar.errors import DataError, Problem
from nearfar.evaluation import embed_table, geometry_report, layer_anisotropy
from nearfar.evaluation.geometry import GeometryReport
from nearfar.pipeline.evaluate import require_vectors
from nearfar.pipeline.loaders import distinct
from nearfar.seeds import generator

POSITIVE_SHARE = 0.8
"""Pairs from this share of the score range on are positive: 4 of 0 to 5."""
LAYER_TEXTS = 1_000
"""Size of the sample of texts for the measures by layer."""


@dataclass(frozen=True)
class Positives:
    """Positive pairs of texts, and how they were chosen."""

    left: list[str]
    right: list[str]
    description: str = ""
    """Which pairs of the file they are, for a message."""

    def __len__(self) -> int:
        return len(self.left)

    def sample(self, most: int) -> Positives:
        """At most this many of the pairs, the same ones every time."""
        chosen = sorted(generator(0, "like pairs").permutation(len(self))[:most].tolist())
        left, right = ([side[index] for index in chosen] for side in (self.left, self.right))
        return Positives(left, right, self.description)


@dataclass(frozen=True)
class Space:
    """The embedding geometry of one model."""

    model: str
    report: GeometryReport
    layers: tuple[float | None, ...] | None
    """The anisotropy after the embeddings and after each layer; None where it was not measured."""

    def to_dict(self) -> dict[str, Any]:
        """All values for JSON."""
        layers = None if self.layers is None else list(self.layers)
        return {"model": self.model, **self.report.to_dict(), "layer_anisotropy": layers}


def positive_pairs(records: Records) -> Positives:
    """The positive pairs of a file: by score, by label, or all where there is neither.

    Graded scores count from 80 % of their range on, so 4 and 5 of 0 to 5; of triplets, the anchor and the positive are
    taken.
    """
    if records.shape == "texts":
        remedy = "Name the columns of the pairs text_a and text_b, or give a file that has pairs, such as one of STS."
        raise DataError(Problem(records.source, "alignment needs pairs, and the file has single texts", remedy))
    if records.shape == "pairs" and records.scores is not None and not {0.0, 1.0}.issuperset(records.scores):
        low, high = score_range(records)
        limit = low + POSITIVE_SHARE * (high - low)
        positive = [score >= limit - 1e-9 for score in records.scores]
        which = f"a score of {limit:g} or more on a scale from {low:g} to {high:g}"
    else:
        positive = [target > 0.5 for target in pair_targets(records)]
        which = "all of them" if records.target is None else "by their labels"
    left, right = ([text for text, keep in zip(side, positive, strict=True) if keep] for side in records.texts[:2])
    return Positives(left, right, f"{sum(positive):,} of {len(records):,} pairs are positive: {which}")


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
    """The geometry of vectors of the model, of its positive pairs, and of its layers.

    Args:
        name: the name of the model.
        model: an encoder of single texts.
        vectors: (n, d) vectors of any texts; they may be memory-mapped.
        positives: positive pairs, for the alignment.
        layer_texts: the texts for the measures by layer; None: layers are not measured.
        seed: the seed of the sample of random pairs.
        batch_size: texts that are encoded together.
    """
    require_vectors(model)
    sides = None
    if positives is not None and len(positives):
        texts, (left, right) = distinct([positives.left, positives.right])
        embedded = embed_table(model.model, model.tokenize(texts), batch_size=batch_size)
        sides = (embedded[left], embedded[right])
    layers = None
    if layer_texts is not None:
        layers = layer_anisotropy(model.model, model.tokenize(layer_texts), batch_size=batch_size)
    return Space(name, geometry_report(vectors, positives=sides, seed=seed), layers)
