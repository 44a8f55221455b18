"""Where a token stands in its text, as attention reads it: rotary angles, a bias by distance, a window of neighbors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

OUTSIDE = -1e9
"""The score of a token outside the window: its weight is zero, and a row of nothing else has no NaN."""


def offsets(lengths: Sequence[int], device: torch.device) -> Tensor:
    """(t,) the place of each token in its text.

    >>> offsets([3, 1], torch.device("cpu")).tolist()
    [0, 1, 2, 0]
    """
    sizes = np.array(lengths, dtype=np.int64)
    return torch.from_numpy(np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)).to(device)


@dataclass(frozen=True)
class Rotary:
    """Rotary positions, Su et al. 2021, arXiv:2104.09864: the module of the network that holds the frequencies."""

    module: nn.Module
    name: str

    def angles(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """(t,) places of tokens -> their (t, e / 2) cosines and sines."""
        turns = places.unsqueeze(1).float() * getattr(self.module, self.name).float()
        return turns.cos(), turns.sin()


def rotate(x: Tensor, angles: tuple[Tensor, Tensor], heads: int, *, parts: int) -> Tensor:
    """(t, parts d) queries or keys of all heads, and values at last -> the same with all but the values turned.

    >>> angles = (torch.tensor([[0.0]]), torch.tensor([[1.0]]))  # a quarter turn
    >>> rotate(torch.tensor([[1.0, 2.0, 5.0, 6.0]]), angles, heads=1, parts=2).tolist()
    [[-2.0, 1.0, 5.0, 6.0]]
    """
    turned: Tensor = _Rotation.apply(x, *angles, heads, parts)  # type: ignore[no-untyped-call]
    return turned


class _Rotation(torch.autograd.Function):
    """The gradient of a turn is the turn back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosines: Tensor, sines: Tensor, heads: int, parts: int) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        ctx.heads, ctx.parts = heads, parts
        return _turn(x, cosines, sines, heads, parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        cosines, sines = ctx.saved_tensors
        return _turn(gradients[0], cosines, -sines, ctx.heads, ctx.parts), None, None, None, None


def _turn(x: Tensor, cosines: Tensor, sines: Tensor, heads: int, parts: int) -> Tensor:
    out = x.clone(memory_format=torch.contiguous_format)
    halves = out.view(len(x), parts, heads, 2, -1)[:, :-1]  # (t, parts - 1, heads, 2, e / 2)
    first, second = halves.unbind(dim=3)
    cosines, sines = cosines[:, None, None], sines[:, None, None]
    halves.copy_(torch.stack((first * cosines - second * sines, second * cosines + first * sines), dim=3))
    return out


@dataclass(frozen=True)
class RelativeBias:
    """A score for each distance between two tokens and each head, the same in all layers."""

    table: nn.Embedding
    """(buckets, heads)"""
    bucket: Callable[[Tensor], Tensor]
    """From the distance of a key to a query to its row of the table."""

    def __call__(self, length: int, device: torch.device) -> Tensor:
        """(1, heads, length, length) the scores of texts of so many tokens."""
        places = torch.arange(length, device=device)
        rows = self.bucket(places - places.unsqueeze(1))  # (query, key)
        return F.embedding(rows, self.table.weight).permute(2, 0, 1).unsqueeze(0)


def window_bias(length: int, reach: int, device: torch.device) -> Tensor | None:
    """(1, 1, length, length) zero up to a distance of ``reach``; None where no token is farther than that.

    >>> (window_bias(3, 1, torch.device("cpu"))[0, 0] == 0).int().tolist()
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    if length <= reach + 1:
        return None
    places = torch.arange(length, device=device)
    far = (places - places.unsqueeze(1)).abs() > reach
    return torch.zeros(1, 1, length, length, device=device).masked_fill(far, OUTSIDE)
