"""Columns of rows on disk, for data that is larger than memory: they are read like the lists that they replace.

Values are written once, as batches of an Arrow file without a name, which the system removes with the process however
that ends. They are read through a memory map, whose pages are given back after some megabytes, so that a pass over all
rows does not fill the memory.
"""

from __future__ import annotations

import json
import mmap
import weakref
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import IO, Any, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from nearfar.files import scratch_errors, scratch_file

Places = NDArray[np.int64]
T = TypeVar("T")

BATCH_ROWS = 8_192
BATCH_BYTES = 4_000_000
"""A batch of the file has at most so many rows, and about so many bytes."""
SORTED = 1_000_000
"""Rows of a sort that are looked at together."""
MAPPED = 16_000_000
"""Bytes that are read through a memory map before its pages are given back."""


class DiskTexts(Sequence[str]):
    """Texts on disk, in place of a list of them."""

    @abstractmethod
    def gather(self, places: Places) -> list[str]:
        """The texts at these places, in this order."""

    def pick(self, places: Places) -> DiskTexts:
        """A column of the texts at these places; nothing is copied."""
        return _Picked(self, places)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        size = len(self)
        if isinstance(place, slice):
            return self.gather(np.arange(*place.indices(size), dtype=np.int64))
        if not -size <= place < size:
            raise IndexError(place)
        return self.gather(np.array([place % size], dtype=np.int64))[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), BATCH_ROWS):
            yield from self[start : start + BATCH_ROWS]


class _Stored(DiskTexts):
    """The texts of one Arrow file."""

    def __init__(self, file: IO[bytes], starts: Places) -> None:
        import pyarrow as pa

        self._starts = starts  # (batches + 1,) the first row of each
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # it outlives the file
        file.close()
        self._reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(self._map)))
        self._read = 0

    def __len__(self) -> int:
        return int(self._starts[-1])

    def gather(self, places: Places) -> list[str]:
        import pyarrow as pa

        batches = np.searchsorted(self._starts, places, side="right") - 1
        texts: list[str] = []
        for some in np.split(np.arange(len(places)), np.flatnonzero(np.diff(batches)) + 1) if len(places) else ():
            batch = self._reader.get_batch(int(batches[some[0]])).column(0)
            own = places[some] - self._starts[batches[some[0]]]
            first, number = int(own[0]), len(own)
            if int(own[-1]) - first == number - 1 and bool((np.diff(own) == 1).all()):
                found = batch.slice(first, number)
            else:
                found = batch.take(pa.array(own))
            self._read += max(65_536, found.nbytes)  # the system maps the pages around one that is read
            texts += [value.decode("utf-8", "surrogatepass") for value in found.to_pylist()]
        if self._read > MAPPED:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._read = 0
        return texts


class _Picked(DiskTexts):
    """Some texts of another column."""

    def __init__(self, column: DiskTexts, places: Places) -> None:
        self._column, self._places = column, places

    def __len__(self) -> int:
        return len(self._places)

    def gather(self, places: Places) -> list[str]:
        return self._column.gather(self._places[places])

    def pick(self, places: Places) -> DiskTexts:
        return _Picked(self._column, self._places[places])


