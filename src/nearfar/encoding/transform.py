"""An affine map behind the pooling of a text model, such as a whitening: stored with it, and part of every use."""

from __future__ import annotations

from typing import NotRequired, TypedDict

import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.shapes import expect


class TransformSpec(TypedDict):
    """A map in the model card: what it is and what it was fitted to."""

    kind: str
    dims: int
    texts: int
    before: NotRequired[TransformSpec | None]


class Transform(nn.Module):
    """(b, d) text vectors -> (b, k): x Wᵀ + b. It is fitted, never trained.

    Args:
        weight: (k, d) W.
        bias: (k,) b.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        expect(weight=(weight, "k d"), bias=(bias, "k"))
        self.register_buffer("weight", weight.detach().float().cpu().clone())
        self.register_buffer("bias", bias.detach().float().cpu().clone())

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, k)."""
        return F.linear(vectors.float(), self.weight, self.bias)
