"""A text model with an affine map behind its pooling, such as a whitening: stored with it, and part of every use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.encoder import Output, TextModel
from nearfar.encoding.heads import Head
from nearfar.encoding.pooling_modes import Pooling
from nearfar.encoding.tokens import Padded
from nearfar.encoding.unpadded import Stream
from nearfar.shapes import expect


class Transform(nn.Module):
    """(b, d) text vectors -> (b, k): x Wᵀ + b. It is fitted, never trained.

    Args:
        weight: (k, d) W.
        bias: (k,) b.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        expect(weight=(weight, "k d"), bias=(bias, "k"))
        self.weight: Tensor
        self.bias: Tensor
        self.register_buffer("weight", weight.detach().float().cpu().clone())
        self.register_buffer("bias", bias.detach().float().cpu().clone())

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, k)."""
        return F.linear(vectors.float(), self.weight, self.bias)


class TransformedModel(TextModel):
    """A text model whose text vectors go through a map; its class head reads them as they were before.

    Args:
        network: as of a text model.
        transform: the map.
        pooling: as of a text model.
        native: as of a text model.
        head: as of a text model.
    """

    def __init__(
        self, network: Any, *, transform: Transform, pooling: Pooling, native: bool = False, head: Head | None = None
    ) -> None:
        super().__init__(network, pooling=pooling, native=native, head=head)
        expect(transform=(transform.weight, f"k {int(network.config.hidden_size)}"))
        self.transform = transform

    @property
    def dim(self) -> int:
        """Width of a text vector behind the map."""
        return len(self.transform.bias)

    def forward(self, inputs: Padded | Stream, *, logits_only: bool = False) -> Output:
        """As of a text model; with ``logits_only`` the text vectors mean nothing and are not mapped."""
        output = super().forward(inputs, logits_only=logits_only)
        return output if logits_only else replace(output, embedding=self.transform(output.embedding))
