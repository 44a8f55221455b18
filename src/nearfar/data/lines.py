"""From bytes to numbered lines of text, with every fault of encoding told by line and byte."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from nearfar.data.issues import Ledger, count

if TYPE_CHECKING:
    from typing_extensions import Buffer  # in collections.abc from Python 3.12

UTF8_MARK = b"\xef\xbb\xbf"

RESAVE = "Save the file again as UTF-8, for example with 'iconv -f {} -t UTF-8 OLD > NEW'."

_SIGNATURES = (  # the longer marks first: UTF-32 begins like UTF-16
    (b"\xff\xfe\x00\x00", "this is UTF-32 text (by its byte-order mark), not UTF-8", RESAVE.format("UTF-32")),
    (b"\x00\x00\xfe\xff", "this is UTF-32 text (by its byte-order mark), not UTF-8", RESAVE.format("UTF-32")),
    (b"\xff\xfe", "this is UTF-16 text (by its byte-order mark), not UTF-8", RESAVE.format("UTF-16")),
    (b"\xfe\xff", "this is UTF-16 text (by its byte-order mark), not UTF-8", RESAVE.format("UTF-16")),
    (
        b"\x1f\x8b",
        "this is gzip-compressed data",
        "Let the file name end in .gz (such as .jsonl.gz), or decompress it.",
    ),
    (b"PK\x03\x04", "this is a ZIP archive or an Excel workbook", "Unpack it, or export it as CSV in UTF-8."),
    (b"PAR1", "this is a Parquet file", "Let the file name end in .parquet."),
)


class Line(NamedTuple):
    """One physical line."""

    number: int
    """1-based."""
    text: str
    """With its line end."""
    sound: bool
    """False when its bytes were at fault, which the ledger then knows."""


class _Unpacked(io.RawIOBase):
    """A gzip file that hands on all it can unpack before it fails.

    ``GzipFile`` as an iterator loses the last block before a damage, and with it the line of the damage.
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


def open_bytes(path: Path, ledger: Ledger) -> BinaryIO | None:
    """The bytes of a file, decompressed when its name ends in ``.gz``; None after entering why not."""
    try:
        if path.suffix.lower() == ".gz":
            return cast(BinaryIO, io.BufferedReader(_Unpacked(gzip.GzipFile(path)), 1 << 16))
        return path.open("rb")
    except OSError as error:
        cannot_open(error, ledger)
        return None


def cannot_open(error: OSError, ledger: Ledger) -> None:
    """Enter that the source could not be opened or read on."""
    if isinstance(error, PermissionError):
        ledger.problem("the file may not be read (permission denied)", "Give yourself read permission: chmod u+r FILE.")
    else:
        ledger.problem(f"the file cannot be read: {error.strerror or error}", "See that it is a plain file on a disk.")


def read_lines(stream: BinaryIO, ledger: Ledger) -> Iterator[Line]:
    """The lines of a UTF-8 stream.

    A line ends at a line feed and nowhere else, so numbers agree with those of an editor. A line
    with faulty bytes still comes, marked unsound and with U+FFFD in the gaps, so that a quoted
    field which spans it keeps its end.
    """
    offset = 0
    for number, raw in enumerate(_raw_lines(stream, ledger), 1):
        size = len(raw)
        if number == 1:
            for signature, message, remedy in _SIGNATURES:
                if raw.startswith(signature):
                    ledger.problem(message, remedy, line=1)
                    return
            if raw.startswith(UTF8_MARK):
                raw = raw[len(UTF8_MARK) :]
                offset = len(UTF8_MARK)
                size -= offset
                ledger.notes.append("the file begins with a UTF-8 byte-order mark, which is skipped")
                if not raw:
                    return
        sound = True
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            sound = False
            text = raw.decode(errors="replace")
            ledger.problem(
                f"not UTF-8: byte 0x{raw[error.start]:02x} at byte offset {offset + error.start:,} of the file",
                "If the file is in an older encoding: " + RESAVE.format("WINDOWS-1252"),
                line=number,
                value=raw[max(0, error.start - 20) : error.start + 20].decode(errors="replace").strip("\r\n"),
            )
        if "\0" in text:
            ledger.problem(
                f"a NUL byte at byte offset {offset + raw.index(0):,} of the file",
                "Text has no NUL bytes: see whether the file is damaged, or in UTF-16; "
                "'tr -d \"\\000\" < OLD > NEW' removes them.",
                line=number,
            )
            sound = False
        yield Line(number, text, sound)
        offset += size


def nothing(ledger: Ledger, what: str = "the file is empty") -> None:
    """Enter that no row came, unless a problem that explains it stands already."""
    if not ledger.problems:
        skipped = f" ({count(ledger.blank, 'blank line')} apart)" if ledger.blank else ""
        ledger.problem(what + skipped, "Name a file that has rows.")


def _raw_lines(stream: BinaryIO, ledger: Ledger) -> Iterator[bytes]:
    number = 0
    try:
        for raw in stream:
            number += 1
            yield raw
    except EOFError:
        message, remedy = "the compressed file breaks off here", "Copy or download it again; this copy is cut short."
        ledger.problem(message, remedy, line=number + 1)
    except (gzip.BadGzipFile, zlib.error) as error:
        if number == 0 and "Not a gzipped file" in str(error):
            message, remedy = (
                "the name ends in .gz but this is not gzip data",
                "Take the .gz off the name, or compress it.",
            )
        else:
            message = f"the compressed data is damaged here ({error})"
            remedy = "Copy or download the file again; 'gzip -t FILE' tells when it is whole."
        ledger.problem(message, remedy, line=number + 1)
    except OSError as error:
        cannot_open(error, ledger)
