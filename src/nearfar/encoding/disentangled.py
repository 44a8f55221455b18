"""Disentangled attention of DeBERTa, He et al. 2021, arXiv:2006.03654: contents are also compared with distances."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nearfar.encoding.attention import Block, fill_block
from nearfar.encoding.dropout import DropoutMasks
from nearfar.encoding.layers import PostNormLayer, normed


@dataclass(frozen=True)
class Distances:
    """A vector for each distance between two tokens, the same in all layers."""

    table: nn.Embedding
    """(2 span, d)"""
    norm: nn.LayerNorm | None
    buckets: int
    """How many there are for all distances; below 1 each distance has its own."""
    longest: int
    """The distance of the last bucket."""
    dropout: float
    keys: bool
    """Whether distances are keys, which queries of contents meet."""
    queries: bool
    """Whether distances are queries, which meet keys of contents."""

    @property
    def shrink(self) -> float:
        """The factor of scores that are sums of several."""
        return 1 / math.sqrt(1 + self.keys + self.queries)

    def rows(self, length: int, device: torch.device) -> Tensor:
        """(length, length) the row of the table for each query and key."""
        places = torch.arange(length, device=device)
        return self._rows(places.unsqueeze(1) - places)

    def first_row(self, length: int, device: torch.device) -> int:
        """The first row that texts of such a length read: that of the first query and the last key."""
        return int(self._rows(torch.tensor(1 - length, device=device)))

    def _rows(self, distances: Tensor) -> Tensor:
        last = len(self.table.weight) - 1
        numbers = distances if self.buckets < 1 else log_buckets(distances, self.buckets, self.longest)
        return (numbers + (last + 1) // 2).clamp(0, last)


def log_buckets(distances: Tensor, buckets: int, longest: int) -> Tensor:
    """Up to half of the buckets each distance has a number of its own; farther ones share numbers, by their logarithm.

    >>> log_buckets(torch.tensor([-9, -2, 0, 3, 4, 5, 9, 40]), 8, 41).tolist()
    [-6, -2, 0, 3, 4, 5, 6, 7]
    """
    near = buckets // 2
    size = distances.abs().clamp_min(near)
    scale = torch.log(torch.tensor((longest - 1) / near))  # in single precision, as the network rounds it
    far = torch.ceil(torch.log(size / near) / scale * (near - 1)) + near
    return torch.where(distances.abs() <= near, distances, (far * distances.sign()).long())


class LayerDistances:
    """The distances as one layer reads them, for texts up to a length.

    Args:
        distances: those of all layers.
        layer: the layer.
        heads: its heads.
        length: the tokens of the longest text.
        masks: the dropout of this pass.
    """

    def __init__(
        self, distances: Distances, layer: PostNormLayer, heads: int, length: int, masks: DropoutMasks
    ) -> None:
        device = distances.table.weight.device
        self.distances, self.heads = distances, heads
        self.start = distances.first_row(length, device)
        vectors = distances.table.weight[self.start : len(distances.table.weight) - self.start + 1]
        vectors = vectors if distances.norm is None else normed(distances.norm, vectors)
        vectors = masks.drop(vectors, distances.dropout)
        self.keys = self.queries = None
        if distances.keys:
            self.keys = self._split((layer.distance_key or layer.key)(vectors))
        if distances.queries:
            self.queries = self._split((layer.distance_query or layer.query)(vectors))

    def _split(self, x: Tensor) -> Tensor:
        """(r, d) -> (r, heads, e)."""
        return x.view(len(x), self.heads, -1)

    def shrunk(self, qkv: Tensor, parts: int) -> Tensor:
        """(t, parts d) the same with smaller queries, which are the first part."""
        d = qkv.shape[1] // parts
        return torch.cat([qkv[:, :d] * self.distances.shrink, qkv[:, d:]], dim=1)

    def scores(self, qkv: Tensor, block: Block) -> Tensor:
        """(tokens, 3 d) shrunk queries, keys and values of a block -> (texts, heads, longest, longest) to add."""
        n, length = block.texts, block.longest
        e = qkv.shape[1] // (3 * self.heads)
        q, k, _ = fill_block(qkv, block).view(n, length, 3, self.heads, e).unbind(2)
        rows = self.distances.rows(length, qkv.device) - self.start  # (query, key)
        total = qkv.new_zeros(())
        if self.keys is not None:
            near = torch.einsum("nihe,rhe->nhir", q, self.keys)
            total = near.gather(3, rows.expand(n, self.heads, length, length))
        if self.queries is not None:
            near = torch.einsum("njhe,rhe->nhjr", k, self.queries * self.distances.shrink)
            total = total + near.gather(3, rows.t().expand(n, self.heads, length, length)).transpose(2, 3)
        return total / math.sqrt(e)

    def first_scores(self, q: Tensor, kv: Tensor, block: Block) -> Tensor:
        """(texts, d) shrunk queries of first tokens, (tokens, 2 d) keys and values -> (texts, heads, 1, longest)."""
        n, length = block.texts, block.longest
        e = q.shape[1] // self.heads
        k, _ = fill_block(kv, block).view(n, length, 2, self.heads, e).unbind(2)
        rows = self.distances.rows(length, q.device)[0] - self.start  # (key,)
        total = q.new_zeros(())
        if self.keys is not None:
            total = torch.einsum("nhe,jhe->nhj", q.view(n, self.heads, e), self.keys[rows])
        if self.queries is not None:
            total = total + torch.einsum("njhe,jhe->nhj", k, self.queries[rows] * self.distances.shrink)
        return total.unsqueeze(2) / math.sqrt(e)
