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
    drophead: float = 0.0
    """The probability of each attention head of each text to be dropped, in training."""
    cutoff: float = 0.0
    """The share of the embedding's coordinates that become zero, in training, the same for all tokens of a text."""

    def weights(self) -> list[Tensor]:
        """All of the encoder's own weights."""
        layers = [part for layer in self.layers for part in vars(layer).values() if isinstance(part, nn.Module)]
        modules = [self.words, self.positions, self.types, self.norm, self.project, *layers]
        return [weight for module in modules if module is not None for weight in module.parameters()]

    def forward(self, stream: Stream, *, training: bool, firsts: bool = False, noise: Noise | None = None) -> Tensor:
        """(t, d) last hidden states of all tokens, in the order of the stream.

        With ``firsts`` it is (b, d), those of the first tokens alone, in the order of the stream: what a head on the
        first token never reads is not computed in the last layer, which is most of that layer. ``noise`` gives the
        dropout masks; without one, torch's generator seeds them.
        """
        device = stream.ids.device
        noise = noise or Noise(training=training)
        lengths = stream.lengths
        words = F.embedding(stream.ids, self.words.weight, self.words.padding_idx, sparse=self.words.sparse)
        x = words + F.embedding(self._positions(stream), self.positions.weight, self.positions.padding_idx)
        if self.types is not None:
            kinds = torch.zeros_like(stream.ids) if stream.types is None else stream.types
            x = x + F.embedding(kinds, self.types.weight)
        x = noise.drop(_normed(self.norm, x), self.dropout)
        if not noise.off(self.cutoff):
            x = x.masked_fill(noise.cut(len(lengths), x.shape[1], self.cutoff).to(device)[_owners(lengths, device)], 0)
        if self.project is not None:
            x = self.project(x)
        t = len(x)
        if torch.is_autocast_enabled(device.type):
            x = F.pad(x, (0, 0, 0, -t % ROUND))
        blocks = attention_blocks(lengths, device)
        owners = None if noise.off(self.drophead) else F.pad(_owners(lengths, device), (0, len(x) - t))
        for layer in self.layers[:-1]:
            x = self._layer(layer, x, blocks, noise, t, owners)
        if firsts:
            return self._last_firsts(self.layers[-1], x, blocks, noise, t)
        return self._layer(self.layers[-1], x, blocks, noise, t, owners)[:t]

    def _positions(self, stream: Stream) -> Tensor:
        """(t,) the position of each token; where they begin behind the padding id, a padding token takes up none."""
        device = stream.ids.device
        if not self.first_position:
            return torch.from_numpy(_places(stream.lengths)).to(device)
        padding = self.first_position - 1
        real = (stream.ids != padding).long()
        before = real.cumsum(0) - real  # (t,) real tokens before each, through all texts
        sizes = torch.tensor(stream.lengths, device=device)
        begins = before[sizes.cumsum(0) - sizes]  # (b,)
        return padding + real * (1 + before - begins.repeat_interleave(sizes))

    def _layer(
        self, layer: Layer, x: Tensor, blocks: Sequence[Block], noise: Noise, t: int, owners: Tensor | None
    ) -> Tensor:
        parts = (layer.query, layer.key, layer.value)
        qkv = F.linear(x, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))
        pieces = torch.split(qkv, [*(block.stop - block.start for block in blocks), len(x) - t])
        mixed = [
            attend(piece, block, self.heads, layer.attention_dropout, noise)
            for piece, block in zip(pieces, blocks, strict=False)
        ]
        if len(x) > t:
            mixed.append(qkv.new_zeros(len(x) - t, mixed[0].shape[1]))
        values = torch.cat(mixed)
        if owners is not None:
            texts = sum(block.texts for block in blocks)
            values = scale_heads(values, noise.heads(texts, self.heads, self.drophead).to(values)[owners])
        attended = layer.mix(values)
        x = _normed(layer.mix_norm, noise.drop_and_add(attended, x, layer.mix_dropout))
        inner = layer.down(layer.activation(layer.up(x)))
        return _normed(layer.down_norm, noise.drop_and_add(inner, x, layer.down_dropout))

    def _last_firsts(self, layer: Layer, x: Tensor, blocks: Sequence[Block], noise: Noise, t: int) -> Tensor:
        """One query for each text, keys and values for all its tokens; everything behind them for the first tokens."""
        parts = (layer.key, layer.value)
        kv = F.linear(x, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))
        begins = torch.cat([block.begins for block in blocks])
        first = x.index_select(0, begins)  # (b, d)
        queries = torch.split(layer.query(first), [block.texts for block in blocks])
        pieces = torch.split(kv, [*(block.stop - block.start for block in blocks), len(x) - t])
        mixed = [
            attend_firsts(q, piece, block, self.heads, layer.attention_dropout, noise)
            for q, piece, block in zip(queries, pieces, blocks, strict=False)
        ]
        values = torch.cat(mixed)
        if not noise.off(self.drophead):
            values = scale_heads(values, noise.heads(len(values), self.heads, self.drophead).to(values))
        attended = layer.mix(values)
        x = _normed(layer.mix_norm, noise.drop_and_add(attended, first, layer.mix_dropout))
        inner = layer.down(layer.activation(layer.up(x)))
        return _normed(layer.down_norm, noise.drop_and_add(inner, x, layer.down_dropout))


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
    begins: Tensor
    """(texts,) the first token of each text in the stream."""


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
        begins = torch.from_numpy(start + np.cumsum([0, *own[:-1]])).to(device)
        blocks.append(Block(start, stop, len(own), longest, fill, keep, mask, begins))
        first, start = last, stop
    return blocks


