"""Classes as objectives with weights for each of them take them."""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.errors import SettingError

COUNTED = {
    "classes": "name as many as the labels have",
    "dim": "it is the width of the embeddings",
    "centers": "10 is usual",
}
"""What to give for a setting that is counted."""


def class_indices(part: str, labels: Tensor, classes: int) -> Tensor:
    """(n,) labels as indices: whole numbers from 0 to classes - 1, of any type of them.

    On an accelerator their range is not looked at, because that would wait for it.
    """
    if labels.dtype.is_floating_point or labels.dtype is torch.bool:
        raise SettingError(f"{part}: labels must be whole numbers, got {labels.dtype}; use labels.long().")
    if labels.device.type == "cpu" and len(labels):
        low, high = labels.aminmax()
        if low < 0 or high >= classes:
            wrong = int(low if low < 0 else high)
            raise SettingError(
                f"{part}: labels must be from 0 to {classes - 1}, got {wrong}; number the classes from 0, or give it "
                f"classes={max(wrong, classes - 1) + 1}."
            )
    return labels.long()
