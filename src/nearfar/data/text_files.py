"""Text files to rows with the number of their first line: CSV, TSV, JSON Lines, JSON and plain text."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, AnyStr, BinaryIO, NamedTuple, cast

from nearfar.data.limits import LIFT, Limits, TooLargeError, too_long
from nearfar.data.values import Issues
from nearfar.errors import SettingError, counted

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain

UTF8_MARK = b"\xef\xbb\xbf"
LEGACY = "cp1252"
"""What a text file is read as that is not UTF-8 and has few bytes beyond ASCII, as in Western European languages."""
_NAME_IT = "Name its encoding (data.encoding, or --encoding), for example cp1252, cp1251, gb18030 or shift_jis."

_GZIP = "this is gzip-compressed data", "Let the file name end in .gz (such as .jsonl.gz), or decompress it."
_ZIP = "this is a ZIP archive or an Excel workbook", "Unpack it; let the name of a workbook end in .xlsx."
_SIGNATURES = {
    b"\x1f\x8b": _GZIP,
    b"PK\x03\x04": _ZIP,
    b"PAR1": ("this is a Parquet file", "Let the file name end in .parquet."),
}
_MARKS = {  # the longer ones first: UTF-32 begins like UTF-16
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


class Line(NamedTuple):
    """One physical line."""

    number: int
    """1-based."""
    text: str
    """With its line break."""
    valid: bool
    """False if its bytes are not valid text; the problem is reported then."""


class _Unpacked(io.RawIOBase):
    """A gzip file that returns everything it can decompress before an error.

    ``GzipFile`` as an iterator loses the last block before an error, and with it the line number.
    """

    def __init__(self, packed: BinaryIO, limits: Limits) -> None:
        self._raw, self._limits, self._content = packed, limits, 0
        self._file = gzip.GzipFile(fileobj=packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        content = self._file.read1(len(view))
        view[: len(content)] = content
        self._content += len(content)
        # what has been read of the file so far: a small part with a huge content is refused before all is read
        self._limits.check_expansion(self._raw.tell(), self._content)
        return len(content)

    def close(self) -> None:
        self._file.close()
        self._raw.close()
        super().close()


def open_bytes(path: Path, issues: Issues, limits: Limits) -> BinaryIO | None:
    """The bytes of a file, decompressed if its name ends in ``.gz``; None after reporting why it cannot be opened."""
    try:
        if path.suffix.lower() == ".gz":
            return cast(BinaryIO, io.BufferedReader(_Unpacked(path.open("rb"), limits), 1 << 16))
        return path.open("rb")
    except OSError as error:
        report_unreadable(error, issues)
        return None


def report_unreadable(error: OSError, issues: Issues) -> None:
    """Report that the source cannot be opened or read."""
    if isinstance(error, PermissionError):
        issues.add("the file may not be read (permission denied)", "Give yourself read permission: chmod u+r FILE.")
    else:
        issues.add(f"the file cannot be read: {error.strerror or error}", "Check that it is a plain file on a disk.")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where reading lines ends; None for no bound."""

    line: int | None
    """The most characters of a line."""
    total: int | None
    """The most bytes of all lines."""

    @classmethod
    def of(cls, limits: Limits, *, whole: bool, lines: bool = True) -> Bounds:
        """The bounds of a source that is held ``whole`` in memory or not, and whether its ``lines`` are its rows."""
        return cls(limits.line if lines else limits.whole, limits.whole if whole else None)


def read_lines(
    stream: BinaryIO, issues: Issues, encoding: str | None = None, bounds: Bounds | None = None
) -> Generator[Line, None, None]:
    """The lines of a stream of text.

    Only a line feed ends a line, so numbers agree with those of an editor. A line with invalid bytes is returned with
    U+FFFD in their place, so that a quoted field across several lines keeps its end.

    Args:
        stream: the bytes.
        issues: gets the problems, and a note on an encoding that was assumed.
        encoding: the name of the encoding; None is UTF-8, UTF-16 or UTF-32 if it looks like it, and Windows-1252 for
            text that is not UTF-8 and has few bytes beyond ASCII.
        bounds: reading ends at a line that is too long, and where there is too much; None is the default limit of a
            line.
    """
    bounds = bounds or Bounds.of(Limits(), whole=False)
    peekable: BinaryIO = stream if hasattr(stream, "peek") else io.BufferedReader(cast(io.RawIOBase, stream))
    head = _head(peekable)
    for signature, problem in _SIGNATURES.items():
        if head.startswith(signature):
            issues.add(*problem, line=1)
            return
    if encoding is None and (encoding := _marked(head)) is not None:
        issues.notes.append(f"the file is read as {encoding.upper()}, as it begins")
    if encoding is None or codecs.lookup(encoding).name == "utf-8":
        yield from _utf8_lines(peekable, issues, bounds, detect=encoding is None)
    else:
        yield from _decoded_lines(peekable, encoding, issues, bounds)


