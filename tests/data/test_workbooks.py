"""Excel workbooks: the rows of CSV with the numbers of the sheet; what cannot be read is refused."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import openpyxl
import pytest

from nearfar.data import read, rows
from nearfar.errors import DataError


def put(folder: Path, sheets: dict[str, list[list[object]]], name: str = "a.xlsx") -> str:
    book = openpyxl.Workbook(write_only=True)
    for title, cells in sheets.items():
        sheet = book.create_sheet(title)
        for row in cells:
            sheet.append(row)
    book.save(folder / name)
    return str(folder / name)


ROWS: list[list[object]] = [[], ["text", "label", None], ["Größe", "x"], [None, None], ["two", 3.0], ["three", 3]]


def test_a_workbook_is_read_like_a_csv_file(tmp_path):
    """Rows have the numbers of the sheet, blank ones are skipped, whole numbers have no fraction."""
    records = read(put(tmp_path, {"tickets": ROWS}))
    assert (records.texts, records.labels, records.lines) == ((["Größe", "two", "three"],), ["x", "3", "3"], [3, 5, 6])
    assert records.notes == ("1 blank line skipped",)


def test_a_sheet_is_named_after_the_file(tmp_path):
    """The first one by default, with a note; an unknown one is refused with those that exist."""
    source = put(tmp_path, {"first": ROWS, "second": [["text"], ["only"]]})
    assert read(f"{source}#second").texts == (["only"],)
    assert "the first of 2 sheets" in read(source).notes[0]
    with pytest.raises(DataError, match=r"no sheet 'secnd'.*Did you mean 'second'"):
        read(f"{source}#secnd")


def test_dates_are_text(tmp_path):
    """As in a CSV file."""
    source = put(tmp_path, {"a": [["text", "day"], ["one", datetime.datetime(2026, 1, 2)]]})
    ((_, values),) = rows(source, problems=[])
    assert values == {"text": "one", "day": "2026-01-02T00:00:00"}


@pytest.mark.parametrize(
    ("sheets", "words"),
    [
        ({"a": []}, "no rows"),
        ({"a": [["text", "label"]]}, "only a header"),
        ({"a": [["text", "text"], ["b", "c"]]}, "more than once"),
    ],
)
def test_sheets_without_rows_are_refused(tmp_path, sheets, words):
    """In the words of other formats."""
    with pytest.raises(DataError, match=words):
        read(put(tmp_path, sheets))


def test_damaged_workbooks_and_a_missing_package_are_refused(tmp_path, monkeypatch):
    """With what to do."""
    (tmp_path / "b.xlsx").write_bytes(b"PK\x03\x04 no workbook")
    with pytest.raises(DataError, match="not an Excel workbook"):
        read(str(tmp_path / "b.xlsx"))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(DataError, match="pip install openpyxl"):
        read(put_again(tmp_path))


def put_again(folder: Path) -> str:
    (folder / "c.xlsx").write_bytes(b"")
    return str(folder / "c.xlsx")
