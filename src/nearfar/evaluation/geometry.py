"""Geometry of embeddings: alignment of positive pairs, uniformity, anisotropy (by layer, too), effective rank."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding import TextModel, TokenTable, pool
from nearfar.errors import SettingError
from nearfar.evaluation.classification import ScoredReport, as_json
from nearfar.evaluation.inference import batches, inference
from nearfar.evaluation.vectors import (
    blocks,
    directions,
    least_variance,
    mean_and_covariance,
    refuse_unusable,
    rows_at_once,
    side_at_once,
)
from nearfar.seeds import generator
from nearfar.shapes import expect

EXACT_ROWS = 5_000
"""Up to this many vectors every pair of them is compared; of more, a sample."""
SAMPLED_PAIRS = 500_000
"""Random pairs in a sample where no other number is given."""
MEASURES = ("alignment", "uniformity", "anisotropy", "effective_rank")


@dataclass(frozen=True)
class Uniformity:
    """How evenly directions fill the sphere, and the error of that number."""

    value: float | None
    """The lower, the more even: 0 where all directions are the same, near -4 where many are spread evenly over a sphere
    of many dimensions. None for fewer than two vectors, which have no pairs."""
    error: float | None
    """The standard error of ``value`` from sampling pairs of these vectors: 0 where all pairs were taken; None without
    a value, or from a sample of one pair."""
    pairs: int
    """How many pairs were compared."""
    exact: bool
    """Whether these are all pairs."""


@dataclass(frozen=True)
class CosineHistogram:
    """Cosines of positive pairs beside those of random pairs, counted in bins of equal width from -1 to 1."""

    edges: tuple[float, ...]
    """Where the bins begin, and where the last one ends; only that end belongs to its bin."""
    positive: tuple[int, ...]
    """Positive pairs in each bin: zeros where none were given."""
    random: tuple[int, ...]
    """Random pairs in each bin."""

    def to_dict(self) -> dict[str, Any]:
        """All fields for JSON."""
        return dict(as_json(self))


@dataclass(frozen=True)
class GeometryReport(ScoredReport):
    """The geometry of a set of embeddings.

    ``scores`` holds those of ``MEASURES`` that are defined: alignment needs a positive pair, uniformity and anisotropy
    need two vectors, the effective rank needs one.
    """

    MEASURES: ClassVar[tuple[str, ...]] = MEASURES

    uniformity_error: float | None
    """The standard error of the uniformity: 0 where all pairs were compared."""
    rows: int
    """How many vectors were measured."""
    dim: int
    """Their width."""
    zeros: int
    """How many of them are zero: they have no direction, and a cosine of 0 with everything."""
    positives: int
    """How many positive pairs were measured."""
    random_pairs: int
    """How many pairs are behind the uniformity and the histogram of random pairs."""
    exact: bool
    """Whether these are all pairs, or a sample drawn with ``seed``."""
    seed: int
    histogram: CosineHistogram


def geometry_report(
    vectors: NDArray[np.floating],
    *,
    positives: tuple[NDArray[np.floating], NDArray[np.floating]] | None = None,
    pairs: int | None = None,
    bins: int = 40,
    seed: int = 0,
) -> GeometryReport:
    """All measures of this module, of the normalized vectors, in memory that does not grow with their number.

    What is not defined for few vectors is left out of ``scores``.

    Args:
        vectors: (n, d) embeddings of any texts.
        positives: (b, d) and (b, d), embeddings of positive pairs row by row, such as STS pairs with a score of 4 or
            more; without them there is no alignment.
        pairs: random pairs to compare, as in :func:`uniformity`.
        bins: how many bins the histograms have.
        seed: which sample of random pairs.

    >>> report = geometry_report(np.eye(3, dtype=np.float32), positives=(np.eye(3), np.eye(3)))
    >>> {name: round(value, 6) for name, value in report.scores.items()}
    {'alignment': 0.0, 'uniformity': -4.0, 'anisotropy': 0.0, 'effective_rank': 2.0}
    """
    left, right = positives if positives is not None else (vectors[:0], vectors[:0])
    sizes = expect(vectors=(vectors, "n d"), left=(left, "b d"), right=(right, "b d"))
    refuse_unusable(vectors=vectors)
    sampled = _sample(sizes["n"], pairs)
    positive = cosine_counts(left, right, bins=bins)
    mean, random = _Mean(), np.zeros_like(positive)
    for cosines, distances in _random_pairs(vectors, sampled, seed):
        mean.add(np.exp(-2 * distances))
        random += _counts(cosines, bins)
    spread = _uniformity(mean, exact=sampled is None)
    measured = {
        "alignment": alignment(left, right),
        "uniformity": spread.value,
        "anisotropy": anisotropy(vectors),
        "effective_rank": effective_rank(vectors),
    }
    edges = np.linspace(-1, 1, bins + 1)
    return GeometryReport(
        scores={name: value for name, value in measured.items() if value is not None},
        uniformity_error=spread.error,
        rows=sizes["n"],
        dim=sizes["d"],
        zeros=sum(int((~block.any(axis=1)).sum()) for block in blocks(vectors)),
        positives=sizes["b"],
        random_pairs=spread.pairs,
        exact=spread.exact,
        seed=seed,
        histogram=CosineHistogram(*(tuple(part.tolist()) for part in (edges, positive, random))),
    )


def alignment(left: NDArray[np.floating], right: NDArray[np.floating], *, normalize: bool = True) -> float | None:
    r"""How far apart the two texts of a positive pair lie: Wang and Isola 2020, arXiv:2005.10242, section 4.

    .. math:: \mathbb{E}\, \lVert f(x) - f(x^+) \rVert^2

    From 0, where they are one point, to 4, where they are opposite. None without pairs.

    Args:
        left: (b, d) vectors.
        right: (b, d) vectors of their positives, row by row.
        normalize: compare directions; a zero vector has none and stays zero.

    >>> alignment(np.array([[2.0, 0.0]]), np.array([[0.0, 3.0]]))
    2.0
    """
    b = expect(left=(left, "b d"), right=(right, "b d"))["b"]
    refuse_unusable(left=left, right=right)
    if b == 0:
        return None
    sides = zip(blocks(left, normalize=normalize), blocks(right, normalize=normalize), strict=True)
    return float(sum(_squares(x - y).sum() for x, y in sides)) / b


def uniformity(vectors: NDArray[np.floating], *, pairs: int | None = None, seed: int = 0) -> Uniformity:
    r"""How evenly directions fill the sphere: Wang and Isola 2020, arXiv:2005.10242, section 4.

    .. math:: \log \mathbb{E}\, \exp(-2 \lVert f(x) - f(y) \rVert^2)

    over pairs of distinct rows, of directions. Directions drawn evenly from the sphere tend to
    :math:`-4 + \log {}_0F_1(d/2;\, 4)`, so to -4 for large *d*. Zero vectors stay zero, at a distance of 1 from all
    others.

    Args:
        vectors: (n, d) vectors.
        pairs: how many random pairs to compare, drawn with replacement; None means all of them for up to
            ``EXACT_ROWS`` vectors and ``SAMPLED_PAIRS`` beyond. Where there are no more pairs than that, all are taken.
        seed: which sample.

    >>> two_opposite = uniformity(np.array([[1.0, 0.0], [-5.0, 0.0]]))
    >>> two_opposite.value, two_opposite.exact
    (-8.0, True)
    """
    n = expect(vectors=(vectors, "n d"))["n"]
    refuse_unusable(vectors=vectors)
    sampled = _sample(n, pairs)
    mean = _Mean()
    for _, distances in _random_pairs(vectors, sampled, seed):
        mean.add(np.exp(-2 * distances))
    return _uniformity(mean, exact=sampled is None)


def anisotropy(vectors: NDArray[np.floating]) -> float | None:
    r"""The mean cosine of all pairs of distinct rows: near 0 where directions balance, 1 where all are one.

    With *u* the directions it needs no pairs at all:

    .. math:: \frac{\lVert \sum_i u_i \rVert^2 - \sum_i \lVert u_i \rVert^2}{n (n - 1)}

    A zero vector has a cosine of 0 with everything. None for fewer than two vectors.

    Paper:    Ethayarajh 2019, arXiv:1909.00512, section 3.3

    >>> anisotropy(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))  # one pair of three has the same direction
    0.3333333333333333
    """
    n, d = expect(vectors=(vectors, "n d")).values()
    refuse_unusable(vectors=vectors)
    if n < 2:
        return None
    total, squares = np.zeros(d), 0.0
    for block in blocks(vectors, normalize=True):
        total += block.sum(axis=0)
        squares += float(_squares(block).sum())
    return float(np.clip((total @ total - squares) / (n * (n - 1)), -1.0, 1.0))


def effective_rank(vectors: NDArray[np.floating], *, normalize: bool = True) -> float | None:
    r"""How many directions the vectors use, if all directions were used equally.

    With :math:`p_i` the eigenvalues of the covariance matrix, divided by their sum:

    .. math:: \exp\Big(-\sum_i p_i \log p_i\Big)

    From 1 for vectors on a line to *d* for the same spread in every direction; 0 where there is no spread beyond
    rounding, as with one vector. None without vectors.

    Paper:    Roy and Vetterli 2007, "The effective rank"; they take the singular values of the matrix itself, we take
              those of the covariance

    Args:
        vectors: (n, d) vectors.
        normalize: measure their directions, as cosines do; False: the vectors with their lengths.

    >>> round(effective_rank(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])), 6)
    2.0
    """
    n = expect(vectors=(vectors, "n d"))["n"]
    refuse_unusable(vectors=vectors)
    if n == 0:
        return None
    mean, covariance = mean_and_covariance(vectors, normalize=normalize)
    variances = np.linalg.eigvalsh(covariance)
    variances = variances[variances > least_variance(mean, covariance)]
    if not len(variances):
        return 0.0
    shares = variances / variances.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def cosine_counts(left: NDArray[np.floating], right: NDArray[np.floating], *, bins: int = 40) -> NDArray[np.int64]:
    """(bins,) how many cosines of two sides, row by row, fall into each of the equal bins from -1 to 1.

    >>> cosine_counts(np.array([[1.0, 0], [1, 0]]), np.array([[2.0, 0], [-1, 0]]), bins=4).tolist()
    [1, 0, 0, 1]
    """
    expect(left=(left, "b d"), right=(right, "b d"))
    refuse_unusable(left=left, right=right)
    if bins < 1:
        raise SettingError(f"bins must be 1 or more, got {bins}; try 40.")
    counts = np.zeros(bins, dtype=np.int64)
    for x, y in zip(blocks(left, normalize=True), blocks(right, normalize=True), strict=True):
        counts += _counts(np.einsum("bd,bd->b", x, y), bins)
    return counts


class _Mean:
    """The running mean of numbers that come in parts, and the sum of their squared deviations."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        if not len(values):
            return
        middle = float(values.mean())
        count, away = self.count + len(values), middle - self.mean
        self.squares += float(((values - middle) ** 2).sum()) + away**2 * self.count * len(values) / count
        self.mean += away * len(values) / count
        self.count = count


