"""What runs trials: on this machine (:mod:`.local_executor`) or on a cluster (:mod:`.ray_executor`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from nearfar.experiments.trial import Rows, Trial

ATTEMPTS = 3
"""How often a trial is begun before its process is taken to die of it."""

Report: TypeAlias = Callable[[Literal["started", "done", "failed", "lost"], str], None]
"""Called with what happened and the name of the trial."""


@dataclass(frozen=True)
class Work:
    """Trials to run, in this order, and what running them needs."""

    trials: Sequence[Trial]
    folder: Path
    """Of the study, where each trial leaves its record."""
    total: int
    """Trials of the whole study."""
    rows: Mapping[str, Rows]
    """Those of each data set, for machines that cannot read the files."""


class Executor(Protocol):
    """Runs trials until all of them have a record; what was lost with a process or a machine is begun again."""

    def run(self, work: Work, report: Report) -> None:
        """Run all trials of the work, and report what happens to them."""
