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
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from nearfar.errors import NearfarError
from nearfar.experiments.records import write_record
from nearfar.experiments.trial import Trial
from nearfar.experiments.trial_runner import ATTEMPTS, Report, Work
from nearfar.experiments.worker import SCRATCH, Outcome


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
            self.process.stdin.write(json.dumps(trial.to_json()).encode() + b"\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Stop it at once, with all it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        try:
            self.process.wait()
        finally:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def answers(self, piece: bytes) -> list[Outcome]:
        """The whole lines that it has written, with this piece."""
        *lines, self.unread = (self.unread + piece).split(b"\n")
        return [json.loads(line) for line in lines]

    def last_line(self) -> str:
        """The last that it wrote about itself."""
        try:
            lines = [
                line for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()
            ]
        except OSError:
            return ""
        return lines[-1].strip()[:300] if lines else ""


@dataclass(frozen=True)
class LocalExecutor:
    """Runs trials in processes on this machine."""

    workers: int | None = None
    """Processes; None for as many as there are cores."""
    threads: int | None = None
    """Of each process; None for one, and more where the study has fewer trials than there are cores."""

    def shares(self, trials: int, total: int | None = None) -> tuple[int, int]:
        """How many processes run so many trials, and how many threads each has.

        The threads follow from the ``total`` of a study and not from the trials that are left, nor from the processes:
        they decide about the last digits of all numbers, which a study that is continued must not change.

        >>> LocalExecutor(threads=3).shares(100)[1], LocalExecutor(8, 1).shares(1), LocalExecutor(1).shares(1_000)
        (3, (1, 1), (1, 1))
        """
        available = cores()
        each = self.threads or max(1, available // max(1, total or trials))
        return max(1, min(self.workers or max(1, available // each), trials)), each

    def run(self, work: Work, report: Report) -> None:
        """Run all trials; a process that dies costs its own trial only, which is begun again."""
        (work.folder / SCRATCH).mkdir(parents=True, exist_ok=True)
        with selectors.DefaultSelector() as selector:
            pool = _Pool(work, report, selector)
            try:
                pool.run(*self.shares(len(work.trials), work.total))
            finally:
                with held_interrupts():  # a second request must not keep the others from being stopped
                    for place in list(pool.workers):
                        pool.stop(place)


class _Pool:
    """The processes, the trials that wait for one, and how often each was begun."""

    def __init__(self, work: Work, report: Report, selector: selectors.BaseSelector) -> None:
        self.work, self.report, self.selector, self.threads = work, report, selector, 1
        self.waiting = deque(work.trials)
        self.attempts = dict.fromkeys((trial.id for trial in work.trials), 0)
        self.workers: dict[int, _Worker] = {}

    def run(self, processes: int, threads: int) -> None:
        self.threads = threads
        for place in range(processes):
            self.start(place)
        while any(worker.trial is not None for worker in self.workers.values()):
            for key, _ in self.selector.select():
                place, worker = key.data, self.workers[key.data]
                piece = os.read(worker.output.fileno(), 65_536)
                if not piece:
                    self.replace(place)
                for answer in worker.answers(piece) if piece else ():
                    if "error" in answer:
                        raise NearfarError(answer["error"])
                    worker.trial = None
                    self.report(answer["status"], answer["id"])
                    self.assign(place)

    def start(self, place: int) -> None:
        with held_interrupts():
            self.workers[place] = _start(self.work.folder, place, self.threads)
            self.selector.register(self.workers[place].output, selectors.EVENT_READ, place)
        self.assign(place)

    def assign(self, place: int) -> None:
        if self.waiting:
            trial = self.waiting.popleft()
            self.attempts[trial.id] += 1
            self.report("started", trial.id)
            self.workers[place].send(trial)

    def replace(self, place: int) -> None:
        """A process is gone: begin its trial again in a new one, or give it up."""
        worker = self.workers[place]
        trial, code, last = worker.trial, worker.process.wait(), worker.last_line()
        self.stop(place)
        if trial is not None and self.attempts[trial.id] >= ATTEMPTS:
            write_record(self.work.folder, trial.failed(_reason(code, last)), {})
            self.report("failed", trial.id)
        elif trial is not None:
            self.report("lost", trial.id)
            self.waiting.appendleft(trial)
        if self.waiting:
            self.start(place)

    def stop(self, place: int) -> None:
        with held_interrupts():
            worker = self.workers.pop(place)
            self.selector.unregister(worker.output)
            worker.end()


REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
"""Ctrl-C, a request to end, and the clock of ``nearfar tune``."""


@contextlib.contextmanager
def held_interrupts() -> Iterator[None]:
    """Let a request to stop, or the end of the time, wait until the end of the block: no process or pipe is lost."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in REQUESTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for request in received:
        signal.raise_signal(request)


def _start(study: Path, place: int, threads: int) -> _Worker:
    log = study / SCRATCH / f"process-{place}.log"
    environment = os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "NEARFAR_PLACE": str(place),
    }
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", "10000")
    if devices := _devices():
        environment["CUDA_VISIBLE_DEVICES"] = devices[place % len(devices)]
    command = [sys.executable, "-m", "nearfar.experiments.worker", str(study)]
    with log.open("wb") as errors:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=errors, env=environment, bufsize=0, start_new_session=True
        )
    return _Worker(process, log)


def _devices() -> list[str]:
    """The GPUs that may be used; processes take them in turn."""
    import torch

    if not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]


def _reason(code: int, last: str) -> str:
    how = f"by signal {-code}" if code < 0 else f"with code {code}"
    memory = "; was there too little memory?" if code == -signal.SIGKILL else ""
    shown = f" ({last})" if last else ""
    return f"the process of this trial ended {ATTEMPTS} times, the last time {how}{memory}{shown}"
