"""The fast path: BERT's family on one stream of real tokens, without any padding.

A batch of texts is one (t, d) stream, the texts sorted by length. Everything but attention works on the stream as it
is; attention takes the texts in blocks of similar length. The weights are those of the network that ``AutoModel``
opened, so saving, loading, heads and optimizers know nothing of it, and its numbers are the network's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
FAMILIES = (*BERT_LIKE, "distilbert")
SLACK = 0.2
"""How much longer the longest text of an attention block may be than its shortest, as a share."""
ROUND = 64
"""In bf16 the stream is filled up to a multiple of this: kernels are made and kept for every shape they meet."""


@dataclass(frozen=True)
class Stream:
    """A batch of texts as the fast path reads it."""

    ids: Tensor
    """(t,) token ids of all texts, the longest text first."""
    types: Tensor | None
    """(t,) token types, where the encoder reads them."""
    lengths: tuple[int, ...]
    """Tokens of each text, in the order of the stream."""
    place: Tensor
    """(b,) where in the stream's order each text of the batch stands."""

    def to(self, device: torch.device) -> Stream:
        """The same batch on a device."""
        types = None if self.types is None else self.types.to(device)
        return Stream(self.ids.to(device), types, self.lengths, self.place.to(device))


@dataclass(frozen=True)
class Layer:
    """The parts of one transformer layer, whatever its architecture calls them."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    mix: nn.Linear
    mix_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    down_norm: nn.LayerNorm
    activation: Callable[[Tensor], Tensor]
    attention_dropout: float
    mix_dropout: float
    down_dropout: float


@dataclass(frozen=True)
class Body:
    """An encoder of BERT's family, taken apart."""

    words: nn.Embedding
    positions: nn.Embedding
    types: nn.Embedding | None
    norm: nn.LayerNorm
    dropout: float
    project: nn.Linear | None
    layers: tuple[Layer, ...]
    heads: int
    first_position: int

    def forward(self, stream: Stream, *, training: bool) -> Tensor:
        """(t, d) last hidden states of all tokens, in the order of the stream."""
        device = stream.ids.device
        noise = Noise(training=training)
        lengths = stream.lengths
        position = torch.from_numpy(_positions(lengths)).to(device) + self.first_position
        x = F.embedding(stream.ids, self.words.weight) + F.embedding(position, self.positions.weight)
        if self.types is not None:
            kinds = torch.zeros_like(stream.ids) if stream.types is None else stream.types
            x = x + F.embedding(kinds, self.types.weight)
        x = noise.drop(_normed(self.norm, x), self.dropout)
        if self.project is not None:
            x = self.project(x)
        t = len(x)
        if torch.is_autocast_enabled(device.type):
            x = F.pad(x, (0, 0, 0, -t % ROUND))
        blocks = attention_blocks(lengths, device)
        for layer in self.layers:
            x = self._layer(layer, x, blocks, noise, t)
        return x[:t]

    def _layer(self, layer: Layer, x: Tensor, blocks: Sequence[Block], noise: Noise, t: int) -> Tensor:
        parts = (layer.query, layer.key, layer.value)
        weight = torch.cat([part.weight for part in parts])
        bias = torch.cat([part.bias for part in parts])
        qkv = F.linear(x, weight, bias)
        mixed = [attend(qkv, block, self.heads, layer.attention_dropout, noise) for block in blocks]
        if len(x) > t:
            mixed.append(qkv.new_zeros(len(x) - t, mixed[0].shape[1]))
        attended = layer.mix(torch.cat(mixed) if len(mixed) > 1 else mixed[0])
        x = _normed(layer.mix_norm, noise.drop(attended, layer.mix_dropout) + x)
        inner = layer.down(layer.activation(layer.up(x)))
        return _normed(layer.down_norm, noise.drop(inner, layer.down_dropout) + x)


@dataclass(frozen=True)
class Block:
    """Texts of similar length that attention takes together."""

    start: int
    stop: int
    """The tokens of the block in the stream."""
    texts: int
    longest: int
    fill: Tensor | None
    """(texts * longest,) which token of the block stands at each place, padding places holding any; None if even."""
    keep: Tensor | None
    """(tokens,) the places that hold tokens."""
    mask: Tensor | None
    """(texts, 1, 1, longest) True where a token stands."""


def attention_blocks(lengths: Sequence[int], device: torch.device) -> list[Block]:
    """Cut a sorted sequence of lengths into blocks with little padding."""
    blocks = []
    first, start = 0, 0
    while first < len(lengths):
        longest = lengths[first]
        last = first
        while last < len(lengths) and longest - lengths[last] <= max(1, SLACK * longest):
            last += 1
        own = lengths[first:last]
        stop = start + sum(own)
        fill = keep = mask = None
        if own[-1] != longest:
            sizes = np.array(own)
            real = np.arange(longest) < sizes[:, None]  # (texts, longest)
            order = np.zeros(real.shape, dtype=np.int64)
            order[real] = np.arange(stop - start)
            fill = torch.from_numpy(order.ravel()).to(device)
            keep = torch.from_numpy(np.flatnonzero(real)).to(device)
            mask = torch.from_numpy(real[:, None, None, :]).to(device)
        blocks.append(Block(start, stop, len(own), longest, fill, keep, mask))
        first, start = last, stop
    return blocks


