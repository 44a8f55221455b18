"""Rows in memory are the same as those of a file, whatever object holds them, and are refused as they are."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from nearfar.data import Layout, Records, named_splits, read, read_memory, without_contradictions
from nearfar.errors import DataError, SettingError

TEXTS, LABELS = ["good", "bad", "fine"], ["yes", "no", "yes"]
ROWS = list(zip(TEXTS, LABELS, strict=True))


def frame(**columns):
    return pytest.importorskip("pandas").DataFrame(columns)


class PolarsFrame:
    """As much of a ``polars.DataFrame`` as is looked at, for it need not be installed."""

    def __init__(self, **columns):
        self.content = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return SimpleNamespace(to_list=lambda: list(self.content[name]))


FORMS = {
    "tuples": lambda: ROWS,
    "lists": lambda: [list(row) for row in ROWS],
    "dictionaries": lambda: [{"text": text, "label": label} for text, label in ROWS],
    "a generator": lambda: (row for row in ROWS),
    "columns": lambda: {"text": TEXTS, "label": LABELS},
    "two lists": lambda: (TEXTS, LABELS),
    "two arrays": lambda: (np.array(TEXTS), np.array(LABELS)),
    "an array": lambda: np.array(ROWS),
    "an array of objects": lambda: np.array(ROWS, dtype=object),
    "a structured array": lambda: np.array(ROWS, dtype=[("text", "U9"), ("label", "U9")]),
    "pandas": lambda: frame(text=TEXTS, label=LABELS),
    "pandas with an index": lambda: frame(text=TEXTS, label=LABELS).set_index(np.array([7, 8, 9])),
    "pandas categories": lambda: frame(text=TEXTS, label=LABELS).astype({"label": "category"}),
    "polars": lambda: PolarsFrame(text=TEXTS, label=LABELS),
    "pyarrow": lambda: pytest.importorskip("pyarrow").table({"text": TEXTS, "label": LABELS}),
    "datasets": lambda: pytest.importorskip("datasets").Dataset.from_dict({"text": TEXTS, "label": LABELS}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_rows_of_a_file(form, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in ROWS))
    records = read_memory(FORMS[form]())
    assert records.fingerprint() == read(str(path)).fingerprint()
    assert (records.source, records.lines) == ("memory:train", [1, 2, 3])


def test_texts_alone_are_rows():
    assert read_memory(["one", "two"]).texts == (["one", "two"],)
    assert read_memory(np.array(["one", "two"])).texts == (["one", "two"],)
    assert read_memory(["one", "two"]).target is None


def test_class_numbers_of_a_dataset_are_names():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    assert read_memory(data).labels == ["yes", "no"]


def test_numbers_of_numpy_are_labels_and_scores():
    """As a file has them: 1 and not 1.0, and a float of 32 bits by its value."""
    assert read_memory({"text": ["a", "b"], "label": np.array([1, 0])}).labels == ["1", "0"]
    pairs = {"text_a": ["a", "b"], "text_b": ["c", "d"], "score": np.array([0.5, 1.0], dtype=np.float32)}
    assert read_memory(pairs).scores == [0.5, 1.0]
    assert read_memory([(text, np.int64(n)) for n, text in enumerate("ab")]).labels == ["0", "1"]


def test_columns_are_named_as_in_a_recipe():
    triplets = [("a", "b", "c"), ("d", "e", "f")]
    layout = Layout(columns=("anchor", "positive", "negative"))
    assert read_memory(triplets, layout=layout).shape == "triplets"
    data = frame(review=TEXTS, stars=LABELS, id=[1, 2, 3])
    records = read_memory(data, layout=Layout(text="review", label="stars"))
    assert records.labels == LABELS
    assert records.notes == ("columns that are not used: 'id'",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([("a", "x"), ("", "y")], "memory:train, row 2, column 'text': the text is empty (got ''). Write a text"),
        ([("a", "x"), ("b", None)], "memory:train, row 2, column 'label': the label is missing"),
        (frame(text=["a", None], label=["x", "y"]), "memory:train, row 2, column 'text': the text is missing"),
        (frame(text=["a", "b"], label=[1.0, float("nan")]), "row 2, column 'label': the label is missing"),
        ({"text": ["a", "b"], "label": ["x"]}, "memory:train: the columns differ in length: 'text' has 2 values, 'la"),
        ([("a", "b", "c")], "memory:train: the rows have 3 values, and no names say what they are. Name them with da"),
        ([("a", "x"), ("b",)], "memory:train, row 2: rows are 2 values each, and this one is not"),
        ([{"text": "a"}, ("b",)], "memory:train, row 2: rows are dictionaries, and this one is not"),
        ("rows.csv", "memory:train: rows are needed, and this is of type str. Give a list of texts"),
        (7, "memory:train: rows are needed, and this is of type int"),
        ([], "memory:train: there are no rows"),
        ([("a", ["x", "y"]), ("b", "x")], "row 1, column 'label': the label is a list"),
        ({"title": ["a"], "body": ["b"]}, "memory:train: it is not clear which column is the text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_row_and_column(data, message):
    with pytest.raises(DataError) as error:
        read_memory(data)
    assert message in str(error.value)


def test_columns_of_one_name_are_refused():
    data = frame(text=TEXTS, other=LABELS)
    data.columns = ["text", "text"]
    with pytest.raises(DataError, match="the columns 'text' occur more than once"):
        read_memory(data)


def test_rows_at_fault_can_be_dropped():
    records = read_memory([("a", "x"), ("", "y"), ("b", "y")], invalid="drop")
    assert records.lines == [1, 3]
    assert records.notes == ("1 row dropped because the text is empty (first on row 2)",)


def test_records_stay_what_they_are():
    records = Records((["a", "b"],), ["x", "x"], None, [4, 9], "mine.csv")
    assert read_memory(records) is records
    with pytest.raises(DataError, match=r"mine\.csv: all 2 rows have the one class 'x'"):
        read_memory(records, need="label")


def test_splits_have_names():
    assert named_splits(ROWS) == {"memory:train": ROWS}
    assert named_splits({"train": 1, "validation": 2, "test": None}, "sst") == {
        "memory:sst/train": 1,
        "memory:sst/dev": 2,
    }
    assert named_splits({"text": TEXTS, "label": LABELS}) == {"memory:train": {"text": TEXTS, "label": LABELS}}
    with pytest.raises(SettingError, match="the splits train, dev, test and unlabeled, got 'unsupervised'"):
        named_splits({"train": 1, "unsupervised": 2})


def test_a_source_in_memory_is_no_file():
    with pytest.raises(DataError, match=r"memory:train: these rows were in memory, and none were passed\. Pass them"):
        read("memory:train")


def test_other_rows_are_named_by_their_numbers():
    """As a file has lines, so do rows in memory have numbers."""
    pairs = {"text_a": ["a", "b"], "text_b": ["c", "d"], "label": [1, 0]}
    records = read_memory({name: [*values, values[0]] for name, values in pairs.items()} | {"label": [1, 0, 0]})
    _, problems = without_contradictions(records, invalid="refuse")
    assert str(problems[0]).startswith(
        "memory:train, row 3: the label 0 contradicts row 1, where the same two texts have 1"
    )
