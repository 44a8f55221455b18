"""Token ids under construction: in memory, or in a file without a name for data that is larger than memory."""

from __future__ import annotations

import mmap
import weakref

import numpy as np
from numpy.typing import NDArray

from nearfar.files import scratch_errors, scratch_file

TEXTS = 256
"""Texts that are read before the pages of the memory map are given back; each may have touched 64 kB of them."""


class TokenList:
    """Takes ids, and keeps them in memory."""

    def __init__(self) -> None:
        self._pieces: list[NDArray[np.int32]] = [np.zeros(0, dtype=np.int32)]

    def add(self, ids: NDArray[np.int32]) -> None:
        """The ids of the next texts."""
        self._pieces.append(ids)

    def open(self) -> NDArray[np.int32]:
        """All ids."""
        return np.concatenate(self._pieces)


class TokenFile:
    """Takes ids, and keeps them in a file that the system removes with the process."""

    def __init__(self) -> None:
        self._file = scratch_file()
        weakref.finalize(self, self._file.close)  # where an error ends the tokenization
        self._map: mmap.mmap | None = None
        self._texts = 0

    def add(self, ids: NDArray[np.int32]) -> None:
        """The ids of the next texts."""
        with scratch_errors("the tokens of the training rows"):
            self._file.write(ids.tobytes())

    def open(self) -> NDArray[np.int32]:
        """All ids, through a memory map."""
        with scratch_errors("the tokens of the training rows"):
            self._file.flush()
        if self._file.tell() == 0:
            return np.zeros(0, dtype=np.int32)
        self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        self._file.close()
        return np.frombuffer(self._map, dtype=np.int32)

    def count(self, texts: int) -> None:
        """So many texts are read; from time to time the memory that they take is given back."""
        self._texts += texts
        if self._texts > TEXTS:
            self.release()

    def release(self) -> None:
        """Give the pages back that were read; they are in the cache of the system."""
        self._texts = 0
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)
