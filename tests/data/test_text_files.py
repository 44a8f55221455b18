"""CSV, TSV, JSON Lines, JSON and plain lines: what is read, and on which line it stands."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from pathlib import Path

import pytest

from nearfar.data import Layout, Records, read, rows
from nearfar.data.values import MAX_PROBLEMS
from nearfar.errors import DataError, Problem, SettingError


def put(folder: Path, name: str, content: str | bytes) -> str:
    raw = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
    return str(folder / name)


def refused(source: str, *arguments: object, **settings: object) -> tuple[Problem, ...]:
    with pytest.raises(DataError) as caught:
        read(source, *arguments, **settings)  # type: ignore[arg-type]
    assert caught.value.problems
    assert all(problem.where == source for problem in caught.value.problems)
    return caught.value.problems


def only(source: str, *arguments: object, **settings: object) -> Problem:
    problems = refused(source, *arguments, **settings)
    assert len(problems) == 1, problems
    return problems[0]


CONTENT = {
    "a.csv": "text,label\none,x\ntwo,y\n",
    "a.tsv": "text\tlabel\none\tx\ntwo\ty\n",
    "a.jsonl": '{"text": "one", "label": "x"}\n{"text": "two", "label": "y"}\n',
    "a.ndjson": '{"text": "one", "label": "x"}\n{"text": "two", "label": "y"}',
    "a.json": '[\n{"text": "one", "label": "x"},\n\n{"text": "two",\n "label": "y"}]\n',
}


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("name", sorted(CONTENT))
def test_every_text_format_gives_the_same_rows(tmp_path: Path, name: str, ending: str) -> None:
    """The same rows in any format, packed or not, have the same fingerprint."""
    records = read(put(tmp_path, name + ending, CONTENT[name]))
    assert records.texts == (["one", "two"],)
    assert records.labels == ["x", "y"]
    assert records.fingerprint() == Records((["one", "two"],), ["x", "y"], None, [1, 2], "").fingerprint()
    assert records.lines == {"a.csv": [2, 3], "a.tsv": [2, 3], "a.json": [2, 4]}.get(name, [1, 2])
    assert records.notes == ()


def test_rows_come_one_at_a_time(tmp_path: Path) -> None:
    """The first row is there before the fault in the second is met."""
    problems: list[Problem] = []
    stream = rows(put(tmp_path, "a.jsonl", '{"text": "one"}\nbad\n{"text": "two"}\n'), problems=problems)
    assert next(stream) == (1, {"text": "one"})
    assert problems == []
    assert list(stream) == [(3, {"text": "two"})]
    assert [problem.line for problem in problems] == [2]


def test_rows_takes_columns_and_gives_notes(tmp_path: Path) -> None:
    """Columns name the fields of a file without a header; notes report blank lines."""
    put(tmp_path, "a.csv", "one,1\n\ntwo,2\n")
    notes: list[str] = []
    found = list(rows("a.csv", columns=("t", "l"), problems=[], notes=notes, base=tmp_path))
    assert found == [(1, {"t": "one", "l": "1"}), (3, {"t": "two", "l": "2"})]
    assert notes == ["1 blank line skipped"]


def test_csv_line_numbers_with_quoted_line_breaks(tmp_path: Path) -> None:
    """A record is reported by its first line."""
    source = put(tmp_path, "a.csv", 'text,label\r\n"a\nb\r\nc",x\r\n\r\n"d, ""e""",y\r\nf,z\r\n')
    records = read(source)
    assert records.lines == [2, 6, 7]
    assert records.texts[0] == ["a\nb\r\nc", 'd, "e"', "f"]
    assert records.notes == ("1 blank line skipped",)


def test_csv_ragged_rows(tmp_path: Path) -> None:
    """Too many and too few fields are reported by line with both counts, all at once."""
    problems = refused(put(tmp_path, "a.csv", 'text,label\n"a\nb",x\na,b,c\nd\ne,f\n'))
    assert [(p.line, p.message) for p in problems] == [
        (4, "3 fields where the header has 2"),
        (5, "1 field where the header has 2"),
    ]


def test_csv_unterminated_quote(tmp_path: Path) -> None:
    """A quote that is never closed is reported by the line on which it opens."""
    problem = only(put(tmp_path, "a.csv", 'text,label\na,x\n"b,y\nc,z\n'))
    assert problem.line == 3
    assert "not closed before the end" in problem.message


def test_csv_text_after_a_closing_quote(tmp_path: Path) -> None:
    """A bare quote in a quoted field is refused instead of eaten."""
    problem = only(put(tmp_path, "a.csv", 'text,label\n"say "hi" now",x\nb,y\n'))
    assert problem.line == 2
    assert "closing quote" in problem.message