def check_encoding(name: str) -> None:
    """Refuse an encoding that Python does not know."""
    try:
        known = codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        known = False
    if not known:
        raise SettingError(f"data.encoding: {name!r} is no encoding of text; try utf-8, utf-16, cp1252 or latin-1.")


def _head(stream: Any) -> bytes:
    try:
        return bytes(stream.peek(64)[:64])
    except (OSError, EOFError, zlib.error, TooLargeError):
        return b""  # reported when the lines are read


def _marked(head: bytes) -> str | None:
    """UTF-16 or UTF-32, by a byte-order mark, or by the NUL bytes of Latin letters."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    for start, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(head) >= 8 and not any(head[start::2]) and all(head[1 - start :: 2]):
            return encoding
    return None


def _decoded_lines(stream: BinaryIO, encoding: str, issues: Issues, bounds: Bounds) -> Iterator[Line]:
    """The lines of a stream in an encoding other than UTF-8."""
    text = io.TextIOWrapper(stream, encoding=encoding, errors="replace", newline="\n")
    try:
        for number, line in enumerate(_raw_lines(text, issues, bounds), 1):
            line = line.removeprefix("\ufeff") if number == 1 else line
            valid = "\ufffd" not in line and "\0" not in line
            if not valid:
                nearby = line[max(0, line.find("\ufffd") - 20) :][:40].strip("\r\n")
                issues.add(f"a character that is not valid in {encoding}", _NAME_IT, line=number, value=nearby)
            yield Line(number, line, valid)
    finally:
        text.detach()


def _utf8_lines(stream: BinaryIO, issues: Issues, bounds: Bounds, *, detect: bool) -> Iterator[Line]:
    """The lines of a UTF-8 stream; with ``detect``, those from the first that is not UTF-8 on may be Windows-1252."""
    offset, multibyte, legacy = 0, False, 0
    for number, raw in enumerate(_raw_lines(stream, issues, bounds), 1):
        if number == 1 and raw.startswith(UTF8_MARK):
            raw = raw[len(UTF8_MARK) :]
            offset, detect = len(UTF8_MARK), False
            issues.notes.append("the file begins with a UTF-8 byte-order mark, which is skipped")
            if not raw:
                return
        valid = True
        try:
            text = raw.decode()
            if not raw.isascii():
                if legacy:
                    message = f"this line is UTF-8, and line {legacy:,} is not: the file mixes encodings"
                    issues.add(message, _NAME_IT, line=number, value=text[:40])
                multibyte = True
        except UnicodeDecodeError as error:
            if detect and not multibyte and _western(raw):
                if not legacy:
                    legacy = number
                    note = f"line {number:,} is not UTF-8, so the file is read as Windows-1252"
                    issues.notes.append(f"{note}; --encoding (data.encoding) names another encoding")
                text = raw.decode(LEGACY)
            else:
                valid = False
                text = raw.decode(errors="replace")
                place = f"byte 0x{raw[error.start]:02x} at byte offset {offset + error.start:,} of the file"
                nearby = raw[max(0, error.start - 20) : error.start + 20].decode(errors="replace").strip("\r\n")
                issues.add(f"not UTF-8: {place}", _NAME_IT, line=number, value=nearby)
        if bounds.line is not None and len(text) > bounds.line:
            issues.add(*too_long(bounds.line), line=number)
            return
        if "\0" in text:
            valid = False
            message = f"a NUL byte at byte offset {offset + raw.index(0):,} of the file"
            remedy = "Text has no NUL bytes: check whether the file is damaged, or in UTF-16; "
            issues.add(message, remedy + "'tr -d \"\\000\" < OLD > NEW' removes them.", line=number)
        yield Line(number, text, valid)
        offset += len(raw)


def _western(raw: bytes) -> bool:
    """Whether a line can be Windows-1252: no undefined bytes, no UTF-8 beside it, and mostly ASCII letters."""
    try:
        text = raw.decode(LEGACY)
    except UnicodeDecodeError:
        return False
    letters = sum(map(str.isalpha, text))
    beyond = sum(byte > 0x7F for byte in raw)
    return raw.decode(errors="ignore").isascii() and (letters < 8 or beyond <= 0.4 * letters)


NO_ROWS = "Name a file that has rows."


def report_empty(issues: Issues, message: str = "the file is empty") -> None:
    """Report that there are no rows, unless a problem explains it already."""
    if not issues.problems:
        skipped = f" ({counted(issues.blank, 'blank line')} apart)" if issues.blank else ""
        issues.add(message + skipped, NO_ROWS)


def _raw_lines(stream: IO[AnyStr], issues: Issues, bounds: Bounds) -> Iterator[AnyStr]:
    number = total = 0
    # A character has at most four bytes in UTF-8; one that has more than fits is found here, others after decoding.
    most = -1 if bounds.line is None else bounds.line + 2 if isinstance(stream, io.TextIOBase) else 4 * bounds.line + 2
    try:
        while raw := stream.readline(most):
            number += 1
            total += len(raw)
            if bounds.line is not None and len(raw) == most:
                issues.add(*too_long(bounds.line), line=number)
                return
            if bounds.total is not None and total > bounds.total:
                remedy = f"Write one object or text per line into a file, which is read in parts, or {LIFT}."
                issues.add(f"more than {bounds.total:,} bytes, which are held in memory at once", remedy, line=number)
                return
            yield raw
    except TooLargeError as error:
        issues.add(*error.problem, line=number + 1)
    except EOFError:
        message, remedy = "the compressed file ends too early", "Copy or download it again; this copy is incomplete."
        issues.add(message, remedy, line=number + 1)
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f"the compressed data is damaged here ({error})"
        remedy = "Copy or download the file again; 'gzip -t FILE' tests it."
        if number == 0 and "Not a gzipped file" in str(error):
            message, remedy = (
                "the name ends in .gz but this is not gzip data",
                "Remove .gz from the name, or compress it.",
            )
        issues.add(message, remedy, line=number + 1)
    except OSError as error:
        report_unreadable(error, issues)


Row = tuple[int, dict[str, object]]
"""The line of a row, and its values by column."""
Fields = Iterator[tuple[int, list[str]]]

_SEPARATOR = re.compile('"?sep=([,;\t|])"?', re.IGNORECASE)
_MAX_FIELD = 2**31 - 1  # fits into a C long on every platform
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_QUOTES = 'Write a quote inside a quoted field twice (""), and close every field that opens with a quote.'
_FILL_TSV = "Write tabs and line breaks inside a text as spaces, and add missing fields."


def csv_rows(lines: Iterator[Line], columns: Sequence[str] | None, issues: Issues, limits: Limits) -> Iterator[Row]:
    """The rows of a CSV file (RFC 4180); without ``columns`` the first line has their names."""
    first = next((line for line in lines if not _blank(line, issues)), None)
    if first is None:
        report_empty(issues)
        return
    csv.field_size_limit(min(limits.line or _MAX_FIELD, _MAX_FIELD))
    if match := _SEPARATOR.fullmatch(first.text.rstrip("\r\n")):  # written by Excel for itself
        delimiter, first = match[1], next((line for line in lines if not _blank(line, issues)), None)
        if first is None:
            report_empty(issues)
            return
    else:
        delimiter = _delimiter(first.text, columns, issues)
    current = first.text

    def texts() -> Iterator[str]:
        nonlocal current
        for line in chain([first], lines):
            current = line.text
            yield current

    parser = csv.reader(texts(), delimiter=delimiter, strict=True)

    def fields() -> Fields:
        while True:
            line = first.number + parser.line_num  # where the next record begins
            try:
                row = next(parser)
            except StopIteration:
                return
            except csv.Error as error:
                if "field larger" in str(error):
                    issues.add(*_large_field(limits, line, first.number + parser.line_num - 1), line=line)
                    return
                issues.add(*_syntax_problem(str(error), line, first.number + parser.line_num - 1), line=line)
                continue
            if not any(map(str.strip, row)) and (len(row) != 1 or not current.strip()):
                issues.blank += 1  # a row of empty fields, as spreadsheets write them, is blank, too
            else:
                yield line, row

    remedy = f"Put fields that contain a {_NAMES[delimiter]} in quotes and add missing ones."
    yield from _with_names(fields(), columns, issues, _FILL_TSV if delimiter == "\t" else remedy)


def tsv_rows(lines: Iterator[Line], columns: Sequence[str] | None, issues: Issues) -> Iterator[Row]:
    """The rows of a TSV file: one line per row, tabs between fields, quotes are ordinary characters.

    Texts in files like those of GLUE have single quotes that a CSV parser would take for the start of a field across
    many lines. Spreadsheets, however, quote fields that contain quotes, so a field that begins and ends with a quote
    and has only doubled ones inside is unquoted.
    """
    fields = (
        (line.number, [unquoted(field) for field in line.text.rstrip("\r\n").split("\t")])
        for line in lines
        if not _blank(line, issues)
    )
    yield from _with_names(fields, columns, issues, _FILL_TSV)


def text_rows(lines: Iterator[Line], issues: Issues) -> Iterator[Row]:
    """One text per line, as a column named ``text``."""
    empty = True
    for line in lines:
        if not _blank(line, issues) and line.valid:
            empty = False
            yield line.number, {"text": line.text.rstrip("\r\n")}
    if empty:
        report_empty(issues)


def unquoted(field: str) -> str:
    r"""A TSV field without the quotes of a spreadsheet.

    >>> unquoted('"a ""b"" c"')
    'a "b" c'
    >>> unquoted('"Yes" and "no"')
    '"Yes" and "no"'
    """
    if len(field) < 2 or field[0] != '"' or field[-1] != '"':
        return field
    inner = field[1:-1]
    return field if '"' in inner.replace('""', "") else inner.replace('""', '"')


def _blank(line: Line, issues: Issues) -> bool:
    """Whether a line is blank; counts it then."""
    if line.text.strip():
        return False
    issues.blank += 1
    return True


def _delimiter(line: str, columns: Sequence[str] | None, issues: Issues) -> str:
    """The delimiter of a file by its first line, which without ``columns`` is the header."""
    bare = re.sub(r'"[^"]*"', "", line)
    present = [sign for sign in _NAMES if sign in bare] or [","]
    matching = [sign for sign in dict.fromkeys((",", *present)) if columns and bare.count(sign) == len(columns) - 1]
    chosen = (matching or present)[0]
    if chosen != ",":
        name = _NAMES[chosen]
        why = "then has as many fields as data.columns" if matching else f"has no comma but a {name}"
        issues.notes.append(f"the fields are assumed to be separated by {name}s: the first line {why}")
    return chosen


def _large_field(limits: Limits, line: int, last: int) -> tuple[str, str]:
    """Message and remedy for a field that is too long, which may be one without its closing quote."""
    message, remedy = too_long(limits.line or _MAX_FIELD, "field")
    if last == line:
        return message, remedy
    return f"{message} that begins here and ends after line {last:,}: is its closing quote missing?", _QUOTES


def _syntax_problem(error: str, line: int, last: int) -> tuple[str, str]:
    """Message and remedy for what the CSV parser reports."""
    span = f" (noticed on line {last})" if last > line else ""
    if "unexpected end of data" in error:
        return "a quoted field that begins here is not closed before the end of the file", _QUOTES
    if "expected after" in error:
        return f"a closing quote is followed by more text in the same field{span}", _QUOTES
    if "new-line" in error:
        remedy = "Save the file with Unix or Windows line breaks, or put the field in quotes."
        return f"a carriage return inside a field without quotes{span}", remedy
    return f"not CSV: {error}{span}", _QUOTES


def _with_names(fields: Fields, columns: Sequence[str] | None, issues: Issues, remedy: str) -> Iterator[Row]:
    """Rows as dictionaries, after a check of the header and of the number of fields in every row."""
    names = list(columns or ())
    if columns is None:
        line, header = next(fields, (0, []))
        if not line:
            report_empty(issues)
            return
        names = [name.strip() for name in header]
        if not distinct_names([name for name in names if name], issues, line=line):
            for _ in fields:  # reports the problems of the other rows
                pass
            return
    width, empty = len(names), True
    used = [(place, name) for place, name in enumerate(names) if name]
    lowered = [name.strip().casefold() for name in names]
    for line, row in fields:
        if len(row) != width:
            empty = False
            where = "the header" if columns is None else "data.columns"
            issues.add(f"{counted(len(row), 'field')} where {where} has {width:,}", remedy, line=line)
        elif empty and columns is not None and [field.strip().casefold() for field in row] == lowered:
            issues.notes.append(f"line {line} repeats the names in data.columns and is taken for a header")
        else:
            empty = False
            yield line, {name: row[place] for place, name in used}
    if empty:
        report_empty(issues, "there are no rows, only a header line" if columns is None else "the file is empty")


def distinct_names(names: Sequence[str], issues: Issues, line: int | None = None) -> bool:
    """Whether all columns have different names; reports it if not."""
    repeated = sorted(name for name, number in Counter(names).items() if number > 1)
    if repeated:
        which = f"{', '.join(repr(name[:60]) for name in repeated[:20])}{', ...' if len(repeated) > 20 else ''}"
        message = f"the columns {which} occur" if line is None else f"the header names {which}"
        issues.add(f"{message} more than once", "Give every column a different name.", line=line)
    return not repeated


_TYPES = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "true or false"}
_OBJECT = 'Write an object such as {"text": "...", "label": "..."}.'
_VALID_LINES = "Write valid JSON; 'python -m json.tool --json-lines FILE' shows where it fails."
_VALID = _VALID_LINES.replace("--json-lines ", "")


class _RepeatedKeyError(ValueError):
    """The same key twice in one object."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _RepeatedKeyError(next(key for key, number in counts.items() if number > 1))
    return values


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
# NaN and Infinity are accepted here: whether they matter depends on the column, and the values are checked.