def attend(own: Tensor, block: Block, heads: int, dropout: float, noise: Noise) -> Tensor:
    """(tokens, 3 d) queries, keys and values of a block -> (tokens, d) mixed values."""
    if not torch.is_grad_enabled() or not own.requires_grad:
        d = own.shape[1] // 3
        filled = own if block.fill is None else own.index_select(0, block.fill)
        q, k, v = filled.view(block.texts, block.longest, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
        if noise.off(dropout):
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=block.mask)
            flat = mixed.transpose(1, 2).reshape(block.texts * block.longest, d)
            return flat if block.keep is None else flat.index_select(0, block.keep)
    shape = (block.texts * heads, block.longest, block.longest)
    mask = None if noise.off(dropout) else noise.mask(shape, dropout, own)
    scale = 1.0 if mask is None else 1 / (1 - dropout)
    values: Tensor = _Attention.apply(own, block, heads, mask, scale)  # type: ignore[no-untyped-call]
    return values


def attend_firsts(q: Tensor, kv: Tensor, block: Block, heads: int, dropout: float, noise: Noise) -> Tensor:
    """(texts, d) queries of first tokens, (tokens, 2 d) keys and values of a block -> (texts, d) mixed values."""
    n, d = q.shape
    e = d // heads
    filled = kv if block.fill is None or block.keep is None else _Fill.apply(kv, block.fill, block.keep)  # type: ignore[no-untyped-call]
    k, v = filled.view(n, block.longest, 2, heads, e).permute(2, 0, 3, 1, 4)  # (texts, heads, l, e)
    scores = _wide((q.view(n, heads, 1, e) * k).sum(dim=-1)) * (1 / math.sqrt(e))  # (texts, heads, l)
    if block.mask is not None:
        scores = scores.masked_fill(~block.mask[:, 0], -torch.inf)
    chances = noise.drop(scores.softmax(dim=-1).to(v.dtype), dropout)
    mixed: Tensor = (chances.unsqueeze(-1) * v).sum(dim=2).reshape(n, d)
    return mixed


class _Fill(torch.autograd.Function):
    """Tokens to padded places; what comes back to a padding place is zero, so backward only picks the real ones."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, fill: Tensor, keep: Tensor) -> Tensor:
        ctx.save_for_backward(keep)
        return tokens.index_select(0, fill)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return gradients[0].index_select(0, keep), None, None


class _Attention(torch.autograd.Function):
    """Attention of one block with its dropout; forward and backward by hand, so that nothing is copied twice."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, block: Block, heads: int, mask: Tensor | None, scale: float) -> Tensor:
        n, length, d = block.texts, block.longest, own.shape[1] // 3
        e = d // heads
        filled = own if block.fill is None else own.index_select(0, block.fill)
        q, k, v = filled.view(n, length, 3, heads, e).permute(2, 0, 3, 1, 4).reshape(3, n * heads, length, e)
        chances = _wide(torch.bmm(q, k.transpose(1, 2))).mul_(1 / math.sqrt(e))  # (n heads, l, l)
        if block.mask is not None:
            chances.view(n, heads, length, length).masked_fill_(~block.mask, -torch.inf)
        chances = chances.softmax(dim=-1).to(own.dtype)
        dropped = chances if mask is None else chances * mask
        mixed = torch.bmm(dropped, v)
        ctx.save_for_backward(q, k, v, chances, mask)
        ctx.block, ctx.heads, ctx.scale = block, heads, scale
        flat = mixed.view(n, heads, length, e).transpose(1, 2).reshape(n * length, d)
        flat = flat if block.keep is None else flat.index_select(0, block.keep)
        return flat if scale == 1 else flat.mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        q, k, v, chances, mask = ctx.saved_tensors
        block, heads = ctx.block, ctx.heads
        n, length, e = block.texts, block.longest, q.shape[2]
        d = heads * e
        upper = gradients[0] if ctx.scale == 1 else gradients[0] * ctx.scale
        if block.keep is not None:
            upper = upper.new_zeros(n * length, d).index_copy_(0, block.keep, upper)
        upper = upper.view(n, length, heads, e).transpose(1, 2).reshape(n * heads, length, e)
        out = torch.empty(3, n * heads, length, e, dtype=q.dtype, device=q.device)
        dropped = chances if mask is None else chances * mask
        torch.bmm(dropped.transpose(1, 2), upper, out=out[2])
        slope = torch.bmm(upper, v.transpose(1, 2))
        if mask is not None:
            slope.mul_(mask)
        slope = _wide(slope)
        slope = torch._softmax_backward_data(slope, _wide(chances), -1, slope.dtype)
        slope = slope.mul_(1 / math.sqrt(e)).to(q.dtype)
        torch.bmm(slope, k, out=out[0])
        torch.bmm(slope.transpose(1, 2), q, out=out[1])
        back = out.view(3, n, heads, length, e).permute(1, 3, 0, 2, 4).reshape(n * length, 3 * d)
        return (back if block.keep is None else back.index_select(0, block.keep)), None, None, None, None