def test_csv_old_line_ends(tmp_path: Path) -> None:
    """Carriage returns alone are named, not taken for text."""
    problem = refused(put(tmp_path, "a.csv", b"text,label\ra,x\rb,y\r"))[0]
    assert "carriage return" in problem.message
    assert problem.line == 1


def test_csv_repeated_column(tmp_path: Path) -> None:
    """A name that occurs twice in the header is refused."""
    problem = only(put(tmp_path, "a.csv", "text,label,text\na,b,c\n"))
    assert (problem.line, "'text'" in problem.message) == (1, True)


def test_csv_unnamed_columns_are_passed_over(tmp_path: Path) -> None:
    """Columns without a name, as spreadsheets leave them, may be several and are not read."""
    records = read(put(tmp_path, "a.csv", ",text,label,,\n0,one,x,,\n"))
    assert (records.texts, records.labels, records.notes) == ((["one"],), ["x"], ())


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolon"), ("\t", "tab")])
def test_csv_other_delimiter(tmp_path: Path, mark: str, name: str) -> None:
    """A header without a comma but with semicolons or tabs is split there, with a note."""
    records = read(put(tmp_path, "a.csv", f"text{mark}label\na, b{mark}x\n"))
    assert records.texts == (["a, b"],)
    assert name in records.notes[0]


def test_csv_semicolon_inside_quotes_is_no_delimiter(tmp_path: Path) -> None:
    """A semicolon in a quoted name does not count."""
    records = read(put(tmp_path, "a.csv", '"te;xt"\nab\n'), Layout(text="te;xt"))
    assert (records.texts, records.notes) == ((["ab"],), ())


def test_csv_large_field(tmp_path: Path) -> None:
    """A field beyond the usual 128 KiB limit of the csv module is read."""
    assert len(read(put(tmp_path, "a.csv", f"text\n{'x' * 300_000}\n")).texts[0][0]) == 300_000


def test_csv_without_header(tmp_path: Path) -> None:
    """data.columns names the fields; a first line that repeats them is a header after all."""
    layout = Layout(text="t", label="l", columns=("t", "l"))
    assert read(put(tmp_path, "a.csv", "one,x\ntwo,y\n"), layout).lines == [1, 2]
    again = read(put(tmp_path, "b.csv", "T,l\none,x\n"), layout)
    assert again.lines == [2]
    assert "header" in again.notes[0]
    assert only(put(tmp_path, "c.csv", "one,x,1\n"), layout).message == "3 fields where data.columns has 2"


@pytest.mark.parametrize(
    ("columns", "first", "text", "notes"),
    [
        (("text",), "one; two", "one; two", 0),
        (("label", "text"), "x;one, two, three", "one, two, three", 1),
        (("label", "text"), "x\tone, two, three", "one, two, three", 1),
        (("label", "text"), "x,one; two; three", "one; two; three", 0),
    ],
)
def test_csv_without_header_is_split_by_the_number_of_columns(
    tmp_path: Path, columns: tuple[str, ...], first: str, text: str, notes: int
) -> None:
    """Texts have commas and semicolons, too; only a delimiter other than the comma is noted."""
    records = read(put(tmp_path, "a.csv", f"{first}\n"), Layout(columns=columns))
    assert (records.texts, len(records.notes)) == (([text],), notes)


def test_columns_without_use_are_noted(tmp_path: Path) -> None:
    """data.columns on a JSON Lines file does nothing, and says so."""
    assert "data.columns" in read(put(tmp_path, "a.jsonl", '{"text": "x"}'), Layout(columns=("a",))).notes[0]


def test_tsv_quotes(tmp_path: Path) -> None:
    """Bare quotes are text; a field quoted as spreadsheets do it is unquoted."""
    source = put(tmp_path, "a.tsv", 'text\tlabel\n"bare\tx\nmid "dle"\tx\n"a ""b"" c"\tx\n"Yes" and "no"\tx\n"\ty\n')
    records = read(source)
    assert records.texts[0] == ['"bare', 'mid "dle"', 'a "b" c', '"Yes" and "no"', '"']
    assert records.lines == [2, 3, 4, 5, 6]


def test_tsv_ragged(tmp_path: Path) -> None:
    """A TSV row of another width is reported by line."""
    problem = only(put(tmp_path, "a.tsv", "text\tlabel\n\na\tb\tc\n"))
    assert (problem.line, problem.message) == (3, "3 fields where the header has 2")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.txt", "a.csv.gz", "a.jsonl.gz"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n \n"])
