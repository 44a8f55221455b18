"""Which columns are read, and what a text, a label and a score may be."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from nearfar.data import Layout, Records, read, values
from nearfar.data.table import PAIRS, PLAIN, SINGLES, TARGETS
from nearfar.errors import DataError, Problem


def jsonl(folder: Path, *values: object) -> str:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in values))
    return str(path)


def refused(source: str, *arguments: object, **settings: object) -> tuple[Problem, ...]:
    with pytest.raises(DataError) as caught:
        read(source, *arguments, **settings)  # type: ignore[arg-type]
    return caught.value.problems


def only(source: str, *arguments: object, **settings: object) -> Problem:
    problems = refused(source, *arguments, **settings)
    assert len(problems) == 1, problems
    return problems[0]


def test_the_usual_names_are_those_promised() -> None:
    """The lists of names are part of the promise, in this order."""
    assert " ".join(TARGETS) == (
        "label labels score scores target class category intent relevance similarity_score gold_label is_duplicate y"
    )
    assert len(PAIRS) == 19
    assert " ".join((*PLAIN, *SINGLES)) == (
        "text texts sentence content review question query utterance message document body sms tweet comment title doc passage"
    )


@pytest.mark.parametrize("spell", [str, str.upper, lambda name: f" {name.title()} "])
@pytest.mark.parametrize("name", [*PLAIN, *SINGLES])
def test_single_texts_are_recognized(tmp_path: Path, name: str, spell: object) -> None:
    """Every usual name of a single text, in any case and with blanks around it."""
    records = read(jsonl(tmp_path, {spell(name): "one", "id": 3}))  # type: ignore[operator]
    assert (records.shape, records.texts) == ("texts", (["one"],))


@pytest.mark.parametrize("pair", PAIRS)
def test_pairs_are_recognized(tmp_path: Path, pair: tuple[str, str]) -> None:
    """Every usual pair of names, left and right in the right order whatever the order of columns."""
    records = read(jsonl(tmp_path, {pair[1].upper(): "right", pair[0]: "left"}))
    assert (records.shape, records.texts) == ("pairs", (["left"], ["right"]))


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_recognized(tmp_path: Path, name: str) -> None:
    """Every usual name of a label or a score."""
    records = read(jsonl(tmp_path, {"text": "one", name.title(): 1}))
    if name in ("score", "scores", "similarity_score"):
        assert (records.target, records.scores, records.labels) == ("score", [1.0], None)
    else:
        assert (records.target, records.labels, records.scores) == ("label", ["1"], None)


def test_the_first_target_counts(tmp_path: Path) -> None:
    """label comes before score, score before target; what is not used is noted."""
    records = read(jsonl(tmp_path, {"score": 0.5, "target": "t", "label": "x", "text": "one"}))
    assert records.labels == ["x"]
    assert records.notes == ("columns that are not used: 'score', 'target'",)
    assert read(jsonl(tmp_path, {"target": "t", "score": 0.5, "text": "one"})).scores == [0.5]


def test_told_columns_win(tmp_path: Path) -> None:
    """Columns named in the layout are read whatever others are there."""
    source = jsonl(tmp_path, {"text": "a", "label": "b", "u": "left", "v": "right", "w": 3})
    records = read(source, Layout(text="u", pair="v", score="w"))
    assert (records.texts, records.scores, records.labels) == ((["left"], ["right"]), [3.0], None)
    assert read(source, Layout(text="u")).texts == (["left"],)
    assert read(source, Layout(label="u")).labels == ["left"]


@pytest.mark.parametrize("key", ["text", "pair", "label", "score"])
def test_told_columns_that_are_missing(tmp_path: Path, key: str) -> None:
    """The columns found are listed, the key and the flag named, the nearest offered."""
    layout = {"text": Layout(text="txet"), "pair": Layout(text="text", pair="txet")}.get(key, Layout(**{key: "txet"}))
    problem = only(jsonl(tmp_path, {"text": "a", "label": "b"}), layout)
    assert "no column 'txet' among the columns found: 'text', 'label'" in problem.message
    assert f"data.{key} (--{key})" in problem.remedy
    assert "Did you mean 'text'?" in problem.remedy


def test_layouts_that_contradict_themselves(tmp_path: Path) -> None:
    """A right text without a left, a text twice, label and score together, a label that is the text."""
    source = jsonl(tmp_path, {"text": "a", "label": "b"})
    assert "data.text does not name the left" in only(source, Layout(pair="text")).message
    assert "same column 'text'" in only(source, Layout(text="text", pair="text")).message
    twice = Layout(text="text", pair="label", negative="label")
    assert "data.pair and data.negative name the same column 'label'" in only(source, twice).message
    assert "both set" in only(source, Layout(label="label", score="label")).message
    assert "a text already" in only(source, Layout(text="text", label="text")).message


@pytest.mark.parametrize(
    "columns",
    [
        ("title", "body"),
        ("sentence1", "sentence2", "question1", "question2"),
        ("query", "answer", "doc"),
        ("text", "sentence1", "sentence2"),
    ],
)
def test_ambiguity(tmp_path: Path, columns: tuple[str, ...]) -> None:
    """Several candidates are one problem that lists the columns and names the keys to set."""
    problem = only(jsonl(tmp_path, dict.fromkeys(columns, "x")))
    assert "not clear which column" in problem.message
    assert all(repr(name) in problem.message for name in columns)
    assert all(word in problem.remedy for word in ("data.text", "--text", "data.pair", "--pair", "data.columns"))


def test_nothing_recognized(tmp_path: Path) -> None:
    """No candidate is one problem that lists the columns."""
    problem = only(jsonl(tmp_path, {"foo": "x", "bar": "y"}))
    assert "no column is recognized as the text among the columns found: 'foo', 'bar'" in problem.message
    assert "data.text (--text)" in problem.remedy


def test_text_wins_among_single_names(tmp_path: Path) -> None:
    """A column named text settles the matter beside a title."""
    assert read(jsonl(tmp_path, {"title": "t", "text": "x"})).texts == (["x"],)


def test_fractions_under_label_in_pairs_are_scores(tmp_path: Path) -> None:
    """A label column of pairs that holds fractions is read as scores, with a note; whole ones are not."""
    rows = [{"sentence1": "a", "sentence2": "b", "label": value} for value in (1, 2.5, 3)]
    records = read(jsonl(tmp_path, *rows))
    assert records.scores == [1.0, 2.5, 3.0]
    assert any("has fractions" in note for note in records.notes)
    assert read(jsonl(tmp_path, rows[0], rows[2])).labels == ["1", "3"]
    assert {p.message for p in refused(jsonl(tmp_path, *rows), Layout(label="label"))} == {
        "the label is neither a name nor a whole number"
    }
    mixed = [*rows, {"sentence1": "a", "sentence2": "b", "label": "yes"}]
    assert only(jsonl(tmp_path, *mixed)).line == 2


@pytest.mark.parametrize("blank", [None, "", "  "])
@pytest.mark.parametrize(("names", "value"), [(("sentence1", "sentence2"), 0.5), (("query", "doc"), 2)])
def test_a_blank_among_numbers_does_not_make_classes_of_them(
    tmp_path: Path, names: tuple[str, str], value: float, blank: str | None
) -> None:
    """Graded pairs and rankings whose row without a value is dropped keep their scores."""
    rows = [{names[0]: f"a{n}", names[1]: "b", "qid": n} for n in range(3)]
    if names[0] != "query":
        rows = [{name: row[name] for name in names} for row in rows]
    source = jsonl(tmp_path, *({**row, "label": said} for row, said in zip(rows, (value, blank, 1), strict=True)))
    records = read(source, invalid="drop")
    assert (records.labels, records.scores) == (None, [value, 1.0])


def test_fractions_under_label_of_single_texts_are_refused(tmp_path: Path) -> None:
    """A label 0.5 of a single text is no class; the remedy names data.score."""
    problem = only(jsonl(tmp_path, {"text": "a", "label": 0.5}))
    assert (problem.line, problem.column, problem.value) == (1, "label", "0.5")
    assert "data.score (--score)" in problem.remedy


TEXT_FAULTS = {
    '""': "the text is empty",
    '" \\t\\n"': "the text is empty",
    "null": "the text is missing",
    "5": "the text is not a string",
    "true": "the text is not a string",
    '["a"]': "the text is not a string",
    '{"a": 1}': "the text is not a string",
    "NaN": "the text is not a string",
    '"\\ud800"': "the text has half of a surrogate pair, which is no character",
}


@pytest.mark.parametrize("value", TEXT_FAULTS)
@pytest.mark.parametrize("column", ["text_a", "text_b"])
def test_texts_that_cannot_be_used(tmp_path: Path, value: str, column: str) -> None:
    """Each is reported with line, column and value, in either column of a pair, and can be dropped."""
    good = '{"text_a": "a", "text_b": "b"}\n'
    path = tmp_path / "a.jsonl"
    path.write_text(good + good.replace('"a"' if column == "text_a" else '"b"', value, 1) + good)
    problem = only(str(path))
    assert (problem.line, problem.column, problem.message) == (2, column, TEXT_FAULTS[value])
    assert problem.value is not None
    assert 'data.invalid = "drop"' in problem.remedy
    assert str(problem)
    kept = read(str(path), invalid="drop")
    assert kept.lines == [1, 3]
    assert kept.notes == (f"1 row dropped because {TEXT_FAULTS[value]} (first on line 2)",)


def test_missing_key_is_a_missing_text(tmp_path: Path) -> None:
    """A row without the key is reported like one with null."""
    assert only(jsonl(tmp_path, {"text": "a"}, {"id": 1})).message == "the text is missing"


LABELS = {
    '" spam "': "spam",
    "3": "3",
    "-1": "-1",
    "true": "true",
    "false": "false",
    "1.0": "1",
    "1e3": "1000",
    '"1.0"': "1.0",
    '"ünï"': "ünï",
    "9" * 30: "9" * 30,
}


@pytest.mark.parametrize("value", LABELS)
def test_labels(tmp_path: Path, value: str) -> None:
    """Strings stay but for blanks around, numbers and truth values get their name."""
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a", "label": {value}}}')
    assert read(str(tmp_path / "a.jsonl")).labels == [LABELS[value]]


@pytest.mark.parametrize(
    ("value", "label"),
    [("3", "3"), ("-1.00", "-1"), ("9" * 38, "9" * 38), ("0.5", values.NOT_LABEL), ("NaN", values.NO_LABEL)],
)
def test_decimals_are_labels_where_they_are_whole(value: str, label: object) -> None:
    """As databases export whole numbers to Parquet."""
    assert values.label_of(Decimal(value)) == label


def test_equal_labels_of_different_kinds(tmp_path: Path) -> None:
    """1, true, 1.0 and "1" are equal to Python but not all the same label."""
    rows = [{"text": "a", "label": label} for label in (1, True, 1.0, "1", 0, False)]
    assert read(jsonl(tmp_path, *rows)).labels == ["1", "true", "1", "1", "0", "false"]


def test_csv_labels_stay_text(tmp_path: Path) -> None:
    """1.0 in a CSV file is the name '1.0'."""
    (tmp_path / "a.csv").write_text("text,label\na,1.0\nb, 1 \n")
    assert read(str(tmp_path / "a.csv")).labels == ["1.0", "1"]


LABEL_FAULTS = {
    '""': "the label is missing",
    '"  "': "the label is missing",
    "null": "the label is missing",
    "NaN": "the label is missing",
    '["a", "b"]': "the label is a list, but other rows have one label each",
    "[]": "the label is a list, but other rows have one label each",
    "0.5": "the label is neither a name nor a whole number",
    "Infinity": "the label is neither a name nor a whole number",
    '{"a": 1}': "the label is neither a name nor a whole number",
    '"\\udfff"': "the label is neither a name nor a whole number",
}


@pytest.mark.parametrize("value", LABEL_FAULTS)
def test_labels_that_cannot_be_used(tmp_path: Path, value: str) -> None:
    """Each is reported with line and column, and can be dropped."""
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "a", "label": 1}}\n{{"text": "b", "label": {value}}}\n')
    problem = only(str(path))
    assert (problem.line, problem.column, problem.message) == (2, "label", LABEL_FAULTS[value])
    assert read(str(path), invalid="drop").labels == ["1"]


@pytest.mark.parametrize("value", ['"x"', '"0,5"', '"1_0"', "true", "[1]", "null", '""', "NaN", '"nan"', '"-inf"'])
def test_scores_that_cannot_be_used(tmp_path: Path, value: str) -> None:
    """A score is a finite number and nothing else."""
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "a", "score": "2.5"}}\n{{"text": "b", "score": {value}}}\n')
    problem = only(str(path))
    assert (problem.line, problem.column) == (2, "score")
    assert read(str(path), invalid="drop").scores == [2.5]


def test_labels_in_some_rows_only(tmp_path: Path) -> None:
    """Rows without the label that others have are problems, whether first or last."""
    assert [p.line for p in refused(jsonl(tmp_path, {"text": "a"}, {"text": "b", "label": "x"}, {"text": "c"}))] == [
        1,
        3,
    ]


def test_a_column_that_appears_late(tmp_path: Path) -> None:
    """A label that first appears far down is reported by the line, since all rows before lack it."""
    rows: list[object] = [{"text": str(i)} for i in range(1_500)]
    source = jsonl(tmp_path, *rows, {"text": "x", "id": 1}, {"text": "x", "label": "y"}, {"text": "x", "labels": "y"})
    problem = only(source)
    assert problem.line == 1_502
    assert "'label' appears first here" in problem.message
    assert len(read(source, need="text")) == 1_503


@pytest.mark.parametrize("late", [("label", "id"), ("id", "label"), ("id", "label", "labels", "no")])
def test_of_several_late_columns_the_one_that_matters_is_named(tmp_path: Path, late: tuple[str, ...]) -> None:
    """Others in the same row are of no account."""
    problem = only(
        jsonl(tmp_path, *({"text": str(i)} for i in range(1_001)), {"text": "x", **dict.fromkeys(late, "y")})
    )
    assert problem.line == 1_002
    assert "'label' appears first here" in problem.message


def test_one_class(tmp_path: Path) -> None:
    """A single class is refused only where labels are needed."""
    source = jsonl(tmp_path, {"text": "a", "label": "x"}, {"text": "b", "label": "x"})
    assert len(read(source)) == 2
    problem = only(source, need="label")
    assert "one class 'x'" in problem.message
    assert "data.label" in problem.remedy


def test_need(tmp_path: Path) -> None:
    """Texts alone pass over faulty labels; labels needed and not found are a problem."""
    source = jsonl(tmp_path, {"text": "a", "label": None}, {"text": "b", "label": 0.5})
    assert read(source, Layout(label="nowhere"), need="text").labels is None
    assert len(refused(source)) == 2
    problem = only(jsonl(tmp_path, {"text": "a", "foo": 1}), need="label")
    assert "no column is recognized as the label among the columns found: 'text', 'foo'" in problem.message
    assert "data.label (--label)" in problem.remedy
    assert "data.score (--score)" in problem.remedy
    assert read(jsonl(tmp_path, {"text": "a", "score": 1}), need="label").scores == [1.0]


def test_drop_counts_by_reason(tmp_path: Path) -> None:
    """Each dropped row is counted once, under its first reason."""
    source = jsonl(
        tmp_path,
        {"text": "", "label": None},
        {"text": "a", "label": "x"},
        {"text": "b", "label": ""},
        {"text": " ", "label": "x"},
    )
    assert len(refused(source)) == 4
    assert [p.line for p in refused(source)] == [1, 1, 3, 4]
    records = read(source, invalid="drop")
    assert records.lines == [2]
    assert records.notes == (
        "2 rows dropped because the text is empty (first on line 1)",
        "1 row dropped because the label is missing (first on line 3)",
    )


def test_drop_does_not_cover_the_structure(tmp_path: Path) -> None:
    """A line that is no JSON is refused still, and nothing left is refused too."""
    (tmp_path / "a.jsonl").write_text('{"text": ""}\nbad\n{"text": "a"}\n')
    assert [p.line for p in refused(str(tmp_path / "a.jsonl"), invalid="drop")] == [2]
    assert "no rows are left" in only(jsonl(tmp_path, {"text": ""}), invalid="drop").message


def test_all_problems_come_by_line(tmp_path: Path) -> None:
    """Faults of the file and of rows stand together in the order of lines."""
    (tmp_path / "a.jsonl").write_text('{"text": "", "label": 1}\nbad\n{"text": "a", "label": ""}\n[]\n{"text": 1}\n')
    assert [p.line for p in refused(str(tmp_path / "a.jsonl"))] == [1, 2, 3, 4, 5, 5]


def test_records() -> None:
    """Length, shape, target, a selection, and classes in order."""
    records = Records((["a", "b", "c"],), ["10", "9", "-1"], None, [1, 2, 3], "f", ("note",))
    assert (len(records), records.shape, records.target) == (3, "texts", "label")
    assert records.classes() == ("-1", "9", "10")
    part = records.take([2, 0])
    assert (part.texts, part.labels, part.lines, part.notes) == ((["c", "a"],), ["-1", "10"], [3, 1], ("note",))
    assert Records((["a", "b"],), ["b", "10"], None, [1, 2], "f").classes() == ("10", "b")
    assert Records((["a", "b"],), ["1_0", "9"], None, [1, 2], "f").classes() == ("1_0", "9")
    assert Records((["a"],), ["9" * 5_000], None, [1], "f").classes() == ("9" * 5_000,)
    pairs = Records((["a"], ["b"]), None, [0.5], [1], "f")
    assert (pairs.shape, pairs.target, pairs.classes()) == ("pairs", "score", ())
    assert pairs.take([0]).scores == [0.5]
    assert Records((["a"],), None, None, [1], "f").target is None


def test_fingerprints() -> None:
    """Equal contents give equal fingerprints, any difference another; lines and source do not count."""
    base = Records((["ab", "c"],), ["x", "y"], None, [1, 2], "f")
    assert base.fingerprint() == Records((["ab", "c"],), ["x", "y"], None, [3, 4], "g").fingerprint()
    others = [
        Records((["a", "bc"],), ["x", "y"], None, [1, 2], "f"),
        Records((["ab", "c"],), ["x", "z"], None, [1, 2], "f"),
        Records((["ab", "c"],), None, None, [1, 2], "f"),
        Records((["ab", "c"],), None, [0.0, 1.0], [1, 2], "f"),
        Records((["ab", "c"],), None, [0.0, 2.0], [1, 2], "f"),
        Records((["ab", "c"], ["x", "y"]), None, None, [1, 2], "f"),
        Records((["c", "ab"],), ["y", "x"], None, [1, 2], "f"),
    ]
    assert len({records.fingerprint() for records in [base, *others]}) == 1 + len(others)
