"""Which number format to compute in: decided by the device and the width of the encoder, never by a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.distributed as dist

from nearfar.encoding.processor import ISA as ISA
from nearfar.encoding.processor import cpu_bf16_units as cpu_bf16_units
from nearfar.encoding.processor import may_use_bf16
from nearfar.errors import SettingError

Precision = Literal["fp32", "bf16"]
WIDE = 256
"""The hidden size from which on bf16 is at least 1.2 times as fast where there are units; docs/why/precision.md has the
figures. In narrower encoders the casts take what the products save."""


def choose_precision(
    asked: Literal["auto", "fp32", "bf16"], width: int, *, units: Callable[[], str | None] | None = None
) -> tuple[Precision, str]:
    """The precision to use, and the reason in a few words.

    The same device and the same encoder give the same answer, however busy the machine is. Of several processes, all
    must have units for bf16.

    Args:
        asked: what the recipe says.
        width: the hidden size of the encoder.
        units: names what multiplies bf16 matrices, None for nothing; that of the device by default.
    """
    found = (units or bf16_units)()
    if asked == "bf16" and found is None:
        if torch.cuda.is_available():
            raise SettingError('training.precision is "bf16", and the GPU has no bf16 units; set "fp32" or "auto".')
        return "bf16", "as asked; the processor has no bf16 units, so it is slower than fp32"
    if asked != "auto":
        return asked, "as asked"
    if not _everywhere(found is not None):
        return "fp32", f"{'the GPU' if torch.cuda.is_available() else 'the processor'} has no bf16 units"
    if width < WIDE:
        return "fp32", f"vectors of {width} numbers gain nothing from bf16"
    return "bf16", f"the {'GPU' if torch.cuda.is_available() else 'processor'} has {found}"


def bf16_units() -> str | None:
    """What this device multiplies bf16 matrices with, if it has something and torch uses it."""
    if torch.cuda.is_available():
        return "bf16 units" if torch.cuda.is_bf16_supported(including_emulation=False) else None
    return cpu_bf16_units() if may_use_bf16() else None


def _everywhere(here: bool) -> bool:
    """Whether something is so in all processes."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return here
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    answer = torch.tensor([int(here)], device=device)
    dist.all_reduce(answer, dist.ReduceOp.MIN)
    return bool(answer.item())
