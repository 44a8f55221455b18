"""Where the data of a source is: a file, a folder, the hub, a sample, or standard input."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nearfar.errors import MEMORY, DataError, Problem, did_you_mean
from nearfar.files import is_remote, uri

Format = Literal["csv", "tsv", "jsonl", "json", "txt", "parquet", "xlsx", "folder", "hub", "stdin"]

SAMPLES = Path(__file__).parent / "samples"
"""Data sets of the package: ``NAME/SPLIT.jsonl``."""

READ = ".csv, .tsv, .jsonl, .ndjson, .json, .txt (each also with .gz), .parquet, .xlsx, a folder saved by datasets"
_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".txt": "txt",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where a source is, and how to read it."""

    source: str
    """As the user wrote it."""
    format: Format
    path: Path | None = None
    """The file or folder; None for the hub and for standard input."""
    name: str = ""
    """The data set on the hub."""
    split: str | None = None
    """What follows ``#``, if anything."""


def locate(source: str, base: Path | None = None) -> DataSource:
    """Find a source: a path (relative to ``base``), ``hub:NAME``, ``sample:NAME`` or ``-``.

    Raises DataError if there is no such file, or none that can be read.
    """
    if source == "-":
        return DataSource(source, "stdin")
    if source.startswith(MEMORY):
        remedy = "Pass them to the run as data=, or name a file."
        raise _error(source, "these rows were in memory, and none were passed", remedy)
    kind, colon, rest = source.partition(":")
    if not colon or kind not in ("hub", "sample"):
        return _on_disk(source, base)
    name, _, split = rest.partition("#")
    if not name:
        raise _error(source, "no name after the colon", f"Write {kind}:NAME or {kind}:NAME#SPLIT.")
    if kind == "hub":
        return DataSource(source, "hub", name=name, split=split or None)
    return _sample(source, name, split or "train")


def samples() -> dict[str, tuple[str, ...]]:
    """The data sets of the package with their splits."""
    splits: dict[str, tuple[str, ...]] = {}
    for path in sorted(SAMPLES.glob("*/*.jsonl")):
        splits[path.parent.name] = (*splits.get(path.parent.name, ()), path.stem)
    return splits


def split_remedy(split: str, known: Sequence[str]) -> str:
    """The remedy for a split that does not exist."""
    return f"Write one of these splits after '#': {', '.join(known) or 'none'}.{did_you_mean(split, known)}"


def format_of(path: Path) -> Format | None:
    """The format of a file by its suffix.

    >>> format_of(Path("a.JSONL.gz")), format_of(Path("a.parquet")), format_of(Path("a.doc"))
    ('jsonl', 'parquet', None)
    """
    name = path.name.lower()
    inner = name.removesuffix(".gz")
    form = _FORMATS.get(Path(inner).suffix)
    return None if form in ("parquet", "xlsx") and inner != name else form


def _sample(source: str, name: str, split: str) -> DataSource:
    known = samples()
    if name not in known:
        listed = ", ".join(f"sample:{each}" for each in known) or "none"
        remedy = f"There are: {listed}.{did_you_mean(name, list(known))}"
        raise _error(source, f"there is no sample named {name!r}", remedy)
    if split not in known[name]:
        raise _error(source, f"there is no split {split!r}", split_remedy(split, known[name]))
    return DataSource(source, "jsonl", SAMPLES / name / f"{split}.jsonl", split=split)


def _on_disk(source: str, base: Path | None) -> DataSource:
    if not source.strip():
        raise _error(source or "''", "no file is named", f"Name a file ({READ}), hub:NAME, sample:NAME or -.")
    split: str | None = None
    path, mode = _stat(source, source, base)
    if mode is None and "#" in source:  # the name of a file may contain '#', so the whole comes first
        name, _, split = source.rpartition("#")
        path, mode = _stat(source, name, base)
    if mode is None:
        raise _missing(source, path)
    if stat.S_ISDIR(mode):
        _check_folder(source, path)
        return DataSource(source, "folder", path, split=split or None)
    if not stat.S_ISREG(mode):
        raise _error(source, "not a plain file but a device, a socket or a pipe", "Name a file, or pipe into '-'.")
    form = format_of(path)
    if form is None:
        suffix = "".join(path.suffixes[-2:]) or "no suffix"
        raise _error(source, f"a file format that is not supported ({suffix})", f"Supported: {READ}.")
    if split is not None and form != "xlsx":  # which has sheets
        remedy = "Remove '#' and what follows, or name the file of that split."
        raise _error(source, f"a single file has no split {split!r}", remedy)
    return DataSource(source, form, path, split=split or None)


def _check_folder(source: str, path: Path) -> None:
    """Refuse a folder that was not saved by datasets."""
    try:
        if any((path / name).is_file() for name in ("dataset_dict.json", "state.json", "dataset_info.json")):
            return
        files = sorted(entry.name for entry in path.iterdir() if entry.is_file() and format_of(entry))[:10]
    except PermissionError:
        raise _no_permission(source) from None
    listed = f" It holds these files that can be read: {', '.join(files)}." if files else ""
    message = "a folder, but not one saved by datasets (it has neither dataset_dict.json nor state.json)"
    raise _error(source, message, f"Name a file, or a folder written by Dataset.save_to_disk.{listed}")


def _stat(source: str, name: str, base: Path | None) -> tuple[Path, int | None]:
    """The path of a file and its mode, None if it does not exist."""
    path = (base or Path()) / os.path.expanduser(name)
    try:
        return path, path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return path, None
    except PermissionError:
        raise _no_permission(source) from None
    except (OSError, ValueError) as error:  # a name that is too long, a loop of links, a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _error(source[:300], f"not a usable path ({reason})", "Check how it is written.") from None


def _missing(source: str, path: Path) -> DataError:
    if is_remote(source):
        remedy = "Copy the file to a disk; nearfar embed and predict with --out FOLDER/ read object stores."
        return _error(uri(source), "this command reads files on a disk only", remedy)
    folder = path.parent
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return _error(source, f"there is no such file: there is no folder {str(folder)!r}", "Check the path.")
    guess = did_you_mean(path.name.split("#")[0], names)
    return _error(source, "there is no such file", f"Check the name and the folder it is relative to.{guess}")


def _no_permission(source: str) -> DataError:
    message = "the folder may not be entered (permission denied)"
    return _error(source, message, "Give yourself permission with chmod.")


def _error(source: str, message: str, remedy: str) -> DataError:
    return DataError(Problem(source, message, remedy))