def attend(qkv: Tensor, block: Block, heads: int, dropout: float, noise: Noise) -> Tensor:
    """(t, 3 d) queries, keys and values of the stream -> (tokens of the block, d) mixed values."""
    own = qkv[block.start : block.stop]
    if block.fill is not None:
        own = own.index_select(0, block.fill)
    d = qkv.shape[1] // 3
    q, k, v = own.view(block.texts, block.longest, 3, heads, d // heads).permute(2, 0, 3, 1, 4)  # (texts, heads, l, e)
    if noise.off(dropout):
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=block.mask)
    else:
        scores = (q @ k.transpose(-1, -2)) * (1 / math.sqrt(d // heads))
        if block.mask is not None:
            scores = scores.masked_fill(~block.mask, -torch.inf)
        mixed = noise.drop(scores.softmax(dim=-1).to(v.dtype), dropout) @ v
    flat = mixed.transpose(1, 2).reshape(block.texts * block.longest, d)
    return flat if block.keep is None else flat.index_select(0, block.keep)


class Noise:
    """Dropout masks from one cheap stream of bits, which torch's generator seeds: same seed, same masks."""

    def __init__(self, *, training: bool) -> None:
        self.training = training
        self._bits: Any = None

    def off(self, p: float) -> bool:
        """Whether nothing is dropped."""
        return not self.training or p <= 0

    def drop(self, x: Tensor, p: float) -> Tensor:
        """``x`` with a share ``p`` of its numbers set to zero and the others scaled up."""
        if self.off(p):
            return x
        if self._bits is None:
            self._bits = np.random.SFC64(int(torch.randint(2**62, ())))
        count = x.numel()
        bits = self._bits.random_raw(-(-count // 4)).view(np.int16)[:count]
        threshold = round(p * 65536) - 32768
        mask = torch.from_numpy(bits >= threshold).view(x.shape).to(x.device)
        dropped: Tensor = _Drop.apply(x, mask, 65536 / (32768 - threshold))  # type: ignore[no-untyped-call]
        return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return torch.ops.aten.native_dropout_backward(x, mask, scale)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return torch.ops.aten.native_dropout_backward(gradients[0], mask, ctx.scale), None, None


def take_apart(network: Any) -> Body | None:
    """The parts of an encoder the fast path knows; None for any other, which runs as ``AutoModel`` has it."""
    config = network.config
    if config.model_type not in FAMILIES or getattr(config, "is_decoder", False):
        return None
    if getattr(config, "chunk_size_feed_forward", 0) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return None
    base = network.base_model
    try:
        return _distilbert(base) if config.model_type == "distilbert" else _bert(base)
    except AttributeError:  # another release of transformers calls its parts otherwise
        return None


def _bert(base: Any) -> Body:
    embeddings = base.embeddings
    layers = [
        Layer(
            query=layer.attention.self.query, key=layer.attention.self.key, value=layer.attention.self.value,
            mix=layer.attention.output.dense, mix_norm=layer.attention.output.LayerNorm,
            up=layer.intermediate.dense, down=layer.output.dense, down_norm=layer.output.LayerNorm,
            activation=layer.intermediate.intermediate_act_fn,
            attention_dropout=layer.attention.self.dropout.p, mix_dropout=layer.attention.output.dropout.p,
            down_dropout=layer.output.dropout.p,
        )
        for layer in base.encoder.layer
    ]  # fmt: skip
    positions = embeddings.position_embeddings
    return Body(
        words=embeddings.word_embeddings, positions=positions, types=embeddings.token_type_embeddings,
        norm=embeddings.LayerNorm, dropout=embeddings.dropout.p, project=getattr(base, "embeddings_project", None),
        layers=tuple(layers), heads=base.config.num_attention_heads,
        first_position=0 if positions.padding_idx is None else positions.padding_idx + 1,
    )  # fmt: skip


def _distilbert(base: Any) -> Body:
    embeddings = base.embeddings
    layers = [
        Layer(
            query=layer.attention.q_lin, key=layer.attention.k_lin, value=layer.attention.v_lin,
            mix=layer.attention.out_lin, mix_norm=layer.sa_layer_norm, up=layer.ffn.lin1, down=layer.ffn.lin2,
            down_norm=layer.output_layer_norm, activation=layer.ffn.activation,
            attention_dropout=layer.attention.dropout.p, mix_dropout=0.0, down_dropout=layer.ffn.dropout.p,
        )
        for layer in base.transformer.layer
    ]  # fmt: skip
    return Body(
        words=embeddings.word_embeddings, positions=embeddings.position_embeddings, types=None,
        norm=embeddings.LayerNorm, dropout=embeddings.dropout.p, project=None, layers=tuple(layers),
        heads=base.config.n_heads, first_position=0,
    )  # fmt: skip


def _normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _positions(lengths: Sequence[int]) -> NDArray[np.int64]:
    """(t,) the place of each token in its text."""
    sizes = np.array(lengths, dtype=np.int64)
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
