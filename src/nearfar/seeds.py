"""Named random streams: the same names give the same numbers, whatever was drawn before.

There is no global generator, so no state to save: a run that was killed draws after its resumption what it would have
drawn without the interruption.
"""

from __future__ import annotations

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> int:
    """A 63-bit seed of its own for each sequence of names.

    >>> stream(2, "shuffle", 0) == stream(2, "shuffle", 0)
    True
    >>> stream(2, "shuffle", 0) == stream(2, "shuffle", 1)
    False
    """
    text = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """A NumPy generator on its own named stream."""
    return np.random.default_rng(stream(seed, *names))