def test_empty_files(tmp_path: Path, name: str, content: bytes) -> None:
    """An empty file, a lone byte-order mark, and blank lines alone are refused as empty."""
    assert "the file is empty" in only(put(tmp_path, name, content)).message


@pytest.mark.parametrize(("name", "content"), [("a.csv", "text,label\n"), ("a.tsv", "text\tlabel"), ("b.csv", "text")])
def test_header_only(tmp_path: Path, name: str, content: str) -> None:
    """A header without rows is named as that."""
    assert "only a header line" in only(put(tmp_path, name, content)).message


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json"])
def test_byte_order_mark(tmp_path: Path, name: str) -> None:
    """A UTF-8 byte-order mark is skipped and noted."""
    records = read(put(tmp_path, name, b"\xef\xbb\xbf" + CONTENT[name].encode()))
    assert records.labels == ["x", "y"]
    assert "byte-order mark" in records.notes[0]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_not_utf8(tmp_path: Path, name: str) -> None:
    """Every faulty line is reported, with the byte, its offset in the file and what to do."""
    content = b"\xef\xbb\xbftext,label\ncaf\xe9,x\nfine,y\nna\xefve,z\n"
    problems = refused(put(tmp_path, name, content))
    assert [p.line for p in problems] == [2, 4]
    assert "0xe9" in problems[0].message
    assert f"offset {content.index(0xE9)} " in problems[0].message
    assert f"offset {content.index(b'na') + 2} " in problems[1].message
    assert "--encoding" in problems[0].remedy


def test_not_utf8_after_a_byte_order_mark(tmp_path: Path) -> None:
    """The mark counts in the offset of a fault on the first line."""
    assert "offset 5 " in only(put(tmp_path, "a.txt", b"\xef\xbb\xbfab\xff\n")).message


def test_what_stands_around_a_faulty_byte_is_shown(tmp_path: Path) -> None:
    """Also behind characters of several bytes."""
    shown = only(put(tmp_path, "a.txt", "日本語".encode() * 30 + b"caf\xe9 au lait, s'il vous pla\xeet\n")).value
    assert shown is not None
    assert shown.endswith("日本語caf\ufffd au lait, s'il vous")


def test_not_utf8_inside_quotes(tmp_path: Path) -> None:
    """A faulty line inside a quoted field does not throw off the rows after it."""
    content = 'text,label\n"é\n?\nb",x\nc,y\n'.encode().replace(b"?", b"\xff")
    assert only(put(tmp_path, "a.csv", content)).line == 3


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1"])
@pytest.mark.parametrize("name", sorted(CONTENT))
def test_encodings_of_offices_are_recognized_and_said(tmp_path: Path, name: str, encoding: str) -> None:
    """The same rows as from UTF-8, with one note on what was assumed; and without it where the encoding is named."""
    content = CONTENT[name].replace("one", "Größe, née")
    if name.endswith(("csv", "tsv")):
        content = content.replace("Größe, née", "Größe née")
    raw, utf8 = content.encode(encoding), read(put(tmp_path, name, content))
    records = read(put(tmp_path, name, raw))
    assert (records.texts, records.labels, records.lines) == (utf8.texts, utf8.labels, utf8.lines)
    (note,) = records.notes
    assert ("UTF-" if "utf" in encoding else "Windows-1252") in note
    named = read(put(tmp_path, name, raw), Layout(encoding=encoding))
    assert (named.texts, named.notes) == (utf8.texts, ())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("привет, как дела сегодня\n".encode("cp1251"), "not UTF-8"),
        ("你好，今天天气怎么样\n".encode("gb18030"), "not UTF-8"),
        ("Größe\n".encode() + "Größe\n".encode("cp1252"), "not UTF-8"),
        ("Größe\n".encode("cp1252") + "Größe\n".encode(), "mixes encodings"),
        (b"a\x81b\xe4 word\n", "not UTF-8"),
    ],
)
def test_no_encoding_is_assumed_where_it_would_be_a_guess(tmp_path: Path, raw: bytes, words: str) -> None:
    """Other alphabets, damaged UTF-8 and mixtures are refused; the remedy is to name the encoding."""
    problem = only(put(tmp_path, "a.txt", raw))
    assert words in problem.message
    assert "--encoding" in problem.remedy


