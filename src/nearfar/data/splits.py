"""Splits of rows: a holdout set, folds, a smaller sample.

All of them are stratified by class, by decile of the scores, or, for ranking, by whether a query has a relevant
document. They draw from named random streams and return indices in ascending order. ``holdout`` and ``folds`` keep
rows together that are equal when normalized, pairs in either order, since a test on training texts shows nothing. For
ranking, and for labeled pairs with query ids, all rows of a query stay together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.data.disk_columns import first_rows
from nearfar.data.records import Records, normalized
from nearfar.data.targets import queries_without_positive
from nearfar.errors import DataError, Problem, SettingError, counted
from nearfar.seeds import generator

_BINS = 10
Places = NDArray[np.int64]

SIZES = {"S": 1_000, "M": 4_000, "L": 10_000, "XL": None}
"""Limits by name, as in the TripleEntropy paper; the last one is all rows."""


def holdout(records: Records, fraction: float, *, seed: int, name: str = "dev") -> tuple[list[int], list[int]]:
    """The indices of the remaining rows and of the holdout set, about ``fraction`` of all.

    Every class keeps at least one of the remaining rows, so a class of one row is not split.
    """
    held = held_out(records, fraction, seed=seed, name=name)
    return np.flatnonzero(~held).tolist(), np.flatnonzero(held).tolist()


def held_out(records: Records, fraction: float, *, seed: int, name: str = "dev") -> NDArray[np.bool_]:
    """(n,) the same: whether a row is in the holdout set."""
    if not 0 < fraction < 1:  # also refuses NaN
        raise SettingError(f"the {name} share must lie between 0 and 1, both excluded, not {fraction!r}; try 0.1")
    strata = _strata(records)
    remaining = Counter(records.labels or (label for row in records.label_sets or () for label in row))
    rows_left = len(records)
    held = np.zeros(len(records), dtype=bool)

    def classes_of(group: Sequence[int]) -> Counter[str]:
        if records.label_sets is not None:
            return Counter(label for row in group for label in records.label_sets[row])
        return Counter() if records.labels is None else Counter(records.labels[row] for row in group)

    def can_go(group: Sequence[int]) -> bool:
        """Whether every class of the group keeps a row, and there is one at all."""
        leaving = classes_of(group)
        return rows_left > len(group) and all(remaining[label] > number for label, number in leaving.items())

    quotas = _apportion(max(1, round(fraction * len(records))), _sizes(strata))
    groups = _groups(records)
    drawn = _shuffled(groups.firsts, strata, seed, "share", name)
    for stratum, members in drawn.items():
        quota = quotas[stratum]
        for number in members:
            if not quota:
                break
            group = groups[number]
            if len(group) <= quota and can_go(group):
                quota -= len(group)
                held[group] = True
                rows_left -= len(group)
                remaining.subtract(classes_of(group))
    if not held.any():  # no class is large enough for its quota: take the smallest group that is possible
        every = (groups[number] for members in drawn.values() for number in members)
        possible = [group for group in every if can_go(group)]
        if not possible:
            message = f"no {name} share can be taken from {counted(len(records), 'row')}"
            remedy = f"Add rows, or name a {name} file."
            raise _error(records, f"{message}: every class would lose its last row", remedy)
        held[min(possible, key=len)] = True
    return held


def folds(records: Records, k: int, *, seed: int, every_class: bool = True) -> list[tuple[list[int], list[int]]]:
    """``k`` pairs of training and test indices; each row is in one test set.

    With ``every_class``, classes whose rows are all in one fold are refused: they cannot be trained on.
    """
    if k < 2:
        raise SettingError(f"the number of folds must be at least 2, not {k}; try 5")
    groups = _groups(records)
    if len(groups) < k:
        ranked = records.shape == "ranking"
        different = counted(len(groups), *(("distinct query", "distinct queries") if ranked else ("distinct text",)))
        message = f"{counted(len(records), 'row')} with {different} cannot make {k} folds"
        raise _error(records, message, "Add rows, or ask for fewer folds.")
    fold_of = [0] * len(records)
    total = [0] * k
    for members in _shuffled(groups.firsts, _strata(records), seed, "folds").values():
        inside = [0] * k
        for group in sorted(
            (groups[number] for number in members), key=len, reverse=True
        ):  # large ones first, small ones even out
            fold = min(range(k), key=lambda each: (inside[each], total[each], each))
            inside[fold] += len(group)
            total[fold] += len(group)
            for row in group:
                fold_of[row] = fold
    if every_class:
        _check_classes(records, fold_of)
    rows = range(len(records))
    return [
        ([row for row in rows if fold_of[row] != fold], [row for row in rows if fold_of[row] == fold])
        for fold in range(k)
    ]


def limit(records: Records, n: int, *, seed: int) -> list[int]:
    """At most ``n`` indices, each class in proportion and, if ``n`` is large enough, with at least one row.

    For ranking, whole queries are taken, as many as fit.
    """
    if n < 1:
        raise SettingError(f"the limit must be at least 1 row, not {n}")
    if n >= len(records):
        return list(range(len(records)))
    strata = _strata(records)
    if records.shape == "ranking":
        return _whole_queries(records, strata, n, seed)
    sizes = _sizes(strata)
    quotas = _apportion(n, sizes, least=1 if n >= len(sizes) else 0)
    drawn = _shuffled(np.arange(len(records)), strata, seed, "limit")
    return _sorted(rows[: quotas[stratum]] for stratum, rows in drawn.items())


def per_class(records: Records, n: int, *, seed: int) -> list[int]:
    """``n`` indices of each class, all of a class that has fewer."""
    if n < 1:
        raise SettingError(f"the number of rows for each class must be at least 1, not {n}")
    if records.label_sets is not None:
        return _per_label(records.label_sets, n, seed)
    if records.labels is None:
        message = "rows cannot be taken for each class: there are no labels"
        raise _error(records, message, "Name the column with data.label (--label).")
    drawn = _shuffled(np.arange(len(records)), records.labels, seed, "per_class")
    return _sorted(rows[:n] for rows in drawn.values())


def _sorted(parts: Iterable[Places]) -> list[int]:
    """The rows of all parts, rising."""
    rows: list[int] = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *parts])).tolist()
    return rows


def _per_label(label_sets: Sequence[tuple[str, ...]], n: int, seed: int) -> list[int]:
    """Rows until each label has ``n``, the rarest label first; a row counts for all of its labels."""
    sizes = Counter(label for labels in label_sets for label in labels)
    taken: set[int] = set()
    have: Counter[str] = Counter()
    for label in sorted(sizes, key=lambda name: (sizes[name], name)):
        rows = [row for row, labels in enumerate(label_sets) if label in labels]
        for place in generator(seed, "data", "per_class", label).permutation(len(rows)):
            if have[label] >= n:
                break
            if rows[place] not in taken:
                taken.add(rows[place])
                have.update(label_sets[rows[place]])
    return sorted(taken)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Rows that must stay together, group by group, in the order of their first rows."""

    rows: Places
    bounds: Places

    @property
    def firsts(self) -> Places:
        """The first row of each group."""
        return self.rows[self.bounds[:-1]]

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, number: int) -> list[int]:
        """The rows of a group, rising."""
        rows: list[int] = self.rows[self.bounds[number] : self.bounds[number + 1]].tolist()
        return rows


