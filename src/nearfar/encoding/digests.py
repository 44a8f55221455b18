"""SHA-256 of the files of a model folder: ``SHA256SUMS`` lists them, and loading checks them.

Listed are the files that loading reads. Those that people write by hand, such as ``README.md`` and ``recipe.toml``, are
not, so that they can be edited. The format is that of ``sha256sum``: ``sha256sum --check SHA256SUMS`` works, too.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nearfar.encoding.folder_files import read_bytes, regular_file
from nearfar.errors import EncoderError
from nearfar.files import sha256_of, write_atomic

DIGESTS = "SHA256SUMS"
EDITABLE = ("README.md", "recipe.toml", "metrics.json", DIGESTS)
"""Files of a model that loading does not read: they have no digest."""
SKIP = "NEARFAR_CHECK_WEIGHTS"
"""The variable that, set to 0, leaves weights unchecked."""
_LINE = re.compile(r"([0-9a-f]{64})  ([^\\/\s][^\\\n]{0,250})")


def digest_lines(files: Mapping[str, Path | bytes]) -> str:
    """The content of ``SHA256SUMS`` for files by their names in the folder; those that may be edited are left out."""
    lines = [
        f"{hashlib.sha256(file).hexdigest() if isinstance(file, bytes) else sha256_of(file)}  {name}\n"
        for name, file in sorted(files.items())
        if name not in EDITABLE
    ]
    return "".join(lines)


def stated_digests(folder: Path) -> dict[str, str] | None:
    """The digests of a folder by file; None where it has none, as those of other libraries."""
    content = read_bytes(folder, DIGESTS)
    if content is None:
        return None
    digests: dict[str, str] = {}
    for line in content.decode("utf-8", errors="replace").splitlines():
        found = _LINE.fullmatch(line)
        if found is None or ".." in found[2].split("/"):
            raise EncoderError(
                f"{folder / DIGESTS}: {line[:60]!r} is not a digest and the name of a file. Copy the folder again, or "
                "delete this file if you trust the others."
            )
        digests[found[2]] = found[1]
    return digests


def check_digests(folder: Path) -> None:
    """Refuse a folder one of whose files is missing or has other contents than were written."""
    digests = stated_digests(folder)
    if digests is None:
        return
    if not digests:
        raise EncoderError(
            f"{folder / DIGESTS}: this file is empty. Copy the folder again, or delete it if you trust the others."
        )
    weights = os.environ.get(SKIP) != "0"
    for name, stated in digests.items():
        path = regular_file(folder, name)
        if path is None:
            raise EncoderError(f"{folder / name}: this file is missing; {DIGESTS} lists it. Copy the folder again.")
        if not weights and name.endswith(".safetensors"):
            continue
        if sha256_of(path) != stated:
            raise EncoderError(
                f"{path}: this file has changed since the model was saved: its SHA-256 is not that in {DIGESTS}. Copy "
                f"the folder again; if you have changed it on purpose, delete its line in {DIGESTS}."
            )


def write_listed(folder: Path, name: str, content: str) -> None:
    """Write a file into a folder, and its digest."""
    with relisted(folder, name):
        write_atomic(folder / name, content)


@contextmanager
def relisted(folder: Path, *names: str) -> Iterator[None]:
    """Give files that are written in this block new digests, if the folder has digests; a kill leaves them unlisted."""
    digests = stated_digests(folder)
    if digests is not None:
        others = {name: digest for name, digest in digests.items() if name not in names}
        _write(folder, others)
    yield
    if digests is not None:
        _write(folder, others | {name: sha256_of(folder / name) for name in names if (folder / name).is_file()})


def _write(folder: Path, digests: Mapping[str, str]) -> None:
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    write_atomic(folder / DIGESTS, lines, folder / f".{DIGESTS}")


def folder_digest(folder: Path) -> str:
    """SHA-256 of the files of a model folder; its name where it is none."""
    if not folder.is_dir():
        return str(folder)
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".txt", ".model"))
    return hashlib.sha256("".join(f"{path.name} {sha256_of(path)}\n" for path in files).encode()).hexdigest()
