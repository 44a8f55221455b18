"""Objectives reckon in the precision of what they are given, whatever autocast does to the encoder."""

from __future__ import annotations

import torch
from torch import Tensor


def full_precision(vectors: Tensor) -> torch.autocast:
    """Autocast off: similarities in bf16 keep three digits, and the distance of two near centers none."""
    return torch.autocast(vectors.device.type, enabled=False)
