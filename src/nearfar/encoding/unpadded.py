"""The fast path: BERT's family on the real tokens of a batch, without padding."""

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

from nearfar.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class EncoderNoise:
    """Noise inside the encoder while it trains, besides dropout; for encoders of BERT's family.

    Args:
        drophead: the probability of each attention head of each text to be dropped.
        cutoff: the share of the embeddings' coordinates that become zero, the same for all tokens of a text.
    """

    drophead: float = 0.0
    cutoff: float = 0.0

    def __post_init__(self) -> None:
        for setting, value, usual in (("drophead", self.drophead, 0.2), ("cutoff", self.cutoff, 0.1)):
            if not 0 <= value < 1:
                raise SettingError(f"encoder.{setting} must be 0 or more and below 1, got {value}; try {usual}.")

    def __bool__(self) -> bool:
        return bool(self.drophead or self.cutoff)


NO_NOISE = EncoderNoise()


class DropoutMasks:
    """Masks from one cheap stream of bits, seeded by ``seed`` or torch's generator: same seed, same masks."""

    def __init__(self, *, training: bool, seed: int | None = None) -> None:
        self.training = training
        self._seed = seed
        self._bits: Any = None

    def off(self, p: float) -> bool:
        """Whether nothing is dropped."""
        return not self.training or p <= 0

    def mask(self, shape: Sequence[int], p: float, like: Tensor) -> Tensor:
        """Zero with probability ``p`` and one otherwise, in the type of ``like``."""
        count = math.prod(shape)
        bits = torch.from_numpy(self._raw(-(-count // 4)).view(np.int16)[:count])
        return (bits >= round(p * 65536) - 32768).to(like.device, like.dtype).view(*shape)

    def heads(self, texts: int, heads: int, p: float) -> Tensor:
        """(texts, heads) the factor of each attention head: DropHead, Zhou et al. 2020, arXiv:2004.13342.

        A head is dropped with probability ``p``; where all of a text would be, one is kept, each with the same chance.
        Those kept are scaled by all heads over the heads kept, so that the mean factor is 1, whatever ``p``.
        """
        draws = self._uniform(texts, heads)
        kept = (draws >= p) | (draws == draws.amax(dim=1, keepdim=True))
        return kept * (heads / kept.sum(dim=1, keepdim=True))

    def cutoff(self, texts: int, width: int, share: float) -> Tensor:
        """(texts, width) True for a ``share`` of the coordinates: feature cutoff, Shen et al. 2020, arXiv:2009.13818.

        Their number is rounded, and they are drawn for each text.
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

    def drop_and_add(self, x: Tensor, residual: Tensor, p: float) -> Tensor:
        """``drop(x) + residual`` in one pass."""
        if self.off(p):
            return x + residual
        summed: Tensor = _DropAdd.apply(x, residual, self.mask(x.shape, p, x), 1 / (1 - p))  # type: ignore[no-untyped-call]
        return summed


class _DropAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return torch.addcmul(residual, x, mask, value=scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return (gradients[0] * mask).mul_(ctx.scale).to(mask.dtype), gradients[0], None, None


def scale_heads(values: Tensor, scales: Tensor) -> Tensor:
    """(..., d) outputs of all attention heads, concatenated, and (..., h) a factor for each head -> (..., d)."""
    return (values.view(*scales.shape, -1) * scales.unsqueeze(-1)).flatten(-2)


SLACK = 0.2
"""How much longer the longest text of a block may be than its shortest, as a share."""


@dataclass(frozen=True)
class Block:
    """Texts of similar length whose attention is computed together."""

    start: int
    stop: int
    """The tokens of the block in the stream."""
    texts: int
    longest: int
    fill: Tensor | None
    """(texts * longest,) the token at each padded position, any at padding; None if all texts have the same length."""
    keep: Tensor | None
    """(tokens,) the padded positions that hold tokens."""
    mask: Tensor | None
    """(texts, 1, 1, longest) True for tokens, False for padding."""
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
        inside = lengths[first:last]
        stop = start + sum(inside)
        fill = keep = mask = None
        if inside[-1] != longest:
            sizes = np.array(inside)
            real = np.arange(longest) < sizes[:, None]  # (texts, longest)
            order = np.zeros(real.shape, dtype=np.int64)
            order[real] = np.arange(stop - start)
            fill = torch.from_numpy(order.ravel()).to(device)
            keep = torch.from_numpy(np.flatnonzero(real)).to(device)
            mask = torch.from_numpy(real[:, None, None, :]).to(device)
        begins = torch.from_numpy(start + np.cumsum([0, *inside[:-1]])).to(device)
        blocks.append(Block(start, stop, len(inside), longest, fill, keep, mask, begins))
        first, start = last, stop
    return blocks


def attend(qkv: Tensor, block: Block, heads: int, dropout: float, masks: DropoutMasks) -> Tensor:
    """(tokens, 3 d) queries, keys and values of a block -> (tokens, d) outputs of all heads."""
    if not torch.is_grad_enabled() or not qkv.requires_grad:
        d = qkv.shape[1] // 3
        filled = qkv if block.fill is None else qkv.index_select(0, block.fill)
        q, k, v = filled.view(block.texts, block.longest, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
        if masks.off(dropout):
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=block.mask)
            flat = mixed.transpose(1, 2).reshape(block.texts * block.longest, d)
            return flat if block.keep is None else flat.index_select(0, block.keep)
    shape = (block.texts * heads, block.longest, block.longest)
    mask = None if masks.off(dropout) else masks.mask(shape, dropout, qkv)
    scale = 1.0 if mask is None else 1 / (1 - dropout)
    values: Tensor = _Attention.apply(qkv, block, heads, mask, scale)  # type: ignore[no-untyped-call]
    return values


def attend_first(q: Tensor, kv: Tensor, block: Block, heads: int, dropout: float, masks: DropoutMasks) -> Tensor:
    """(texts, d) queries of the first tokens, (tokens, 2 d) keys and values -> (texts, d) outputs of all heads."""
    n, d = q.shape
    e = d // heads
    filled = kv if block.fill is None or block.keep is None else _Fill.apply(kv, block.fill, block.keep)  # type: ignore[no-untyped-call]
    k, v = filled.view(n, block.longest, 2, heads, e).permute(2, 0, 3, 1, 4)  # (texts, heads, l, e)
    scores = _wide((q.view(n, heads, 1, e) * k).sum(dim=-1)) * (1 / math.sqrt(e))  # (texts, heads, l)
    if block.mask is not None:
        scores = scores.masked_fill(~block.mask[:, 0], -torch.inf)
    weights = masks.drop(scores.softmax(dim=-1).to(v.dtype), dropout)
    mixed: Tensor = (weights.unsqueeze(-1) * v).sum(dim=2).reshape(n, d)
    return mixed


class _Fill(torch.autograd.Function):
    """Tokens to padded positions; the gradient of padding is zero, so backward only picks that of tokens."""

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
    def forward(ctx: Any, qkv: Tensor, block: Block, heads: int, mask: Tensor | None, scale: float) -> Tensor:
        n, length, d = block.texts, block.longest, qkv.shape[1] // 3
        e = d // heads
        filled = qkv if block.fill is None else qkv.index_select(0, block.fill)
        q, k, v = filled.view(n, length, 3, heads, e).permute(2, 0, 3, 1, 4).reshape(3, n * heads, length, e)
        weights = _wide(torch.bmm(q, k.transpose(1, 2))).mul_(1 / math.sqrt(e))  # (n heads, l, l)
        if block.mask is not None:
            weights.view(n, heads, length, length).masked_fill_(~block.mask, -torch.inf)
        weights = weights.softmax(dim=-1).to(qkv.dtype)
        dropped = weights if mask is None else weights * mask
        mixed = torch.bmm(dropped, v)
        ctx.save_for_backward(q, k, v, weights, mask)
        ctx.block, ctx.heads, ctx.scale = block, heads, scale
        flat = mixed.view(n, heads, length, e).transpose(1, 2).reshape(n * length, d)
        flat = flat if block.keep is None else flat.index_select(0, block.keep)
        return flat if scale == 1 else flat.mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        q, k, v, weights, mask = ctx.saved_tensors
        block, heads = ctx.block, ctx.heads
        n, length, e = block.texts, block.longest, q.shape[2]
        d = heads * e
        upper = gradients[0] if ctx.scale == 1 else gradients[0] * ctx.scale
        if block.keep is not None:
            upper = upper.new_zeros(n * length, d).index_copy_(0, block.keep, upper)
        upper = upper.view(n, length, heads, e).transpose(1, 2).reshape(n * heads, length, e)
        out = torch.empty(3, n * heads, length, e, dtype=q.dtype, device=q.device)
        dropped = weights if mask is None else weights * mask
        torch.bmm(dropped.transpose(1, 2), upper, out=out[2])
        slope = torch.bmm(upper, v.transpose(1, 2))
        if mask is not None:
            slope.mul_(mask)
        slope = _wide(slope)
        slope = torch._softmax_backward_data(slope, _wide(weights), -1, slope.dtype)
        slope = slope.mul_(1 / math.sqrt(e)).to(q.dtype)
        torch.bmm(slope, k, out=out[0])
        torch.bmm(slope.transpose(1, 2), q, out=out[1])
        back = out.view(3, n, heads, length, e).permute(1, 3, 0, 2, 4).reshape(n * length, 3 * d)
        return (back if block.keep is None else back.index_select(0, block.keep)), None, None, None, None


def _wide(x: Tensor) -> Tensor:
    """At least single precision: what softmax needs."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
FAMILIES = (*BERT_LIKE, "distilbert")
ROUND = 64
"""In bf16 the tokens are padded to a multiple of this: kernels are compiled and kept for every shape they meet."""


@dataclass(frozen=True)
class Unpadded:
    """A batch of texts without padding."""

    ids: Tensor
    """(t,) token ids of all texts, the longest text first."""
    types: Tensor | None
    """(t,) token types, where the encoder reads them."""
    lengths: tuple[int, ...]
    """Tokens of each text, sorted."""
    place: Tensor
    """(b,) the index of each text of the batch in the sorted order."""

    def to(self, device: torch.device) -> Unpadded:
        """The same batch on a device."""
        types = None if self.types is None else self.types.to(device)
        return Unpadded(self.ids.to(device), types, self.lengths, self.place.to(device))


@dataclass(frozen=True)
class Layer:
    """The modules of one transformer layer, whatever its architecture calls them."""

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

    def project(self, x: Tensor, *parts: nn.Linear) -> Tensor:
        """The outputs of several linear layers, concatenated: one matrix product."""
        return F.linear(x, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))

    def output(self, heads: Tensor, residual: Tensor, masks: DropoutMasks) -> Tensor:
        """What follows the attention heads: their output layer, and the feed-forward layers."""
        x = _normed(self.mix_norm, masks.drop_and_add(self.mix(heads), residual, self.mix_dropout))
        inner = self.down(self.activation(self.up(x)))
        return _normed(self.down_norm, masks.drop_and_add(inner, x, self.down_dropout))


@dataclass(frozen=True)
class UnpaddedEncoder:
    """The modules of an encoder of BERT's family, applied to unpadded batches."""

    words: nn.Embedding
    positions: nn.Embedding
    types: nn.Embedding | None
    norm: nn.LayerNorm
    dropout: float
    project: nn.Linear | None
    layers: tuple[Layer, ...]
    heads: int
    first_position: int
    noise: EncoderNoise = NO_NOISE

    def weights(self) -> list[Tensor]:
        """All weights of the encoder."""
        layers = [part for layer in self.layers for part in vars(layer).values() if isinstance(part, nn.Module)]
        modules = [self.words, self.positions, self.types, self.norm, self.project, *layers]
        return [weight for module in modules if module is not None for weight in module.parameters()]

    def forward(self, batch: Unpadded, masks: DropoutMasks, *, first_only: bool = False) -> Tensor:
        """(t, d) last hidden states of all tokens, in the order of the batch.

        With ``first_only`` it is (b, d), those of the first tokens alone, in the sorted order: the last layer, most of
        whose work a head on the first token never reads, is not computed for the others.
        """
        device, lengths, noise = batch.ids.device, batch.lengths, self.noise
        words = F.embedding(batch.ids, self.words.weight, self.words.padding_idx, sparse=self.words.sparse)
        x = words + F.embedding(self._positions(batch), self.positions.weight, self.positions.padding_idx)
        if self.types is not None:
            kinds = torch.zeros_like(batch.ids) if batch.types is None else batch.types
            x = x + F.embedding(kinds, self.types.weight)
        x = masks.drop(_normed(self.norm, x), self.dropout)
        owners = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)).to(device)  # (t,) the text of each token
        if not masks.off(noise.cutoff):
            x = x.masked_fill(masks.cutoff(len(lengths), x.shape[1], noise.cutoff).to(device)[owners], 0)
        if self.project is not None:
            x = self.project(x)
        t = len(x)
        if torch.is_autocast_enabled(device.type):
            x = F.pad(x, (0, 0, 0, -t % ROUND))
            owners = F.pad(owners, (0, len(x) - t))
        blocks = attention_blocks(lengths, device)
        for layer in self.layers[:-1]:
            x = self._layer(layer, x, blocks, masks, owners)
        if first_only:
            return self._first_tokens(self.layers[-1], x, blocks, masks)
        return self._layer(self.layers[-1], x, blocks, masks, owners)[:t]

    def _positions(self, batch: Unpadded) -> Tensor:
        """(t,) the position of each token; where they begin after the padding id, a padding token takes up none."""
        device = batch.ids.device
        if not self.first_position:
            sizes = np.array(batch.lengths, dtype=np.int64)
            return torch.from_numpy(np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)).to(device)
        padding = self.first_position - 1
        real = (batch.ids != padding).long()
        before = real.cumsum(0) - real  # (t,) real tokens before each, through all texts
        lengths = torch.tensor(batch.lengths, device=device)
        begins = before[lengths.cumsum(0) - lengths]  # (b,)
        return padding + real * (1 + before - begins.repeat_interleave(lengths))

    def _layer(self, layer: Layer, x: Tensor, blocks: Sequence[Block], masks: DropoutMasks, owners: Tensor) -> Tensor:
        qkv = layer.project(x, layer.query, layer.key, layer.value)
        padding = len(x) - blocks[-1].stop
        pieces = torch.split(qkv, [*(block.stop - block.start for block in blocks), padding])
        outputs = [
            attend(piece, block, self.heads, layer.attention_dropout, masks)
            for piece, block in zip(pieces, blocks, strict=False)
        ]
        if padding:
            outputs.append(qkv.new_zeros(padding, outputs[0].shape[1]))
        heads = torch.cat(outputs)
        if not masks.off(self.noise.drophead):
            texts = sum(block.texts for block in blocks)
            heads = scale_heads(heads, masks.heads(texts, self.heads, self.noise.drophead).to(heads)[owners])
        return layer.output(heads, x, masks)

    def _first_tokens(self, layer: Layer, x: Tensor, blocks: Sequence[Block], masks: DropoutMasks) -> Tensor:
        """One query for each text, keys and values for all its tokens; what follows them for the first tokens only."""
        kv = layer.project(x, layer.key, layer.value)
        first = x.index_select(0, torch.cat([block.begins for block in blocks]))  # (b, d)
        queries = torch.split(layer.query(first), [block.texts for block in blocks])
        pieces = torch.split(kv, [*(block.stop - block.start for block in blocks), len(x) - blocks[-1].stop])
        outputs = [
            attend_first(q, piece, block, self.heads, layer.attention_dropout, masks)
            for q, piece, block in zip(queries, pieces, blocks, strict=False)
        ]
        heads = torch.cat(outputs)
        if not masks.off(self.noise.drophead):
            heads = scale_heads(heads, masks.heads(len(heads), self.heads, self.noise.drophead).to(heads))
        return layer.output(heads, first, masks)


