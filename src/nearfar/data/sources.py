"""From what the user wrote to where the data is."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nearfar.errors import MEMORY, DataError, Problem, did_you_mean

Format = Literal["csv", "tsv", "jsonl", "json", "txt", "parquet", "folder", "hub", "stdin"]

SAMPLES = Path(__file__).parent / "samples"
"""Data sets that come with the package: ``NAME/SPLIT.jsonl``."""

READ = ".csv, .tsv, .jsonl, .ndjson, .json, .txt (each also with .gz), .parquet, a folder saved by datasets"
_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".txt": "txt",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a source is, and how it is to be read."""

    source: str
    """As the user wrote it."""
    format: Format
    path: Path | None = None
    """Of a file or folder; None for the hub and for standard input."""
    name: str = ""
    """Of a data set on the hub."""
    split: str | None = None
    """What stands after ``#``; None when nothing does."""


def locate(source: str, base: Path | None = None) -> Place:
    """Where a source is: a path (relative to ``base``), ``hub:NAME``, ``sample:NAME`` or ``-``.

    Raises DataError when there is no such file, or none that can be read.
    """
    if source == "-":
        return Place(source, "stdin")
    if source.startswith(MEMORY):
        raise _refusal(
            source, "these rows were in memory, and none were passed", "Pass them to the run as data=, or name a file."
        )
    kind, colon, rest = source.partition(":")
    if colon and kind in ("hub", "sample"):
        name, _, split = rest.partition("#")
        if not name:
            raise _refusal(source, "no name after the colon", f"Write {kind}:NAME or {kind}:NAME#SPLIT.")
        if kind == "hub":
            return Place(source, "hub", name=name, split=split or None)
        return _sample(source, name, split or "train")
    return _on_disk(source, base)


def samples() -> dict[str, tuple[str, ...]]:
    """The data sets that come with the package, each with its splits."""
    found: dict[str, list[str]] = {}
    for path in sorted(SAMPLES.glob("*/*.jsonl")):
        found.setdefault(path.parent.name, []).append(path.stem)
    return {name: tuple(splits) for name, splits in found.items()}


def _sample(source: str, name: str, split: str) -> Place:
    known = samples()
    if name not in known:
        listed = ", ".join(f"sample:{each}" for each in known) or "none"
        raise _refusal(
            source, f"there is no sample named {name!r}", f"There are: {listed}.{did_you_mean(name, list(known))}"
        )
    if split not in known[name]:
        raise _refusal(source, f"there is no split {split!r}", splits_there_are(split, known[name]))
    return Place(source, "jsonl", SAMPLES / name / f"{split}.jsonl", split=split)


def splits_there_are(split: str, known: tuple[str, ...] | list[str]) -> str:
    """The remedy for a split that does not exist."""
    listed = ", ".join(known) or "none"
    return f"Write one of the splits there are after '#': {listed}.{did_you_mean(split, list(known))}"


def _on_disk(source: str, base: Path | None) -> Place:
    if not source.strip():
        raise _refusal(source or "''", "no file is named", f"Name a file ({READ}), hub:NAME, sample:NAME or -.")
    split: str | None = None
    mode = _mode(source, source, base)
    path = _path(source, base)
    if mode is None and "#" in source:  # a file may have '#' in its name: the whole comes first
        name, _, split = source.rpartition("#")
        mode, path = _mode(source, name, base), _path(name, base)
    if mode is None:
        raise _missing(source, path)
    if stat.S_ISDIR(mode):
        try:
            saved = any((path / mark).is_file() for mark in ("dataset_dict.json", "state.json", "dataset_info.json"))
            inside = sorted(entry.name for entry in path.iterdir() if entry.is_file() and format_of(entry))[:10]
        except PermissionError:
            raise _not_entered(source) from None
        if not saved:
            listed = f" It holds these files that can be read: {', '.join(inside)}." if inside else ""
            raise _refusal(
                source,
                "a folder, but not one saved by datasets (it has neither dataset_dict.json nor state.json)",
                f"Name a file, or a folder written by Dataset.save_to_disk.{listed}",
            )
        return Place(source, "folder", path, split=split or None)
    if not stat.S_ISREG(mode):
        raise _refusal(source, "not a plain file but a device, a socket or a pipe", "Name a file, or pipe into '-'.")
    form = format_of(path)
    if form is None:
        ending = "".join(path.suffixes[-2:]) or "no ending"
        raise _refusal(source, f"a kind of file that is not read ({ending})", f"What is read: {READ}.")
    if split is not None:
        raise _refusal(
            source,
            f"a single file has no split {split!r}",
            "Take '#' and what follows off, or name the file of that split.",
        )
    return Place(source, form, path)


def format_of(path: Path) -> Format | None:
    """How a file is read, by the end of its name.

    >>> format_of(Path("a.JSONL.gz")), format_of(Path("a.parquet")), format_of(Path("a.xlsx"))
    ('jsonl', 'parquet', None)
    """
    name = path.name.lower()
    inner = name.removesuffix(".gz")
    form = _FORMATS.get(Path(inner).suffix)
    return None if form == "parquet" and inner != name else form


def _path(source: str, base: Path | None) -> Path:
    path = Path(os.path.expanduser(source))
    return path if base is None else base / path


def _mode(source: str, name: str, base: Path | None) -> int | None:
    """The file mode, None when there is no such file."""
    try:
        return _path(name, base).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise _not_entered(source) from None
    except (OSError, ValueError) as error:  # too long a name, a loop of links, a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise _refusal(source[:300], f"not a usable path ({reason})", "Look at how it is written.") from None


def _missing(source: str, path: Path) -> DataError:
    folder = path.parent
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return _refusal(source, f"there is no such file: there is no folder {str(folder)!r}", "Look at the path.")
    hint = did_you_mean(path.name.split("#")[0], names)
    return _refusal(source, "there is no such file", "Look at the name and at the folder it is searched in." + hint)


def _not_entered(source: str) -> DataError:
    remedy = "Give yourself permission with chmod."
    return _refusal(source, "the folder may not be entered (permission denied)", remedy)


def _refusal(source: str, message: str, remedy: str) -> DataError:
    return DataError([Problem(source, message, remedy)])
