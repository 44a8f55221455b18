"""Texts and labels as people have them in Python, to the columns that `nearfar.data.read_memory` reads.

Lists, NumPy arrays and Series become the columns ``text`` and ``label``; of data frames and data sets the columns keep
their names. What is wrong is reported as the command line reports it, with the row in place of the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.data import Layout, Records, read_memory
from nearfar.data.table import bind
from nearfar.data.values import Issues
from nearfar.errors import MEMORY, DataError, Problem

LabelType = Literal["str", "int", "float", "bool"]
TEXTS = "Give a list of texts, or of (left, right) pairs of texts; a NumPy array or a Series of texts; or a data frame."

WEIGHT = "sample_weight"
"""The column of weights that are given apart from a table."""


def is_table(data: object) -> bool:
    """Whether an object has columns with names: a data frame, a data set, an Arrow table, a dictionary of columns."""
    frame = hasattr(data, "columns") and hasattr(data, "__getitem__")
    return isinstance(data, Mapping) or frame or hasattr(data, "column_names")


def column_names(table: Any) -> list[str]:
    """The names of the columns of a table."""
    if isinstance(table, Mapping):
        return [str(name) for name in table]
    return [str(name) for name in (table.column_names if hasattr(table, "column_names") else table.columns)]


def column(table: Any, name: str) -> Any:
    """The values of a column."""
    values = table[name]
    return values.to_pylist() if hasattr(values, "to_pylist") else values


def row_count(data: Any) -> int:
    """How many rows columns or a table have."""
    return len(next(iter(data.values()))) if isinstance(data, Mapping) else len(data)


def labeled_rows(
    texts: Any, labels: Any, layout: Layout, name: str, *, target: Literal["label", "score"] = "label"
) -> tuple[Any, Layout]:
    """Texts and their labels as data in memory, and the columns to read of it.

    Args:
        texts: texts or pairs of texts, or a table.
        labels: one for each text, the name of the table's column, or None to recognize the column by its name.
        layout: the columns that the user names.
        name: what messages call the data, without ``memory:``.
        target: whether the labels are classes or scores.
    """
    if is_table(texts):
        if labels is None:
            return texts, _as_scores(texts, layout) if target == "score" else layout
        if isinstance(labels, str):
            return texts, replace(layout, label=labels) if target == "label" else replace(layout, score=labels)
        read = _bound(texts, layout, name)
        _refuse_labels(labels, name)
        named: dict[str, Any] = {"text": read[0], "pair": read[1] if len(read) > 1 else None, target: target}
        return {**{key: column(texts, key) for key in read if key != target}, target: labels}, Layout(**named)
    if labels is None:
        raise DataError(Problem(f"{MEMORY}{name}", f"there are no {target}s", f"Give them: fit(texts, {target}s)."))
    _refuse_labels(labels, name)
    return {**text_columns(texts, name), target: labels}, Layout()


def with_weights(data: Any, layout: Layout, weights: Any) -> tuple[Any, Layout]:
    """Training rows with the weight of each, which is a column of them or a list."""
    if isinstance(weights, str):
        return data, replace(layout, weight=weights)
    if isinstance(weights, Iterator) or not isinstance(weights, Iterable) or getattr(weights, "ndim", 1) != 1:
        raise DataError(
            Problem(f"{MEMORY}train", "sample_weight is one number for each text", "Give a list of numbers.")
        )
    columns = {name: column(data, name) for name in column_names(data)}
    return {**columns, WEIGHT: weights}, replace(layout, weight=WEIGHT)


def _as_scores(table: Any, layout: Layout) -> Layout:
    """The layout of a table of scores: the column that is recognized as the target holds them."""
    binding = None if layout.score else bind(column_names(table), layout, "any", Issues(""))
    return layout if binding is None or binding.target is None else replace(layout, label=None, score=binding.target)


def _bound(table: Any, layout: Layout, name: str) -> tuple[str, ...]:
    issues = Issues(f"{MEMORY}{name}")
    binding = bind(column_names(table), layout, "text", issues)
    if binding is None:
        raise DataError(issues.problems)
    return binding.texts


def text_columns(texts: Any, name: str) -> dict[str, Any]:
    """One column of texts, or two for pairs."""
    where = f"{MEMORY}{name}"
    if isinstance(texts, str | bytes):
        raise DataError(Problem(where, "this is one string, not a list of texts", "Write [text].", value=str(texts)))
    if isinstance(texts, Set):
        raise DataError(Problem(where, "the texts of a set have no order", "Give a list of texts: sorted(texts)."))
    if isinstance(texts, Iterator):
        message = f"a {type(texts).__name__} gives its texts only once"
        raise DataError(Problem(where, message, "Give a list of texts: list(texts)."))
    if getattr(texts, "ndim", 1) != 1:
        shape = " x ".join(map(str, texts.shape))
        message = f"this is an array of {texts.ndim} dimensions ({shape}), and texts have one"
        remedy = "Give a column of it, texts[:, 0]; for pairs a list of (left, right) tuples."
        raise DataError(Problem(where, message, remedy))
    if not isinstance(texts, Iterable):
        raise DataError(Problem(where, f"texts are needed, and this is of type {type(texts).__name__}", TEXTS))
    if not hasattr(texts, "dtype") and len(rows := list(texts)) and _is_row(rows[0]):
        return _pair_columns(rows, where)
    return {"text": texts}


def encoder_rows(data: Any, name: str) -> Any:
    """Texts, pairs, scored pairs or triplets as columns; a row that is not what the first one is is refused."""
    where = f"{MEMORY}{name}"
    if (
        getattr(data, "ndim", 1) != 1
        or isinstance(data, str | bytes | Iterator | Set)
        or not isinstance(data, Iterable)
    ):
        return text_columns(data, name)
    rows: Any = data.tolist() if hasattr(data, "tolist") else list(data)
    if not len(rows) or isinstance(rows[0], Mapping) or not _is_row(rows[0]):
        return rows if len(rows) and isinstance(rows[0], Mapping) else {"text": rows}
    width = len(rows[0])
    scored = width == 3 and not isinstance(rows[0][2], str)
    names = {
        2: ("text_a", "text_b"),
        3: ("text_a", "text_b", "score") if scored else ("anchor", "positive", "negative"),
    }
    if width not in names:
        message = f"the rows have {width} values"
        remedy = "Give (a, b), (a, b, score) or (anchor, positive, negative) tuples, or texts."
        raise DataError(Problem(where, message, remedy, line=1, value=repr(rows[0])[:60]))
    problems = [
        Problem(
            where,
            f"rows have {width} values each, as the first one has, and this one has not",
            "Give all rows one form.",
            line=number,
            value=repr(row)[:60],
        )
        for number, row in enumerate(rows, 1)
        if not (_is_row(row) and len(row) == width)
    ]
    if problems:
        raise DataError(problems)
    return dict(zip(names[width], map(list, zip(*rows, strict=True)), strict=True))


def _is_row(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _pair_columns(rows: Sequence[Any], where: str) -> dict[str, list[Any]]:
    message = "texts are strings or (left, right) pairs, and this is neither, or is not what the first one is"
    problems = [
        Problem(where, message, "Give all rows one form.", line=number, value=repr(row)[:60])
        for number, row in enumerate(rows, 1)
        if not (_is_row(row) and len(row) == 2)
    ]
    if problems:
        raise DataError(problems)
    left, right = zip(*rows, strict=True)
    return {"text_a": list(left), "text_b": list(right)}


def _refuse_labels(labels: Any, name: str) -> None:
    """Refuse what cannot be one label for each text."""
    where, remedy = f"{MEMORY}{name}", "Give a list with a label for each text."
    if isinstance(labels, str | bytes):
        raise DataError(Problem(where, "the labels are one string, not a list", remedy, value=str(labels)))
    if isinstance(labels, Iterator):
        message = f"the labels are a {type(labels).__name__}, which gives them only once"
        raise DataError(Problem(where, message, "Give a list: list(labels)."))
    if not isinstance(labels, Iterable):
        raise DataError(Problem(where, f"labels are needed, and this is of type {type(labels).__name__}", remedy))
    if getattr(labels, "ndim", 1) != 1 and not is_matrix(labels):
        shape = " x ".join(map(str, np.asarray(labels).shape))
        message = f"the labels are an array of {shape}, and one dimension is needed"
        raise DataError(Problem(where, message, f"{remedy} Several labels a text are lists, or a matrix of 0 and 1."))


def read_texts(texts: Any, layout: Layout, name: str = "texts") -> Records:
    """The texts, or pairs of texts, to predict or to embed; bad ones are refused with their row."""
    if isinstance(texts, Records):
        return texts
    data = texts if is_table(texts) else text_columns(texts, name)
    return read_memory(data, f"{MEMORY}{name}", layout if is_table(texts) else Layout(), need="text")


@dataclass(frozen=True)
class Labels:
    """The classes of a model as the user wrote them: names, numbers or booleans."""

    classes: NDArray[Any]
    """(c,) sorted."""
    order: NDArray[np.int64]
    """(c,) where each of them is among the names of the model."""

    @classmethod
    def of(cls, names: Sequence[str], kind: LabelType) -> Labels:
        """The classes of these names, as values of a type.

        >>> Labels.of(("9", "10"), "int").classes.tolist(), Labels.of(("9", "10"), "str").order.tolist()
        ([9, 10], [1, 0])
        """
        values = np.array([_value(name, kind) for name in names])
        order = np.argsort(values, kind="stable")
        return cls(values[order], order)


def _value(name: str, kind: LabelType) -> str | int | float | bool:
    match kind:
        case "int":
            return int(name)
        case "float":
            return float(name)
        case "bool":
            return name == "true"
    return name


def label_type(labels: Any) -> LabelType:
    """What the labels are, so that predictions are the same.

    >>> label_type([1, 2]), label_type(np.array([0.0, 1.0])), label_type([True, False]), label_type(["a", 1])
    ('int', 'float', 'bool', 'str')
    """
    if is_matrix(labels):
        return "str" if hasattr(labels, "columns") else "int"
    kinds = {type(value.item() if hasattr(value, "item") else value) for value in _single(labels) if value is not None}
    for kind, name in ((bool, "bool"), (int, "int"), (float, "float")):
        if kinds == {kind}:
            return name  # type: ignore[return-value]
    return "float" if kinds == {int, float} else "str"


def _single(labels: Any) -> Iterator[Any]:
    """All labels, whether texts have one each or several."""
    for value in labels:
        if isinstance(value, list | tuple | set | frozenset):
            yield from value
        else:
            yield value


def is_matrix(labels: Any) -> bool:
    """Whether labels are an indicator matrix, one column for each label: an array, a data frame or a sparse matrix."""
    if getattr(labels, "ndim", 1) != 2:
        return False
    return hasattr(labels, "columns") or getattr(getattr(labels, "dtype", None), "kind", "O") in "biuf"


def indicator_names(matrix: Any) -> list[str] | list[int]:
    """The labels of the columns of an indicator matrix: the names of a data frame, else numbers from 0."""
    return [str(name) for name in matrix.columns] if hasattr(matrix, "columns") else list(range(matrix.shape[1]))


def target_type(data: Any, layout: Layout) -> LabelType:
    """The type of the labels in a table, whose column may be recognized by its name."""
    binding = bind(column_names(data), layout, "any", Issues("")) if is_table(data) else None
    if binding is None or binding.target is None:
        return "str"
    features = getattr(data, "features", None)
    if features is not None and hasattr(features[binding.target], "names"):  # a ClassLabel has names for its numbers
        return "str"
    return label_type(column(data, binding.target))
