"""Looking over a source, and one source beside another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nearfar.data import Layout, Records, compare, examine


def single(texts: list[str], labels: list[str] | None, source: str = "train.csv") -> Records:
    return Records((texts,), labels, None, list(range(2, 2 + len(texts))), source)


def test_examination(tmp_path: Path) -> None:
    """Everything that is in a file and everything doubtful about it, with lines, and as JSON."""
    rows = [
        '{"text": "a", "label": 1}',
        '{"text": "b", "label": 2}',
        "",
        '{"text": "a", "label": 1}',
        '{"text": "a", "label": 2}',
        '{"text": "", "label": 1}',
        '{"text": "c", "label": null}',
        '{"text": "  ", "label": ""}',
        '{"text": "a", "label": 1}',
        '{"text": "A", "label": 10}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    found = examine("a.jsonl", base=tmp_path)
    assert (found.source, found.rows, found.usable) == ("a.jsonl", 9, 6)
    assert (found.shape, found.target) == ("texts", "label")
    assert list(found.classes.items()) == [("1", 3), ("2", 2), ("10", 1)]
    assert found.blank_lines == 1
    assert found.empty == (6, 8)
    assert (found.duplicates.count, found.duplicates.examples) == (2, ((1, 4), (1, 9)))
    assert found.conflict_count == 1
    assert (found.conflicts[0].labels, found.conflicts[0].lines) == (("1", "2"), (1, 5))
    assert found.dropped == {"the text is empty": 2, "the label is missing": 1}
    assert [problem.line for problem in found.problems] == [6, 7, 8, 8]
    assert not found.structural
    thin = "1 of 3 classes has a single row ('10'): give each at least two; 8 or more are usual"
    assert found.notes == ("1 blank line skipped", thin)
    again = json.loads(json.dumps(found.to_dict()))
    assert again["problems"][0]["line"] == 6
    assert again["classes"] == {"1": 3, "2": 2, "10": 1}
    assert again["duplicates"] == {"count": 2, "examples": [[1, 4], [1, 9]]}


@pytest.mark.parametrize(
    ("rows", "notes"),
    [
        ("a,x\nb,x\n", ("all rows have the one class 'x': add rows of another class, or name another --label",)),
        ("a,x\nb,y\n", ("2 of 2 classes have a single row ('x', 'y'): give each at least two; 8 or more are usual",)),
        ("a,x\nb,y\nc,x\nd,y\n", ()),
    ],
)
def test_classes_that_teach_little_are_told(tmp_path: Path, rows: str, notes: tuple[str, ...]) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + rows)
    (tmp_path / "pairs.csv").write_text("text_a,text_b,label\na,b,1\nc,d,1\n")
    assert examine("a.csv", base=tmp_path).notes == notes
    assert not any("class" in note for note in examine("pairs.csv", base=tmp_path).notes)


def test_examination_of_scored_pairs(tmp_path: Path) -> None:
    """Pairs repeat when both texts and the score do; scores make no conflicts."""
    (tmp_path / "a.csv").write_text("sentence1,sentence2,score\na,b,0\na,b,0\na,b,1\nb,a,1\n")
    found = examine(str(tmp_path / "a.csv"))
    assert (found.shape, found.target, found.classes) == ("pairs", "score", {})
    assert (found.duplicates.examples, found.conflict_count) == (((2, 3),), 0)


def test_examination_of_plain_texts(tmp_path: Path) -> None:
    """Texts without labels repeat too."""
    (tmp_path / "a.txt").write_text("a\nb\na\n")
    found = examine(str(tmp_path / "a.txt"))
    assert (found.target, found.duplicates.examples) == (None, ((1, 3),))


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [("none.csv", None, 0), ("a.csv", "", 0), ("a.csv", "foo,bar\n1,2\n", 1), ("a.csv", "text,text\n1,2\n", 0)],
)
def test_examination_never_raises(tmp_path: Path, name: str, content: str | None, rows: int) -> None:
    """A source that cannot be read at all is its own problem."""
    if content is not None:
        (tmp_path / name).write_text(content)
    found = examine(name, Layout(), tmp_path)
    assert (found.rows, found.usable, found.shape, found.structural) == (rows, 0, None, True)
    assert len(found.problems) == 1
    json.dumps(found.to_dict())


def test_labels_that_training_does_not_have() -> None:
    """One problem for each label, with its first line, its count and the labels there are."""
    train = single(["a", "b"], ["x", "y"])
    other = single(["c", "d", "e", "f"], ["x", "z", "Z", "z"], "dev.csv")
    problems, notes = compare(train, other, "dev")
    assert [(p.where, p.line, p.value) for p in problems] == [("dev.csv", 3, "z"), ("dev.csv", 4, "Z")]
    assert "2 dev rows" in problems[0].message
    assert "1 dev row" in problems[1].message
    assert "'x', 'y'" in problems[0].remedy
    assert notes == []
    assert compare(train, single(["q"], ["x"]), "test") == ([], [])


def test_like_and_unlike_are_no_classes() -> None:
    """Positive pairs can be evaluated on pairs with binary labels, whatever these are called."""
    train = Records((["a"], ["b"]), ["1"], None, [1], "train")
    dev = Records((["c", "d"], ["e", "f"]), ["yes", "no"], None, [1, 2], "dev")
    assert compare(train, dev, "dev", classes=False) == ([], [])
    assert [problem.value for problem in compare(train, dev, "dev")[0]] == ["yes", "no"]


def test_sources_that_do_not_match() -> None:
    """Another shape and another target are problems."""
    train = single(["a"], ["x"])
    pairs = Records((["a"], ["b"]), ["x"], None, [1], "test.csv")
    problems, _ = compare(train, pairs, "test")
    assert "the test rows are pairs but the training rows are single texts" in problems[0].message
    scored = Records((["b"],), None, [0.5], [1], "test.csv")
    problems, _ = compare(train, scored, "test")
    assert [p.message for p in problems] == ["the test rows have scores but the training rows have labels"]
    problems, _ = compare(train, single(["b"], None), "test")
    assert "neither labels nor scores" in problems[0].message
    assert len(compare(train, Records((["a"], ["b"]), None, None, [1], "t"), "dev")[0]) == 2


def test_texts_that_are_in_training_too() -> None:
    """Shared texts, case and blanks apart, are a note with their count and lines of both."""
    train = single(["Hello  there", "b", "hello there"], ["x", "y", "x"])
    problems, notes = compare(train, single(["c", "hello There ", "B"], ["x", "x", "y"], "dev.csv"), "dev")
    assert problems == []
    assert len(notes) == 1
    assert "2 dev rows" in notes[0]
    assert "line 3 as line 2, line 4 as line 3" in notes[0]
    pairs = Records((["a"], ["b"]), None, None, [1], "p")
    assert compare(pairs, Records((["a"], ["c"]), None, None, [1], "q"), "dev") == ([], [])


def test_pairs_that_are_in_training_the_other_way_round() -> None:
    """Swapped pairs are shared; so are triplets with the same anchor and positive; rankings have an order."""
    train = Records((["a", "c"], ["b", "d"]), None, None, [1, 2], "train")
    _, notes = compare(train, Records((["B", "c"], ["a", "a"]), None, None, [7, 8], "dev"), "dev")
    assert len(notes) == 1
    assert "1 dev row also in the training data train (such as line 7 as line 1)" in notes[0]
    triplets = Records((["a"], ["b"], ["x"]), None, None, [1], "train")
    _, notes = compare(triplets, Records((["b"], ["a"], ["y"]), None, None, [3], "test"), "test")
    assert "1 test row" in notes[0]
    ranked = Records((["a"], ["b"]), None, [1.0], [1], "train", queries=["1"], documents=["1"])
    swapped = Records((["b"], ["a"]), None, [1.0], [1], "dev", queries=["1"], documents=["1"])
    assert compare(ranked, swapped, "dev") == ([], [])


def test_queries_that_are_in_training_too() -> None:
    """Counted by query, whatever their documents and ids are."""
    train = Records((["a", "a", "b"], ["x", "y", "z"]), None, [1.0] * 3, [1, 2, 3], "t", queries=["1", "1", "2"])
    dev = Records((["c", "A", "a"], ["x", "u", "v"]), None, [1.0] * 3, [5, 6, 7], "d", queries=["1", "9", "9"])
    problems, notes = compare(train, dev, "dev")
    assert problems == []
    assert notes == [
        "d: 1 dev query also in the training data t (such as line 6 as line 1): a result on it says little"
    ]


@pytest.mark.parametrize(
    ("columns", "queries", "named"), [(3, None, "triplets"), (2, ["q"], "queries with documents"), (2, None, "pairs")]
)
def test_shapes_that_do_not_match_are_named(columns: int, queries: list[str] | None, named: str) -> None:
    """Every shape has a name in the message."""
    other = Records((["a"],) * columns, None, None, [1], "dev", queries=queries)
    problems, _ = compare(single(["a"], None), other, "dev")
    assert [p.message for p in problems] == [f"the dev rows are {named} but the training rows are single texts"]
