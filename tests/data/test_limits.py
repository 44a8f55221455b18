"""Readers with bounds: what is too long or too large is refused by name and line, quickly, and can be allowed."""

from __future__ import annotations

import gzip
import io
import json
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nearfar.data import Layout, Stream, read, read_memory
from nearfar.data import limits as bounds
from nearfar.data.limits import Limits, TooLargeError
from nearfar.errors import DataError

SHORT = Layout(max_chars=100)
LARGE = Layout(max_chars=100, large=True)
LONG = "a word " * 20
"""140 characters, more than the 100 of ``SHORT``."""
ROWS = [{"text": "short", "label": "a"}, {"text": LONG, "label": "b"}, {"text": "last", "label": "b"}]


def problem_of(path: Path, layout: Layout = SHORT) -> str:
    with pytest.raises(DataError) as refusal:
        read(str(path), layout)
    assert len(refusal.value.problems) == 1
    return str(refusal.value).replace(str(path), "FILE")


def write_csv(path: Path) -> None:
    path.write_text("".join(f'"{row["text"]}",{row["label"]}\n' for row in [{"text": "text", "label": "label"}, *ROWS]))


def write_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def write_parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


def write_workbook(path: Path) -> None:
    book = openpyxl.Workbook()
    for row in [{"text": "text", "label": "label"}, *ROWS]:
        book.active.append(list(row.values()))
    book.save(path)


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a.csv": (write_csv, "FILE:3: a line of more than 100 characters. "),
    "a.tsv": (lambda path: path.write_text(f"text\tlabel\nok\ta\n{LONG}\tb\n"), "FILE:3: a line of more than 100"),
    "a.jsonl": (write_lines, "FILE:2: a line of more than 100 characters. "),
    "a.txt": (lambda path: path.write_text(f"short\n{LONG}\nlast\n"), "FILE:2: a line of more than 100 characters. "),
    "a.json": (lambda path: path.write_text(json.dumps(ROWS)), "FILE:2: column 'text': a text of more than 100"),
    "a.parquet": (write_parquet, "FILE:2: column 'text': a text of more than 100 characters"),
    "a.xlsx": (write_workbook, "FILE:3: column 'text': a text of more than 100 characters"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_text_that_is_too_long_is_refused_with_its_line(tmp_path, name):
    write, expected = FILES[name]
    path = tmp_path / name
    write(path)
    refusal = problem_of(path).replace("FILE:1: column", "FILE:2: column")  # all of a .json file is on line 1
    assert refusal.startswith(expected)
    assert "data.max_chars" in refusal
    assert "data.large (--large)" in refusal
    for layout in (Layout(max_chars=10_000), LARGE, Layout()):
        assert LONG.strip() in [text.strip() for text in read(str(path), layout).texts[0]]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
def test_characters_are_counted_and_not_bytes(tmp_path, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes(("é" * 100 + "\n" + "é" * 50 + "\n").encode(encoding))
    named = encoding if encoding == "cp1252" else None
    assert len(read(str(path), Layout(max_chars=101, encoding=named))) == 2
    assert problem_of(path, Layout(max_chars=99, encoding=named)).startswith("FILE:1: a line of more than 99")


def test_a_quote_that_is_never_closed_is_found_before_all_is_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("text,label\nx,a\n" + '"open,b\n' + "more,b\n" * 1_000)
    refusal = problem_of(path, Layout(max_chars=1_000))
    assert refusal.startswith("FILE:3: a field of more than 1,000 characters that begins here and ends after line")
    assert "closing quote" in refusal


@pytest.mark.parametrize("invalid", ["refuse", "drop"])
def test_long_texts_in_memory_are_refused_with_their_row(invalid):
    rows = [("short", "a"), (LONG, "b"), ("other", "b")]
    if invalid == "drop":
        assert read_memory(rows, layout=SHORT, invalid="drop").texts[0] == ["short", "other"]
        return
    with pytest.raises(DataError, match=r"^memory:train, row 2, column 'text': a text of more than 100 characters"):
        read_memory(rows, layout=SHORT)
    assert len(read_memory(rows)) == 3


def standard_input(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(closed=False, buffer=io.BufferedReader(io.BytesIO(content))))


def test_standard_input_has_bounds(monkeypatch):
    standard_input(monkeypatch, f"short\n{LONG}\n".encode())
    with pytest.raises(DataError, match=r"^-:2: a line of more than 100 characters"):
        read("-", SHORT)
    standard_input(monkeypatch, b"some words\n" * 1_000)
    with pytest.raises(DataError, match=r"^-:455: more than 5,000 bytes, which are held in memory at once"):
        read("-", SHORT)
    standard_input(monkeypatch, b"some words\n" * 1_000)
    assert len(read("-", LARGE)) == 1_000


def test_a_json_file_is_held_whole_and_has_a_bound(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"text": f"text {number}"} for number in range(1_000)]))
    assert problem_of(path).startswith("FILE:1: a line of more than 5,000 characters")
    path.write_text(json.dumps([{"text": f"text {number}"} for number in range(1_000)], indent=1))
    assert "more than 5,000 bytes, which are held in memory at once" in problem_of(path)
    assert len(read(str(path), LARGE)) == 1_000


