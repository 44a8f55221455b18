"""Excel workbooks to rows with their numbers in the sheet; ``openpyxl`` is an extra, imported when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from zipfile import ZipFile

from nearfar.data.limits import Limits, TooLargeError
from nearfar.data.text_files import Row, distinct_names, report_empty, report_unreadable
from nearfar.data.values import Issues
from nearfar.errors import did_you_mean

INSTALL = "pip install openpyxl"
_SAVE_AGAIN = "Save it again as .xlsx, or export it as CSV."


def workbook_rows(path: Path, sheet: str | None, issues: Issues, limits: Limits) -> Iterator[Row]:
    """The rows of a sheet, the first one if none is named; the first row that is not blank has the column names."""
    try:
        import openpyxl
    except ImportError:
        issues.add("an Excel workbook is read by openpyxl, which is not installed", f"Run '{INSTALL}', or export CSV.")
        return
    try:
        size = path.stat().st_size
        with ZipFile(path) as archive:
            limits.check_expansion(size, sum(entry.file_size for entry in archive.infolist()))
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except TooLargeError as error:
        issues.add(*error.problem)
        return
    except OSError as error:
        report_unreadable(error, issues)
        return
    except Exception as error:
        issues.add(f"not an Excel workbook that can be read ({error})", _SAVE_AGAIN)
        return
    try:
        names = book.sheetnames
        if sheet is not None and sheet not in names:
            issues.add(f"there is no sheet {sheet!r}", f"Write one of {names} after '#'.{did_you_mean(sheet, names)}")
            return
        if sheet is None and len(names) > 1:
            issues.notes.append(f"the first of {len(names)} sheets is read, {names[0]!r}; FILE#SHEET names another")
        chosen = book[sheet or names[0]]
        if hasattr(chosen, "reset_dimensions"):  # a chart has no cells
            chosen.reset_dimensions()  # what a workbook states about its size may be wrong, and rows are padded to it
        yield from _sheet_rows(_counted(chosen.iter_rows(values_only=True), size, limits), issues)
    except TooLargeError as error:
        issues.add(*error.problem)
    except Exception as error:
        issues.add(f"not a sheet that can be read ({error})", _SAVE_AGAIN)
    finally:
        book.close()


def _counted(rows: Iterator[tuple[object, ...]], size: int, limits: Limits) -> Iterator[tuple[object, ...]]:
    """Rows whose cells are counted: one cell far away from the others makes many empty ones between."""
    content = 0
    for cells in rows:
        content += 1 + len(cells)
        limits.check_expansion(size, content)
        yield cells


def _sheet_rows(rows: Iterator[tuple[object, ...]], issues: Issues) -> Iterator[Row]:
    names: list[str] | None = None
    empty = True
    for number, cells in enumerate(rows, 1):
        values = [_value(cell) for cell in cells]
        if all(value is None or value == "" for value in values):
            issues.blank += names is not None
        elif names is None:
            names = ["" if value is None else str(value).strip() for value in values]
            if not distinct_names([name for name in names if name], issues, line=number):
                return
        else:
            empty = False
            yield number, {name: value for name, value in zip(names, values, strict=False) if name}
    if empty:
        report_empty(issues, "there are no rows" if names is None else "there are no rows, only a header line")


def _value(cell: object) -> object:
    """A cell as other formats would have it: whole numbers without a fraction, dates as text."""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    if isinstance(cell, datetime | date | time):
        return cell.isoformat()
    return cell
