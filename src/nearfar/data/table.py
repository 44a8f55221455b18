"""Unchecked rows to records: columns are recognized, values are checked, and all problems are collected."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice

from nearfar.data.columns import Binding, Need, bind
from nearfar.data.delimited import Row
from nearfar.data.ids import with_ids
from nearfar.data.issues import Issues
from nearfar.data.records import Layout, Records
from nearfar.data.values import BELOW_ZERO, EMPTY_TEXT, Fault, id_of, is_text, label_of, number_of, score_of, text_fault
from nearfar.errors import counted, unit_of

PEEK = 1_000
"""Rows that are searched for column names, since JSON rows need not all have the same."""


@dataclass
class Table:
    """The records of a source, and all problems."""

    structure: Issues
    """Problems of the file itself, for which it is always refused."""
    rows: Issues
    """Problems of single rows, which can be dropped instead."""
    rows_read: int = 0
    """Rows that could be read, valid or not."""
    dropped: dict[str, list[int]] = field(default_factory=dict)
    """The lines of invalid rows by their first problem."""
    empty: list[int] = field(default_factory=list)
    """The lines of rows with an empty text."""
    records: Records | None = None
    """The valid rows; None if the columns are not known."""


class Columns:
    """The columns that are read from a source, by the names in its first rows."""

    def __init__(self, rows: Iterator[Row], layout: Layout, need: Need, issues: Issues) -> None:
        first = list(islice(rows, PEEK))
        self.layout, self.need, self.issues = layout, need, issues
        self.known = dict.fromkeys(name for _, values in first for name in values)
        self.binding = bind(list(self.known), layout, need, issues) if first else None
        self._rows = chain(first, rows)

    def count(self) -> int:
        """The number of rows of a source whose columns are not known."""
        number = sum(1 for _ in self._rows)
        if not number and not self.issues.problems:
            self.issues.add("there are no rows", "Name a source that has rows.")
        return number

    def rows(self) -> Iterator[Row]:
        """All rows; the first late column that would change which columns are read is reported."""
        changed = False
        for before, (line, values) in enumerate(self._rows):
            if not changed and not self.known.keys() >= values.keys():
                changed = self._report_late(line, values, before)
            yield line, values

    def _report_late(self, line: int, values: Mapping[str, object], before: int) -> bool:
        old, late = list(self.known), [name for name in values if name not in self.known]
        self.known.update(dict.fromkeys(late))

        def changes(added: int) -> bool:
            names = [*old, *late[:added]]
            return bind(names, self.layout, self.need, Issues(self.issues.where)) != self.binding

        if not changes(len(late)):
            return False
        first = next(late[added - 1] for added in range(1, len(late) + 1) if changes(added))
        message = f"a column {first!r} appears first here, but the {before:,} rows before do not have it"
        remedy = (
            "Give all rows the same columns, or name those to read with data.text, data.pair, data.label, data.score."
        )
        self.issues.add(message, remedy, line=line)
        return True


def check_rows(source: str, rows: Iterator[Row], layout: Layout, need: Need, issues: Issues) -> Table:
    """Read all rows, recognize their columns, and check every value."""
    table = Table(issues, Issues(source))
    columns = Columns(rows, layout, need, issues)
    binding = columns.binding
    if binding is None:
        table.rows_read = columns.count()
        return table
    checker = _Checker(table, binding)
    others: dict[str, list[object]] = {
        name: [] for name in (binding.target, binding.query, binding.document) if name is not None
    }
    for line, values in columns.rows():
        checker.add(line, values)
        for name, column in others.items():
            column.append(values.get(name))
    table.rows_read = len(checker.lines)
    if need != "text":
        used = (*binding.texts, *others)
        unused = [repr(name[:60]) for name in columns.known if name and name not in used]
        if unused:
            more = " and more" if len(unused) > 20 else ""
            issues.notes.append(f"columns that are not used: {', '.join(unused[:20])}{more}")
    labels, scores = checker.targets(others)
    queries, documents = (checker.ids(name, others) for name in (binding.query, binding.document))
    records = Records(checker.texts, labels, scores, checker.lines, source, queries=queries, documents=documents)
    if not all(checker.valid):
        records = records.take(index for index, valid in enumerate(checker.valid) if valid)
    table.records = with_ids(records, binding, issues)
    return table


def drop_notes(table: Table) -> list[str]:
    """How many rows were dropped, by reason."""
    unit = unit_of(table.structure.where)
    return [
        f"{counted(len(lines), 'row')} dropped because {reason} (first on {unit} {lines[0]})"
        for reason, lines in table.dropped.items()
    ]


class _Checker:
    """The columns of a table under construction, and which of its rows are valid."""

    def __init__(self, table: Table, binding: Binding) -> None:
        self.table, self.binding = table, binding
        self.texts: tuple[list[str], ...] = tuple([] for _ in binding.texts)
        self.lines: list[int] = []
        self.valid: list[bool] = []

    def reject(self, index: int, fault: Fault, column: str, value: object) -> None:
        """Report an invalid value; the row is dropped for the first one."""
        line = self.lines[index]
        self.table.rows.add(fault.message, fault.remedy, line=line, column=column, value=value)
        if self.valid[index]:
            self.table.dropped.setdefault(fault.message, []).append(line)
        self.valid[index] = False

    def add(self, line: int, values: Mapping[str, object]) -> None:
        """Add the texts of a row."""
        self.lines.append(line)
        self.valid.append(True)
        empty = False
        for column, name in zip(self.texts, self.binding.texts, strict=True):
            value = values.get(name)
            if is_text(value):
                column.append(value)  # type: ignore[arg-type]  # is_text has checked that it is a string
            else:
                column.append("")
                fault = text_fault(value)
                empty = empty or fault is EMPTY_TEXT
                self.reject(-1, fault, name, value)
        if empty:
            self.table.empty.append(line)

    def targets(self, columns: Mapping[str, Sequence[object]]) -> tuple[list[str] | None, list[float] | None]:
        """The labels or the scores of all rows."""
        name, kind = self.binding.target, self.binding.kind
        if name is None:
            return None, None
        scored = kind in ("score", "relevance")
        if kind == "grade":
            scored = _numbers(columns[name])[0]
        elif kind == "either" and all(_numbers(columns[name])):
            scored = True
            self.table.structure.notes.append(
                f"column {name!r} has fractions, so it is read as scores; set data.label to read it as classes"
            )
        cached_label = lru_cache(maxsize=None, typed=True)(label_of)  # typed: 1, 1.0 and True are equal
        labels: list[str] = []
        scores: list[float] = []
        for index, value in enumerate(columns[name]):
            result: str | float | Fault
            if scored:
                result = score_of(value)
            else:
                result = cached_label(value) if isinstance(value, str | int | float) else label_of(value)
            if self.binding.ranked and isinstance(result, float) and result < 0:
                result = BELOW_ZERO
            if isinstance(result, Fault):
                self.reject(index, result, name, value)
            labels.append(result if isinstance(result, str) else "")
            scores.append(result if isinstance(result, float) else 0.0)
        return (None, scores) if scored else (labels, None)

    def ids(self, name: str | None, columns: Mapping[str, Sequence[object]]) -> list[str] | None:
        """The ids in a column; None if there is no such column, or one that is left out for an invalid id."""
        if name is None:
            return None
        results = [id_of(value) for value in columns[name]]
        for index, result in enumerate(results):
            if isinstance(result, Fault):
                if not self.binding.strict_ids:
                    reason = f"{result.message} on {unit_of(self.table.structure.where)} {self.lines[index]}"
                    self.table.structure.notes.append(f"column {name!r} is not used: {reason}")
                    return None
                self.reject(index, result, name, columns[name][index])
        return ["" if isinstance(result, Fault) else result for result in results]


def _numbers(targets: Sequence[object]) -> tuple[bool, bool]:
    """Whether all values are numbers, and whether some of them are fractions."""
    fraction = False
    for value in targets:
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        number = number_of(value)
        if number is None:
            return False, False
        fraction = fraction or (math.isfinite(number) and not number.is_integer())
    return True, fraction
