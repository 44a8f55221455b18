"""Cosine MSE: the cosine of a pair should be its score."""

from __future__ import annotations

import torch  # noqa: F401 - the examples below read it
from torch import Tensor

from nearfar.objectives.pair_objective import PairObjective, Pairs


class CosineMSE(PairObjective):
    r"""Mean squared error of the cosine of each pair.

    .. math:: L = \frac{1}{b} \sum_i (\cos(q_i, a_i) - y_i)^2

    with *y* the targets, from 0 for unrelated to 1 for equivalent texts. Extra rows on the right, and groups, are
    accepted for the sake of blends and ignored.

    Reads:    pairs of texts, a score from 0 to 1 or a class 0 or 1 each
    Batches:  any
    Related:  :class:`BatchSoftmax`, which also compares with the rest of the batch; :class:`Pearson`
    Paper:    Reimers and Gurevych 2019, arXiv:1908.10084; eq. 6 of Chernyavskiy et al. 2022, arXiv:2110.15725

    >>> same, other = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    >>> CosineMSE()(same, other, torch.tensor([0.5])).item()
    0.25
    """

    def loss(self, pairs: Pairs) -> Tensor:
        """The value of a batch."""
        targets = pairs.required_targets(low=0, high=1)
        if len(pairs) == 0:
            return pairs.zero()
        return (pairs.cosines() - targets.to(pairs.left.dtype)).square().mean()
