"""Noise in the fast path while it trains: dropout from one cheap stream of bits, DropHead and feature cutoff."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
BF16_ONE = 0x3F80
"""The bits of 1 in bf16."""


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
        ones = bits.ge_(round(p * 65536) - 32768)  # in place: not by way of booleans, which is slow
        if like.dtype == torch.bfloat16:
            ones = ones.mul_(BF16_ONE).view(torch.bfloat16)
        return ones.to(like.device, like.dtype).view(*shape)

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
    """A dropped bf16 ``x`` and an fp32 ``residual`` are multiplied apart: torch would copy mask and ``x`` to fp32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        if x.dtype != residual.dtype:
            return (x * mask).to(residual.dtype).mul_(scale).add_(residual)
        return torch.addcmul(residual, x, mask, value=scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        if mask.dtype != gradients[0].dtype:
            return (gradients[0] * ctx.scale).to(mask.dtype).mul_(mask), gradients[0], None, None
        return (gradients[0] * mask).mul_(ctx.scale), gradients[0], None, None


def scale_heads(values: Tensor, scales: Tensor) -> Tensor:
    """(..., d) outputs of all attention heads, concatenated, and (..., h) a factor for each head -> (..., d)."""
    return (values.view(*scales.shape, -1) * scales.unsqueeze(-1)).flatten(-2)