def test_a_named_encoding_is_used_and_checked(tmp_path: Path) -> None:
    """Another alphabet is read where its encoding is named; bytes it does not have and unknown names are refused."""
    assert read(put(tmp_path, "a.txt", "привет\n".encode("cp1251")), Layout(encoding="cp1251")).texts == (["привет"],)
    assert only(put(tmp_path, "a.txt", b"ok\n\x80\x80\n"), Layout(encoding="ascii")).line == 2
    for name in ("cp12520", "base64", "\0"):
        with pytest.raises(SettingError, match="is no encoding of text"):
            read(put(tmp_path, "a.txt", "a\n"), Layout(encoding=name))


def test_csv_files_of_excel(tmp_path: Path) -> None:
    """The separator that Excel writes on a line of its own, and rows of empty fields, which are blank."""
    content = "sep=;\r\ntext;label\r\none, two;x\r\n;;\r\n;\r\nthree;y\r\n"
    with pytest.raises(DataError):  # two separators are three fields
        read(put(tmp_path, "a.csv", content.replace(";;", "four;z;")))
    records = read(put(tmp_path, "a.csv", content))
    assert (records.texts, records.labels, records.lines) == ((["one, two", "three"],), ["x", "y"], [3, 6])
    assert records.notes == ("2 blank lines skipped",)


def test_repeated_problems_are_counted(tmp_path: Path) -> None:
    """The first ones of a kind are shown, the others are counted with their lines."""
    with pytest.raises(DataError) as caught:
        read(put(tmp_path, "a.csv", "text,label\né,b\n".encode() + b"x\xff,a\n" * 150))
    assert len(caught.value.problems) == 150
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    assert "147 more of this kind: lines 6, 7, 8" in lines[3]
    assert lines[4] == "150 problems in all."


@pytest.mark.parametrize(
    ("content", "words"), [(gzip.compress(b"x", mtime=0), "gzip"), (b"PK\x03\x04..", "Excel"), (b"PAR1..", "Parquet")]
)
def test_wrong_endings_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    """Content that shows another format by its first bytes is named."""
    assert words in only(put(tmp_path, "a.csv", content)).message


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_nul_bytes(tmp_path: Path, name: str) -> None:
    """A NUL byte is reported by line and offset."""
    content = CONTENT.get(name, "one\ntwo\n").encode().replace(b"two", b"t\0o")
    problem = only(put(tmp_path, name, content))
    assert problem.line == content[: content.index(0)].count(b"\n") + 1
    assert f"offset {content.index(0)} " in problem.message


def test_gzip_cut_short(tmp_path: Path) -> None:
    """A cut archive is reported by the line at which it ends too early."""
    lines = "".join(json.dumps({"text": f"{i * 7919 % 10007}"}) + "\n" for i in range(5_000))
    packed = gzip.compress(lines.encode(), mtime=0)
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    problem = only(str(tmp_path / "a.jsonl.gz"))
    assert "ends too early" in problem.message
    whole = zlib.decompressobj(wbits=31).decompress(packed[: len(packed) // 2]).count(b"\n")
    assert problem.line == whole + 1
    assert 1_000 < whole < 4_999


def test_gzip_damaged(tmp_path: Path) -> None:
    """A damaged archive is refused with a line."""
    packed = bytearray(gzip.compress(b'{"text": "one"}\n' * 100, mtime=0))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    problems = refused(str(tmp_path / "a.jsonl.gz"))
    assert any("damaged" in p.message or "ends too early" in p.message for p in problems)
    assert all(p.line is not None for p in problems)


def test_gzip_in_name_only(tmp_path: Path) -> None:
    """A plain file named .gz is distinguished from a damaged one."""
    (tmp_path / "a.jsonl.gz").write_bytes(b'{"text": "one"}\n')
    assert "not gzip data" in only(str(tmp_path / "a.jsonl.gz")).message


def test_jsonl_faults(tmp_path: Path) -> None:
    """Each line that is no object is reported with what is wrong, the others are still looked at."""
    source = put(
        tmp_path,
        "a.jsonl",
        '{"text": "ok"}\n{"text": \n["list"]\n"string"\n3\nnull\ntrue\n{"text": "a", "text": "b"}\n\n'
        + "[" * 100_000
        + '\n{"text": "x", "n": '
        + "9" * 5_000
        + '}\n{"text": "y"} {"text": "z"}\n',
    )
    problems = refused(source)
    assert [p.line for p in problems] == [2, 3, 4, 5, 6, 7, 8, 10, 11, 12]
    messages = [p.message for p in problems]
    assert messages[0] == "not JSON: Expecting value, at character 10 of the line"
    assert messages[1:6] == [
        f"{kind} where an object is expected" for kind in ("a list", "a string", "a number", "null", "true or false")
    ]
    assert "'text' occurs twice" in messages[6]
    assert "nested too deeply" in messages[7]
    assert "too many digits" in messages[8]
    assert "Extra data" in messages[9]


def test_jsonl_error_at_the_end_of_line_one(tmp_path: Path) -> None:
    """An object left open on line 1 is reported on line 1."""
    assert only(put(tmp_path, "a.jsonl", '{"text": "a"\n')).line == 1


def test_jsonl_blank_lines_are_counted(tmp_path: Path) -> None:
    """Blank lines are skipped, counted, and do not shift the numbers."""
    records = read(put(tmp_path, "a.jsonl", '\n{"text": "a"}\n  \n\n{"text": "b"}\n'))
    assert records.lines == [2, 5]
    assert records.notes == ("3 blank lines skipped",)


def test_jsonl_unicode_line_separators_end_no_line(tmp_path: Path) -> None:
    """U+2028, U+0085 and the form feed stand inside a line."""
    records = read(put(tmp_path, "a.jsonl", '{"text": "a\u2028b\u0085c"}\n{"text": "d"}\n'))
    assert records.lines == [1, 2]


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400])
def test_numbers_that_are_not_finite(tmp_path: Path, constant: str) -> None:
    """NaN, infinity and integers beyond the floats are no scores, but do no harm in other columns."""
    source = put(tmp_path, "a.jsonl", f'{{"text": "a", "score": {constant}}}\n{{"text": "b", "score": 1}}\n')
    problem = only(source)
    assert (problem.line, problem.column, problem.message) == (1, "score", "the score is not finite")
    assert len(read(put(tmp_path, "b.jsonl", f'{{"text": "a", "other": {constant}}}\n'))) == 1


