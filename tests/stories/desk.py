"""What every story needs: the command line, and texts to classify."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from nearfar.cli import main

WORDS = {
    "delivery": ("parcel", "courier", "shipping", "tracking", "warehouse", "doorstep"),
    "payment": ("invoice", "charge", "refund", "credit card", "voucher", "receipt"),
    "defect": ("broken", "scratch", "crack", "loose screw", "torn seam", "dead battery"),
}
PHRASES = ("my {0} is a problem", "where is the {0}", "about the {0} again", "please see to the {0} today")
ROWS = [(phrase.format(word), label) for phrase in PHRASES for label, words in WORDS.items() for word in words]
"""72 texts with their labels, as a small help desk has them."""


def nearfar(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, str, str]:
    """Type a command: its exit status, standard output and standard error."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    saved = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["nearfar", *map(str, arguments)]
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    sys.stdout, sys.stderr = streams
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = saved
    out, errors = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    return code, out, errors


def works(*arguments: str | Path, stdin: bytes = b"") -> tuple[str, str]:
    """Type a command that ends well."""
    code, out, errors = nearfar(*arguments, stdin=stdin)
    assert code == 0, errors
    return out, errors


def write_csv(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], *, encoding: str = "utf-8", excel: bool = False
) -> None:
    """A CSV file; ``excel`` is what Excel saves in Europe: semicolons, a line that says so, and blank rows at the end."""
    with path.open("w", encoding=encoding, newline="") as file:
        if excel:
            file.write("sep=;\r\n")
        writer = csv.writer(file, delimiter=";" if excel else ",")
        writer.writerow(header)
        writer.writerows(rows)
        if excel:
            file.write(f"{';' * (len(header) - 1)}\r\n" * 2)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file that was written."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))
