"""Vectors on disk: (n, d) numbers of two bytes in a file without a name, which goes with the process."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nearfar.batching.groups import Vectors
from nearfar.batching.nearest_neighbors import CHUNK, unit
from nearfar.files import scratch_errors, scratch_file


class VectorFile:
    """(n, d) vectors of length 1, appended block by block and read in any order; nothing of them stays in memory.

    Args:
        width: d.

    >>> file = VectorFile(2)
    >>> file.append(np.array([[3, 4], [0, 2]], dtype=np.float32))
    >>> len(file), file.gather(np.array([1])).tolist()
    (2, [[0.0, 1.0]])
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._file = scratch_file()
        self._size = 0
        weakref.finalize(self, self._file.close)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d), as an array has it."""
        return self._size, self.width

    @property
    def ndim(self) -> int:
        """Always 2."""
        return 2

    def __len__(self) -> int:
        return self._size

    def append(self, vectors: Vectors) -> None:
        """Write the next vectors, made to length 1."""
        self.write(self._size, unit(np.array(vectors, dtype=np.float32)))

    def write(self, start: int, vectors: Vectors) -> None:
        """Write vectors of length 1 as the rows from ``start`` on."""
        content = np.ascontiguousarray(vectors, dtype=np.float16)
        with scratch_errors("the vectors"):
            _write(self._file.fileno(), memoryview(content.tobytes()), start * 2 * self.width)
        self._size = max(self._size, start + len(vectors))

    def read(self, start: int, stop: int) -> Vectors:
        """The rows from ``start`` to ``stop``."""
        content = _read(self._file.fileno(), 2 * self.width * (stop - start), 2 * self.width * start)
        return self._numbers(content)

    def gather(self, rows: NDArray[np.int64]) -> Vectors:
        """The rows of these numbers, in this order."""
        if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
            return self.read(int(rows[0]), int(rows[-1]) + 1)
        size, handle = 2 * self.width, self._file.fileno()
        return self._numbers(bytearray().join(os.pread(handle, size, row * size) for row in rows.tolist()))

    def _numbers(self, content: bytearray) -> Vectors:
        import torch

        values = np.frombuffer(content, dtype=np.float16).reshape(-1, self.width)
        return torch.from_numpy(values).float().numpy()  # several times as fast as NumPy

    def blocks(self) -> Iterator[tuple[int, Vectors]]:
        """All rows, some at a time, each time with the number of the first."""
        for start in range(0, self._size, CHUNK):
            yield start, self.read(start, min(start + CHUNK, self._size))


class IdFile:
    """(n, k) row numbers on disk, written and read in any order."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._file = scratch_file()
        weakref.finalize(self, self._file.close)

    def write(self, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
        """The ids of some rows."""
        order = np.argsort(rows)
        content = memoryview(np.ascontiguousarray(ids[order], dtype=np.int32).tobytes())
        size, rows = 4 * self.width, rows[order]
        starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1).tolist()
        with scratch_errors("the neighbors"):
            for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
                _write(self._file.fileno(), content[start * size : stop * size], int(rows[start]) * size)

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of these numbers, in this order."""
        size, handle = 4 * self.width, self._file.fileno()
        content = b"".join(os.pread(handle, size, row * size) for row in rows.tolist())
        return np.frombuffer(content, dtype=np.int32).reshape(-1, self.width).astype(np.int64)


def _write(handle: int, content: memoryview, offset: int) -> None:
    while len(content):
        written = os.pwrite(handle, content, offset)
        content, offset = content[written:], offset + written


def _read(handle: int, size: int, offset: int) -> bytearray:
    """So many bytes; one call reads 2 GB at most."""
    content = bytearray(size)
    view, done = memoryview(content), 0
    while done < size:
        number = os.preadv(handle, [view[done:]], offset + done)
        if not number:
            raise EOFError(f"a scratch file ends before byte {offset + size:,}")
        done += number
    return content
