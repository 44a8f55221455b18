"""What a space of embeddings looks like: where like texts lie, how the others spread, how many directions are used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError
from nearfar.seeds import generator
from nearfar.shapes import expect

NUMBERS = 1_000_000
"""Numbers of vectors, or of cosines, that are held at once in double precision: 8 MB for each array of a step."""
EXACT_ROWS = 5_000
"""Up to so many vectors every pair of them is compared; of more, a sample."""
SAMPLED_PAIRS = 500_000
"""Random pairs that are drawn where not all are compared and no other number is asked for."""
ROUNDING = 1e-6
"""A spread of less than this part of the length of the vectors is the rounding of single precision."""
MEASURES = ("alignment", "uniformity", "anisotropy", "effective_rank")


@dataclass(frozen=True)
class Uniformity:
    """How evenly directions fill the sphere, and how sure that number is."""

    value: float | None
    """The lower, the more even: 0 where all are one direction, near -4 where many are spread evenly over a sphere of
    many dimensions. None for fewer than two vectors, which have no pairs."""
    error: float | None
    """The standard error of ``value`` that comes from sampling pairs of these vectors: 0 where all pairs were taken;
    None without a value, or from a sample of one pair."""
    pairs: int
    """How many pairs were compared."""
    exact: bool
    """Whether these are all pairs."""


@dataclass(frozen=True)
class CosineHistogram:
    """Cosines of positive pairs next to those of random pairs, counted in bins of equal width from -1 to 1."""

    edges: tuple[float, ...]
    """Where the bins begin, and where the last one ends; only that end belongs to its bin."""
    positive: tuple[int, ...]
    """Positive pairs in each bin: zeros where none were given."""
    random: tuple[int, ...]
    """Random pairs in each bin."""

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {"edges": list(self.edges), "positive": list(self.positive), "random": list(self.random)}


@dataclass(frozen=True)
class GeometryReport:
    """The shape of a space of embeddings."""

    rows: int
    """How many vectors were measured."""
    dim: int
    """How wide they are."""
    zeros: int
    """How many of them are zero: they have no direction, and a cosine of 0 with everything."""
    positives: int
    """How many positive pairs were measured."""
    scores: dict[str, float]
    """Those of ``alignment``, ``uniformity``, ``anisotropy`` and ``effective_rank`` that are defined: the first needs
    a positive pair, the next two need two vectors, the last needs one."""
    uniformity_error: float | None
    """The standard error of the uniformity: 0 where all pairs were compared."""
    random_pairs: int
    """How many pairs stand behind the uniformity and the histogram of random pairs."""
    exact: bool
    """Whether these are all pairs, or a sample of ``seed``."""
    seed: int
    histogram: CosineHistogram

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it; measures that are not defined are None."""
        return {
            **{name: self.scores.get(name) for name in MEASURES},
            "uniformity_error": self.uniformity_error,
            "rows": self.rows,
            "dim": self.dim,
            "zeros": self.zeros,
            "positives": self.positives,
            "random_pairs": self.random_pairs,
            "exact": self.exact,
            "seed": self.seed,
            "histogram": self.histogram.to_dict(),
        }