class _Joined(DiskTexts):
    """The texts of several columns, one column after the other."""

    def __init__(self, columns: Sequence[DiskTexts]) -> None:
        self._columns = columns
        self._starts = np.cumsum([0, *map(len, columns)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def gather(self, places: Places) -> list[str]:
        owners = np.searchsorted(self._starts, places, side="right") - 1
        texts: list[str] = []
        for some in np.split(np.arange(len(places)), np.flatnonzero(np.diff(owners)) + 1) if len(places) else ():
            owner = int(owners[some[0]])
            texts += self._columns[owner].gather(places[some] - self._starts[owner])
        return texts


def joined(columns: Sequence[DiskTexts]) -> DiskTexts:
    """The texts of several columns as one."""
    return columns[0] if len(columns) == 1 else _Joined(columns)


def on_disk(texts: Iterable[str]) -> DiskTexts:
    """The same texts on disk, if they are not there."""
    if isinstance(texts, DiskTexts):
        return texts
    writer = TextWriter()
    for text in texts:
        writer.append(text)
    return writer.finish()


class TextWriter:
    """Takes the texts of a column one after the other, as a list does; ``finish`` gives the column."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._schema = pa.schema([("text", pa.large_binary())])  # strings of Python may not be valid UTF-8
        self._file = scratch_file()
        weakref.finalize(self, self._file.close)  # where an error ends the reading
        self._writer = pa.ipc.new_file(self._file, self._schema)
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._starts = [0]

    def append(self, text: str) -> None:
        """Add a text."""
        content = text.encode("utf-8", "surrogatepass")
        self._waiting.append(content)
        self._bytes += len(content)
        if self._bytes >= BATCH_BYTES or len(self._waiting) >= BATCH_ROWS:
            self._write()

    def finish(self) -> DiskTexts:
        """The column; nothing can be added any more."""
        self._write()
        with scratch_errors("the training rows"):
            self._writer.close()
            self._file.flush()
        return _Stored(self._file, np.array(self._starts, dtype=np.int64))

    def _write(self) -> None:
        with scratch_errors("the training rows"):
            self._put()
        self._starts.append(self._starts[-1] + len(self._waiting))
        self._waiting, self._bytes = [], 0

    def _put(self) -> None:
        import pyarrow as pa

        self._writer.write_batch(pa.record_batch([pa.array(self._waiting, pa.large_binary())], schema=self._schema))


class ValueWriter:
    """Takes the values of a column that are not checked yet; it is read like a list of them."""

    def __init__(self) -> None:
        self._texts = TextWriter()
        self._odd: dict[int, object] = {}
        self._size = 0

    def append(self, value: object) -> None:
        """Add a value; one that JSON does not have stays in memory."""
        if isinstance(value, str):
            text = f"s{value}"
        else:
            try:
                text = f"j{json.dumps(value)}"
            except (TypeError, ValueError, RecursionError):
                text = "o"
                self._odd[self._size] = value
        self._texts.append(text)
        self._size += 1

    def finish(self) -> Sequence[object]:
        """The column; nothing can be added any more."""
        return _Values(self._texts.finish(), self._odd)


class _Values(Sequence[Any]):
    """The values of a :class:`ValueWriter`."""

    def __init__(self, texts: DiskTexts, odd: dict[int, object]) -> None:
        self._texts, self._odd = texts, odd

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        return self._value(place % len(self), self._texts[place])

    def __iter__(self) -> Iterator[Any]:
        return (self._value(place, text) for place, text in enumerate(self._texts))

    def _value(self, place: int, text: str) -> object:
        return self._odd[place] if text == "o" else text[1:] if text[0] == "s" else json.loads(text[1:])


class CodedLabels(Sequence[str]):
    """Class names, of which a row keeps the number only."""

    def __init__(self, names: Sequence[str], codes: NDArray[np.int32]) -> None:
        self.names, self.codes = names, codes

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self.names[code] for code in self.codes[place].tolist()]
        return self.names[int(self.codes[place])]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), BATCH_ROWS):
            yield from self[start : start + BATCH_ROWS]

    def pick(self, places: Places) -> CodedLabels:
        """The labels at these places."""
        return CodedLabels(self.names, self.codes[places])


class LabelWriter:
    """Takes class names one after the other."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._rows = array("i")

    def append(self, name: str) -> None:
        """Add a name."""
        self._rows.append(self._codes.setdefault(name, len(self._codes)))

    def finish(self) -> CodedLabels:
        """The column."""
        return CodedLabels(list(self._codes), np.frombuffer(self._rows, dtype=np.int32))


def finished(column: Any) -> Any:
    """What a writer has written; a list stays as it is."""
    return column.finish() if hasattr(column, "finish") else column


def picked(column: Sequence[T], places: Places) -> Sequence[T]:
    """The values at these places: a list of a list, and on disk what is on disk."""
    if isinstance(column, DiskTexts | CodedLabels):
        return cast(Sequence[T], column.pick(places))
    if isinstance(column, array):
        kept = array(column.typecode)
        kept.frombytes(np.frombuffer(column, dtype=column.typecode)[places].tobytes())
        return cast(Sequence[T], kept)
    if isinstance(column, range):
        return cast(Sequence[T], array("q", (column.start + column.step * places).astype(np.int64).tobytes()))
    return [column[place] for place in places.tolist()]


def first_rows(keys: Iterable[str]) -> Places:
    """(n,) the first row that has the key of each row, by 96-bit digests of the keys.

    >>> first_rows(["a", "b", "a"]).tolist()
    [0, 1, 0]
    """
    high, low = _digests(keys)
    order = np.argsort(high, kind="stable")  # the rows of a key rise
    new, torn = _begins(order, high, low)
    if torn:  # once in a very long time, keys share the higher bits only
        order = np.lexsort((low, high))
        new, _ = _begins(order, high, low)
    del high, low
    first, last = np.empty(len(order), dtype=np.int64), 0
    for start in range(0, len(order), SORTED):
        stop = min(start + SORTED, len(order))
        begins = np.maximum.accumulate(np.where(new[start:stop], np.arange(start, stop), last))
        first[order[start:stop]] = order[begins]
        last = int(begins[-1])
    return first


def _begins(order: Places, high: NDArray[np.uint64], low: NDArray[np.uint32]) -> tuple[NDArray[np.bool_], bool]:
    """(n,) whether the key at each place of the order is another than that before, by all bits of the digests.

    And whether two keys have the same higher bits only; then equal keys need not be neighbors.
    """
    new, torn = np.ones(len(order), dtype=bool), False
    for start in range(1, len(order), SORTED):  # in blocks: there are many millions of rows
        here, before = order[start : start + SORTED], order[start - 1 : start - 1 + SORTED]
        before = before[: len(here)]
        higher, lower = high[here] != high[before], low[here] != low[before]
        torn = torn or bool((lower & ~higher).any())
        new[start : start + SORTED] = higher | lower
    return new, torn


def _digests(keys: Iterable[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint32]]:
    """(n,) the higher 64 and the lower 32 bits of the digest of each key."""
    high, low, waiting = array("Q"), array("I"), bytearray()

    def put() -> None:
        block = np.frombuffer(waiting, dtype=np.dtype([("high", "u8"), ("low", "u4")]))
        high.frombytes(block["high"].tobytes())
        low.frombytes(block["low"].tobytes())

    for key in keys:
        waiting += blake2b(key.encode("utf-8", "surrogatepass"), digest_size=12).digest()
        if len(waiting) >= 12 * BATCH_ROWS:
            put()
            waiting = bytearray()
    put()
    return np.frombuffer(high, dtype=np.uint64), np.frombuffer(low, dtype=np.uint32)
