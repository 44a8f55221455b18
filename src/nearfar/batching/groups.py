"""Groups of similar rows, the order of rows made from them, and how hard the resulting batches are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.batching.samplers import Rows, check, cut
from nearfar.errors import SettingError, ShapeError, counted

Vectors = NDArray[np.float32]
Ids = NDArray[np.int64]
Shingles = NDArray[np.uint64]

SAMPLED = 512
"""How many batches the mean similarity of a report is measured on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """An order of rows in which the rows of a group are adjacent."""

    order: Rows
    """(n,) every row exactly once."""
    bounds: Rows
    """(groups + 1,) group g is ``order[bounds[g] : bounds[g + 1]]``."""
    recall: float | None = None
    """Of an approximate search: the share of the truly nearest rows that it finds."""
    exact: bool = True
    """Whether nothing was approximated."""


@dataclass(frozen=True, kw_only=True)
class GroupReport:
    """The groups of an epoch in numbers, for the console and the journal."""

    groups: int
    """Groups of two rows or more."""
    rows_in_groups: int
    """Rows in such groups."""
    similarity: float | None
    """Mean similarity of two rows of a batch; None where no batch has two rows."""
    random: float | None
    """The same in batches drawn at random."""
    measure: str
    """What similarity is: "cosine" of the vectors, or "words" (shared words by all words of two texts)."""
    seconds: float
    """Time for groups and order, without the encoder's."""
    encoding_seconds: float
    """Time to encode the vectors."""
    recall: float | None
    """Of an approximate search: the share of the truly nearest rows that it finds."""
    exact: bool
    """Whether neighbors were searched exactly."""

    def __str__(self) -> str:
        hard = "" if self.similarity is None else f", in-batch {self.measure} {self.similarity:.3f}"
        hard += "" if self.random is None else f" (random {self.random:.3f})"
        search = "" if self.exact else ", approximate search"
        search += "" if self.recall is None else f" (recall {self.recall:.2f})"
        return (
            f"{counted(self.groups, 'group')} of {counted(self.rows_in_groups, 'row')}{hard}{search}, "
            f"{self.seconds:.1f} s" + (f" + {self.encoding_seconds:.1f} s encoding" if self.encoding_seconds else "")
        )


def check_groups(*, rows: int, size: int, group: int, same: Ids | None) -> None:
    """Refuse groups of one row, and groups larger than a batch."""
    check(rows, size)
    if group < 2:
        raise SettingError(f"batches.group must be 2 or more, got {group}; try 4 to 8.")
    if group > size:
        raise SettingError(
            f"batches.group is {group}, but a batch has only {size} rows (batches.size); lower group to at most "
            f"{size}, or raise size to at least {group}."
        )
    if same is not None and same.shape != (rows,):
        raise ShapeError(f"same must hold one id for each of the {rows} rows, got shape {same.shape}")


def shingle_groups(shingles: Shingles, *, group: int, source: np.random.Generator, same: Ids | None = None) -> Groups:
    """Rows with the same shingle, cut into groups, the groups in random order: Algorithm 2 from its sorting on.

    A run of rows with one shingle is cut into groups of ``group``; what is left over of a run is a smaller group.
    With ``same``, rows of one id are dealt to different groups of the run instead, as many as that takes.
    (In the paper's listing the counter runs on from one shingle to the next, so that a new run may be cut early; here
    each run begins to count anew.)

    Args:
        shingles: (n,) equal numbers are equal shingles.
        group: largest size of a group.
        source: draws which rows of a run share a group, and the order of the groups.
        same: (n,) ids; two rows of one id do not enter one group.
    """
    n = len(shingles)
    order = source.permutation(n)
    if same is not None:
        dense = np.unique(same, return_inverse=True)[1].reshape(-1)  # the ids, numbered from 0
        order = order[np.argsort(source.permutation(n)[dense][order], kind="stable")]  # ids in random order
    order = order[np.argsort(shingles[order], kind="stable")]
    run_starts = _starts(shingles[order])
    runs = np.diff(run_starts, append=n)  # length of each
    if same is None:
        positions = np.arange(n) - np.repeat(run_starts, runs)
        return _in_random_order(order, np.flatnonzero(positions % group == 0), source)
    # Rows of one id are adjacent: dealt in turn to m groups, m no smaller than their number, no two share a group.
    id_starts = _starts(same[order], shingles[order])
    most = np.maximum.reduceat(np.diff(id_starts, append=n), np.searchsorted(id_starts, run_starts))
    dealt_to = np.repeat(np.maximum(-(-runs // group), most), runs)
    firsts = np.repeat(run_starts, runs)
    number = firsts + (np.arange(n) - firsts) % dealt_to  # of the group, growing from run to run
    dealt = np.argsort(number, kind="stable")
    return _in_random_order(order[dealt], _starts(number[dealt]), source)


def _starts(*keys: NDArray[np.int64] | Shingles) -> Rows:
    """Where a sequence begins a run of equal keys."""
    new = np.ones(len(keys[0]), dtype=bool)
    new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    return np.flatnonzero(new)


def _in_random_order(order: Rows, starts: Rows, source: np.random.Generator) -> Groups:
    """The groups that begin at ``starts``, shuffled as wholes."""
    drawn = source.permutation(len(starts))
    lengths = np.diff(starts, append=len(order))[drawn]
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    return Groups(order=order[np.repeat(starts[drawn] - bounds[:-1], lengths) + np.arange(len(order))], bounds=bounds)


def report(
    groups: Groups,
    *,
    batches: list[Rows],
    similarity: Callable[[Rows], float],
    measure: str,
    source: np.random.Generator,
    seconds: float,
    encoding_seconds: float = 0.0,
) -> GroupReport:
    """Count the groups, and measure the similarity of rows within batches, of these and of random ones."""
    lengths = np.diff(groups.bounds)
    size, rows = len(batches[0]), len(groups.order)
    some = [batches[at] for at in source.permutation(len(batches))[:SAMPLED]]
    random = cut(source.permutation(rows)[: SAMPLED * size], size)
    return GroupReport(
        groups=int((lengths > 1).sum()),
        rows_in_groups=int(lengths[lengths > 1].sum()),
        similarity=_mean(some, similarity),
        random=_mean(random, similarity),
        measure=measure,
        seconds=seconds,
        encoding_seconds=encoding_seconds,
        recall=groups.recall,
        exact=groups.exact,
    )


def _mean(batches: Sequence[Rows], similarity: Callable[[Rows], float]) -> float | None:
    values = [similarity(batch) for batch in batches if len(batch) > 1]
    return math.fsum(values) / len(values) if values else None


def mean_cosine(unit: Vectors) -> float:
    """Mean cosine of two different rows of (b, d) unit vectors: of all products, less those of a row with itself.

    >>> mean_cosine(np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32))  # 1, 0 and 0
    0.3333333333333333
    """
    b = len(unit)
    total = unit.sum(axis=0, dtype=np.float64)
    return float((total @ total - (unit.astype(np.float64) ** 2).sum()) / (b * (b - 1)))
