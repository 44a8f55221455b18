"""Files on a disk or in an object store, by one interface: that of ``pyarrow.fs``, and of fsspec for the rest."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from nearfar.data.sources import format_of
from nearfar.errors import DataError, OutputError, Problem, SettingError
from nearfar.files import flush, is_full, is_remote

WILD = re.compile(r"[*?\[]")
PATIENCE = timedelta(seconds=15)
"""How long a store of gs:// is tried to be reached."""
TEMPORARY = ".new-"
"""Part of the name of a file that is being written."""


def is_pattern(name: str) -> bool:
    """Whether a name stands for several files.

    >>> is_pattern("data/*.parquet"), is_pattern("data/a.parquet")
    (True, False)
    """
    return WILD.search(name) is not None


@lru_cache(maxsize=64)
def _filesystem(scheme: str, bucket: str) -> Any:
    """The file system of a scheme; ``bucket`` is what a URI must have for its options."""
    from pyarrow import fs

    if not scheme:
        return fs.LocalFileSystem()
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if scheme == "s3" and endpoint:  # a store with the interface of S3, such as MinIO
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        return fs.S3FileSystem(endpoint_override=endpoint, region=region)
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if scheme == "gs" and emulator:  # a server on this machine, for tests
        kind, _, place = emulator.rpartition("://")
        return fs.GcsFileSystem(
            anonymous=True, scheme=kind or "http", endpoint_override=place.rstrip("/"), retry_time_limit=PATIENCE
        )
    if scheme == "gs":  # without a limit, pyarrow looks for credentials for a quarter of an hour
        return fs.GcsFileSystem(retry_time_limit=PATIENCE)
    if scheme == "s3":
        return fs.FileSystem.from_uri(f"{scheme}://{bucket}")[0]
    import fsspec

    return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))


@dataclass(frozen=True)
class Entry:
    """A file, and what tells that it has changed."""

    name: str
    """As the user would write it."""
    size: int
    modified: int
    """Nanoseconds since 1970."""


