"""Inputs of class objectives: labels are checked, embeddings normalized, positives and negatives marked."""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.errors import SettingError
from nearfar.objectives.precision import full_precision, unit, widened
from nearfar.shapes import expect


def labeled_directions(part: str, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """(n, d) embeddings, (n,) labels of any integer type or bool -> (n, d) of length 1 in fp32 or better, (n,)."""
    expect(embeddings=(embeddings, "n d"), labels=(labels, "n"))
    if labels.dtype.is_floating_point:
        raise SettingError(f"{part}: labels must be whole numbers, got {labels.dtype}; use labels.long().")
    return unit(widened(embeddings)[0]), labels


def class_indices(part: str, labels: Tensor, classes: int, *, more: str = "give it classes={}") -> Tensor:
    """(n,) labels as indices: whole numbers from 0 to classes - 1, of any integer type.

    On an accelerator their range is not checked, because that would wait for it. ``more`` tells how to have more
    classes, with braces for their number.
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


def same_row(n: int, device: torch.device) -> Tensor:
    """(n, n): True on the diagonal."""
    return torch.eye(n, dtype=torch.bool, device=device)


def same_class(labels: Tensor) -> Tensor:
    """(n,) labels -> (n, n): True for positives, two different rows of one class.

    >>> same_class(torch.tensor([0, 1, 0])).int().tolist()
    [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    """
    return (labels.unsqueeze(0) == labels.unsqueeze(1)) & ~same_row(len(labels), labels.device)


def pair_distances(z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n, d), (n,) -> (n, n) Euclidean distances, exactly zero for equal rows, and masks of positives and negatives."""
    with full_precision(z):
        d = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
    return d, same_class(labels), labels.unsqueeze(0) != labels.unsqueeze(1)