@pytest.fixture
def little(monkeypatch):
    """A limit of 20 kB on the content of small files, as 100 MB would take long to write."""
    monkeypatch.setattr(bounds, "FREE", 20_000)


def pack_gzip(path: Path) -> None:
    path.write_bytes(gzip.compress(b"text\n" + b"a word\n" * 100_000))


def pack_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": ["a word " * 20] * 10_000}), path, compression="zstd")


def pack_plain_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": ["a word " * 20] * 10_000}), path, compression="zstd", use_dictionary=False)


def pack_workbook(path: Path) -> None:
    book = openpyxl.Workbook()
    for text in ["text", *["a word"] * 1_000]:
        book.active.append([text])
    book.save(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/more.xml", b" " * 5_000_000)


def far_cells(path: Path) -> None:
    book = openpyxl.Workbook()
    book.active["A1"], book.active["XFD1"] = "text", "label"
    for row in range(2, 300):
        book.active[f"A{row}"], book.active[f"XFD{row}"] = "a word", "b"
    book.save(path)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(
    ("name", "pack", "place"),
    [
        ("a.csv.gz", pack_gzip, ":"),
        ("a.parquet", pack_parquet, ":"),
        ("a.parquet", pack_plain_parquet, ":"),
        ("a.xlsx", pack_workbook, ":"),
        ("a.xlsx", far_cells, ":"),
    ],
)
def test_content_far_larger_than_its_file_is_refused_unless_it_is_allowed(tmp_path, name, pack, place):
    path = tmp_path / name
    pack(path)
    refusal = problem_of(path, Layout())
    assert " of the file have more than " in refusal
    assert "--large" in refusal
    stream = Stream(str(path), size=10)
    list(stream)
    with pytest.raises(DataError, match="of the file have more than"):
        stream.finish()
    assert len(read(str(path), Layout(large=True))) >= 298


def test_content_of_usual_size_is_read(tmp_path):
    limits = Limits()
    limits.check_expansion(1_000, bounds.FREE)
    limits.check_expansion(10**9, 10**11)
    for size, content in ((1_000, bounds.FREE + 1), (10**9, 10**11 + 1)):
        with pytest.raises(TooLargeError):
            limits.check_expansion(size, content)
        Limits(large=True).check_expansion(size, content)


def test_a_workbook_with_one_cell_far_away_is_read_at_once(tmp_path):
    book = openpyxl.Workbook()
    book.active["A1"], book.active["A2"], book.active["A1048576"] = "text", "a word", "the last"
    book.save(tmp_path / "a.xlsx")
    assert read(str(tmp_path / "a.xlsx")).lines == [2, 1_048_576]


def test_windows_of_long_rows_have_fewer_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["nearfar.data.table"], "HELD", 250)
    path = tmp_path / "a.txt"
    path.write_text("x" * 100 + "\n" + "y\n" * 10 + "z" * 300 + "\nlast\n")
    windows = list(Stream(str(path), size=8))
    assert [len(window) for window in windows] == [8, 4, 1]


def test_columns_by_the_thousand_take_no_time(tmp_path):
    """What compares every name with every other takes minutes at this size."""
    names = [f"c{number}" for number in range(50_000)]
    path = tmp_path / "a.csv"
    path.write_text(",".join(["text", *names]) + "\n" + ",".join(["a", *["0"] * 50_000]) + "\n")
    assert len(read(str(path))) == 1
    path.write_text(",".join([*names, *names]) + "\n")
    assert "more than once" in problem_of(path, Layout())
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps({"text": "a", f"c{number}": 0}) + "\n" for number in range(20_000)))
    assert len(read(str(lines))) == 20_000


def test_a_misspelled_column_among_very_many_is_refused_at_once(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",".join(f"column{number}" for number in range(100_000)) + "\n")
    with path.open("a") as file:
        file.write(",".join(["x"] * 100_000) + "\n")
    assert problem_of(path, Layout(text="column 7")).endswith("Did you mean 'column7'?")
    assert "there is no column" in problem_of(path, Layout(text="column" * 100_000))


def test_numbers_that_python_does_not_write_are_no_labels():
    label = 10**5000
    with pytest.raises(DataError, match="row 2, column 'label': the label is neither a name nor a whole number"):
        read_memory([("a", "x"), ("b", label), ("c", "y")])


def test_blanks_in_a_json_file_cost_no_time(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('[{"text": "a"},' + " " * 20_000_000 + '{"text": "b"}]')
    assert read(str(path)).texts == (["a", "b"],)


def test_a_column_of_its_own_in_every_row_takes_no_long_time(tmp_path):
    """Twice as many rows take twice as long, not four times."""
    path = tmp_path / "keys.jsonl"
    path.write_bytes(b"\n".join(b'{"text": "a", "k%d": 1}' % number for number in range(60_000)))
    began = time.process_time()
    assert len(read(str(path))) == 60_000
    assert time.process_time() - began < 5
