"""Samplers: which rows share a batch, and the order of the batches in an epoch.

A sampler is a value: ``batches(epoch)`` depends on its settings, its seed, the epoch and, for samplers that read
vectors, on these; never on earlier calls. Its length is exact and known before the epoch begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError
from nearfar.seeds import generator

Rows = NDArray[np.int64]


class Sampler(Protocol):
    """Cuts the rows of a data set into batches, anew in each epoch."""

    @property
    def reads_model(self) -> bool:
        """Whether ``batches`` encodes texts with the model in training, whose weights must then be up to date."""

    def __len__(self) -> int:
        """How many batches every epoch has."""

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:
        """The batches of an epoch; the first epoch is 0.

        Args:
            epoch: its index.
            previous: the batches of the epoch before. Samplers that encode only every few epochs need them in the
                epochs between; the others ignore them.
        """


@dataclass(frozen=True, kw_only=True)
class RandomOrder:
    """Every row exactly once an epoch, in an order drawn for that epoch.

    >>> sampler = RandomOrder(rows=5, size=2, seed=1)
    >>> len(sampler), [len(batch) for batch in sampler.batches(0)]
    (3, [2, 2, 1])
    """

    reads_model: ClassVar[bool] = False

    rows: int
    size: int
    seed: int

    def __post_init__(self) -> None:
        check(self.rows, self.size)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:  # noqa: ARG002 - as all samplers
        """The epoch's permutation, cut into batches."""
        return cut(generator(self.seed, "shuffle", epoch).permutation(self.rows), self.size)


@dataclass(frozen=True, kw_only=True)
class FileOrder:
    """Every row exactly once an epoch, in the order of the file.

    >>> FileOrder(rows=3, size=2).batches(7)
    [array([0, 1]), array([2])]
    """

    reads_model: ClassVar[bool] = False

    rows: int
    size: int

    def __post_init__(self) -> None:
        check(self.rows, self.size)

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def batches(self, epoch: int, previous: list[Rows] | None = None) -> list[Rows]:  # noqa: ARG002 - as all samplers
        """The same batches in every epoch."""
        return cut(np.arange(self.rows), self.size)


def cut(order: Rows, size: int) -> list[Rows]:
    """An order of rows, cut into batches; the last one may be smaller."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def check(rows: int, size: int) -> None:
    """Refuse a data set without rows, and empty batches."""
    if rows < 1:
        raise SettingError("there are no rows to make batches of.")
    if size < 1:
        raise SettingError(f"batches.size must be 1 or more, got {size}; try 32.")
