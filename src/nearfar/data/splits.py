"""Dividing rows: a share for development, folds, a smaller sample.

All of them are stratified (each class, or each tenth of the scores, in proportion), draw from a
named stream of their own, and return indices in ascending order. ``share`` and ``folds`` keep rows
that say the same (case and blanks apart, and a pair either way round) together on one side, since a
model that has seen a text in training proves nothing on it. In ranking, and in labeled pairs whose
queries have ids, all rows of a query stay together; in ranking, queries with and without a relevant
document are the two strata.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from nearfar.data.issues import count
from nearfar.data.records import Records, levelled
from nearfar.data.targets import queries_without_positive
from nearfar.errors import DataError, Problem, SettingError
from nearfar.seeds import generator

_BINS = 10


def share(records: Records, fraction: float, *, seed: int, name: str = "dev") -> tuple[list[int], list[int]]:
    """The indices that stay and those set apart, about ``fraction`` of all.

    Every class keeps at least one row among those that stay, so a class of one row is not divided.
    """
    if not 0 < fraction < 1:  # also refuses NaN
        raise SettingError(f"the {name} share must lie between 0 and 1, both excluded, not {fraction!r}; try 0.1")
    strata = _strata(records)
    labels = records.labels or [""] * len(records)
    left = Counter(labels)
    apart: list[int] = []
    wanted = max(1, round(fraction * len(records)))
    quotas = _apportion(
        wanted, {stratum: len(rows) for stratum, rows in _by_stratum(range(len(records)), strata).items()}
    )
    groups = _groups(records)
    drawn = _shuffled(groups, strata, seed, "share", name)
    for stratum, members in drawn.items():
        quota = quotas[stratum]
        for group in members:
            if len(group) <= quota and _can_go(group, labels, left):
                quota -= len(group)
                apart.extend(group)
                left.subtract(labels[index] for index in group)
    if not apart:  # small data: no class could spare its proportion, so the smallest group that can go
        free = [group for members in drawn.values() for group in members if _can_go(group, labels, left)]
        if not free:
            raise _impossible(
                records,
                f"no {name} share can be taken from {count(len(records), 'row')}: every class would lose its last row",
                f"Add rows, or name a {name} file.",
            )
        apart = sorted(free, key=len)[0]
    chosen = set(apart)
    return [index for index in range(len(records)) if index not in chosen], sorted(chosen)


def folds(records: Records, k: int, *, seed: int) -> list[tuple[list[int], list[int]]]:
    """``k`` times the indices to train on and to test on; each row is tested exactly once."""
    if k < 2:
        raise SettingError(f"the number of folds must be at least 2, not {k}; try 5")
    groups = _groups(records)
    if len(groups) < k:
        raise _impossible(
            records,
            f"{count(len(records), 'row')} with {_distinct(records, len(groups))} cannot make {k} folds",
            "Add rows, or ask for fewer folds.",
        )
    strata = _strata(records)
    fold_of = [0] * len(records)
    total = [0] * k
    for members in _shuffled(groups, strata, seed, "folds").values():
        inside = [0] * k
        for group in sorted(members, key=len, reverse=True):  # large ones first, small ones level out
            fold = min(range(k), key=lambda each: (inside[each], total[each], each))
            inside[fold] += len(group)
            total[fold] += len(group)
            for index in group:
                fold_of[index] = fold
    _every_class_stays(records, fold_of)
    everything = range(len(records))
    return [
        (
            [index for index in everything if fold_of[index] != fold],
            [index for index in everything if fold_of[index] == fold],
        )
        for fold in range(k)
    ]


SIZES = {"S": 1_000, "M": 4_000, "L": 10_000, "XL": None}
"""Limits by name, as the paper of TripleEntropy has them; the last one is all rows."""


def limit(records: Records, n: int, *, seed: int) -> list[int]:
    """At most ``n`` indices, each class in proportion and, where ``n`` allows, with a row at least.

    In ranking whole queries are taken, as many as fit.
    """
    if n < 1:
        raise SettingError(f"the limit must be at least 1 row, not {n}")
    if n >= len(records):
        return list(range(len(records)))
    strata = _strata(records)
    if records.shape == "ranking":
        return _whole_queries(records, strata, n, seed)
    rows = _by_stratum(range(len(records)), strata)
    sizes = {stratum: len(members) for stratum, members in rows.items()}
    quotas = _apportion(n, sizes, least=1 if n >= len(sizes) else 0)
    drawn = _shuffled([[index] for index in range(len(records))], strata, seed, "limit")
    return sorted(group[0] for stratum, members in drawn.items() for group in members[: quotas[stratum]])


def per_class(records: Records, n: int, *, seed: int) -> list[int]:
    """``n`` indices of each class, all of a class that has fewer."""
    if n < 1:
        raise SettingError(f"the number of rows for each class must be at least 1, not {n}")
    if records.labels is None:
        raise _impossible(
            records,
            "rows cannot be taken for each class: there are no labels",
            "Name the column with data.label (--label).",
        )
    drawn = _shuffled([[index] for index in range(len(records))], records.labels, seed, "per_class")
    return sorted(group[0] for members in drawn.values() for group in members[:n])


def _groups(records: Records) -> list[list[int]]:
    """Rows that say the same, and those that ask the same where queries have ids, in order of their first."""
    ties: list[Sequence[Hashable]] = [records.likenesses()]
    if records.queries is not None and len(records.texts) == 2:
        asked = [levelled(text) for text in records.texts[0]]  # a query under two ids is one query
        ties += [records.queries, asked]
    leader = list(range(len(records)))  # of each row an earlier one of its group, of the first itself

    def first(row: int) -> int:
        while leader[row] != row:
            leader[row] = row = leader[leader[row]]
        return row

    for keys in ties:
        seen: dict[Hashable, int] = {}
        for row, key in enumerate(keys):
            one, other = first(seen.setdefault(key, row)), first(row)
            leader[max(one, other)] = min(one, other)
    groups: dict[int, list[int]] = {}
    for row in range(len(records)):
        groups.setdefault(first(row), []).append(row)
    return list(groups.values())


def _whole_queries(records: Records, strata: Sequence[str], n: int, seed: int) -> list[int]:
    """Queries in an order drawn for each stratum, the strata in turn by how far they are behind, while they fit."""
    waiting = _shuffled(_groups(records), strata, seed, "limit")
    sizes = {stratum: sum(map(len, members)) for stratum, members in waiting.items()}
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
        raise _impossible(
            records, f"every query has more than {count(n, 'row')}, the limit", "Set the limit higher, or to none."
        )
    return sorted(chosen)


def _strata(records: Records) -> list[str]:
    """What each row is to be spread by: its class, in which tenth its score lies, whether its query has an answer."""
    if records.labels is not None:
        return records.labels
    if records.scores is None or len(records) == 0:
        return [""] * len(records)
    if records.shape == "ranking":
        assert records.queries is not None
        without = set(queries_without_positive(records))
        return ["without" if query in without else "with" for query in records.queries]
    bins = max(1, min(_BINS, len(records) // 5))
    edges = np.quantile(records.scores, np.arange(1, bins) / bins)
    return [str(place) for place in np.searchsorted(edges, records.scores, side="right").tolist()]


def _distinct(records: Records, number: int) -> str:
    if records.shape == "ranking":
        return count(number, "distinct query", "distinct queries")
    return count(number, "distinct text")


def _by_stratum(rows: Sequence[int], strata: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {stratum: [] for stratum in sorted(set(strata))}
    for row in rows:
        found[strata[row]].append(row)
    return found


def _shuffled(groups: Sequence[list[int]], strata: Sequence[str], seed: int, *names: str) -> dict[str, list[list[int]]]:
    """The groups of each stratum (that of a group's first row) in an order drawn for it alone."""
    found: dict[str, list[list[int]]] = {stratum: [] for stratum in sorted(set(strata))}
    for group in groups:
        found[strata[group[0]]].append(group)
    for stratum, members in found.items():
        order = generator(seed, "data", *names, stratum).permutation(len(members))
        found[stratum] = [members[place] for place in order]
    return found


def _apportion(total: int, sizes: Mapping[str, int], least: int = 0) -> dict[str, int]:
    """``total`` seats in proportion to the sizes, by largest remainder, none beyond its size.

    >>> _apportion(3, {"a": 10, "b": 4, "c": 1})
    {'a': 2, 'b': 1, 'c': 0}
    """
    everything = sum(sizes.values())
    exact = {name: total * size / everything for name, size in sizes.items()}
    seats = {name: min(sizes[name], max(least, math.floor(value))) for name, value in exact.items()}
    while sum(seats.values()) < total:
        name = max((each for each in seats if seats[each] < sizes[each]), key=lambda each: exact[each] - seats[each])
        seats[name] += 1
    while sum(seats.values()) > total:  # the least gave away too many
        name = max((each for each in seats if seats[each] > least), key=lambda each: seats[each] - exact[each])
        seats[name] -= 1
    return seats


def _can_go(group: Sequence[int], labels: Sequence[str], left: Mapping[str, int]) -> bool:
    """Whether every class in the group still has a row when the group is gone."""
    return all(left[label] > number for label, number in Counter(labels[index] for index in group).items())


def _every_class_stays(records: Records, fold_of: Sequence[int]) -> None:
    where: dict[str, set[int]] = {}
    first: dict[str, int] = {}
    for index, label in enumerate(records.labels or ()):
        where.setdefault(label, set()).add(fold_of[index])
        first.setdefault(label, records.lines[index])
    problems = [
        Problem(
            records.source,
            "a class all whose rows fall into one fold, so that it could not be trained on",
            "Add rows with other texts to this class, or leave it out.",
            line=first[label],
            value=label,
        )
        for label, inside in where.items()
        if len(inside) == 1
    ]
    if problems:
        raise DataError(problems)


def _impossible(records: Records, message: str, remedy: str) -> DataError:
    return DataError([Problem(records.source, message, remedy)])
