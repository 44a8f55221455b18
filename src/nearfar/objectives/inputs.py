"""Inputs of objectives: settings and labels are checked, arithmetic is in fp32 or better, positives are marked."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from nearfar.errors import SettingError
from nearfar.shapes import expect

COUNTED = {
    "classes": "name as many as the labels have",
    "dim": "it is the width of the embeddings",
    "centers": "10 is usual",
}
"""What to give for a setting that is a count."""


def count(part: str, name: str, value: int, least: int) -> None:
    """Refuse what is no whole number, or too small."""
    try:
        number = operator.index(value)
    except TypeError:
        raise SettingError(f"{part}: {name} must be a whole number, got {value!r}; {COUNTED[name]}.") from None
    if number < least:
        raise SettingError(f"{part}: {name} must be {least} or more, got {value}; {COUNTED[name]}.")


def positive(part: str, name: str, value: float, usual: str, *, zero: bool = False) -> None:
    """Refuse what is not a finite number above 0, or with ``zero`` from 0 on."""
    try:
        good = 0 <= value < math.inf and (zero or value != 0)
    except TypeError:
        good = False
    if not good:
        least = "0 or more" if zero else "above 0"
        raise SettingError(f"{part}: {name} must be {least} and finite, got {value!r}; try {usual}.")


def finite(part: str, name: str, value: float | None, usual: float) -> None:
    """Refuse what is set, and is no finite number."""
    if value is not None and not math.isfinite(value):
        raise SettingError(f"{part}: {name} must be a finite number, got {value}; try {usual}.")


def one_of(part: str, name: str, value: str, known: Sequence[str]) -> None:
    """Refuse an unknown choice."""
    if value not in known:
        raise SettingError(f"{part}: {name} must be one of {', '.join(known)}, got {value!r}; try {known[0]!r}.")


SHORTEST = 1e-12
"""A vector shorter than this has no direction, and a coordinate narrower than this is constant: both become zero."""


def full_precision(vectors: Tensor) -> torch.autocast:
    """Autocast off: similarities in bf16 keep three digits, and the distance of two near centers none."""
    return torch.autocast(vectors.device.type, enabled=False)


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors in the widest of their types, fp32 at least. Each gradient has the type of its tensor.

    >>> [tensor.dtype for tensor in widened(torch.ones(2, dtype=torch.bfloat16), torch.ones(2))]
    [torch.float32, torch.float32]
    """
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
    return tuple(tensor.to(dtype) for tensor in tensors)


def unit(vectors: Tensor, dim: int = 1) -> Tensor:
    """Divide by the L2 length along an axis: 1 normalizes every row, 0 every coordinate over the batch.

    Where the length is zero, so is the result, with a zero gradient.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    return vectors / _divisor(torch.linalg.vector_norm(vectors, dim=dim, keepdim=True))


def minmax(vectors: Tensor) -> Tensor:
    """Scale every coordinate to 0..1 over the batch. A constant one becomes zero, with a zero gradient.

    >>> minmax(torch.tensor([[1.0, 5.0], [2.0, 5.0], [5.0, 5.0]]))
    tensor([[0.0000, 0.0000],
            [0.2500, 0.0000],
            [1.0000, 0.0000]])
    """
    low, high = vectors.amin(dim=0, keepdim=True), vectors.amax(dim=0, keepdim=True)  # (1, d) each
    return (vectors - low) / _divisor(high - low)


def _divisor(size: Tensor) -> Tensor:
    """The size, or infinity where it is zero but for rounding: dividing by that gives zero, and no gradient."""
    return size.masked_fill(size <= SHORTEST, torch.inf)


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
