"""SHA-256 of the files of an export: ``SHA256SUMS`` lists them, and opening checks them, as in model folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from nearfar.errors import EncoderError
from nearfar.files import sha256_of

SUMS = "SHA256SUMS"
SKIP = "NEARFAR_CHECK_WEIGHTS"
"""The variable that, set to 0, leaves files unchecked."""
LARGEST = 2**20


def write_sums(folder: Path, names: Sequence[str]) -> None:
    """List the digests of these files of a folder."""
    lines = [f"{sha256_of(folder / name)}  {name}\n" for name in sorted(names)]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check_sums(folder: Path, names: Sequence[str]) -> None:
    """Refuse files with other contents than were exported; a folder without digests is not checked."""
    path = folder / SUMS
    if not path.is_file() or os.environ.get(SKIP) == "0":
        return
    if path.stat().st_size > LARGEST:
        raise EncoderError(f"{path}: this file is too large for a list of digests. Export the model again.")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    stated = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for name in names:
        file = folder / name
        if not file.is_file():  # the reader says so
            continue
        if name not in stated:
            raise EncoderError(f"{path}: it does not list {name}. Export the model again, or delete this file.")
        if sha256_of(file) != stated[name]:
            raise EncoderError(
                f"{file}: this file has changed since it was exported: its SHA-256 is not that in {SUMS}. Copy the "
                f"folder again, or export again; if you have changed it on purpose, delete {SUMS}."
            )
