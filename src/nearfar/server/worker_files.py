"""What the processes of one server share by files in a folder: what they have counted, and why one cannot start."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from nearfar.server.metrics import Metrics, Values

FAILURE = "failure.txt"
PERIOD = 0.5
"""Seconds between two times that a process writes what it has counted."""
ENDED = 10.0
"""Seconds without a word after which a process has ended."""


class WorkerFiles:
    """The folder that the processes of a server share.

    Args:
        folder: it exists as long as the server.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = folder / f"{os.getpid()}-{time.time_ns()}.json"
        self._turn = threading.Lock()

    def write(self, metrics: Metrics) -> None:
        """Write what this process has counted, whole or not at all."""
        temporary = self._own.with_suffix(".new")
        with self._turn:
            temporary.write_text(json.dumps([metrics.values(gauges=False), metrics.values(gauges=True)]))
            os.replace(temporary, self._own)

    def text(self, metrics: Metrics) -> str:
        """The metrics of all processes; of those that have ended, what they have counted stays.

        All numbers are those of the files, those of this process too: so a sum never becomes smaller, whichever
        process shows it.
        """
        self.write(metrics)
        processes: dict[str, Values] = {}
        for path in sorted(self.folder.glob("*.json")):
            counts, gauges = json.loads(path.read_text())
            if time.time() - path.stat().st_mtime < ENDED:
                processes[path.stem.partition("-")[0]] = counts | gauges
            else:
                processes[path.stem] = counts
        return metrics.text(processes)

    def fail(self, reason: str) -> None:
        """Write why this process cannot start."""
        (self.folder / FAILURE).write_text(reason, encoding="utf-8")

    def failure(self) -> str | None:
        """Why a process could not start."""
        path = self.folder / FAILURE
        return path.read_text(encoding="utf-8") if path.exists() else None
