"""Trials on this machine: some processes, each with its share of the cores.

One thread to each of many processes is the default: trials do not wait for each other, threads of one trial do.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from nearfar.errors import NearfarError
from nearfar.experiments.records import Record, write_record
from nearfar.experiments.runs import Trial
from nearfar.experiments.worker import SCRATCH

ATTEMPTS = 3
"""How often a trial is begun before its process is taken to die of it."""
Told = Callable[[str, str], None]
"""Called with what happened (``started``, ``done``, ``failed``, ``lost``) and the trial."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shares(trials: int, workers: int | None, threads: int | None, *, total: int | None = None) -> tuple[int, int]:
    """How many processes, and how many threads each has.

    The threads follow from the ``total`` of a study and not from the trials that are left, nor from the processes: they
    decide about the last digits of all numbers, which a study that is continued must not change.

    >>> shares(100, None, 3)[1], shares(1, 8, 1), shares(1_000, 1, None)
    (3, (1, 1), (1, 1))
    """
    available = cores()
    own = threads or max(1, available // max(1, total or trials))
    return max(1, min(workers or max(1, available // own), trials)), own


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    log: Path
    trial: Trial | None = None
    unread: bytes = b""

    @property
    def output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def send(self, trial: Trial) -> None:
        self.trial = trial
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died while idle: its output has ended, too
            self.process.stdin.write(json.dumps(asdict(trial)).encode() + b"\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Stop it at once, with all it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def run_local(
    trials: Sequence[Trial],
    study: Path,
    told: Told,
    *,
    workers: int | None = None,
    threads: int | None = None,
    total: int | None = None,
) -> None:
    """Run all trials; a process that dies costs its own trial only, which is begun again.

    Args:
        trials: what to run, in this order.
        study: the folder of the study, where each trial leaves its record.
        told: is called when something happens.
        workers: how many processes; None for as many as there are cores.
        threads: of each process; None for one, and more where the study has fewer trials than there are cores.
        total: trials of the whole study; None for these.
    """
    number, own = shares(len(trials), workers, threads, total=total)
    waiting, begun = deque(trials), dict.fromkeys((trial.id for trial in trials), 0)
    pool: dict[int, _Worker] = {}
    (study / SCRATCH).mkdir(parents=True, exist_ok=True)
    with selectors.DefaultSelector() as selector:

        def start(place: int) -> None:
            pool[place] = _start(study, place, own)
            selector.register(pool[place].output, selectors.EVENT_READ, place)
            assign(place)

        def assign(place: int) -> None:
            if not waiting:
                return
            trial = waiting.popleft()
            begun[trial.id] += 1
            told("started", trial.id)
            pool[place].send(trial)

        def stop(place: int) -> None:
            selector.unregister(pool[place].output)
            pool.pop(place).end()

        try:
            for place in range(number):
                start(place)
            while any(worker.trial is not None for worker in pool.values()):
                for key, _ in selector.select():
                    place, worker = key.data, pool[key.data]
                    piece = os.read(worker.output.fileno(), 65_536)
                    if piece:
                        for answer in _answers(worker, piece):
                            if "error" in answer:
                                raise NearfarError(str(answer["error"]))
                            worker.trial = None
                            told(str(answer["status"]), str(answer["id"]))
                            assign(place)
                        continue
                    lost = worker.trial
                    code = worker.process.wait()
                    last = _last_words(worker.log)
                    stop(place)
                    if lost is not None:
                        if begun[lost.id] >= ATTEMPTS:
                            write_record(study, _given_up(lost, code, last), {})
                            told("failed", lost.id)
                        else:
                            told("lost", lost.id)
                            waiting.appendleft(lost)
                    if waiting:
                        start(place)
        finally:
            for place in list(pool):
                stop(place)


def _start(study: Path, place: int, threads: int) -> _Worker:
    log = study / SCRATCH / f"process-{place}.log"
    environment = {
        **os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false", "NEARFAR_PLACE": str(place),
    }  # fmt: skip
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "10000")
    if devices := _devices():
        environment["CUDA_VISIBLE_DEVICES"] = devices[place % len(devices)]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "nearfar.experiments.worker", str(study)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=file, env=environment, bufsize=0, start_new_session=True,
        )  # fmt: skip
    return _Worker(process, log)


def _devices() -> list[str]:
    """The GPUs that may be used; processes take them in turn."""
    import torch

    if not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]


def _answers(worker: _Worker, piece: bytes) -> list[dict[str, object]]:
    *lines, worker.unread = (worker.unread + piece).split(b"\n")
    return [json.loads(line) for line in lines]


def _last_words(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1].strip()[:300] if lines else ""


def _given_up(trial: Trial, code: int, last: str) -> Record:
    how = f"by signal {-code}" if code < 0 else f"with code {code}"
    memory = "; was there too little memory?" if code == -signal.SIGKILL else ""
    return Record(
        id=trial.id, data=trial.source.name, limit=trial.limit, contender=trial.contender, seed=trial.seed,
        fold=trial.fold, metric=trial.metric, kind=trial.kind, status="failed",
        reason=f"the process of this trial ended {ATTEMPTS} times, the last time {how}{memory}"
        + (f" ({last})" if last else ""),
    )  # fmt: skip
