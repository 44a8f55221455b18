"""Bytes to numbered lines of text; encoding errors are reported by line and byte."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from nearfar.data.issues import Issues
from nearfar.errors import counted

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12

UTF8_MARK = b"\xef\xbb\xbf"
RESAVE = "Save the file again as UTF-8, for example with 'iconv -f {} -t UTF-8 OLD > NEW'."

_UTF_32 = "this is UTF-32 text (by its byte-order mark), not UTF-8", RESAVE.format("UTF-32")
_UTF_16 = "this is UTF-16 text (by its byte-order mark), not UTF-8", RESAVE.format("UTF-16")
_GZIP = "this is gzip-compressed data", "Let the file name end in .gz (such as .jsonl.gz), or decompress it."
_ZIP = "this is a ZIP archive or an Excel workbook", "Unpack it, or export it as CSV in UTF-8."
_SIGNATURES = {  # the longer ones first: UTF-32 begins like UTF-16
    b"\xff\xfe\x00\x00": _UTF_32,
    b"\x00\x00\xfe\xff": _UTF_32,
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
    b"\x1f\x8b": _GZIP,
    b"PK\x03\x04": _ZIP,
    b"PAR1": ("this is a Parquet file", "Let the file name end in .parquet."),
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

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        content = self._file.read1(len(view))
        view[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_bytes(path: Path, issues: Issues) -> BinaryIO | None:
    """The bytes of a file, decompressed if its name ends in ``.gz``; None after reporting why it cannot be opened."""
    try:
        if path.suffix.lower() == ".gz":
            return cast(BinaryIO, io.BufferedReader(_Unpacked(gzip.GzipFile(path)), 1 << 16))
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


def read_lines(stream: BinaryIO, issues: Issues) -> Iterator[Line]:
    """The lines of a UTF-8 stream.

    Only a line feed ends a line, so numbers agree with those of an editor. A line with invalid bytes is returned with
    U+FFFD in their place, so that a quoted field across several lines keeps its end.
    """
    offset = 0
    for number, raw in enumerate(_raw_lines(stream, issues), 1):
        if number == 1:
            for signature, problem in _SIGNATURES.items():
                if raw.startswith(signature):
                    issues.add(*problem, line=1)
                    return
            if raw.startswith(UTF8_MARK):
                raw = raw[len(UTF8_MARK) :]
                offset = len(UTF8_MARK)
                issues.notes.append("the file begins with a UTF-8 byte-order mark, which is skipped")
                if not raw:
                    return
        valid = True
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            valid = False
            text = raw.decode(errors="replace")
            message = f"not UTF-8: byte 0x{raw[error.start]:02x} at byte offset {offset + error.start:,} of the file"
            remedy = "If the file is in an older encoding: " + RESAVE.format("WINDOWS-1252")
            nearby = raw[max(0, error.start - 20) : error.start + 20].decode(errors="replace").strip("\r\n")
            issues.add(message, remedy, line=number, value=nearby)
        if "\0" in text:
            valid = False
            message = f"a NUL byte at byte offset {offset + raw.index(0):,} of the file"
            remedy = "Text has no NUL bytes: check whether the file is damaged, or in UTF-16; "
            issues.add(message, remedy + "'tr -d \"\\000\" < OLD > NEW' removes them.", line=number)
        yield Line(number, text, valid)
        offset += len(raw)


def report_empty(issues: Issues, message: str = "the file is empty") -> None:
    """Report that there are no rows, unless a problem explains it already."""
    if not issues.problems:
        skipped = f" ({counted(issues.blank, 'blank line')} apart)" if issues.blank else ""
        issues.add(message + skipped, "Name a file that has rows.")


def _raw_lines(stream: BinaryIO, issues: Issues) -> Iterator[bytes]:
    number = 0
    try:
        for raw in stream:
            number += 1
            yield raw
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