@dataclass(frozen=True)
class Storage:
    """A folder or a file, on a disk or in an object store.

    Args:
        name: a path, or a URI such as ``s3://bucket/folder``.
    """

    name: str
    local: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "local", not is_remote(self.name))

    @cached_property
    def path(self) -> str:
        """The path as the file system has it."""
        if self.local:
            return str(Path(self.name).absolute()).rstrip("/") or "/"
        return self.name.partition("://")[2].rstrip("/")

    @cached_property
    def files(self) -> Any:
        """The file system of ``pyarrow``."""
        scheme = "" if self.local else self.name.partition("://")[0]
        bucket = "" if self.local else self.path.partition("/")[0]
        try:
            return _filesystem(scheme, bucket)
        except Exception as cause:
            message = f"no files can be reached by {scheme}:// ({_first_line(cause)})"
            remedy = "Check the name, the network and the credentials; s3:// and gs:// need no further package."
            raise DataError(Problem(self.name, message, remedy)) from cause

    def __truediv__(self, name: str) -> Storage:
        return Storage(f"{self.name.rstrip('/')}/{name}")

    def entry(self) -> Entry | None:
        """The file; None where there is none."""
        info = self._info()
        if not info.is_file:
            return None
        return Entry(self._named(self.path), int(info.size), int(info.mtime_ns or 0))

    def is_folder(self) -> bool:
        """Whether it is a folder with something in it; empty folders do not exist in object stores."""
        from pyarrow import fs

        return bool(self._info().type == fs.FileType.Directory)

    def _info(self) -> Any:
        with self.read_errors():
            return self.files.get_file_info(self.path)

    def listing(self, *, recursive: bool = False) -> dict[str, int]:
        """The sizes of all files of a folder, by their paths in it; nothing where there is no such folder."""
        return {name[len(self.path) + 1 :]: size for name, size, _ in self._below(recursive=recursive)}

    def _below(self, *, recursive: bool) -> list[tuple[str, int, int]]:
        from pyarrow import fs

        selector = fs.FileSelector(self.path, recursive=recursive, allow_not_found=True)
        with self.read_errors():
            infos = self.files.get_file_info(selector)
        return sorted((info.path, int(info.size), int(info.mtime_ns or 0)) for info in infos if info.is_file)

    def matching(self) -> list[Entry]:
        """The files of a pattern or of a folder, sorted by name; a single file is its own match."""
        if is_pattern(self.name):
            head = re.split(WILD, self.path, maxsplit=1)[0].rpartition("/")[0]
            base = Storage(self._named(head))
            shape = re.compile(translated(self.path))
            found = base._below(recursive=True)  # a glob of any depth
            return [Entry(self._named(path), size, at) for path, size, at in found if shape.fullmatch(path)]
        if self.is_folder():  # other files may be there, too
            found = self._below(recursive=True)
            return [Entry(self._named(path), size, at) for path, size, at in found if format_of(Path(path))]
        own = self.entry()
        return [] if own is None else [own]

    def _named(self, path: str) -> str:
        return path if self.local else f"{self.name.partition('://')[0]}://{path}"

    def open(self) -> Any:
        """The bytes of a file, as pyarrow reads them, at any place."""
        with self.read_errors():
            return self.files.open_input_file(self.path)

    def read(self) -> bytes:
        """The whole file."""
        with self.read_errors(), self.files.open_input_file(self.path) as file:
            return bytes(file.read())

    def write(self, content: bytes | memoryview) -> None:
        """Write a file so that it exists whole or not at all; raises OutputError."""
        with self.write_errors():
            if not self.local:  # an object appears when all of it has been sent
                with self.files.open_output_stream(self.path) as file:
                    file.write(content)
                return
            path = Path(self.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{TEMPORARY}{path.name}-{secrets.token_hex(4)}")
            try:
                with temporary.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
                raise
            with suppress(OSError):  # not every system can flush a folder
                flush(path.parent)

    def delete(self) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            self.files.delete_file(self.path)

    def make_folder(self) -> None:
        """Make a folder on a disk; object stores have none."""
        if self.local:
            with self.write_errors():
                Path(self.path).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def read_errors(self) -> Iterator[None]:
        """Errors of the system while reading, as one sentence."""
        try:
            yield
        except PermissionError as cause:
            raise self.problem("it may not be read (permission denied)", "Give yourself read permission.") from cause
        except FileNotFoundError as cause:
            raise self.problem("there is no such file", "Check the name.") from cause
        except OSError as cause:
            if "OAuth2" in str(cause):
                remedy = "Log in (gcloud auth application-default login), or set GOOGLE_APPLICATION_CREDENTIALS."
                raise self.problem("no credentials for gs:// were found", remedy) from cause
            raise self.problem(f"it cannot be read ({_first_line(cause)})", "Check the disk or the network.") from cause

    def problem(self, message: str, remedy: str) -> DataError:
        """An error about this file."""
        return DataError(Problem(self.name, message, remedy))

    @contextmanager
    def write_errors(self) -> Iterator[None]:
        """Errors of the system as one sentence."""
        try:
            yield
        except OSError as cause:
            full = is_full(cause)
            why = "there is no room left" if full else f"writing failed ({_first_line(cause)})"
            host = os.uname().nodename if hasattr(os, "uname") else "this machine"
            remedy = "Make room" if full else "Fix that"
            raise OutputError(
                f"{self.name}: {why} (on {host}). {remedy} and give the same command again: what is done stays done."
            ) from cause


def expand(sources: Iterable[str]) -> list[Entry]:
    """The files that names, patterns and folders stand for, each once, in order; refuses a name without a file."""
    found: dict[str, Entry] = {}
    for source in sources:
        if not source.strip():
            raise SettingError("no file is named: name files, folders or patterns such as 'data/*.parquet'.")
        place = Storage(source)
        entries = [entry for entry in place.matching() if not Path(entry.name).name.startswith(".")]
        if not entries:
            what = "no file fits this pattern" if is_pattern(source) else "there is no such file or folder"
            raise place.problem(what, "Check the name; quote patterns, as in 'data/*.parquet'.")
        found.update((entry.name, entry) for entry in entries)
    return list(found.values())


def translated(pattern: str) -> str:
    r"""A pattern of a shell as a regular expression: ``*`` stays within a folder, ``**`` does not.

    >>> bool(re.fullmatch(translated("a/*.csv"), "a/b.csv")), bool(re.fullmatch(translated("a/*.csv"), "a/b/c.csv"))
    (True, False)
    >>> bool(re.fullmatch(translated("a/**/*.csv"), "a/b/c.csv")), bool(re.fullmatch(translated("[ab]?"), "ax"))
    (True, True)
    """
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        known.get(part)
        or (
            f"[{part[1:-1].replace('!', '^', 1) if part[1] == '!' else part[1:-1]}]"
            if part[:1] == "[" and part[-1:] == "]"
            else re.escape(part)
        )
        for part in parts
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0][:200] if lines else type(error).__name__).rstrip(".")
