"""Data in memory to checked records: lists, columns, data frames, NumPy arrays, and data sets of ``datasets``.

No library is imported for it: an object is read by the methods it has. Columns are recognized and values are checked as
in files. What is wrong is reported with the row, counted from 1, in place of a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from nearfar.data.arrow import dataset_rows
from nearfar.data.readers import Invalid, checked, missing_content
from nearfar.data.records import Layout, Records
from nearfar.data.table import Need, check_rows
from nearfar.data.text_files import Row, distinct_names
from nearfar.data.values import Issues
from nearfar.errors import MEMORY, DataError, SettingError, counted

SPLITS = {"train": "train", "dev": "dev", "validation": "dev", "test": "test", "unlabeled": "unlabeled"}
"""What the splits of data in memory may be called, and what we call them."""
TAKES = (
    "Give a list of texts, of (text, label) pairs or of dictionaries, a dictionary of columns, a tuple of two lists "
    "(texts, labels), a NumPy array, a data frame, or a datasets.Dataset."
)


def named_splits(data: object, task: str | None = None) -> dict[str, object]:
    """The splits of data in memory by the names they have in a recipe and in messages, ``memory:train`` and so on.

    Args:
        data: the training rows, or a mapping with ``train``, and ``dev``, ``test`` and ``unlabeled`` if there are
            some.
        task: which of several tasks it belongs to; its name becomes part of the names.

    >>> named_splits([("good", "yes"), ("bad", "no")])
    {'memory:train': [('good', 'yes'), ('bad', 'no')]}
    """
    if not (isinstance(data, Mapping) and data.keys() & SPLITS.keys()):
        data = {"train": data}
    unknown = [name for name in data if name not in SPLITS]
    if unknown:
        raise SettingError(
            f"data in memory has the splits train, dev, test and unlabeled, got {unknown[0]!r}; leave it out."
        )
    prefix = MEMORY if task is None else f"{MEMORY}{task}/"
    return {prefix + SPLITS[name]: rows for name, rows in data.items() if rows is not None}


def read_memory(
    data: object,
    name: str = f"{MEMORY}train",
    layout: Layout = Layout(),  # noqa: B008  # frozen
    *,
    invalid: Invalid = "refuse",
    need: Need = "any",
) -> Records:
    """All rows of an object, checked; raises DataError with all that is wrong. Records stay as they are.

    Args:
        data: the rows, see ``TAKES``.
        name: what messages call them.
        layout: which columns hold what; ``columns`` names the values of rows that are lists, tuples or of an array.
        invalid: what happens to rows that cannot be used, as in :func:`nearfar.data.read`.
        need: as in :func:`nearfar.data.read`.

    >>> read_memory([("good", "yes"), ("bad", "no")]).labels
    ['yes', 'no']
    """
    if isinstance(data, Records):
        if problems := missing_content(data, data.source, need):
            raise DataError(problems)
        return data
    issues = Issues(name)
    layout = replace(layout, disk=layout.disk is True)
    return checked(
        check_rows(name, _rows(data, layout.columns, issues), layout, need, issues), invalid=invalid, need=need
    )


def _rows(data: Any, names: Sequence[str] | None, issues: Issues) -> Iterator[Row]:
    """The rows of an object with their numbers."""
    if isinstance(data, Mapping):
        return _from_columns(data, issues)
    if hasattr(data, "with_format") and hasattr(data, "features"):
        return dataset_rows(data, issues)
    if hasattr(data, "to_pylist") and hasattr(data, "column_names"):  # a pyarrow.Table
        return _numbered(data.to_pylist())
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):  # a data frame of pandas or polars
        if not distinct_names([str(column) for column in data.columns], issues):
            return iter(())
        return _from_columns({str(column): data[column] for column in data.columns}, issues)
    if structured := getattr(getattr(data, "dtype", None), "names", None):  # a structured NumPy array
        return _from_columns({column: data[column] for column in structured}, issues)
    if isinstance(data, tuple) and len(data) == 2 and not any(isinstance(part, str | tuple | Mapping) for part in data):
        return _from_columns(dict(zip(names or ("text", "label"), data, strict=False)), issues)
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        issues.add(f"rows are needed, and this is of type {type(data).__name__}", TAKES)
        return iter(())
    return _from_rows(data, names, issues)


def label_sets(indicators: Any, classes: Sequence[str] | None = None) -> list[list[str]]:
    """The labels of each row of an indicator matrix: a 2-D array or a data frame of 0 and 1.

    Args:
        indicators: (n, c) a row of 0 and 1 for each text.
        classes: the name of each column; None for those of a data frame, or the numbers from 0 on.

    >>> label_sets([[1, 0, 1], [0, 0, 0]], ["anger", "fear", "joy"])
    [['anger', 'joy'], []]
    """
    if hasattr(indicators, "columns") and hasattr(indicators, "to_numpy"):  # a data frame
        classes = [str(name) for name in indicators.columns] if classes is None else classes
        indicators = indicators.to_numpy()
    rows = indicators.toarray().tolist() if hasattr(indicators, "toarray") else indicators
    rows = rows.tolist() if hasattr(rows, "tolist") else [list(row) for row in rows]
    width = len(rows[0]) if rows else 0
    names = [str(place) for place in range(width)] if classes is None else list(classes)
    for number, row in enumerate(rows, 1):
        wrong = next((value for value in row if value not in (0, 1)), None)
        if wrong is not None or len(row) != len(names):
            problem = f"has the value {wrong!r}" if wrong is not None else f"has {counted(len(row), 'value')}"
            raise SettingError(
                f"an indicator matrix has 0 or 1 for each of {counted(len(names), 'class', 'classes')}, and row "
                f"{number} {problem}; give lists of labels, or a matrix of 0 and 1."
            )
    return [[name for name, applies in zip(names, row, strict=True) if applies] for row in rows]


def _is_matrix(column: Any) -> bool:
    """Whether a column is an indicator matrix: has two dimensions, and holds numbers."""
    if hasattr(column, "columns") and hasattr(column, "to_numpy"):  # a data frame
        return True
    return getattr(column, "ndim", 1) == 2 and getattr(column.dtype, "kind", "O") in "biuf"


def _from_columns(columns: Mapping[Any, Any], issues: Issues) -> Iterator[Row]:
    """The rows of columns that are all of one length."""
    values: dict[str, list[Any]] = {
        str(name): list(label_sets(column)) if _is_matrix(column) else _listed(column)
        for name, column in columns.items()
    }
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {counted(length, 'value')}" for name, length in lengths.items())
        issues.add(f"the columns differ in length: {listed}", "Give every column a value for every row.")
        return iter(())
    return _numbered(dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))


def _from_rows(data: Iterable[Any], names: Sequence[str] | None, issues: Issues) -> Iterator[Row]:
    """Rows that are texts, dictionaries, or the values of the named columns."""
    rows = iter(data.tolist() if hasattr(data, "tolist") else data)
    first = next(rows, None)
    if names is None and not isinstance(first, Mapping):
        width = 1 if isinstance(first, str) or not isinstance(first, Sequence) else len(first)
        names = ("text", "label")[:width]
        if width not in (1, 2):
            issues.add(
                f"the rows have {counted(width, 'value')}, and no names say what they are",
                "Name them with data.columns, or give dictionaries.",
            )
            return
    for number, row in enumerate(() if first is None else chain([first], rows), 1):
        if isinstance(row, Mapping):
            yield number, _plain_row(row)
            continue
        values = [row] if isinstance(row, str) or not isinstance(row, Sequence) else row
        if names is None or len(values) != len(names):
            expected = "dictionaries" if names is None else f"{counted(len(names), 'value')} each"
            issues.add(f"rows are {expected}, and this one is not", "Give all rows one form.", line=number, value=row)
        else:
            yield number, _plain_row(dict(zip(names, values, strict=True)))


def _numbered(rows: Iterable[Mapping[Any, object]]) -> Iterator[Row]:
    return ((number, _plain_row(row)) for number, row in enumerate(rows, 1))


def _plain_row(row: Mapping[Any, object]) -> dict[str, object]:
    return {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> object:
    """A value as Python has it; None for whatever NumPy and data frames write for a missing one."""
    if hasattr(value, "tolist"):  # a NumPy scalar or array
        value = value.tolist()
    missing = (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    return None if missing else value


def _listed(column: Any) -> list[object]:
    """The values of a column: of a Series, an array, or any sequence."""
    for method in ("to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return [column] if isinstance(column, str) or not isinstance(column, Iterable) else list(column)
