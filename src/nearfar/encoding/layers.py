"""Transformer layers of the fast path: the modules of the network, whatever its architecture calls them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.dropout import DropoutMasks
from nearfar.encoding.positions import Rotary
from nearfar.encoding.products import linear


@dataclass(frozen=True, kw_only=True)
class Layer(ABC):
    """One layer: attention, and a feed-forward block, which may be gated."""

    mix: nn.Linear
    """The output layer of the attention heads."""
    up: nn.Linear
    down: nn.Linear
    activation: Callable[[Tensor], Tensor]
    attention_dropout: float
    mix_dropout: float
    inner_dropout: float = 0.0
    """Of the feed-forward block, before its second layer."""
    rotary: Rotary | None = None
    window: int | None = None
    """How far a token attends to others; None for all."""

    @abstractmethod
    def entry(self, x: Tensor) -> Tensor:
        """(t, d) what the attention reads."""

    @abstractmethod
    def qkv(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, 3 d) queries, keys and values."""

    @abstractmethod
    def q(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, d) queries."""

    @abstractmethod
    def kv(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, 2 d) keys and values."""

    @abstractmethod
    def output(self, heads: Tensor, residual: Tensor, masks: DropoutMasks) -> Tensor:
        """What follows the attention heads: their output layer, and the feed-forward block."""


@dataclass(frozen=True, kw_only=True)
class PostNormLayer(Layer):
    """BERT's kind: what attention and feed-forward block add is normalized afterwards."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    mix_norm: nn.LayerNorm
    down_norm: nn.LayerNorm
    down_dropout: float
    gate: nn.Linear | None = None
    """A factor for the activated values of ``up``."""
    distance_key: nn.Linear | None = None
    distance_query: nn.Linear | None = None
    """What makes keys and queries of distances, in disentangled attention; None: what makes those of tokens."""

    def entry(self, x: Tensor) -> Tensor:
        """(t, d) what the attention reads."""
        return x

    def project(self, x: Tensor, *parts: nn.Linear) -> Tensor:
        """The outputs of several linear layers, concatenated: one matrix product."""
        bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
        return linear(x, torch.cat([part.weight for part in parts]), bias)

    def qkv(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, 3 d) queries, keys and values."""
        return self.project(x, self.query, self.key, self.value)

    def q(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, d) queries."""
        return self.query(x)  # type: ignore[no-any-return]

    def kv(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, 2 d) keys and values."""
        return self.project(x, self.key, self.value)

    def output(self, heads: Tensor, residual: Tensor, masks: DropoutMasks) -> Tensor:
        """What follows the attention heads: their output layer, and the feed-forward block."""
        x = normed(self.mix_norm, masks.drop_and_add(self.mix(heads), residual, self.mix_dropout))
        inner = self.activation(self.up(x))
        if self.gate is not None:
            inner = inner * self.gate(x)
        inner = self.down(masks.drop(inner, self.inner_dropout))
        return normed(self.down_norm, masks.drop_and_add(inner, x, self.down_dropout))


@dataclass(frozen=True, kw_only=True)
class PreNormLayer(Layer):
    """ModernBERT's kind: attention and feed-forward block read normalized states and add to those that are not."""

    joined: nn.Linear
    """Queries, keys and values in one."""
    norm: nn.LayerNorm | None
    up_norm: nn.LayerNorm

    def entry(self, x: Tensor) -> Tensor:
        """(t, d) what the attention reads."""
        return x if self.norm is None else normed(self.norm, x)

    def qkv(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, 3 d) queries, keys and values."""
        return self.joined(x)  # type: ignore[no-any-return]

    def q(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, d) queries."""
        return self._some(x, slice(0, 1))

    def kv(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, 2 d) keys and values."""
        return self._some(x, slice(1, 3))

    def _some(self, x: Tensor, parts: slice) -> Tensor:
        weight, bias = self.joined.weight, self.joined.bias
        chosen = weight.view(3, -1, weight.shape[1])[parts].flatten(0, 1)
        return linear(x, chosen, None if bias is None else bias.view(3, -1)[parts].flatten())

    def output(self, heads: Tensor, residual: Tensor, masks: DropoutMasks) -> Tensor:
        """What follows the attention heads: their output layer, and the feed-forward block."""
        x = masks.drop_and_add(self.mix(heads), residual, self.mix_dropout)
        values, gates = self.up(normed(self.up_norm, x)).chunk(2, dim=-1)
        inner = masks.drop(self.activation(values) * gates, self.inner_dropout)
        return self.down(inner) + x  # type: ignore[no-any-return]


def normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """The layer norm of x, also for a copy of the module's weights."""
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
