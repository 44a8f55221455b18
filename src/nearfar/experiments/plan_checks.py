"""Whether the rows of a study can be tested on and divided, whatever the size and the seed: before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import replace

from nearfar.data import Records, RowType, compare, folds, holdout, limit, row_type_of
from nearfar.errors import DataError, NearfarError, Problem, counted
from nearfar.experiments.search import FOLDS
from nearfar.experiments.study_schema import DataTable, Study, sizes_of
from nearfar.experiments.trial import Rows


def scores_of(row_type: RowType) -> tuple[str, ...]:
    """What can be compared on rows; plain texts are tested on scored pairs. The first is meant by ``auto``."""
    return row_type.metrics or RowType.SCORED_PAIRS.metrics[:1]


def check_test_rows(
    table: DataTable, rows: Rows, read_as: AbstractSet[RowType], metric: str
) -> tuple[list[Problem], list[str]]:
    """What keeps the rows of a test file from being tested on, and what should be known about them."""
    records, official = rows
    if official is None or not isinstance(table.test, str) or read_as == {RowType.PLAIN}:
        return [], []
    named = replace(official, source=table.test)
    problems, notes = compare(replace(records, source=table.file), named, "test")
    if RowType.LABELED not in read_as:  # pairs may be measured on rows of another type
        problems = []
    if read_as != {RowType.LABELED}:
        row_type = row_type_of(named, pairwise=True)
        if isinstance(row_type, Problem):
            problems.append(row_type)
        elif metric not in scores_of(row_type):
            message = f"the study compares {metric}, and such test rows have {', '.join(scores_of(row_type))}"
            remedy = "Test on rows like those that are trained on, or on scored pairs."
            problems.append(Problem(table.test, message, remedy))
    return problems, notes


def check_division(study: Study, table: DataTable, rows: Rows, read_as: AbstractSet[RowType]) -> list[Problem]:
    """What stands in the way of the folds, of any size and seed."""
    records, official = rows
    labeled, classes = RowType.LABELED in read_as, set(records.labels or ())
    if labeled and len(classes) == 1:
        remedy = "Add rows of a second class, or name another column with label in [[data]]."
        return [Problem(table.file, f"all {len(records):,} rows have the one class {classes.pop()!r}", remedy)]
    for size in sizes_of(table):
        if size is not None and size > len(records):
            message = f"limit is {size:,}, but there are only {counted(len(records), 'row')}"
            return [Problem(table.file, message, "Lower the limit of this data set, or leave it out for all rows.")]
        for seed in study.settings.seeds:
            try:
                drawn = records if size is None else records.take(limit(records, size, seed=seed))
                if official is None:
                    problems = _check_folds(study, table, drawn, seed)
                else:
                    problems = _untaught(table, drawn, official, seed) if labeled else []
                    problems += _check_searches(study, table, drawn, seed)
            except DataError as error:
                problems = [replace(problem, where=table.file) for problem in error.problems]
            except NearfarError as error:
                problems = [Problem(table.file, str(error), "Change the limit or the folds.")]
            if problems:
                return problems
    return []


def _check_folds(study: Study, table: DataTable, drawn: Records, seed: int) -> list[Problem]:
    """What is wrong with the folds of rows that a seed has drawn."""
    k = study.settings.folds
    small = [(name, number) for name, number in Counter(drawn.labels or ()).items() if number < k]
    if small and study.settings.rare == "refuse":
        name, number = min(small, key=lambda each: (each[1], each[0]))
        message = (
            f"class {name!r} has {counted(number, 'text')} among the {len(drawn):,} of seed {seed}, fewer than the {k} "
            f"folds{_others(len(small) - 1)}"
        )
        remedy = (
            'Set fewer folds or a larger limit, leave the class out, or set rare = "keep" in [study]: then some folds '
            "test without it."
        )
        return [Problem(table.file, message, remedy)]
    inside, _ = folds(drawn, k, seed=seed)[0]
    return _check_searches(study, table, drawn.take(inside), seed)


def _untaught(table: DataTable, drawn: Records, official: Records, seed: int) -> list[Problem]:
    """Classes that are tested on, and that a limit leaves without a text to train on."""
    absent = sorted(set(official.labels or ()) - set(drawn.labels or ()))
    if not absent:
        return []
    message = f"class {absent[0]!r} is tested on, but has no text among the {len(drawn):,} of seed {seed}"
    remedy = "Set a larger limit of this data set, with a text of each class at least."
    return [Problem(table.file, message + _others(len(absent) - 1), remedy)]


def _others(number: int) -> str:
    return f", and {counted(number, 'other class', 'other classes')}" if number else ""


def _check_searches(study: Study, table: DataTable, training: Records, seed: int) -> list[Problem]:
    """What stands in the way of judging points by the training rows of a trial."""
    problems = []
    for contender in study.contenders:
        if (search := contender.search) is None:
            continue
        try:
            if search.dev is None:
                folds(training, search.folds or FOLDS, seed=seed)
            else:
                holdout(training, search.dev, seed=seed, name="search")
        except DataError as error:
            rows = f"on the {counted(len(training), 'training row')} of a trial"
            message = f"search of {contender.name!r}, {rows}: {error.problems[0].message}"
            remedy = "Set fewer folds in its search, or a larger limit of this data set."
            problems.append(Problem(table.file, message, remedy))
    return problems
