"""Rows with several labels: lists, separators, indicator columns, data in memory; splits without leaks."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from nearfar.data import Layout, RowType, examine, folds, holdout, per_class, read, read_memory, row_type_of
from nearfar.data.memory import label_sets
from nearfar.errors import DataError, Problem, SettingError

TEXTS = ["one", "two", "three"]
SETS = [("joy", "anger"), (), ("joy",)]


def problems(run):
    with pytest.raises(DataError) as caught:
        run()
    return [(problem.line, problem.message, problem.value) for problem in caught.value.problems]


def in_file(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    return str(path)


def test_lists_in_json_lines_are_label_sets(tmp_path):
    lines = [json.dumps({"text": text, "labels": list(labels)}) for text, labels in zip(TEXTS, SETS, strict=True)]
    records = read(in_file(tmp_path, "a.jsonl", "\n".join(lines)))
    assert records.label_sets == SETS
    assert records.labels is None
    assert records.target == "labels"
    assert records.classes() == ("anger", "joy")
    assert row_type_of(records, pairwise=None) is RowType.MULTILABEL
    assert records.take([2, 1]).label_sets == [("joy",), ()]


def test_a_separator_divides_a_column_when_told_so(tmp_path):
    path = in_file(tmp_path, "a.csv", "text,label\none,joy; anger\ntwo,\nthree,joy;;joy;\n")
    assert read(path, Layout(label_separator=";")).label_sets == SETS
    assert problems(lambda: read(path)) == [(3, "the label is missing", "")]


def test_indicator_columns(tmp_path):
    path = in_file(tmp_path, "a.csv", "text,joy,anger\none,1,1\ntwo,0,0\nthree,1.0,0\n")
    records = read(path, Layout(label_columns=("joy", "anger")))
    assert records.label_sets == SETS
    wrong = in_file(tmp_path, "b.csv", "text,joy,anger\none,1,2\ntwo,,0\n")
    message = "a label column has a value that is neither 0 nor 1"
    assert problems(lambda: read(wrong, Layout(label_columns=("joy", "anger")))) == [
        (2, message, "2"),
        (3, message, ""),
    ]
    assert "there is no column 'jox'" in problems(lambda: read(path, Layout(label_columns=("jox",))))[0][1]
    both = Layout(label="joy", label_columns=("anger",))
    assert "data.label_columns and data.label are both set" in problems(lambda: read(path, both))[0][1]


def test_memory_gives_the_same_rows_in_every_form():
    matrix = np.array([[1, 1], [0, 0], [1, 0]])
    frame = pd.DataFrame(matrix, columns=["joy", "anger"])
    forms = [
        list(zip(TEXTS, SETS, strict=True)),
        (TEXTS, [list(labels) for labels in SETS]),
        {"text": TEXTS, "label": [set(labels) for labels in SETS]},
        pd.DataFrame({"text": TEXTS, "label": SETS}),
        (TEXTS, frame),
        (TEXTS, label_sets(matrix, ["joy", "anger"])),
    ]
    prints = {read_memory(form).fingerprint() for form in forms}
    columns = pd.concat([pd.Series(TEXTS, name="text"), frame], axis=1)
    prints.add(read_memory(columns, layout=Layout(label_columns=("joy", "anger"))).fingerprint())
    assert len(prints) == 1
    assert read_memory((TEXTS, matrix)).label_sets == [("0", "1"), (), ("0",)]
    assert read_memory((TEXTS, matrix.astype(bool))).label_sets == [("0", "1"), (), ("0",)]


def test_a_matrix_of_other_numbers_is_refused():
    with pytest.raises(SettingError, match=r"row 2 has the value 3; give lists of labels, or a matrix of 0 and 1"):
        read_memory((["a", "b"], np.array([[0, 1], [3, 0]])))
    with pytest.raises(SettingError, match="each of 3 classes, and row 1 has 2 values"):
        label_sets([[0, 1]], ["a", "b", "c"])


def test_rows_that_cannot_be_used_are_refused_with_their_numbers():
    rows = [("a", ["x"]), ("b", None), ("c", "x"), ("d", [None]), ("e", [["x"]]), ("f", ["y", "x"]), ("g", [])]
    assert problems(lambda: read_memory(rows)) == [
        (2, "the labels are missing", "None"),
        (3, "the labels are not a list, as in other rows", "x"),
        (4, "the label is missing", "[None]"),
        (5, "the label is a list, but other rows have one label each", "[['x']]"),
    ]
    assert read_memory(rows, invalid="drop").label_sets == [("x",), ("y", "x"), ()]
    message = "the label is a list, but other rows have one label each"
    assert problems(lambda: read_memory([("a", "x"), ("b", "y"), ("c", ["x"])])) == [(3, message, "['x']")]


def test_one_label_only_is_refused_where_labels_are_needed():
    (problem,) = problems(lambda: read_memory([("a", ["x"]), ("b", [])], need="label"))
    assert "two labels at least" in problem[1]


def test_several_labels_are_no_target_of_pairs():
    records = read_memory([{"text_a": "a", "text_b": "b", "label": ["x", "y"]}])
    assert records.shape == "pairs"
    assert row_type_of(records, pairwise=None) is RowType.MULTILABEL
    assert isinstance(row_type_of(records, pairwise=True), Problem)


def many(n=60):
    names = ("a", "b", "c", "d")
    return read_memory(
        [(f"text {row}", [name for place, name in enumerate(names) if row % (place + 2) == 0]) for row in range(n)]
    )


def test_splits_keep_every_label_in_both_parts():
    records = many()
    rest, held = holdout(records, 0.2, seed=1)
    assert sorted(rest + held) == list(range(60))
    assert records.take(held).classes() == records.take(rest).classes() == records.classes()
    for train, test in folds(records, 3, seed=1):
        assert set(train).isdisjoint(test)
        assert records.take(train).classes() == records.classes()


def test_so_many_texts_of_each_label():
    records = many()
    drawn = records.take(per_class(records, 5, seed=3))
    counts = [sum(name in labels for labels in drawn.label_sets) for name in records.classes()]
    assert min(counts) >= 5
    assert len(drawn) <= 20
    assert per_class(records, 5, seed=3) == per_class(records, 5, seed=3)


def test_the_examination_counts_labels(tmp_path):
    path = in_file(tmp_path, "a.csv", "text,label\none,joy|anger\ntwo,\nthree,joy\nthree,anger\n")
    found = examine(path, Layout(label_separator="|"))
    assert found.classes == {"anger": 2, "joy": 2}
    assert found.target == "labels"
    assert found.conflict_count == 1
    assert "1 of 4 without a label" in " ".join(found.notes)


@pytest.mark.parametrize("kind", ["parquet", "folder", "memory"])
def test_lists_of_class_labels_of_datasets_become_names(tmp_path, kind):
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["joy", "anger"])
    features = datasets.Features({"text": datasets.Value("string"), "labels": datasets.Sequence(names)})
    data = datasets.Dataset.from_dict({"text": TEXTS, "labels": [[0, 1], [], [0]]}, features=features)
    if kind == "memory":
        assert read_memory(data).label_sets == SETS
        return
    path = tmp_path / ("a.parquet" if kind == "parquet" else "folder")
    data.to_parquet(path) if kind == "parquet" else data.save_to_disk(path)
    assert read(str(path)).label_sets == SETS
