"""Arithmetic on many vectors in double precision and bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError

NUMBERS = 1_000_000
"""Numbers that are held at once in double precision: 8 MB for each array of a step."""
ROUNDING = 1e-6
"""A spread below this share of the length of the vectors is the rounding of single precision."""


def rows_at_once(width: int) -> int:
    """How many vectors of a width are held at once."""
    return max(1, NUMBERS // width)


def side_at_once(width: int) -> int:
    """How many vectors of a width are compared with as many others at once."""
    return min(rows_at_once(width), math.isqrt(NUMBERS))


def directions(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """(..., d) the vectors with length 1; zero vectors stay zero."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("...d,...d->...", wide, wide))[..., None]
    wide /= np.where(lengths > 0, lengths, 1.0)
    return wide


def blocks(vectors: NDArray[np.floating], *, normalize: bool = False) -> Iterator[NDArray[np.float64]]:
    """The rows, some at a time, in double precision, with length 1 if ``normalize``."""
    step = rows_at_once(vectors.shape[1])
    for start in range(0, len(vectors), step):
        block = vectors[start : start + step]
        yield directions(block) if normalize else block.astype(np.float64)


def mean_and_covariance(
    vectors: NDArray[np.floating], *, normalize: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(d,) the mean and (d, d) the covariance, divided by n, of one vector or more."""
    n, d = vectors.shape
    mean = np.zeros(d)
    for block in blocks(vectors, normalize=normalize):
        mean += block.sum(axis=0) / n
    covariance = np.zeros((d, d))
    for block in blocks(vectors, normalize=normalize):
        block -= mean
        covariance += block.T @ block / n
    return mean, covariance


def least_variance(mean: NDArray[np.float64], covariance: NDArray[np.float64], spread: float = ROUNDING) -> float:
    """The variance of a direction whose spread is this share of the length of the vectors."""
    return float(spread**2 * (np.trace(covariance) + mean @ mean))


def refuse_unusable(**named: NDArray[np.floating]) -> None:
    """Refuse vectors of width 0, and rows that are not finite."""
    for name, vectors in named.items():
        if vectors.shape[1] == 0:
            raise SettingError(f"{name} must have a width of 1 or more, got 0.")
        step = rows_at_once(vectors.shape[1])
        for start in range(0, len(vectors), step):
            wrong = np.flatnonzero(~np.isfinite(vectors[start : start + step]).all(axis=1))
            if len(wrong):
                raise SettingError(
                    f"{name} must be finite, row {start + wrong[0]} is not; a model whose weights are NaN or infinite "
                    "gives such vectors."
                )