def _groups(records: Records) -> _Groups:
    """Rows that must stay together: equal texts and, with query ids, equal queries."""
    first = first_rows(map("\x1f".join, records.iter_split_keys()))  # a separator that no normalized text has
    if records.queries is not None and len(records.texts) == 2:
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        ties = [first, first_rows(records.queries), first_rows(map(normalized, records.texts[0]))]
        every = np.arange(len(records))  # one query may have two ids
        ends = np.concatenate(ties), np.tile(every, len(ties))
        graph = coo_array((np.ones(len(ends[0]), dtype=np.int8), ends), shape=(len(every), len(every)))
        _, numbers = connected_components(graph, directed=False)
        first = np.unique(numbers, return_index=True)[1][numbers]
    rows = np.argsort(first, kind="stable")
    starts = np.flatnonzero(np.diff(first[rows], prepend=-1))
    return _Groups(rows, np.append(starts, len(rows)))


def _whole_queries(records: Records, strata: Sequence[str], n: int, seed: int) -> list[int]:
    """Queries in random order while they fit, each time from the stratum with the smallest share taken."""
    groups = _groups(records)
    drawn = _shuffled(groups.firsts, strata, seed, "limit")
    waiting = {stratum: [groups[number] for number in members] for stratum, members in drawn.items() if len(members)}
    sizes = {stratum: sum(map(len, groups)) for stratum, groups in waiting.items()}
    taken = dict.fromkeys(waiting, 0)
    chosen: list[int] = []
    while waiting:
        stratum = min(waiting, key=lambda each: (taken[each] / sizes[each], each))
        group = waiting[stratum].pop(0)
        if len(chosen) + len(group) <= n:
            chosen.extend(group)
            taken[stratum] += len(group)
        if not waiting[stratum]:
            del waiting[stratum]
    if not chosen:
        message = f"every query has more than {counted(n, 'row')}, the limit"
        raise _error(records, message, "Set the limit higher, or to none.")
    return sorted(chosen)


