"""Whitening and all-but-the-top: affine maps fitted to embeddings after training, each one linear layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError, counted
from nearfar.evaluation.vectors import ROUNDING, blocks, least_variance, mean_and_covariance, refuse_unusable
from nearfar.shapes import expect


@dataclass(frozen=True, eq=False)
class Affine:
    """An affine map of vectors, x W + b; two of them in a row are one again.

    Args:
        weight: (d, k) W, from the old to the new width.
        bias: (k,) b.

    >>> double = Affine(2 * np.eye(2), np.zeros(2))
    >>> shift = Affine(np.eye(2), np.array([1.0, -1.0]))
    >>> double.then(shift).apply(np.array([[3.0, 4.0]])).tolist()
    [[7.0, 7.0]]
    """

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]

    def __post_init__(self) -> None:
        expect(weight=(self.weight, "d k"), bias=(self.bias, "k"))

    def apply(self, vectors: NDArray[np.floating]) -> NDArray[np.float32]:
        """(n, d) -> (n, k), computed in double precision and rounded once."""
        n = expect(weight=(self.weight, "d k"), vectors=(vectors, "n d"))["n"]
        refuse_unusable(vectors=vectors)
        mapped = np.empty((n, len(self.bias)), dtype=np.float32)
        start = 0
        for block in blocks(vectors):
            mapped[start : start + len(block)] = block @ self.weight + self.bias
            start += len(block)
        return mapped

    def then(self, other: Affine) -> Affine:
        """This map followed by the other one, as one map."""
        expect(bias=(self.bias, "k"), other=(other.weight, "k m"))
        return Affine(self.weight @ other.weight, self.bias @ other.weight + other.bias)

    def layer(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(k, d) and (k,), weight and bias of the same map as a linear layer in single precision."""
        return np.ascontiguousarray(self.weight.T, dtype=np.float32), self.bias.astype(np.float32)


class Whitening:
    r"""Equal spread in every direction, and no correlation: Su et al. 2021, arXiv:2103.15316, section 3.

    With the mean :math:`\mu` and the covariance :math:`U \Lambda U^\top` of the vectors it is fitted to:

    .. math:: \tilde x = (x - \mu)\, U \Lambda^{-1/2}

    so that those vectors have mean zero and the identity as covariance (divided by *n*). The directions are sorted by
    their variance, largest first, each with its largest coordinate above zero. Directions without variance beyond
    rounding are left out: fewer vectors than dimensions give a lower dimension.
    """

    @staticmethod
    def fit(vectors: NDArray[np.floating], *, dims: int | None = None, narrowest: float = ROUNDING) -> Affine:
        """The whitening of these vectors; take them where the map will be applied, behind the pooling.

        Args:
            vectors: (n, d) at least two different vectors.
            dims: how many directions to keep at most, largest variance first; None: all.
            narrowest: the least spread of a direction that is kept, as a share of the length of the vectors. Rounding
                errors are scaled up by as much as the narrowest direction.

        >>> spread = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 0.1], [0.0, -0.1]])
        >>> np.cov(Whitening.fit(spread).apply(spread).T, bias=True).round(5).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        d = expect(vectors=(vectors, "n d"))["d"]
        if dims is not None and not 1 <= dims <= d:
            raise SettingError(f"Whitening: dims must be between 1 and {d}, the width of the vectors, got {dims}.")
        mean, variances, axes = _principal("Whitening", vectors, least=narrowest)
        weight = axes[:, :dims] / np.sqrt(variances[:dims])
        return Affine(weight, -mean @ weight)


class AllButTheTop:
    r"""Removes the mean and the dominant directions: Mu and Viswanath 2018, arXiv:1702.01417, algorithm 1.

    With the mean :math:`\mu` and the *D* first principal directions :math:`u_i` of the vectors it is fitted to, which
    for word vectors encode frequency rather than meaning:

    .. math:: \tilde x = (x - \mu) - \sum_{i=1}^{D} \big((x - \mu)^\top u_i\big)\, u_i

    The vectors keep their width.
    """

    @staticmethod
    def fit(vectors: NDArray[np.floating], *, remove: int | None = None) -> Affine:
        """The map for these vectors; take them where the map will be applied, behind the pooling.

        Args:
            vectors: (n, d) at least two different vectors.
            remove: *D* above; 0 removes only the mean; None: a hundredth of the width, as in the paper, and at least 1.

        >>> longish = np.array([[9.0, 0.0], [-9.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> np.abs(AllButTheTop.fit(longish, remove=1).apply(longish)).tolist()
        [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
        """
        d = expect(vectors=(vectors, "n d"))["d"]
        wanted = max(1, round(d / 100)) if remove is None else remove
        if wanted < 0:
            raise SettingError(f"AllButTheTop: remove must be 0 or more, got {remove}; try {max(1, round(d / 100))}.")
        mean, variances, axes = _principal("AllButTheTop", vectors, least=ROUNDING)
        if wanted >= len(variances):
            raise SettingError(
                f"AllButTheTop: the vectors spread in {counted(len(variances), 'direction')} only, and without "
                f"{wanted} of them nothing is left; remove fewer, or fit it to more vectors."
            )
        top = axes[:, :wanted]
        weight = np.eye(d) - top @ top.T
        return Affine(weight, -mean @ weight)


def _principal(
    name: str, vectors: NDArray[np.floating], *, least: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(d,) the mean, (m,) the variances beyond rounding, falling, and (d, m) their directions."""
    refuse_unusable(vectors=vectors)
    if len(vectors) < 2:
        raise SettingError(f"{name} needs two vectors or more to fit, got {len(vectors)}.")
    mean, covariance = mean_and_covariance(vectors)
    variances, axes = np.linalg.eigh(covariance)
    kept = np.flatnonzero(variances > least_variance(mean, covariance, least))[::-1]
    if not len(kept):
        raise SettingError(
            f"{name} needs vectors that differ: the {len(vectors):,} given are all the same but for rounding."
        )
    axes = axes[:, kept]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)  # (1, m)
    return mean, variances[kept], axes * np.sign(largest)
