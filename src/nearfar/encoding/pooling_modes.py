"""Pooling: token vectors to one text vector, by the first token, the mean or the encoder's pooler."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from nearfar.errors import SettingError
from nearfar.shapes import expect

Pooling = Literal["first", "mean", "pooler"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
NO_POOLER = "pooling 'pooler' needs an encoder that has a pooler; use 'first' or 'mean'."


def pool(pooling: Pooling, states: Tensor, mask: Tensor, pooler: Tensor | None = None) -> Tensor:
    """(b, l, d) last hidden states, (b, l) mask of real tokens -> (b, d).

    ``first`` takes the first real token on whichever side the padding is, ``mean`` averages the real tokens,
    ``pooler`` is the output of the encoder's own pooler.

    >>> states = torch.tensor([[[1.0], [3.0], [100.0]]])
    >>> pool("mean", states, torch.tensor([[1, 1, 0]])).item()
    2.0
    """
    b = expect(states=(states, "b l d"), mask=(mask, "b l"))["b"]
    if pooling == "first":
        first = mask.long().argmax(dim=1)  # (b,): padding may be on the left
        return states[torch.arange(b, device=states.device), first]
    if pooling == "mean":
        real = mask.bool().unsqueeze(-1)  # (b, l, 1)
        total = states.masked_fill(~real, 0).sum(dim=1)  # filled, not multiplied: padding may hold anything, even NaN
        return total / real.sum(dim=1).clamp(min=1)
    if pooling == "pooler":
        if pooler is None:
            raise SettingError(NO_POOLER)
        return pooler
    raise SettingError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}.")