def jsonl_rows(lines: Iterator[Line], issues: Issues) -> Iterator[Row]:
    """One object per line; blank lines are counted and skipped."""
    empty = True
    for number, text, valid in lines:
        if text.isspace():
            issues.blank += 1
            continue
        empty = False
        if not valid:
            continue
        try:
            values = _DECODER.decode(text.rstrip("\n"))  # else an error at the end would be on the next line
        except (ValueError, RecursionError) as error:
            _report_syntax(error, number, issues, _VALID_LINES)
            continue
        if _is_object(values, number, issues):
            yield number, values
    if empty:
        report_empty(issues)


def json_rows(lines: Iterator[Line], issues: Issues) -> Iterator[Row]:
    """The objects of one top-level list, each with the line on which it begins."""
    text = "".join(line.text for line in lines)
    if issues.problems:
        return  # invalid bytes: further errors would follow from them
    place = _skip_space(text, 0)
    if place == len(text):
        report_empty(issues)
        return
    line = 1 + text.count("\n", 0, place)
    if text[place] != "[":
        remedy = "Put [ and ] around the objects with commas between, or name the file .jsonl if it has one per line."
        issues.add("a .json file must hold one list of objects", remedy, line=line)
        return
    if text.startswith("]", _skip_space(text, place + 1)):
        report_empty(issues, "the list is empty")
        return
    separator = ","
    while separator == ",":
        start = _skip_space(text, place + 1)
        line += text.count("\n", place, start)
        try:
            values, place = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            _report_syntax(error, line, issues, _VALID)
            return
        if _is_object(values, line, issues):
            yield line, values
        end = _skip_space(text, place)
        line += text.count("\n", start, end)
        place, separator = end, text[end : end + 1]
    rest = _skip_space(text, place + 1)
    if not separator:
        issues.add("the list is not closed before the end", "Close the list with ].", line=line)
    elif separator != "]":
        issues.add(f"not JSON: {separator!r} where , or ] is expected", _VALID, line=line)
    elif rest != len(text):
        issues.add("there is more after the end of the list", _VALID, line=1 + text.count("\n", 0, rest))