class Noise:
    """Dropout masks from one cheap stream of bits, which torch's generator seeds: same seed, same masks."""

    def __init__(self, *, training: bool, seed: int | None = None) -> None:
        self.training = training
        self._seed = seed
        self._bits: Any = None

    def off(self, p: float) -> bool:
        """Whether nothing is dropped."""
        return not self.training or p <= 0

    def mask(self, shape: Sequence[int], p: float, like: Tensor) -> Tensor:
        """One for what stays and zero for the share ``p`` that goes, in the type of ``like``."""
        count = math.prod(shape)
        bits = torch.from_numpy(self._raw(-(-count // 4)).view(np.int16)[:count])
        return (bits >= round(p * 65536) - 32768).to(like.device, like.dtype).view(*shape)

    def heads(self, texts: int, heads: int, p: float) -> Tensor:
        """(texts, heads) what each head of each text is multiplied with: drophead, Zhou et al. 2020, arXiv:2004.13342.

        A head goes with probability ``p``; were all of a text to go, one stays, each with the same chance. Those that
        stay are scaled by all heads over the heads that stay, so that a head counts once on average, whatever ``p``.
        """
        draws = self._uniform(texts, heads)
        stays = (draws >= p) | (draws == draws.amax(dim=1, keepdim=True))
        return stays * (heads / stays.sum(dim=1, keepdim=True))

    def cut(self, texts: int, width: int, share: float) -> Tensor:
        """(texts, width) True for a ``share`` of the coordinates: feature cut-off, Shen et al. 2020, arXiv:2009.13818.

        Rounded to whole ones, drawn for each text.
        """
        return self._uniform(texts, width).argsort(dim=1) < round(share * width)

    def _uniform(self, *shape: int) -> Tensor:
        """Numbers from 0 on and below 1, in double precision."""
        raw = self._raw(math.prod(shape)) >> np.uint64(11)
        return torch.from_numpy(raw.astype(np.float64) * 2.0**-53).view(*shape)

    def _raw(self, count: int) -> NDArray[np.uint64]:
        if self._bits is None:
            self._bits = np.random.SFC64(int(torch.randint(2**62, ())) if self._seed is None else self._seed)
        drawn: NDArray[np.uint64] = self._bits.random_raw(count)
        return drawn

    def drop(self, x: Tensor, p: float) -> Tensor:
        """``x`` with a share ``p`` of its numbers set to zero and the others scaled up."""
        return x if self.off(p) else x * self.mask(x.shape, p, x).mul_(1 / (1 - p))

    def drop_and_add(self, x: Tensor, base: Tensor, p: float) -> Tensor:
        """``drop(x) + base`` in one pass."""
        if self.off(p):
            return x + base
        summed: Tensor = _DropAdd.apply(x, base, self.mask(x.shape, p, x), 1 / (1 - p))  # type: ignore[no-untyped-call]
        return summed


class _DropAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, base: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return torch.addcmul(base, x, mask, value=scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return (gradients[0] * mask).mul_(ctx.scale).to(mask.dtype), gradients[0], None, None


def scale_heads(values: Tensor, scales: Tensor) -> Tensor:
    """(..., d) mixed values of all heads, side by side, and (..., h) a factor for each head -> (..., d)."""
    return (values.view(*scales.shape, -1) * scales.unsqueeze(-1)).flatten(-2)


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


def _wide(x: Tensor) -> Tensor:
    """At least single precision: what softmax needs."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def _normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _owners(lengths: Sequence[int], device: torch.device) -> Tensor:
    """(t,) the text of each token, in the order of the stream."""
    return torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)).to(device)


def _places(lengths: Sequence[int]) -> NDArray[np.int64]:
    """(t,) the place of each token in its text."""
    sizes = np.array(lengths, dtype=np.int64)
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
