"""Files that exist whole or not at all: atomic writes, flushing to disk, locks, and messages for a full disk."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, cast

from nearfar.errors import OutputError

ABANDONED = 60.0
"""Seconds after which a temporary file that no process has locked is one of a killed process."""
REMOTE = re.compile(r"[a-z][a-z0-9+.-]+:/")
"""How the name of a file in an object store begins; a path has one of its two slashes only."""


def is_remote(name: str) -> bool:
    """Whether a name is a URI.

    >>> is_remote("s3://bucket/texts"), is_remote("data/texts"), is_remote("hub:owner/name")
    (True, False, False)
    """
    return REMOTE.match(name) is not None


def uri(name: str) -> str:
    """A URI with both of its slashes.

    >>> uri("s3:/bucket/texts")
    's3://bucket/texts'
    """
    return re.sub(r":/+", "://", name, count=1)


def refuse_remote(out: Path | str) -> None:
    """Refuse an output that is no file or folder on a disk: a folder called ``s3:`` would be made."""
    if is_remote(str(out)):
        remedy = "Choose a name on a disk, and copy it afterwards."
        raise OutputError(f"{uri(str(out))}: this command writes to a disk only. {remedy}")


@contextmanager
def atomic(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """A temporary file beside ``path`` that takes its name when the block ends; after an error ``path`` is unchanged.

    Args:
        path: the file to write or to replace.
        temporary: its name meanwhile, where only one process writes; what a killed process left there is replaced.
            By default a name that no other process has.
    """
    with ExitStack() as held:
        if temporary is None:
            _remove_abandoned(path)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
            held.callback(os.close, handle)
            with suppress(OSError):  # a file system without locks
                lock(handle)
            temporary = Path(name)
        with _replacing(path, temporary):
            yield temporary


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files that killed processes have left beside a file: nobody has a lock on them."""
    for other in path.parent.glob(f".{escape(path.name)}-????????"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > ABANDONED:
                with other.open("rb") as file:
                    lock(file)
                    other.unlink()


@contextmanager
def _replacing(path: Path, temporary: Path) -> Iterator[None]:
    try:
        yield
        os.chmod(temporary, new_mode())  # tempfile and safetensors make files for their owner alone
        flush(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: str | bytes, temporary: Path | None = None) -> None:
    """Write a file so that it exists whole or not at all."""
    with atomic(path, temporary) as file:
        file.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_folder(path: Path, temporary: Path) -> Iterator[Path]:
    """An empty folder that takes the place of ``path`` when the block ends; after an error ``path`` is unchanged."""
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        flush_tree(temporary)
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
        flush(path.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def new_mode(*, folder: bool = False) -> int:
    """The permissions of a new file or folder: what the umask of the process leaves."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
        umask = next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))
    except (OSError, StopIteration):  # other systems tell it only when it is set
        umask = os.umask(0o077)
        os.umask(umask)
    return (0o777 if folder else 0o666) & ~umask


def part_of(target: Path) -> Path:
    """The file of an output that is filled from top to bottom, while it is incomplete."""
    return target.with_name(f"{target.name}.part")


def progress_of(target: Path) -> Path:
    """The file that records how much of such an output is done."""
    return target.with_name(f"{target.name}.part.json")


def flush(path: Path) -> None:
    """Return when a file or a folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_tree(folder: Path) -> None:
    """Return when all files below a folder are on the disk."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            flush(path)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def lock(file: IO[bytes] | int) -> None:
    """Take an exclusive lock on an open file without waiting; the system releases it when the process ends.

    Raises BlockingIOError where another process has it, and another OSError where the file system has no locks.
    """
    if os.name == "posix":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_named(file: IO[bytes], path: Path) -> bool:
    """Lock an open file; False where another process has the lock, or has renamed or removed the file since."""
    try:
        lock(file)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class FolderClaim:
    """A folder that one process has to itself, by a lock on the folder; the system releases it when the process ends.

    Args:
        folder: it need not exist yet.
        message: what other processes report that want it.
    """

    def __init__(self, folder: Path, message: str) -> None:
        self.folder, self.message = folder, message
        self.existed = folder.is_dir()
        self._handle: int | None = None

    def take(self) -> None:
        """Take the folder, if it exists; raises OutputError where another process has it."""
        if self._handle is not None or os.name != "posix" or not self.folder.is_dir():
            return
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            lock(handle)
        except BlockingIOError:
            os.close(handle)
            raise OutputError(f"{self.folder}: {self.message}") from None
        except OSError:  # a file system without locks
            os.close(handle)
            return
        self._handle = handle

    def close(self) -> None:
        """Let others have it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


@contextmanager
def only_process(folder: Path, name: str, message: str) -> Iterator[None]:
    """Make a folder, and keep other processes out of this block with a lock file; ``message`` is what they report."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as cause:
        raise unwritable(folder, cause) from cause
    try:
        check_writable(folder, folder)  # the lock file may be from before
        try:
            lock(handle)
        except OSError:
            raise OutputError(f"{folder}: {message}") from None
        yield
    finally:
        os.close(handle)


def check_writable(folder: Path, out: Path) -> None:
    """Refuse a folder in which no file can be made; ``out`` is what the user named."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as cause:
        raise unwritable(out, cause) from cause


def unwritable(out: Path, cause: OSError) -> OutputError:
    """The message for a place that cannot be written to."""
    return OutputError(f"{out}: nothing can be written there: {cause.strerror}. Choose another --out.")


def scratch_folder() -> str:
    """Where files go that a run needs for itself: TMPDIR, or else /var/tmp, since /tmp is memory on many machines."""
    chosen = os.environ.get("TMPDIR")
    return chosen or ("/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir())  # noqa: S108


def scratch_file() -> IO[bytes]:
    """A file without a name, which the system removes with the process."""
    try:
        return cast(IO[bytes], tempfile.TemporaryFile(dir=scratch_folder()))
    except OSError as cause:
        raise OutputError(
            f"{scratch_folder()}: no file can be made there: {cause.strerror}. Set TMPDIR to a folder with room."
        ) from cause


@contextmanager
def scratch_errors(what: str) -> Iterator[None]:
    """Turn a full disk, while ``what`` is written to a scratch file, into a message."""
    try:
        yield
    except OSError as cause:
        if not is_full(cause):
            raise
        raise OutputError(
            f"{scratch_folder()}: {what} could not be written: there is no room left. Make room, or set TMPDIR to a "
            "folder on a larger disk."
        ) from cause


def existing_parent(path: Path) -> Path:
    """The nearest folder above a path that exists, or the path itself."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def free_bytes(path: Path) -> int:
    """How many bytes the disk of a path has left, whether the path exists or not."""
    return shutil.disk_usage(existing_parent(path)).free


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk, the quota or the file size is exhausted, whichever library raised it."""
    number, text = getattr(error, "errno", None), str(error)
    return number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "No space" in text or "File too large" in text


@contextmanager
def write_errors(path: Path, what: str) -> Iterator[None]:
    """Turn a full disk, and whatever else keeps a run from writing ``what``, into one message; other errors pass."""
    try:
        yield
    except Exception as cause:
        full = is_full(cause)
        if not (full or isinstance(cause, OSError) or type(cause).__name__ == "SafetensorError"):
            raise
        why, remedy = ("there is no room left", "make room") if full else (str(cause), "fix that")
        raise OutputError(
            f"{path}: {what} could not be written: {why}. Earlier checkpoints are whole: {remedy} and continue with "
            "--resume."
        ) from cause
