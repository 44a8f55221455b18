"""The memory of the process: how much it holds, and giving back what was freed."""

from __future__ import annotations

import ctypes
import os


def resident_memory() -> float:
    """Bytes that the process holds in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError, IndexError):
        return 0.0


def return_freed() -> bool:
    """Give freed memory back to the system; False where the C library cannot.

    glibc keeps what was freed between pieces that are in use, so that a server under mixed load seems to grow.
    """
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return False
    return True