def geometry_report(
    vectors: NDArray[np.floating],
    *,
    positives: tuple[NDArray[np.floating], NDArray[np.floating]] | None = None,
    pairs: int | None = None,
    bins: int = 40,
    seed: int = 0,
) -> GeometryReport:
    """All measures of this module, of the directions of the vectors, in memory that does not grow with their number.

    Few vectors make a report too: what is not defined for them is left out of ``scores``.

    Args:
        vectors: (n, d) embeddings of any texts.
        positives: (b, d) and (b, d), embeddings of texts that belong together row by row, such as those of STS pairs
            with a score of 4 or more; without them there is no alignment.
        pairs: random pairs to compare, as in :func:`uniformity`.
        bins: how many bins the histograms have.
        seed: which sample of random pairs.

    >>> report = geometry_report(np.eye(3, dtype=np.float32), positives=(np.eye(3), np.eye(3)))
    >>> {name: round(value, 6) for name, value in report.scores.items()}
    {'alignment': 0.0, 'uniformity': -4.0, 'anisotropy': 0.0, 'effective_rank': 2.0}
    """
    left, right = positives if positives is not None else (vectors[:0], vectors[:0])
    sizes = expect(vectors=(vectors, "n d"), left=(left, "b d"), right=(right, "b d"))
    refuse_unusable("vectors", vectors)
    sampled = _sample(sizes["n"], pairs)
    positive = cosine_counts(left, right, bins=bins)
    mean, random = _Mean(), np.zeros_like(positive)
    for cosines, distances in _random_pairs(vectors, sampled, seed):
        mean.add(np.exp(-2 * distances))
        random += _counts(cosines, bins)
    spread = _uniformity(mean, exact=sampled is None)
    found = {
        "alignment": alignment(left, right),
        "uniformity": spread.value,
        "anisotropy": anisotropy(vectors),
        "effective_rank": effective_rank(vectors),
    }
    return GeometryReport(
        rows=sizes["n"],
        dim=sizes["d"],
        zeros=sum(int((~block.any(axis=1)).sum()) for block in blocks(vectors)),
        positives=sizes["b"],
        scores={name: value for name, value in found.items() if value is not None},
        uniformity_error=spread.error,
        random_pairs=spread.pairs,
        exact=spread.exact,
        seed=seed,
        histogram=CosineHistogram(
            edges=tuple(np.linspace(-1, 1, bins + 1).tolist()),
            positive=tuple(positive.tolist()),
            random=tuple(random.tolist()),
        ),
    )


def alignment(left: NDArray[np.floating], right: NDArray[np.floating], *, normalize: bool = True) -> float | None:
    r"""How far apart the two texts of a positive pair lie: Wang and Isola 2020, arXiv:2005.10242, section 4.

    .. math:: \mathbb{E}\, \lVert f(x) - f(x^+) \rVert^2

    From 0, where they are one point, to 4, where they are opposite. None without pairs.

    Args:
        left: (b, d) vectors.
        right: (b, d) vectors of the texts that belong to them, row by row.
        normalize: compare directions; a zero vector has none and stays zero.

    >>> alignment(np.array([[2.0, 0.0]]), np.array([[0.0, 3.0]]))
    2.0
    """
    b = expect(left=(left, "b d"), right=(right, "b d"))["b"]
    refuse_unusable("left", left)
    refuse_unusable("right", right)
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
    refuse_unusable("vectors", vectors)
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

    >>> anisotropy(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))  # one pair of three is alike
    0.3333333333333333
    """
    n, d = expect(vectors=(vectors, "n d")).values()
    refuse_unusable("vectors", vectors)
    if n < 2:
        return None
    total, own = np.zeros(d), 0.0
    for block in blocks(vectors, normalize=True):
        total += block.sum(axis=0)
        own += float(_squares(block).sum())
    return float(np.clip((total @ total - own) / (n * (n - 1)), -1.0, 1.0))


def effective_rank(vectors: NDArray[np.floating], *, normalize: bool = True) -> float | None:
    r"""How many directions the vectors spread in, as if all were used alike.

    With :math:`p_i` the eigenvalues of the covariance matrix, divided by their sum:

    .. math:: \exp\Big(-\sum_i p_i \log p_i\Big)

    From 1 for vectors on a line to *d* for a spread that is the same in every direction; 0 where there is no spread
    beyond rounding, as with one vector. None without vectors.

    Paper:    Roy and Vetterli 2007, "The effective rank"; their singular values are of a matrix as it stands, ours are
              those of the covariance

    Args:
        vectors: (n, d) vectors.
        normalize: measure their directions, as cosines do; False: the vectors with their lengths.

    >>> round(effective_rank(np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])), 6)
    2.0
    """
    n = expect(vectors=(vectors, "n d"))["n"]
    refuse_unusable("vectors", vectors)
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
    """(bins,) how many of the cosines of two sides, row by row, fall into each of the equal bins from -1 to 1.

    >>> cosine_counts(np.array([[1.0, 0], [1, 0]]), np.array([[2.0, 0], [-1, 0]]), bins=4).tolist()
    [1, 0, 0, 1]
    """
    expect(left=(left, "b d"), right=(right, "b d"))
    refuse_unusable("left", left)
    refuse_unusable("right", right)
    if bins < 1:
        raise SettingError(f"bins must be 1 or more, got {bins}; try 40.")
    counts = np.zeros(bins, dtype=np.int64)
    for x, y in zip(blocks(left, normalize=True), blocks(right, normalize=True), strict=True):
        counts += _counts(np.einsum("bd,bd->b", x, y), bins)
    return counts


def blocks(vectors: NDArray[np.floating], *, normalize: bool = False) -> Iterator[NDArray[np.float64]]:
    """The rows, some at a time, in double precision; with ``normalize`` of length 1, but zero vectors stay zero."""
    step = _rows(vectors.shape[1])
    for start in range(0, len(vectors), step):
        block = vectors[start : start + step]
        yield _directions(block) if normalize else block.astype(np.float64)


def mean_and_covariance(
    vectors: NDArray[np.floating], *, normalize: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d,) the mean and (d, d) the covariance of one vector or more, divided by n: first the one, then the other."""
    n, d = vectors.shape
    mean = np.zeros(d)
    for block in blocks(vectors, normalize=normalize):
        mean += block.sum(axis=0) / n
    covariance = np.zeros((d, d))
    for block in blocks(vectors, normalize=normalize):
        block -= mean
        covariance += block.T @ block / n
    return mean, covariance


