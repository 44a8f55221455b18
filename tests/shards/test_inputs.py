"""Files in ranges: all ranges together are the rows that the readers of whole files give, with their lines."""

from __future__ import annotations

import gzip
import json

import pytest

from nearfar.data import rows
from nearfar.data.records import Layout
from nearfar.data.values import Issues
from nearfar.errors import DataError
from nearfar.shards.inputs import columns_of_file, ranges_of, rows_of_range
from tests.shards.conftest import texts, write_corpus

CSV = 'id,text\n1,plain\n2,"with, comma"\n\n3,"two\nlines ""quoted"""\n4,5 inch\n5,"end"\n'
FILES = {
    "a.csv": CSV,
    "mark.csv": "\ufeff" + CSV,
    "no-end.csv": CSV.rstrip("\n"),
    "semicolons.csv": CSV.replace(",", ";"),
    "sep.csv": "sep=;\n" + CSV.replace(",", ";"),
    "windows.csv": CSV.replace("\n", "\r\n"),
    "a.tsv": 'id\ttext\n1\tone\n2\t"two\n3\tthree\n\n4\tfour\n',
    "a.jsonl": "".join(json.dumps({"text": text}) + "\n" for text in texts(7)) + "\n\n",
    "no-end.jsonl": "\n".join(json.dumps({"text": text}) for text in texts(5)),
    "a.txt": "one\n\ntwo\nthree\n\n\nfour",
    "latin.txt": "one\ntwo\nthr\u00e9e\nfour\n",
    "wide.txt": "one\ntwo\nthree\n",
    "one.txt": "one",
}
ENCODINGS = {"latin.txt": "cp1252", "wide.txt": "utf-16"}


def whole(path):
    problems: list = []
    found = list(rows(str(path), problems=problems))
    assert not problems
    return found


def in_ranges(path, size):
    issues = Issues(str(path))
    found = [
        row for part in ranges_of(str(path), size, Layout()) for row in rows_of_range(str(path), part, Layout(), issues)
    ]
    assert not issues.problems
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_the_ranges_of_a_text_file_are_its_rows(tmp_path, name, packed, size):
    """Quoted line breaks, headers, blank lines, marks and other encodings included, compressed or not."""
    content = FILES[name].encode(ENCODINGS.get(name, "utf-8"))
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(content) if packed else content)
    assert in_ranges(path, size) == whole(path)
    if name == "a.jsonl" and size < 3:
        assert len(ranges_of(str(path), size, Layout())) >= 4


@pytest.mark.parametrize("size", [1, 7, 16, 20, 1000])
def test_the_ranges_of_a_parquet_file_are_its_rows(tmp_path, size):
    """Whether they end at the row groups or not."""
    path = write_corpus(tmp_path, 1) / "0.parquet"
    assert in_ranges(path, size) == whole(path)
    assert len(ranges_of(str(path), size, Layout())) == -(-50 // size)


def test_only_the_columns_that_are_needed_are_read(tmp_path):
    """Of a Parquet file."""
    path = write_corpus(tmp_path, 1) / "0.parquet"
    part = ranges_of(str(path), 10, Layout())[1]
    found = list(rows_of_range(str(path), part, Layout(), Issues("x"), ["text"]))
    assert found[0] == (11, {"text": texts(1, 10)[0]})
    assert columns_of_file(str(path), Layout()) == ["id", "text"]


def test_problems_have_the_line_of_the_file(tmp_path):
    """Not that of the range."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n{"text": "b"}\n{"text": \n{"text": "d"}\n')
    issues = Issues(str(path))
    parts = ranges_of(str(path), 2, Layout())
    assert [line for part in parts for line, _ in rows_of_range(str(path), part, Layout(), issues)] == [1, 2, 4]
    assert [problem.line for problem in issues.problems] == [3]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.parquet", b"no", "not a Parquet file that can be read"),
        ("a.txt.gz", b"no", "it cannot be read"),
        ("b.txt.gz", gzip.compress(b"text\n" * 1000, mtime=0)[:-20], "ends too early"),
        ("a.json", b"[]", r"not read in parts \(.json\)"),
        ("a.doc", b"", "Supported: .csv"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name, content, message):
    """With its name, and in one sentence."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        ranges_of(str(tmp_path / name), 10, Layout())
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_an_empty_file_has_no_ranges(tmp_path):
    """And is no reason to stop."""
    (tmp_path / "a.txt").write_text("")
    assert ranges_of(str(tmp_path / "a.txt"), 10, Layout()) == []
