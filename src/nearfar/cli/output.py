"""Reading options and writing results, as several commands do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Literal

from nearfar.errors import OutputError, SettingError
from nearfar.files import atomic


def handling(invalid: str | None) -> Literal["refuse", "drop"]:
    """What was asked to be done with bad rows."""
    if invalid not in (None, "refuse", "drop"):
        raise SettingError(f"--invalid is refuse or drop, got {invalid!r}.")
    return "drop" if invalid == "drop" else "refuse"


def check_target(out: str, *, overwrite: bool) -> None:
    """Refuse an output that cannot be written, before the work."""
    if out == "-":
        return
    path = Path(out)
    if path.is_dir():
        raise OutputError(f"{out}: this is a folder; give the name of a file.")
    if path.exists() and not overwrite:
        raise OutputError(f"{out}: the file exists. Replace it with --overwrite, or choose another --out.")
    if not path.parent.is_dir():
        raise OutputError(f"{out}: there is no folder {path.parent}; make it first.")
    if not os.access(path.parent, os.W_OK):
        raise OutputError(f"{out}: nothing can be written to the folder {path.parent}.")


def write_target(out: str, write: Callable[[IO[bytes]], None]) -> None:
    """Write to standard output, or to a file that is there whole or not at all."""
    if out == "-":
        write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        with atomic(Path(out)) as temporary, temporary.open("wb") as file:
            write(file)
    except OSError as cause:
        raise OutputError(f"{out}: writing failed: {cause.strerror}.") from cause


def one_standard_input(*sources: str | None) -> None:
    """Refuse to read two files from standard input, which comes only once."""
    if sources.count("-") > 1:
        raise SettingError("only one file can come from standard input: name the others.")


def write_lines(out: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Write one JSON object a line."""

    def write(file: IO[bytes]) -> None:
        for row in rows:
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

    write_target(out, write)


def print_json(values: Mapping[str, object]) -> None:
    """Print JSON on standard output."""
    sys.stdout.write(json.dumps(values, ensure_ascii=False, indent=2) + "\n")


def print_notes(notes: Iterable[str], source: str | None = None) -> None:
    """Print what the user should know about the data, on standard error; ``source`` is the file that notes are of."""
    for note in notes:
        sys.stderr.write(f"note: {note}\n" if source is None else f"note: {source}: {note}\n")
