"""Headers of safetensors files: names, types and shapes, checked against the size of the file before it is opened."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from nearfar.errors import EncoderError

HEADER = 16 * 2**20
"""Bytes that a header has at most; those of real encoders have some ten thousand."""
TENSORS = 100_000
NAME = 512
"""Characters that the name of a tensor has at most."""
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64, "F4": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Tensors:
    """The tensors of one file or of several: their shapes by name."""

    shapes: dict[str, tuple[int, ...]]

    @property
    def elements(self) -> int:
        """How many numbers they hold together."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def widest(self) -> int:
        """The largest dimension of any of them."""
        return max((max(shape, default=1) for shape in self.shapes.values()), default=0)


def read_header(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a file by name; an error where the file cannot hold what it declares."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(HEADER, size - 8):
                raise ValueError(f"a header of {length:,} bytes in a file of {size:,}")
            header = json.loads(file.read(length))
            if _mostly_empty(file.fileno(), size):
                raise ValueError(f"most of its {size:,} bytes were never written")
        return _shapes(header, size - 8 - length)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as cause:
        why = "a header nested too deeply" if isinstance(cause, RecursionError) else cause
        raise EncoderError(f"{path}: these weights cannot be read ({why}). Is the folder complete?") from cause


def _shapes(header: Any, size: int) -> dict[str, tuple[int, ...]]:
    if not isinstance(header, dict) or len(header) > TENSORS:
        raise ValueError("a header that lists no tensors, or too many")
    spans: list[tuple[int, int]] = []
    shapes: dict[str, tuple[int, ...]] = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        if len(name) > NAME:
            raise ValueError(f"a tensor whose name has {len(name):,} characters")
        name.encode()
        shape, (start, stop) = about["shape"], about["data_offsets"]
        numbers = [*shape, start, stop]
        if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
            raise ValueError(f"tensor {name!r} with shape {shape!s:.60}")
        bits = math.prod(shape) * _BITS[about["dtype"]]
        if start > stop or stop > size or (stop - start) * 8 != bits:
            raise ValueError(f"tensor {name!r} of shape {shape!s:.60} in {stop - start:,} of {size:,} bytes")
        spans.append((start, stop))
        shapes[name] = tuple(shape)
    spans.sort()
    if any(before[1] > after[0] for before, after in pairwise(spans)):
        raise ValueError("tensors that overlap")
    return shapes


def _mostly_empty(handle: int, size: int) -> bool:
    """Whether more than half of a large file are holes, as a download leaves that has reserved its place."""
    if size < 2**20 or not hasattr(os, "SEEK_DATA"):
        return False
    data, place = 0, 0
    try:
        while place < size and 2 * data < size:
            start = os.lseek(handle, place, os.SEEK_DATA)
            place = os.lseek(handle, start, os.SEEK_HOLE)
            data += place - start
    except OSError:  # no data behind this place, or a file system that does not tell
        pass
    return place > 0 and 2 * data < size