def _strata(records: Records) -> Sequence[str]:
    """The stratum of each row: its class, the rarest of its labels, the bin of its score, or whether its query has a
    relevant document.
    """
    if records.labels is not None:
        return records.labels
    if records.label_sets is not None:
        sizes = Counter(label for labels in records.label_sets for label in labels)
        return [min(labels, key=lambda name: (sizes[name], name), default="") for labels in records.label_sets]
    if records.scores is None or len(records) == 0:
        return [""] * len(records)
    if records.shape == "ranking":
        assert records.queries is not None
        without = set(queries_without_positive(records))
        return ["without" if query in without else "with" for query in records.queries]
    bins = max(1, min(_BINS, len(records) // 5))
    edges = np.quantile(records.scores, np.arange(1, bins) / bins)
    return [str(place) for place in np.searchsorted(edges, records.scores, side="right").tolist()]


def _sizes(strata: Sequence[str]) -> dict[str, int]:
    return dict(sorted(Counter(strata).items()))


def _shuffled(firsts: Places, strata: Sequence[str], seed: int, *names: str) -> dict[str, Places]:
    """The numbers of the groups of each stratum (that of their first row) in random order."""
    listed = sorted(set(strata))
    numbers = {stratum: number for number, stratum in enumerate(listed)}
    codes = np.fromiter((numbers[stratum] for stratum in strata), dtype=np.int64, count=len(strata))[firsts]
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.searchsorted(codes[order], np.arange(1, len(listed))))
    return {
        stratum: members[generator(seed, "data", *names, stratum).permutation(len(members))]
        for stratum, members in zip(listed, parts, strict=False)
    }


def _apportion(total: int, sizes: Mapping[str, int], least: int = 0) -> dict[str, int]:
    """``total`` rows in proportion to the sizes, by largest remainder, none beyond its size.

    >>> _apportion(3, {"a": 10, "b": 4, "c": 1})
    {'a': 2, 'b': 1, 'c': 0}
    """
    everything = sum(sizes.values())
    exact = {name: total * size / everything for name, size in sizes.items()}
    rows = {name: min(sizes[name], max(least, math.floor(value))) for name, value in exact.items()}
    while sum(rows.values()) < total:
        name = max((each for each in rows if rows[each] < sizes[each]), key=lambda each: exact[each] - rows[each])
        rows[name] += 1
    while sum(rows.values()) > total:  # the minimum has added too many
        name = max((each for each in rows if rows[each] > least), key=lambda each: rows[each] - exact[each])
        rows[name] -= 1
    return rows


def _check_classes(records: Records, fold_of: Sequence[int]) -> None:
    """Refuse classes whose rows are all in one fold."""
    folds_of: dict[str, set[int]] = {}
    first: dict[str, int] = {}
    for labels, fold, line in zip(records.row_labels(), fold_of, records.lines, strict=True):
        for label in labels:
            folds_of.setdefault(label, set()).add(fold)
            first.setdefault(label, line)
    message = "a class with all its rows in one fold, so that it cannot be trained on"
    remedy = "Add rows with other texts to this class, or leave it out."
    problems = [
        Problem(records.source, message, remedy, line=first[label], value=label)
        for label, inside in folds_of.items()
        if len(inside) == 1
    ]
    if problems:
        raise DataError(problems)


def _error(records: Records, message: str, remedy: str) -> DataError:
    return DataError(Problem(records.source, message, remedy))