def _uniformity(mean: _Mean, *, exact: bool) -> Uniformity:
    """From the mean of exp(-2 distance); the error of its logarithm is the error of the mean, divided by the mean."""
    if mean.count == 0:
        return Uniformity(None, None, 0, exact)
    error = 0.0 if exact else None
    if not exact and mean.count > 1:
        error = math.sqrt(mean.squares / (mean.count - 1) / mean.count) / mean.mean
    return Uniformity(math.log(mean.mean), error, mean.count, exact)


def _sample(n: int, pairs: int | None) -> int | None:
    """How many random pairs of n vectors to draw; None: compare all pairs."""
    if pairs is not None and pairs < 1:
        raise SettingError(f"pairs must be 1 or more, got {pairs}; leave it out for the default.")
    if pairs is None and n > EXACT_ROWS:
        pairs = SAMPLED_PAIRS
    return None if pairs is None or pairs >= n * (n - 1) // 2 else pairs


def _random_pairs(
    vectors: NDArray[np.floating], sampled: int | None, seed: int
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Cosines and squared distances of pairs of directions: a sample, or each pair of distinct rows once."""
    n, d = vectors.shape
    if sampled is None:
        yield from _all_pairs(vectors)
        return
    source = generator(seed, "geometry", "pairs")
    for start in range(0, sampled, rows_at_once(d)):
        # one draw for a pair, so the sample does not depend on the size of the parts
        drawn = source.integers(n * (n - 1), size=min(rows_at_once(d), sampled - start))
        first, second = np.divmod(drawn, n - 1)
        second += second >= first  # never the same row
        x, y = directions(vectors[first]), directions(vectors[second])
        cosines = np.einsum("bd,bd->b", x, y)
        yield cosines, _distances(_squares(x) + _squares(y), cosines)


def _all_pairs(vectors: NDArray[np.floating]) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    n, d = vectors.shape
    side = side_at_once(d)
    for top in range(0, n, side):
        x = directions(vectors[top : top + side])
        for start in range(top, n, side):
            y = x if start == top else directions(vectors[start : start + side])
            cosines = x @ y.T
            distances = _distances(_squares(x)[:, None] + _squares(y), cosines)
            if start == top:
                above = np.triu_indices(len(x), 1)  # each pair once, and no row with itself
                yield cosines[above], distances[above]
            else:
                yield cosines.ravel(), distances.ravel()


def _distances(squares: NDArray[np.float64], cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances, from the sums of the squared lengths."""
    distances: NDArray[np.float64] = np.maximum(squares - 2 * cosines, 0.0)
    return distances


def _squares(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) squared lengths."""
    squares: NDArray[np.float64] = np.einsum("nd,nd->n", vectors, vectors)
    return squares


def _counts(cosines: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    counts, _ = np.histogram(np.clip(cosines, -1.0, 1.0), bins=bins, range=(-1.0, 1.0))
    return counts.astype(np.int64)


def layer_anisotropy(model: TextModel, table: TokenTable, *, batch_size: int) -> tuple[float | None, ...]:
    """The anisotropy of the pooled states after the embeddings and after each layer, in this order.

    Every layer is pooled as the model pools the last one; for the pooler, which reads the last layer only, the first
    token is taken. A transform after the pooling is not included. None for every layer with fewer than two texts.

    Args:
        model: the encoder; it runs like ``AutoModel``, on padded batches.
        table: the texts; one vector for each layer is held in memory, so take a sample of about a thousand.
        batch_size: texts that are encoded together.
    """
    pooling = "first" if model.pooling == "pooler" else model.pooling
    pooled: list[list[NDArray[np.float32]]] = []
    rows_of_batches = batches(table, batch_size)
    with inference(model) as device:
        for rows in rows_of_batches:
            inputs = table.padded(rows).to(device).tensors
            states = model.network.base_model(**inputs, output_hidden_states=True).hidden_states
            mask = inputs["attention_mask"]
            pooled.append([pool(pooling, layer, mask, None).float().cpu().numpy() for layer in states])  # (b, d) each
    return tuple(anisotropy(np.concatenate(layer)) for layer in zip(*pooled, strict=True))
