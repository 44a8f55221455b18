"""What objectives on pairs of texts share: their arguments, the checks of a batch, and which pairs are positive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nearfar.errors import SettingError, ShapeError
from nearfar.objectives.inputs import full_precision, unit, widened
from nearfar.shapes import expect


@dataclass(frozen=True)
class Pairs:
    """A batch of pairs, checked, in fp32 or better."""

    part: str
    """The name of the objective, for messages."""
    left: Tensor
    """(b, d)."""
    right: Tensor
    """(b + extra, d): row *i* belongs to row *i* of the left side, extra rows to none."""
    targets: Tensor | None
    """(b,)."""
    groups: tuple[Tensor, Tensor] | None
    """(b,) and (b + extra,) ids of both sides."""

    def __len__(self) -> int:
        return len(self.left)

    def zero(self) -> Tensor:
        """The value of an empty batch: zero, with a zero gradient."""
        return (self.left.sum() + self.right.sum()) * 0

    def cosines(self) -> Tensor:
        """(b,): the cosine of each pair."""
        return (unit(self.left) * unit(self.right[: len(self.left)])).sum(dim=1)

    def required_targets(self, *, low: float | None = None, high: float | None = None) -> Tensor:
        """(b,) the targets, all finite and between low and high; an error where there are none."""
        if self.targets is None:
            raise SettingError(
                f"{self.part}: targets must be given, one a pair; use BatchSoftmax for pairs without any."
            )
        value = self.targets.detach()
        good = value.isfinite()
        if low is not None:
            good = good & (value >= low)
        if high is not None:
            good = good & (value <= high)
        if not good.all():
            row = int((~good).nonzero()[0])
            fits = "finite" if low is None else f"between {low:g} and {high:g}"
            remedy = "drop that pair" if low is None else "map the scores to that range"
            raise SettingError(f"{self.part}: targets must be {fits}, got {value[row].item()} in row {row}; {remedy}.")
        return self.targets

    def positive(self, *, threshold: float | None = None) -> Tensor:
        """(b,): True for positive pairs: those with target 1, or above the threshold, or all without targets."""
        if self.targets is None:
            return torch.ones(len(self.left), dtype=torch.bool, device=self.left.device)
        if threshold is not None:
            return self.required_targets() > threshold
        graded = (self.targets != 0) & (self.targets != 1)
        if graded.any():
            row = int(graded.nonzero()[0])
            remedy = "set threshold to binarize graded ones" if self.part == "BatchSoftmax" else "binarize graded ones"
            value = self.targets[row].item()
            raise SettingError(f"{self.part}: targets must be 0 or 1, got {value} in row {row}; {remedy}.")
        return self.targets == 1

    def same_group(self, positive: Tensor) -> Tensor | None:
        """(b,) positive pairs -> (b, b + extra): True where left and right share a group; None without groups."""
        return None if self.groups is None else same_group(positive, *self.groups)


def same_group(positive: Tensor, left_groups: Tensor, right_groups: Tensor) -> Tensor:
    """(b,) positive pairs, (b,) and (b + extra,) group ids -> (b, b + extra): True where left and right share a group.

    A label outranks a group: where pair *j* is labeled negative although both its sides have one id, right row *j* is
    not a positive of any row of that group.

    >>> ids = torch.tensor([7, 7, 4])
    >>> same_group(torch.tensor([True, False, True]), ids, ids).int().tolist()
    [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
    """
    refused = ~positive & (left_groups == right_groups[: len(left_groups)])  # (b,)
    shared = left_groups.unsqueeze(1) == right_groups.unsqueeze(0)  # (b, b + extra)
    shared[:, : len(left_groups)] &= ~refused
    return shared


class PairObjective(nn.Module, ABC):
    """An objective on pairs of texts; a concrete one is the formula of :meth:`loss`."""

    def forward(
        self,
        left: Tensor,
        right: Tensor,
        targets: Tensor | None = None,
        *,
        left_groups: Tensor | None = None,
        right_groups: Tensor | None = None,
    ) -> Tensor:
        """(b, d) left, (b + extra, d) right, (b,) targets, (b,) and (b + extra,) group ids -> scalar."""
        b, m = expect(left=(left, "b d"), right=(right, "m d"))["b"], len(right)
        if m < b:
            raise ShapeError(f"right must have a row for each of the {b} rows of left, got {m}")
        if targets is not None:
            expect(left=(left, "b d"), targets=(targets, "b"))
        if (left_groups is None) != (right_groups is None):
            missing, given = ("left", "right") if left_groups is None else ("right", "left")
            raise ShapeError(f"{given}_groups came without {missing}_groups; give both or none")
        groups = None
        if left_groups is not None and right_groups is not None:
            expect(left=(left, "b d"), left_groups=(left_groups, "b"))
            expect(right=(right, "m d"), right_groups=(right_groups, "m"))
            groups = left_groups, right_groups
        left, right = widened(left, right)
        with full_precision(left):
            return self.loss(Pairs(type(self).__name__, left, right, targets, groups))

    @abstractmethod
    def loss(self, pairs: Pairs) -> Tensor:
        """The value of a batch."""
