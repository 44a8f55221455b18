"""Trials as tasks of a Ray cluster; the process that asked for them writes all records."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearfar.cluster import connected, refuse_impossible
from nearfar.experiments.records import Files, Record, write_record
from nearfar.experiments.trial import Rows, Trial
from nearfar.experiments.trial_runner import ATTEMPTS, Report, Work
from nearfar.experiments.trials import perform, warm_up
from nearfar.experiments.worker import log


@dataclass(frozen=True)
class RayExecutor:
    """Runs trials as tasks of a cluster that is there already.

    The rows travel with the tasks, so the nodes need no common disk; encoders they open by name.
    """

    address: str = "auto"
    """Of the cluster; ``auto`` finds the one of this machine."""
    cpus: float = 1
    """Of each trial."""
    gpus: float = 0
    """Of each trial."""

    def run(self, work: Work, report: Report) -> None:
        """Run all trials; what is lost with a node is begun again elsewhere."""
        with connected(self.address) as ray:
            wanted = {"CPU": ("--cpus-per-trial", self.cpus), "GPU": ("--gpus-per-trial", self.gpus)}
            refuse_impossible(ray.cluster_resources(), wanted)
            task = ray.remote(_perform).options(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=ATTEMPTS)
            rows = {name: ray.put(work.rows[name]) for name in {trial.source.name for trial in work.trials}}
            running = {task.remote(trial.to_json(), rows[trial.source.name], self.cpus): trial for trial in work.trials}
            while running:
                (ready,), _ = ray.wait(list(running), num_returns=1)
                trial = running.pop(ready)
                try:
                    record, files = ray.get(ready)
                except ray.exceptions.RayError as error:
                    first = (str(error).strip() or type(error).__name__).splitlines()[0]
                    record, files = trial.failed(f"Ray gave the task up after {ATTEMPTS} retries: {first}"), {}
                fresh = write_record(work.folder, record, files)
                log(work.folder, ("finished" if record.done else "failed") if fresh else "repeated", trial.id)
                report(record.status, trial.id)


def _perform(values: Mapping[str, Any], rows: Rows, cpus: float) -> tuple[Record, Files]:
    """A task: the trial in a folder that goes with it."""
    import torch

    torch.set_num_threads(max(1, int(cpus)))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    warm_up()
    scratch = Path(tempfile.mkdtemp(prefix="nearfar-"))
    try:
        return perform(Trial.from_json(values), scratch, rows)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
