"""Triplets, rankings, corpora and files of queries: which columns they are read from, and what they must hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nearfar.data import Layout, Records, examine, read
from nearfar.data.table import ANCHORS, DOC_IDS, QUERY_IDS, TRIPLETS
from nearfar.errors import DataError, Problem

ROW = {"query_id": "q1", "query": "who", "doc_id": "d1", "doc": "he", "relevance": 1}


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


# Triplets


@pytest.mark.parametrize(
    "names",
    [
        *((anchor, positive, negative) for anchor in ANCHORS for positive in ("positive", "pos") for negative in ("negative", "neg")),
        *TRIPLETS,
    ],
)  # fmt: skip
def test_triplets_are_recognized(tmp_path: Path, names: tuple[str, str, str]) -> None:
    """By every usual name, in the order anchor, positive, negative whatever the order of columns."""
    row = {names[2]: "n", names[0].upper(): "a", "source": "s", f" {names[1].title()} ": "p"}
    records = read(jsonl(tmp_path, row))
    assert (records.shape, records.texts, records.target) == ("triplets", (["a"], ["p"], ["n"]), None)
    assert records.notes == ("columns that are not used: 'source'",)


def test_an_anchor_leaves_no_doubt_and_others_do(tmp_path: Path) -> None:
    """A column named anchor wins over other anchors; two others are one problem that lists both triplets."""
    row = {"query": "q", "text": "t", "positive": "p", "negative": "n"}
    assert read(jsonl(tmp_path, {**row, "anchor": "a"})).texts[0] == ["a"]
    problem = only(jsonl(tmp_path, row))
    assert (
        "the triplet 'query', 'positive', 'negative' or the triplet 'text', 'positive', 'negative'" in problem.message
    )


def test_a_labeled_text_beside_the_odds_of_its_classes_is_no_triplet(tmp_path: Path) -> None:
    """Columns named positive and negative may hold numbers about a text that has a label."""
    records = read(jsonl(tmp_path, {"text": "a", "label": "good", "positive": 0.9, "negative": 0.1}))
    assert (records.shape, records.labels) == ("texts", ["good"])
    assert read(jsonl(tmp_path, {"text": "a", "x": "good", "positive": 1, "negative": 0}), Layout(label="x")).shape == (
        "texts"
    )
    assert read(jsonl(tmp_path, {"anchor": "a", "score": 1, "positive": "p", "negative": "n"})).shape == "triplets"


def test_told_triplets(tmp_path: Path) -> None:
    """Three named columns are a triplet, two of them a pair; half of what is needed is refused."""
    source = jsonl(tmp_path, {"u": "a", "v": "p", "w": "n"})
    assert read(source, Layout("u", "v", negative="w")).texts == (["a"], ["p"], ["n"])
    assert read(source, Layout("u", "v")).shape == "pairs"
    for layout in (Layout(negative="w"), Layout("u", negative="w")):
        assert "do not name anchor and positive" in only(source, layout).message
    assert "data.pair and data.negative name the same" in only(source, Layout("u", "v", negative="v")).message
    assert "Set data.negative to" in only(source, Layout("u", "v", negative="z")).remedy
    assert read(
        jsonl(tmp_path, {"anchor": "a", "positive": "p", "negative": "n"}), Layout("anchor", "positive")
    ).shape == ("pairs")


def test_a_triplet_with_a_hole_is_told_by_column(tmp_path: Path) -> None:
    """Any of the three texts may be at fault; lists of negatives are not read."""
    rows = [{"anchor": "a", "positive": "p", "negative": "n"} for _ in range(4)]
    rows[0]["anchor"] = ""
    rows[1]["positive"] = None  # type: ignore[assignment]
    rows[2]["negative"] = ["n", "m"]  # type: ignore[assignment]
    source = jsonl(tmp_path, *rows)
    assert [(p.line, p.column) for p in refused(source)] == [(1, "anchor"), (2, "positive"), (3, "negative")]
    assert read(source, invalid="drop").lines == [4]


# Rankings


def test_a_ranking_is_read_with_its_ids(tmp_path: Path) -> None:
    """Queries and documents are the texts, the relevance is the score, ids are kept as text."""
    rows = [ROW, {**ROW, "doc_id": 2, "doc": "she", "relevance": "0.5"}, {**ROW, "query_id": 7, "query": "what"}]
    records = read(jsonl(tmp_path, *rows))
    assert (records.shape, records.target) == ("ranking", "score")
    assert records.texts == (["who", "who", "what"], ["he", "she", "he"])
    assert records.scores == [1.0, 0.5, 1.0]
    assert (records.queries, records.documents) == (["q1", "q1", "7"], ["d1", "2", "d1"])
    assert records.notes == ()
    part = records.take([2, 0])
    assert (part.queries, part.documents, part.shape) == (["7", "q1"], ["d1", "d1"], "ranking")


@pytest.mark.parametrize("query_id", QUERY_IDS)
@pytest.mark.parametrize("doc_id", DOC_IDS)
def test_ids_are_recognized(tmp_path: Path, query_id: str, doc_id: str) -> None:
    """By every usual name, whatever the texts are called."""
    records = read(jsonl(tmp_path, {query_id.upper(): 1, "sentence1": "a", doc_id: 2, "sentence2": "b"}))
    assert (records.shape, records.queries, records.documents, records.target) == ("ranking", ["1"], ["2"], None)


def test_told_ids(tmp_path: Path) -> None:
    """Named columns are read as ids; a wrong name and a name used twice are refused."""
    source = jsonl(tmp_path, {"a": "x", "b": "y", "q": 1, "d": 2, "g": 3})
    records = read(source, Layout("a", "b", score="g", query_id="q", doc_id="d"))
    assert (records.shape, records.queries, records.documents, records.scores) == ("ranking", ["1"], ["2"], [3.0])
    assert "Set data.doc_id to" in only(source, Layout("a", "b", doc_id="z")).remedy
    assert "name the same column" in only(source, Layout("a", "b", query_id="q", doc_id="q")).message
    assert "a text or a target already" in only(source, Layout("a", "b", query_id="a")).message
    corpus = read(source, Layout("a", doc_id="d"))
    assert (corpus.shape, corpus.documents, corpus.queries) == ("texts", ["2"], None)


def test_ids_that_are_not_there_come_from_the_texts(tmp_path: Path) -> None:
    """The same for texts that say the same, and the same in another file."""
    rows = [{"query": q, "doc": d, "relevance": 1} for q, d in (("Who", "a"), ("who ", "b"), ("what", "A"))]
    records = read(jsonl(tmp_path, *rows))
    assert records.shape == "ranking"
    assert records.queries is not None
    assert records.documents is not None
    assert records.queries[0] == records.queries[1] != records.queries[2]
    assert records.documents[0] == records.documents[2] != records.documents[1]
    again = read(jsonl(tmp_path, *reversed(rows)))
    assert again.queries == records.queries[::-1]
    half = read(jsonl(tmp_path, {name: value for name, value in ROW.items() if name != "query_id"}))
    assert (half.shape, half.documents) == ("ranking", ["d1"])


@pytest.mark.parametrize(
    ("row", "shape", "target"),
    [
        ({"query": "a", "doc": "b"}, "pairs", None),
        ({"query": "a", "answer": "b", "label": 1}, "pairs", "label"),
        ({"query": "a", "document": "b", "score": 0.5}, "pairs", "score"),
        ({"text_a": "a", "text_b": "b", "relevance": 1}, "pairs", "label"),
        ({"doc_id": 1, "premise": "a", "hypothesis": "b", "label": "x"}, "pairs", "label"),
        ({"query": "a", "passage": "b", "rel": 1}, "ranking", "score"),
        ({"query_id": 1, "query": "a", "doc": "b", "label": 1}, "ranking", "score"),
        ({"query_id": 1, "query": "a", "doc": "b", "label": "good"}, "pairs", "label"),
        ({"query_id": 1, "query": "a", "doc": "b", "score": 9.5, "relevance": 1}, "ranking", "score"),
    ],
)
def test_what_makes_a_ranking(tmp_path: Path, row: dict[str, object], shape: str, target: str | None) -> None:
    """Ids of queries, or a relevance beside a query; pairs without them stay pairs."""
    records = read(jsonl(tmp_path, row))
    assert (records.shape, records.target) == (shape, target)
    if "relevance" in row and shape == "ranking":
        assert records.scores == [1.0]


def test_a_ranking_told_to_be_classes_is_pairs(tmp_path: Path) -> None:
    """With data.label the relevance is a class; ids stay, for splits, unless they are no ids."""
    records = read(jsonl(tmp_path, ROW), Layout(label="relevance"))
    assert (records.shape, records.labels, records.queries) == ("pairs", ["1"], ["q1"])
    records = read(jsonl(tmp_path, ROW, {**ROW, "query_id": None}), Layout(label="relevance"))
    assert (len(records), records.queries) == (2, None)
    assert records.notes == ("column 'query_id' is not used: the id is missing on line 2",)


def test_texts_alone_come_without_ids(tmp_path: Path) -> None:
    """need="text" reads a ranking as plain pairs, whatever its ids and grades are worth."""
    records = read(jsonl(tmp_path, {**ROW, "query_id": None, "relevance": "x"}), need="text")
    assert (records.shape, records.queries, records.documents) == ("pairs", None, None)


@pytest.mark.parametrize(
    ("change", "column", "message"),
    [
        ({"relevance": -1}, "relevance", "the relevance is below 0"),
        ({"relevance": "x"}, "relevance", "the score is not a number"),
        ({"relevance": None}, "relevance", "the score is missing"),
        ({"query_id": ""}, "query_id", "the id is missing"),
        ({"doc_id": None}, "doc_id", "the id is missing"),
        ({"doc_id": [1]}, "doc_id", "the id is neither a name nor a whole number"),
        ({"query_id": 0.5}, "query_id", "the id is neither a name nor a whole number"),
        ({"doc": " "}, "doc", "the text is empty"),
    ],
)
def test_rows_of_a_ranking_that_cannot_be_used(
    tmp_path: Path, change: dict[str, object], column: str, message: str
) -> None:
    """Each is reported by line and column, and can be dropped."""
    source = jsonl(tmp_path, ROW, {**ROW, **change}, {**ROW, "doc_id": "d2"})
    problem = only(source)
    assert (problem.line, problem.column, problem.message) == (2, column, message)
    assert 'data.invalid = "drop"' in problem.remedy
    assert read(source, invalid="drop").documents == ["d1", "d2"]


def test_a_query_id_with_two_texts_is_refused_with_both_lines(tmp_path: Path) -> None:
    """Once for each other text, even when bad rows are dropped; case and blanks make no other text."""
    rows = [ROW, {**ROW, "query": " WHO"}, {**ROW, "query": "what"}, {**ROW, "query": "what"}, {**ROW, "query": "why"}]
    for invalid in ("refuse", "drop"):
        problems = refused(jsonl(tmp_path, *rows), invalid=invalid)
        assert [(p.line, p.column, p.value) for p in problems] == [(3, "query_id", "q1"), (5, "query_id", "q1")]
        assert all("another text on line 1" in p.message for p in problems)
        assert "its own id" in problems[0].remedy


def test_a_document_id_names_one_text_of_a_query(tmp_path: Path) -> None:
    """Ids may be numbered anew for each query, which is noted; two texts under one query are refused."""
    other = {**ROW, "query_id": "q2", "query": "what", "doc": "it"}
    assert read(jsonl(tmp_path, ROW, other)).notes == (
        "document ids are unique within a query only: 'd1' has two texts (lines 1 and 2)",
    )
    problem = only(jsonl(tmp_path, ROW, {**ROW, "doc": "it"}))
    assert (problem.line, problem.column, problem.value) == (2, "doc_id", "d1")
    assert "the id of a document that has another text on line 1" in problem.message


# Corpora and files of queries


@pytest.mark.parametrize("name", ["doc", "document", "passage", "text"])
def test_a_corpus_keeps_its_ids(tmp_path: Path, name: str) -> None:
    """The document is the text even beside a title."""
    records = read(jsonl(tmp_path, {"doc_id": "v0", name: "a", "title": "t"}, {"doc_id": 1, name: "b", "title": "t"}))
    assert (records.shape, records.texts, records.documents) == ("texts", (["a", "b"],), ["v0", "1"])
    assert (records.queries, records.notes) == (None, ("columns that are not used: 'title'",))


@pytest.mark.parametrize("name", ["query", "question", "text"])
def test_a_file_of_queries_keeps_its_ids(tmp_path: Path, name: str) -> None:
    """The query is the text."""
    records = read(jsonl(tmp_path, {"query_id": "q0", name: "a", "title": "t"}))
    assert (records.shape, records.texts, records.queries) == ("texts", (["a"],), ["q0"])
    assert records.documents is None


def test_ids_of_a_corpus_that_name_two_texts(tmp_path: Path) -> None:
    """Refused where they must be ids; plain texts beside a number that happens to be named so are read without."""
    rows = [{"doc_id": 1, "doc": "a"}, {"doc_id": 1, "doc": "b"}]
    problem = only(jsonl(tmp_path, *rows))
    assert (problem.line, problem.column, problem.value) == (2, "doc_id", "1")
    assert only(jsonl(tmp_path, {"query_id": 1, "query": "a"}, {"query_id": 1, "query": "b"})).line == 2
    sentences = jsonl(tmp_path, {"doc_id": 1, "text": "a"}, {"doc_id": 1, "text": "b"})
    records = read(sentences)
    assert (len(records), records.documents) == (2, None)
    assert records.notes == ("column 'doc_id' is not used: '1' has two texts (lines 1 and 2)",)
    assert "another text on line 1" in only(sentences, Layout("text", doc_id="doc_id")).message
    labeled = read(jsonl(tmp_path, {"doc_id": None, "text": "a", "label": 1}))
    assert (labeled.documents, labeled.notes) == (None, ("columns that are not used: 'doc_id'",))


# Pairs and rated texts


@pytest.mark.parametrize("extra", [{}, {"label": 1}])
def test_positives_alone_are_pairs(tmp_path: Path, extra: dict[str, object]) -> None:
    """Without a label, or with 1 in every row."""
    records = read(jsonl(tmp_path, *({"text_a": "a", "text_b": str(n), **extra} for n in range(3))))
    assert (records.shape, records.labels) == ("pairs", ["1"] * 3 if extra else None)
    assert records.scores is None


def test_rated_texts(tmp_path: Path) -> None:
    """Single texts with scores below 0, too."""
    records = read(jsonl(tmp_path, {"text": "a", "score": -3.7}))
    assert (records.shape, records.scores) == ("texts", [-3.7])


# Records


def test_fingerprint_and_equality_see_the_ids() -> None:
    """Ids are part of the rows, and which kind they are."""
    base = Records((["a"],), None, None, [1], "f")
    others = [replace(base, queries=["x"]), replace(base, documents=["x"]), replace(base, documents=["y"])]
    assert len({each.fingerprint() for each in (base, *others)}) == 4
    assert others[0].take([0]) == others[0]
    assert base.fingerprint() == Records((["a"],), None, None, [3], "g").fingerprint()


def test_split_keys() -> None:
    """A swapped pair is the same pair, a triplet its anchor and positive; a ranking has an order."""
    two = (["B ", "a"], ["a", "b"])
    assert Records(two, None, None, [1, 2], "f").split_keys() == [("a", "b"), ("a", "b")]
    assert Records((*two, ["x", "y"]), None, None, [1, 2], "f").split_keys() == [("a", "b"), ("a", "b")]
    ranking = Records(two, None, None, [1, 2], "f", queries=["1", "2"], documents=["1", "2"])
    assert ranking.split_keys() == ranking.normalized_texts() == [("b", "a"), ("a", "b")]


def test_examination_of_a_ranking(tmp_path: Path) -> None:
    """How many queries there are and how many have no answer, also as a note."""
    rows = [ROW, {**ROW, "query_id": "q2", "query": "x", "relevance": 0}, {**ROW, "query_id": "q3", "query": "y"}]
    found = examine(jsonl(tmp_path, *rows))
    assert (found.shape, found.target, found.queries, found.without_positive) == ("ranking", "score", 3, 1)
    assert found.notes == ("1 query of 3 without a relevant document (such as 'q2' on line 2)",)
    assert not found.problems
    found = examine(jsonl(tmp_path, {"text_a": "a", "text_b": "b", "label": 0}))
    assert "1 pair, but none of them is positive: add positive pairs" in found.notes[0]
    assert not found.problems
