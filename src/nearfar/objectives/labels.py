"""Classes as objectives take them."""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.errors import SettingError


def class_names(part: str, labels: Tensor) -> Tensor:
    """(n,) labels that are only told from each other: any whole numbers, or true and false."""
    if labels.dtype.is_floating_point:
        raise SettingError(f"{part}: labels must be whole numbers, got {labels.dtype}; use labels.long().")
    return labels


def class_indices(part: str, labels: Tensor, classes: int, *, more: str = "give it classes={}") -> Tensor:
    """(n,) labels as indices: whole numbers from 0 to classes - 1, of any type of them.

    On an accelerator their range is not looked at, because that would wait for it. ``more`` says how there would be
    more classes, with braces for their number.
    """
    if labels.dtype.is_floating_point or labels.dtype is torch.bool:
        raise SettingError(f"{part}: labels must be whole numbers, got {labels.dtype}; use labels.long().")
    if labels.device.type == "cpu" and len(labels):
        low, high = (int(end) for end in labels.aminmax())
        if low < 0 or high >= classes:
            wrong, remedy = (low, "") if low < 0 else (high, f", or {more.format(high + 1)}")
            raise SettingError(
                f"{part}: labels must be from 0 to {classes - 1}, got {wrong}; number the classes from 0{remedy}."
            )
    return labels.long()
