"""A .npy file of text vectors that is filled from top to bottom, and can be continued after any interruption.

While it is filled, two files are beside the target: ``NAME.part`` holds the header and all vectors so far, and
``NAME.part.json`` records how many of them are safe on the disk and what they were made from. After the last vector
``NAME.part`` takes the name of the target: the target exists whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from nearfar.encoding.model import Model
from nearfar.errors import OutputError, counted
from nearfar.files import flush, free_bytes, is_full, lock_named, part_of, progress_of, write_atomic

FORMAT = 1
DTYPE = np.dtype("<f4")
ORIGIN = {
    "weights": "the weights of the model",
    "tokenizer": "the tokenizer of the model",
    "settings": "the settings of the model",
    "rows": "the number of rows",
    "texts": "the texts",
    "window": "the number of rows that are embedded together",
}
"""What must be the same for a file to be continued, and its name in messages."""


READ = ("pooling", "max_length", "native", "normalize", "joined", "transform")
"""What the vectors depend on in the card of a model; later versions may add fields that they do not depend on."""


def header(shape: tuple[int, int]) -> bytes:
    """The first bytes of a .npy file of float32 rows, the same that ``numpy.save`` writes."""
    buffer = io.BytesIO()
    npy.write_array_header_1_0(buffer, {"descr": DTYPE.str, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def fingerprint(model: Model) -> dict[str, str]:
    """SHA-256 of all that determines the vectors of a model; the same model in another folder has the same."""
    weights = hashlib.sha256()
    for name, tensor in sorted(model.model.state_dict().items()):
        weights.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
        weights.update(tensor.detach().float().cpu().contiguous().numpy().reshape(-1).data)
    config = model.model.network.config.to_dict()
    elsewhere = ("_name_or_path", "transformers_version")
    card = {key: value for key, value in asdict(model.card).items() if key in READ}
    settings = [{key: value for key, value in config.items() if key not in elsewhere}, card]
    vocabulary = (
        model.tokenizer.get_vocab()
        if not model.tokenizer.is_fast
        else {
            key: value
            for key, value in json.loads(model.tokenizer.backend_tokenizer.to_str()).items()
            if key not in ("truncation", "padding")  # these are left from its last call
        }
    )
    return {"weights": weights.hexdigest(), "tokenizer": _digest(vocabulary), "settings": _digest(settings)}


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class Unfinished:
    """An interrupted run."""

    done: int
    """Rows that are safe on the disk."""
    rows: int
    """Rows of the whole file."""
    changed: tuple[str, ...]
    """What has changed since, in words; empty when the run can be continued."""


class VectorFile:
    """A .npy file of shape (rows, dim) that is being filled.

    Args:
        target: its final name.
        shape: its rows and the width of a vector.
        origin: what the vectors were made from, by the keys of ``ORIGIN``.
    """

    def __init__(self, target: Path, shape: tuple[int, int], origin: Mapping[str, object]) -> None:
        assert origin.keys() == ORIGIN.keys()
        self.target = target
        self.part, self.progress = part_of(target), progress_of(target)
        self.shape = shape
        self.origin = dict(origin)
        self.done = 0
        """Rows that are safe on the disk."""
        self._head = header(shape)
        self._file: IO[bytes] | None = None

    def unfinished(self) -> Unfinished | None:
        """The run there is to continue; None when there is none."""
        if not self.part.is_file() or not self.part.stat().st_size:
            return None
        try:
            values = json.loads(self.progress.read_text(encoding="utf-8"))
            done, rows, dim = int(values["done"]), int(values["shape"][0]), int(values["shape"][1])
            origin = dict(values["origin"])
            if values["format"] != FORMAT or values["dtype"] != DTYPE.str or not 0 <= done <= rows:
                return None
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None
        changed = [words for key, words in ORIGIN.items() if origin.get(key) != self.origin[key]]
        if not changed and (rows, dim) != self.shape:
            changed.append("the shape of the vectors")
        if not changed and self.part.stat().st_size < self._offset(done):
            changed.append(f"the size of {self.part.name}, which is shorter than it was")
        return Unfinished(done, rows, tuple(changed))

    def open(self, *, resume: bool) -> int:
        """Begin, or with ``resume`` continue; returns how many rows are done."""
        with self._write_errors():
            file = os.fdopen(os.open(self.part, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            try:
                self._lock(file)
                left = self.unfinished() if resume else None
                self.done = 0 if left is None else left.done
                if left is not None and left.changed:
                    raise OutputError(
                        f"{self.target}: the unfinished vectors in {self.part.name} cannot be continued, because this "
                        f"has changed: {', '.join(left.changed)}. Start anew without --resume."
                    )
                self._check_space(file)
                if not self.done:
                    self.progress.unlink(missing_ok=True)  # the old vectors are no longer valid
                file.truncate(self._offset(self.done) if self.done else 0)
                file.seek(0)
                file.write(self._head)
                file.seek(self._offset(self.done))
                self._file = file
                self._keep(self.done)
            except BaseException:
                self._file = None
                file.close()
                raise
        return self.done

    def append(self, vectors: NDArray[np.float32]) -> None:
        """(b, dim) the next rows; they are on the disk when this returns."""
        assert self._file is not None
        assert vectors.shape[1] == self.shape[1]
        assert self.done + len(vectors) <= self.shape[0]
        with self._write_errors():
            self._file.write(np.ascontiguousarray(vectors, dtype=DTYPE).data)
            self._keep(self.done + len(vectors))

    def finish(self) -> None:
        """Give the full file its name."""
        assert self._file is not None
        assert self.done == self.shape[0]
        with self._write_errors():
            os.replace(self.part, self.target)
            with suppress(OSError):  # not every system can flush a folder
                flush(self.target.parent)
            self.progress.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove all files of the run."""
        self.progress.unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)

    def __enter__(self) -> VectorFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with suppress(OSError):  # what a full disk did not take; the progress file does not count it
                self._file.close()
            self._file = None

    def _offset(self, row: int) -> int:
        return len(self._head) + row * self.shape[1] * DTYPE.itemsize

    def _keep(self, done: int) -> None:
        """Flush the vectors first, then their number: a crash in between costs only the last ones."""
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        values = {"format": FORMAT, "done": done, "shape": list(self.shape), "dtype": DTYPE.str, "origin": self.origin}
        temporary = self.progress.with_name(f"{self.progress.name}.new")
        write_atomic(self.progress, json.dumps(values, indent=2) + "\n", temporary)
        self.done = done

    def _check_space(self, file: IO[bytes]) -> None:
        written = os.fstat(file.fileno()).st_size
        needed = self._offset(self.shape[0]) - written
        free = free_bytes(self.target.parent)
        if free < needed:
            if not written:
                self.discard()
            raise OutputError(
                f"{self.target}: the disk has {free / 1e9:.1f} GB free, and the vectors need {needed / 1e9:.1f} GB. "
                "Make room, or choose another --out."
            )

    def _lock(self, file: IO[bytes]) -> None:
        """Refuse a file that another process fills: each would count rows that the other cut off."""
        if not lock_named(file, self.part):
            raise OutputError(
                f"{self.target}: another process is filling {self.part.name}. Let it finish, or choose another --out."
            )

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        """Errors of the system as a message with a remedy."""
        try:
            yield
        except OSError as cause:
            full = is_full(cause)
            why = "there is no room left" if full else f"writing failed: {cause.strerror}"
            raise OutputError(
                f"{self.target}: {why}. {'Make room' if full else 'Fix that'} and continue with --resume: "
                f"{self.done:,} of {counted(self.shape[0], 'vector')} are safe in {self.part.name}."
            ) from cause
