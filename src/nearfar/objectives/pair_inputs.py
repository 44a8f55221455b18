"""What pair objectives do before their arithmetic: check the pairs, say who is positive, bring vectors to one scale."""

from __future__ import annotations

import torch
from torch import Tensor

from nearfar.errors import SettingError, ShapeError
from nearfar.shapes import expect

SHORTEST = 1e-12
"""A vector shorter than this has no direction, and a coordinate narrower than this is constant: both become zero."""


def pair_sizes(
    left: Tensor, right: Tensor, targets: Tensor | None, left_groups: Tensor | None, right_groups: Tensor | None
) -> tuple[int, int]:
    """Check (b, d) left, (b + extra, d) right, (b,) targets and both sides' group ids; return b and extra."""
    b = expect(left=(left, "b d"), right=(right, "m d"))["b"]
    m = len(right)
    if m < b:
        raise ShapeError(f"right must have a row for each of the {b} rows of left, got {m}")
    if targets is not None:
        expect(left=(left, "b d"), targets=(targets, "b"))
    if (left_groups is None) != (right_groups is None):
        missing, given = ("left", "right") if left_groups is None else ("right", "left")
        raise ShapeError(f"{given}_groups came without {missing}_groups; give both or none")
    if left_groups is not None and right_groups is not None:
        expect(left=(left, "b d"), left_groups=(left_groups, "b"))
        expect(right=(right, "m d"), right_groups=(right_groups, "m"))
    return b, m - b


def required(part: str, targets: Tensor | None, *, low: float | None = None, high: float | None = None) -> Tensor:
    """The targets, if there are any, all finite and between low and high."""
    if targets is None:
        raise SettingError(f"{part}: targets must be given, one a pair; use BatchSoftmax for pairs without any.")
    value = targets.detach()
    good = value.isfinite()
    if low is not None:
        good = good & (value >= low)
    if high is not None:
        good = good & (value <= high)
    if not good.all():
        place = int((~good).nonzero()[0])
        fits = "finite" if low is None else f"between {low:g} and {high:g}"
        remedy = "drop that pair" if low is None else "map the scores to that range"
        raise SettingError(f"{part}: targets must be {fits}, got {value[place].item()} in row {place}; {remedy}.")
    return targets


def positive_pairs(part: str, left: Tensor, targets: Tensor | None, *, threshold: float | None = None) -> Tensor:
    """(b,): True where a pair belongs together. Without targets all do; with a threshold those above it."""
    if targets is None:
        return torch.ones(len(left), dtype=torch.bool, device=left.device)
    if threshold is not None:
        return required(part, targets) > threshold
    strange = (targets != 0) & (targets != 1)
    if strange.any():
        place = int(strange.nonzero()[0])
        remedy = "set threshold to binarize graded ones" if part == "BatchSoftmax" else "binarize graded ones"
        raise SettingError(f"{part}: targets must be 0 or 1, got {targets[place].item()} in row {place}; {remedy}.")
    return targets == 1


def same_group(positive: Tensor, left_groups: Tensor, right_groups: Tensor) -> Tensor:
    """(b,) positive pairs, (b,) and (b + extra,) group ids -> (b, b + extra): True where left and right share a group.

    A label outranks a group: where pair *j* is labeled negative although both its sides have one id, right row *j*
    was offered to that group and refused, so it is nobody's positive.

    >>> ids = torch.tensor([7, 7, 4])
    >>> same_group(torch.tensor([True, False, True]), ids, ids).int().tolist()
    [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
    """
    refused = ~positive & (left_groups == right_groups[: len(left_groups)])  # (b,)
    shared = left_groups.unsqueeze(1) == right_groups.unsqueeze(0)  # (b, b + extra)
    shared[:, : len(left_groups)] &= ~refused
    return shared


def unit(vectors: Tensor, dim: int = 1) -> Tensor:
    """Divide by the L2 length along an axis: 1 makes every row a direction, 0 every coordinate over the batch.

    Where there is no length there is no direction either: zero, with a zero gradient.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    return vectors / _divisor(torch.linalg.vector_norm(vectors, dim=dim, keepdim=True))


def minmax(vectors: Tensor) -> Tensor:
    """Move every coordinate to 0..1 over the batch. A constant one becomes zero, with a zero gradient.

    >>> minmax(torch.tensor([[1.0, 5.0], [2.0, 5.0], [5.0, 5.0]]))
    tensor([[0.0000, 0.0000],
            [0.2500, 0.0000],
            [1.0000, 0.0000]])
    """
    low, high = vectors.amin(dim=0, keepdim=True), vectors.amax(dim=0, keepdim=True)  # (1, d) each
    return (vectors - low) / _divisor(high - low)


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """(b, d) left, (b + extra, d) right -> (b,): the cosine of each pair; extra rows are ignored."""
    return (unit(left) * unit(right[: len(left)])).sum(dim=1)


def _divisor(size: Tensor) -> Tensor:
    """The size, or infinity where it is as good as zero: dividing by that gives zero, and no gradient."""
    return size.masked_fill(size <= SHORTEST, torch.inf)
