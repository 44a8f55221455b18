"""Trials as tasks of a Ray cluster; the process that asked for them writes all records."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nearfar.data import Records
from nearfar.errors import SettingError
from nearfar.experiments.local_executor import ATTEMPTS, Told
from nearfar.experiments.records import Record, write_record
from nearfar.experiments.runs import Trial
from nearfar.experiments.trials import Files, perform, warm_up
from nearfar.experiments.worker import log

SECONDS = 10
"""A cluster that takes longer to answer is not there."""
Rows = tuple[Records, Records | None]


def require_ray() -> None:
    """Refuse to go on without the package."""
    if importlib.util.find_spec("ray") is None:
        raise SettingError("--on ray needs Ray, which is not installed: pip install 'nearfar[ray]'.")


def run_on_ray(
    trials: Sequence[Trial],
    rows: Mapping[str, Rows],
    study: Path,
    told: Told,
    *,
    address: str = "auto",
    cpus: float = 1,
    gpus: float = 0,
) -> None:
    """Run all trials on a cluster that is there already; what is lost with a node is begun again elsewhere.

    The rows travel with the tasks, so the nodes need no common disk; encoders they open by name.

    Args:
        trials: what to run.
        rows: those of each data set.
        study: the folder of the study, on this machine.
        told: is called when something happens.
        address: of the cluster; ``auto`` finds the one of this machine.
        cpus: of each trial.
        gpus: of each trial.
    """
    require_ray()
    ray: Any = importlib.import_module("ray")
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (OSError, ValueError) as cause:
        raise SettingError(
            f"no Ray cluster answers at {address!r}: start one with 'ray start --head' and join others to it with "
            "'ray start --address HOST:6379', or leave --on ray out."
        ) from cause
    try:
        _refuse_impossible(ray.cluster_resources(), cpus, gpus)
        task = ray.remote(_perform).options(num_cpus=cpus, num_gpus=gpus, max_retries=ATTEMPTS)
        stored = {name: ray.put(found) for name, found in rows.items() if any(t.source.name == name for t in trials)}
        running = {task.remote(asdict(trial), stored[trial.source.name], cpus): trial for trial in trials}
        while running:
            (ready,), _ = ray.wait(list(running), num_returns=1)
            trial = running.pop(ready)
            try:
                record, files = ray.get(ready)
            except ray.exceptions.RayError as error:
                record, files = _given_up(trial, error), {}
            fresh = write_record(study, record, files)
            log(study, ("finished" if record.done else "failed") if fresh else "repeated", trial.id)
            told(record.status, trial.id)
    finally:
        ray.shutdown()


def _perform(values: Mapping[str, Any], rows: Rows, cpus: float) -> tuple[Record, Files]:
    """A task: the trial in a folder that goes with it."""
    import torch

    torch.set_num_threads(max(1, int(cpus)))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    warm_up()
    scratch = Path(tempfile.mkdtemp(prefix="nearfar-"))
    try:
        return perform(Trial.of(values), scratch, rows)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _knock(address: str) -> None:
    """See whether somebody is there: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=SECONDS).close()


def _refuse_impossible(resources: Mapping[str, float], cpus: float, gpus: float) -> None:
    for name, wanted, flag in (("CPU", cpus, "--cpus-per-trial"), ("GPU", gpus, "--gpus-per-trial")):
        if wanted > resources.get(name, 0):
            raise SettingError(
                f"{flag} is {wanted:g}, but the whole cluster has {resources.get(name, 0):g} {name}s; ask for fewer."
            )


def _given_up(trial: Trial, error: Exception) -> Record:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return Record(
        id=trial.id, data=trial.source.name, limit=trial.limit, contender=trial.contender, seed=trial.seed,
        fold=trial.fold, metric=trial.metric, kind=trial.kind, status="failed",
        reason=f"Ray gave the task up after {ATTEMPTS} retries: {first}",
    )  # fmt: skip