def least_variance(mean: NDArray[np.float64], covariance: NDArray[np.float64]) -> float:
    """The variance that a direction must exceed to be more than rounding."""
    return float(ROUNDING**2 * (np.trace(covariance) + mean @ mean))


def refuse_unusable(name: str, vectors: NDArray[np.floating]) -> None:
    """Vectors without any width, and rows that are not finite, are refused."""
    if vectors.shape[1] == 0:
        raise SettingError(f"{name} must have a width of 1 or more, got 0.")
    step = _rows(vectors.shape[1])
    for start in range(0, len(vectors), step):
        wrong = np.flatnonzero(~np.isfinite(vectors[start : start + step]).all(axis=1))
        if len(wrong):
            raise SettingError(
                f"{name} must be finite, row {start + wrong[0]} is not; a model whose weights are NaN or infinite "
                "gives such vectors."
            )


class _Mean:
    """The mean of numbers that come in parts, and their squared distances from it."""

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
    """From the mean of exp(-2 distance); the error of its logarithm is its own, divided by it."""
    if mean.count == 0:
        return Uniformity(None, None, 0, exact)
    error = None
    if exact:
        error = 0.0
    elif mean.count > 1:
        error = math.sqrt(mean.squares / (mean.count - 1) / mean.count) / mean.mean
    return Uniformity(math.log(mean.mean), error, mean.count, exact)


def _sample(n: int, pairs: int | None) -> int | None:
    """How many random pairs of n vectors to draw; None: compare them all."""
    if pairs is not None and pairs < 1:
        raise SettingError(f"pairs must be 1 or more, got {pairs}; leave it out to have it chosen.")
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
    for start in range(0, sampled, _rows(d)):
        # one draw for a pair: whatever the size of the parts, the sample is the same
        drawn = source.integers(n * (n - 1), size=min(_rows(d), sampled - start))
        first, second = np.divmod(drawn, n - 1)
        second += second >= first  # never the same row
        x, y = _directions(vectors[first]), _directions(vectors[second])
        cosines = np.einsum("bd,bd->b", x, y)
        yield cosines, _distances(_squares(x) + _squares(y), cosines)


def _all_pairs(vectors: NDArray[np.floating]) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    n, d = vectors.shape
    side = min(_rows(d), math.isqrt(NUMBERS))
    for top in range(0, n, side):
        x = _directions(vectors[top : top + side])
        for start in range(top, n, side):
            y = x if start == top else _directions(vectors[start : start + side])
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


def _directions(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(_squares(wide))[:, None]
    wide /= np.where(lengths > 0, lengths, 1.0)
    return wide


def _squares(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) squared lengths."""
    squares: NDArray[np.float64] = np.einsum("nd,nd->n", vectors, vectors)
    return squares


def _counts(cosines: NDArray[np.float64], bins: int) -> NDArray[np.int64]:
    counts, _ = np.histogram(np.clip(cosines, -1.0, 1.0), bins=bins, range=(-1.0, 1.0))
    return counts.astype(np.int64)


def _rows(width: int) -> int:
    """How many vectors are held at once."""
    return max(1, NUMBERS // width)
