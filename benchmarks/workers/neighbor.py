"""A busy neighbor: spins on one core until its standard input is closed, so that it never outlives the driver."""

from __future__ import annotations

import os
import sys
import threading


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core is taken, always the same one

    def wait() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
    while True:
        pass


if __name__ == "__main__":
    main()
