"""What could not be stored, in one message, whichever library tried."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nearfar.errors import OutputError


@contextmanager
def storing(path: Path, what: str) -> Iterator[None]:
    """Turn a full disk, and whatever else keeps ``what`` from being written, into a message; other errors pass."""
    try:
        yield
    except Exception as cause:
        number, text = getattr(cause, "errno", None), str(cause)
        full = number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "No space" in text or "File too large" in text
        if not (full or isinstance(cause, OSError) or type(cause).__name__ == "SafetensorError"):
            raise
        why, remedy = ("there is no room left", "make room") if full else (text, "mend that")
        raise OutputError(
            f"{path}: {what} could not be written: {why}. Earlier checkpoints are whole: {remedy} and continue with "
            "--resume."
        ) from cause
