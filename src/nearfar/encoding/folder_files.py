"""Files of a model folder, which anybody may have made: regular ones inside the folder, read within bounds."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from nearfar.errors import EncoderError, shorten

SMALL = 16 * 2**20
"""Bytes that a settings file has at most; those of real encoders have less than a tenth of it."""
LARGE = 128 * 2**20
"""Bytes that a file of a vocabulary has at most; the largest in use have a third of it."""
DEPTH = 100
"""How deep objects and lists of a settings file are nested at most."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket",
          stat.S_IFDIR: "a folder"}  # fmt: skip


def regular_file(folder: Path, name: str) -> Path | None:
    """The path of a file in a model folder; None where there is none, an error for what is no regular file inside it.

    Links are followed inside the folder, and into the blobs of the hub's cache, which keeps files of all revisions
    there.
    """
    path = folder / name
    try:
        found = os.lstat(path)
        if os.path.realpath(path.parent) != os.path.realpath(folder) or stat.S_ISLNK(found.st_mode):
            _check_inside(folder, path)
            found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            raise EncoderError(
                f"{path}: this link points to a file that does not exist. Is the folder complete?"
            ) from None
        return None
    except (OSError, ValueError) as cause:
        why = getattr(cause, "strerror", None) or cause
        place = shorten(str(path), 200)
        raise EncoderError(f"{place}: this file cannot be opened ({why}). Is the folder complete?") from cause
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise EncoderError(f"{path}: this is {kind} where a file belongs, so the folder is not opened. Replace it.")
    return path


def _check_inside(folder: Path, path: Path) -> None:
    target = Path(os.path.realpath(path, strict=True))
    home = Path(os.path.realpath(folder))
    allowed = [home, *([home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [])]
    if not any(target.is_relative_to(place) for place in allowed):
        raise EncoderError(
            f"{path}: this is a link to a file outside the folder, which is not followed. Copy that file into the "
            "folder."
        )


def read_bytes(folder: Path, name: str, *, most: int = SMALL) -> bytes | None:
    """The content of a file; None where there is none, an error for one of more than ``most`` bytes."""
    path = regular_file(folder, name)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as cause:
        raise EncoderError(f"{path}: this file cannot be read ({cause.strerror}). Is the folder complete?") from cause
    if len(content) > most:
        size = path.stat().st_size
        raise EncoderError(
            f"{path}: this file has {size:,} bytes, and such a file has at most {most:,}. Is it what it is named?"
        )
    return content


def read_json(folder: Path, name: str, kind: type | tuple[type, ...] = dict, *, most: int = SMALL) -> Any:
    """The values of a JSON file; None where there is none.

    An error for JSON of another kind, nested deeply, or with text that cannot be written as UTF-8.
    """
    content = read_bytes(folder, name, most=most)
    if content is None:
        return None
    path = folder / name
    try:
        values = json.loads(content)
        if _SURROGATE.search(content):
            json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as cause:
        raise EncoderError(
            f"{path}: this file has half of a surrogate pair, {cause.object[cause.start]!a}, which is no text. Is it "
            "damaged?"
        ) from cause
    except (ValueError, RecursionError) as cause:
        why = "nested too deeply" if isinstance(cause, RecursionError) else cause
        raise EncoderError(f"{path}: this is not readable JSON ({why}). Is the folder complete?") from cause
    if not isinstance(values, kind):
        raise EncoderError(f"{path}: this is JSON, but not what belongs there. Is the folder complete?")
    if nested_deeply(values):
        raise EncoderError(f"{path}: this JSON is nested more than {DEPTH} levels deep. Is it what it is named?")
    return values


def nested_deeply(values: object) -> bool:
    """Whether lists and objects are nested more than ``DEPTH`` levels deep."""
    level = [values]
    for _ in range(DEPTH + 1):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def is_panic(error: BaseException) -> bool:
    """Whether an error is that of a library in Rust that has met what it was not made for."""
    return type(error).__name__ == "PanicException"
