"""The clock of all workers: wall time, processor time, and what the rest of the machine did meanwhile."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.machine import Activity, cores, shares


class Clock:
    """Runs from ``start`` to the latest ``stop``; processes that were started and have ended count as well."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Now, again."""
        self.began, self.began_cpu = Activity.now(), processor_seconds()
        self.ended, self.ended_cpu = self.began, self.began_cpu

    def stop(self) -> None:
        """Now; a later call takes its place."""
        self.ended, self.ended_cpu = Activity.now(), processor_seconds()

    @property
    def seconds(self) -> float:
        """Of wall time."""
        return self.ended.at - self.began.at

    def readings(self) -> dict[str, Any]:
        """For the report of a worker."""
        spent = self.ended_cpu - self.began_cpu
        others, steal = shares(self.began, self.ended, spent, cores())
        return {"seconds": self.seconds, "cpu_seconds": spent, "others": others, "steal": steal}


def processor_seconds() -> float:
    """What this process has used so far, with its threads and the processes it has waited for."""
    user, system, children_user, children_system, _ = os.times()
    return user + system + children_user + children_system
