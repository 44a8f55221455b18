"""Attention of unpadded batches: in blocks of texts of similar length, forward and backward by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.encoding.dropout import DropoutMasks

SLACK = 0.2
"""How much longer the longest text of a block may be than its shortest, as a share."""
LANES = 16
"""Single numbers that a processor computes at once, at most."""
REST = 4
"""Numbers beyond a multiple of ``LANES`` that are cheaper one by one than another whole vector."""
ALIKE = 128
"""The length up to which texts are put together if they are padded to the same multiple."""
NARROW = 64
"""Tokens from which the softmax reads scores of 16 bits as they are, and computes in fp32 inside: for shorter texts
torch's kernel is slower than two casts."""


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


def whole_vectors(length: int) -> int:
    """The length that a text is padded to where the softmax computes whole vectors much faster than their rests.

    >>> [whole_vectors(length) for length in (3, 5, 16, 20, 21, 37, 100)]
    [3, 16, 16, 20, 32, 48, 100]
    """
    rest = length % LANES
    return length if rest <= REST else length + LANES - rest


def attention_blocks(lengths: Sequence[int], device: torch.device, *, vectors: bool = False) -> list[Block]:
    """Cut a sorted sequence of lengths into blocks with little padding, or with that to whole ``vectors``."""
    blocks = []
    first, start = 0, 0
    while first < len(lengths):
        longest, last = lengths[first], first
        shortest = longest - max(1, SLACK * longest)
        if vectors:
            longest = whole_vectors(longest)
        alike = vectors and longest <= ALIKE
        while last < len(lengths) and (whole_vectors(lengths[last]) == longest if alike else lengths[last] >= shortest):
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


def attend(
    qkv: Tensor, block: Block, heads: int, dropout: float, masks: DropoutMasks, *, bias: Tensor | None = None
) -> Tensor:
    """(tokens, 3 d) queries, keys and values of a block -> (tokens, d) outputs of all heads.

    ``bias`` is added to the scores: (texts, heads, longest, longest), the first two of which may be 1.
    """
    if not torch.is_grad_enabled() or not (qkv.requires_grad or (bias is not None and bias.requires_grad)):
        d = qkv.shape[1] // 3
        filled = qkv if block.fill is None else qkv.index_select(0, block.fill)
        q, k, v = filled.view(block.texts, block.longest, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
        if masks.off(dropout):
            mask = block.mask
            if bias is not None:
                added = bias.to(q.dtype)
                mask = added if mask is None else added.masked_fill(~mask, -torch.inf)
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            flat = mixed.transpose(1, 2).reshape(block.texts * block.longest, d)
            return flat if block.keep is None else flat.index_select(0, block.keep)
    shape = (block.texts * heads, block.longest, block.longest)
    kept = None if masks.off(dropout) else masks.mask(shape, dropout, qkv)
    scale = 1.0 if kept is None else 1 / (1 - dropout)
    values: Tensor = _Attention.apply(qkv, block, heads, kept, scale, bias)  # type: ignore[no-untyped-call]
    return values


def attend_first(
    q: Tensor, kv: Tensor, block: Block, heads: int, dropout: float, masks: DropoutMasks, *, bias: Tensor | None = None
) -> Tensor:
    """(texts, d) queries of the first tokens, (tokens, 2 d) keys and values -> (texts, d) outputs of all heads."""
    n, d = q.shape
    e = d // heads
    k, v = fill_block(kv, block).view(n, block.longest, 2, heads, e).permute(2, 0, 3, 1, 4)  # (texts, heads, l, e)
    scores = _wide((q.view(n, heads, 1, e) * k).sum(dim=-1)) * (1 / math.sqrt(e))  # (texts, heads, l)
    if bias is not None:
        scores = scores + bias[:, :, 0]
    if block.mask is not None:
        scores = scores.masked_fill(~block.mask[:, 0], -torch.inf)
    weights = masks.drop(scores.softmax(dim=-1).to(v.dtype), dropout)
    mixed: Tensor = (weights.unsqueeze(-1) * v).sum(dim=2).reshape(n, d)
    return mixed


def fill_block(tokens: Tensor, block: Block) -> Tensor:
    """(tokens, d) of a block -> (texts * longest, d), with any numbers at padding, whose gradient must be zero."""
    if block.fill is None or block.keep is None:
        return tokens
    filled: Tensor = _Fill.apply(tokens, block.fill, block.keep)  # type: ignore[no-untyped-call]
    return filled


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
    def forward(
        ctx: Any, qkv: Tensor, block: Block, heads: int, mask: Tensor | None, scale: float, bias: Tensor | None
    ) -> Tensor:
        n, length, d = block.texts, block.longest, qkv.shape[1] // 3
        e = d // heads
        filled = qkv if block.fill is None else qkv.index_select(0, block.fill)
        q, k, v = filled.view(n, length, 3, heads, e).permute(2, 0, 3, 1, 4).reshape(3, n * heads, length, e)
        if _narrow(q):
            weights = q.new_empty(n * heads, length, length).baddbmm_(q, k.mT, beta=0, alpha=1 / math.sqrt(e))
            weights = _wide(weights) if bias is not None or length < NARROW else weights
        else:
            weights = torch.bmm(q, k.mT).mul_(1 / math.sqrt(e))
        if bias is not None:
            weights.view(n, heads, length, length).add_(bias)
        if block.mask is not None:
            weights.view(n, heads, length, length).masked_fill_(~block.mask, -torch.inf)
        weights = weights.softmax(dim=-1).to(qkv.dtype)
        dropped = weights if mask is None else weights * mask
        mixed = torch.bmm(dropped, v)
        ctx.save_for_backward(q, k, v, weights, mask)
        ctx.block, ctx.heads, ctx.scale = block, heads, scale
        ctx.bias = None if bias is None else (bias.shape, bias.dtype)
        flat = mixed.view(n, heads, length, e).transpose(1, 2).reshape(n * length, d)
        flat = flat if block.keep is None else flat.index_select(0, block.keep)
        return flat if scale == 1 else flat.mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
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
        to_bias = None
        if ctx.needs_input_grad[5]:
            shape, dtype = ctx.bias
            wide = _wide(slope)
            wide = torch._softmax_backward_data(wide, _wide(weights), -1, wide.dtype)
            to_bias = wide.view(n, heads, length, length).sum_to_size(shape).to(dtype, copy=True)
            slope = wide.to(q.dtype)
        else:
            slope = torch._softmax_backward_data(slope, weights, -1, slope.dtype)  # in fp32, rounded once
        if _narrow(q):
            out[0].baddbmm_(slope, k, beta=0, alpha=1 / math.sqrt(e))
            out[1].baddbmm_(slope.mT, q, beta=0, alpha=1 / math.sqrt(e))
        else:
            slope.mul_(1 / math.sqrt(e))
            torch.bmm(slope, k, out=out[0])
            torch.bmm(slope.mT, q, out=out[1])
        back = out.view(3, n, heads, length, e).permute(1, 3, 0, 2, 4).reshape(n * length, 3 * d)
        back = back if block.keep is None else back.index_select(0, block.keep)
        return back, None, None, None, None, to_bias


def _narrow(x: Tensor) -> bool:
    """Whether the numbers have 16 bits. Their products are scaled before they are rounded."""
    return x.dtype in (torch.bfloat16, torch.float16)


def _wide(x: Tensor) -> Tensor:
    """At least single precision."""
    return x.float() if _narrow(x) else x