def unpadded_encoder(network: Any) -> UnpaddedEncoder | None:
    """The fast path over the modules of a network; None for an architecture it does not know."""
    config = network.config
    if config.model_type not in FAMILIES or getattr(config, "is_decoder", False):
        return None
    if getattr(config, "chunk_size_feed_forward", 0) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return None
    base, distil = network.base_model, config.model_type == "distilbert"
    try:
        embeddings, positions = base.embeddings, base.embeddings.position_embeddings
        return UnpaddedEncoder(
            words=embeddings.word_embeddings,
            positions=positions,
            types=None if distil else embeddings.token_type_embeddings,
            norm=embeddings.LayerNorm,
            dropout=embeddings.dropout.p,
            project=getattr(base, "embeddings_project", None),
            layers=tuple(map(_distilbert, base.transformer.layer) if distil else map(_bert, base.encoder.layer)),
            heads=config.num_attention_heads,
            first_position=0 if distil or positions.padding_idx is None else positions.padding_idx + 1,
        )
    except AttributeError:  # another release of transformers has other names for its modules
        return None


def _bert(layer: Any) -> Layer:
    attention, mix = layer.attention.self, layer.attention.output
    return Layer(
        query=attention.query,
        key=attention.key,
        value=attention.value,
        mix=mix.dense,
        mix_norm=mix.LayerNorm,
        up=layer.intermediate.dense,
        down=layer.output.dense,
        down_norm=layer.output.LayerNorm,
        activation=layer.intermediate.intermediate_act_fn,
        attention_dropout=attention.dropout.p,
        mix_dropout=mix.dropout.p,
        down_dropout=layer.output.dropout.p,
    )


def _distilbert(layer: Any) -> Layer:
    attention, ffn = layer.attention, layer.ffn
    return Layer(
        query=attention.q_lin,
        key=attention.k_lin,
        value=attention.v_lin,
        mix=attention.out_lin,
        mix_norm=layer.sa_layer_norm,
        up=ffn.lin1,
        down=ffn.lin2,
        down_norm=layer.output_layer_norm,
        activation=ffn.activation,
        attention_dropout=attention.dropout.p,
        mix_dropout=0.0,
        down_dropout=ffn.dropout.p,
    )


def _normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