JSON_FAULTS = {
    '{"text": "a"}': (1, "one list of objects"),
    '\n\n"a"': (3, "one list of objects"),
    "[]": (None, "the list is empty"),
    '[\n{"text": "a"},\n{"text": }]': (3, "not JSON"),
    '[{"text": "a"},\n 5]': (2, "a number where an object is expected"),
    '[{"text": "a"}\n{"text": "b"}]': (2, "where , or ] is expected"),
    '[{"text": "a"},\n': (2, "not JSON"),
    '[{"text": "a"}\n': (2, "not closed"),
    '[{"text": "a"}]\n\n[]': (3, "more after the end"),
    '[\n\n{"text": "a", "text": "b"}]': (3, "occurs twice"),
    "[\n" + "[" * 100_000: (2, "nested too deeply"),
}


@pytest.mark.parametrize("content", JSON_FAULTS, ids=range(len(JSON_FAULTS)))
def test_json_faults(tmp_path: Path, content: str) -> None:
    """Faults of a .json file are reported by line, and not with a remedy for JSON Lines."""
    line, words = JSON_FAULTS[content]
    problem = only(put(tmp_path, "a.json", content))
    assert "--json-lines" not in problem.remedy
    assert (problem.line, words in problem.message) == (line, True), problem


def test_plain_lines(tmp_path: Path) -> None:
    """A .txt file is one text a line, verbatim; blank lines are skipped."""
    records = read(put(tmp_path, "a.txt", 'one, "two"\r\n\r\n {"text": 3}\nlast'))
    assert records.texts == (['one, "two"', ' {"text": 3}', "last"],)
    assert records.lines == [1, 3, 4]
    assert records.target is None


@pytest.mark.parametrize(
    ("content", "texts"),
    [('\n{"text": "a"}\n{"text": "b"}\n', ["a", "b"]), ("a\n\n{b}\n", ["a", "{b}"]), (" [1]\n", [" [1]"])],
)
def test_standard_input(monkeypatch: pytest.MonkeyPatch, content: str, texts: list[str]) -> None:
    """'-' is JSON Lines when the first line opens an object, else plain lines."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    assert read("-").texts == (texts,)


def test_standard_input_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults of standard input are reported like those of a file; none at all is one too."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "a"}\nbad\n')))
    assert only("-").line == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "empty" in only("-").message
    monkeypatch.setattr(sys, "stdin", None)
    assert "no standard input" in only("-").message


def test_problems_are_capped(tmp_path: Path) -> None:
    """Ten thousand problems are listed; the rest is counted, in read as in rows."""
    source = put(tmp_path, "a.jsonl", "bad\n" * (MAX_PROBLEMS + 5) + '{"text": "a"}\n{"text": ""}\n')
    problems = refused(source)
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].message.startswith("6 more problems are not listed")
    listed: list[Problem] = []
    assert len(list(rows(source, problems=listed))) == 2
    assert len(listed) == MAX_PROBLEMS + 1
    assert listed[-1].message.startswith("5 more")