def _is_object(values: object, line: int, issues: Issues) -> bool:
    """Whether a row is an object; reports it if not."""
    if not isinstance(values, dict):
        kind = _TYPES.get(type(values), "null")
        issues.add(f"{kind} where an object is expected", _OBJECT, line=line, value=values)
    return isinstance(values, dict)


def _skip_space(text: str, place: int) -> int:
    """The first place from here on that is not JSON white space."""
    blank = _SPACE.match(text, place)
    return place if blank is None else blank.end()


_SPACE = re.compile(r"[ \t\r\n]*")


def _report_syntax(error: ValueError | RecursionError, line: int, issues: Issues, valid: str) -> None:
    """Report why JSON that begins on this line cannot be parsed."""
    if isinstance(error, json.JSONDecodeError):
        line = max(line, error.lineno)  # counted within one line, or within a whole .json file
        near = error.doc[max(0, error.pos - 15) : error.pos + 25].strip("\r\n")
        issues.add(f"not JSON: {error.msg}, at character {error.colno:,} of the line", valid, line=line, value=near)
    elif isinstance(error, _RepeatedKeyError):
        issues.add(f"the key {str(error)[:100]!r} occurs twice in one object", "Keep one of the two.", line=line)
    elif isinstance(error, RecursionError):
        issues.add("lists or objects nested too deeply", "Keep only the text and its label.", line=line)
    else:
        issues.add("a number with too many digits", "Write it as a string in quotes.", line=line)
