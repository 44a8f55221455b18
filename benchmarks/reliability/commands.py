"""Commands of nearfar in processes of their own, with bounds and with faults that are planted.

Most are forked from a process that has imported everything and computed nothing, which takes no time; ``Job.fresh``
starts a new interpreter as users do.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 20.0
"""Of processor time that a command may take for a malformed input; more is a hang."""
PATIENCE = 3600.0
"""Of time on the clock, on a machine that may be busy."""
STILL = 120.0
"""Of time on the clock in which a command that reads something malformed computes nothing at all; more is a hang."""
MEMORY = 2 * 2**30
"""Bytes that a malformed input may take."""
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}


@dataclass(frozen=True)
class Fault:
    """What happens to a command while it runs."""

    signal: str | None = None
    """The signal that it gets, by its name in ``SIGNALS``."""
    after: float = 0.0
    """Seconds of processor time until then, which do not depend on how busy the machine is."""
    operation: int | None = None
    """The file operation of the folder before which it is killed, counted from 1."""
    disk: int | None = None
    """Files that can be opened for writing until the disk is full."""
    file_size: int | None = None
    """Bytes that a file can have at most, as with a quota."""


@dataclass(frozen=True)
class Job:
    """A command in a folder."""

    words: tuple[str, ...]
    folder: Path
    stdin: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False
    """Whether it is a new interpreter, and not a fork of this process."""


@dataclass(frozen=True)
class End:
    """How a command ended."""

    status: int
    """Its exit status, or the negative number of the signal that ended it."""
    errors: str = ""
    """The end of what it wrote to standard error."""
    seconds: float = 0.0
    """Of processor time."""
    memory: int = 0
    """Bytes at the most, beside what the process had before."""
    words: tuple[str, ...] = ()
    """The command."""
    answered: bool = False
    """Whether it wrote to standard output."""
    late: bool = False
    """Whether it was ended because it took too long."""
    own: float = 0.0
    """Seconds of processor time without those of processes that it has started, where it came to its end."""
    operations: int = 0
    """Its file operations in the folder, where it came to its end."""

    @property
    def verdict(self) -> str:
        """What to say of a command that was given something malformed."""
        if self.late or self.seconds > SECONDS:
            return "hang"
        if self.memory > MEMORY:
            return "memory"
        if "Traceback (most recent call last)" in self.errors or "panicked at" in self.errors:
            return "traceback"
        if self.status < 0:
            return "crash"
        if self.status and not self.errors.strip() and not self.answered:
            return "without a message"
        return "accepted" if self.status == 0 else "refused"


def preload() -> None:
    """Import everything that commands need, and compute nothing."""
    os.environ |= dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "COLUMNS": "160", "OMP_NUM_THREADS": "1"}
    import torch

    torch.set_num_threads(1)
    import datasets  # noqa: F401
    import openpyxl  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import tests.preloaded  # noqa: F401
    import transformers.models.bert.modeling_bert  # noqa: F401

    import nearfar.cli
    import nearfar.encoding.predictor
    import nearfar.evaluation
    import nearfar.experiments.local_executor
    import nearfar.experiments.trials
    import nearfar.pipeline.train
    import nearfar.report  # noqa: F401


def start(job: Job, fault: Fault, errors: Path) -> int:
    """The process id of a command that has begun; ``errors`` gets what it writes to standard error."""
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        os.environ.update(job.environment)
        if job.fresh:
            _redirect(job, errors)
            os.execv(sys.executable, [sys.executable, "-m", "nearfar", *job.words])
        counted = _count_operations(job.folder, fault.operation)
        _plant(fault)
        status = call(job, errors)
        with contextlib.suppress(OSError):  # there may be no room
            _about(errors).write_text(json.dumps([time.process_time(), counted[0]]), encoding="utf-8")
    except BaseException:  # a fork must not go on with the work of its parent
        status = 99
    os._exit(status)


def _about(errors: Path) -> Path:
    """Where a command that has come to its end leaves what only it knows."""
    return errors.with_name(f"{errors.name}-about")


def run(job: Job, fault: Fault = Fault(), *, patience: float = PATIENCE) -> End:  # noqa: B008  # frozen
    """Run a command to its end."""
    errors = job.folder.parent / f"errors-{os.getpid()}-{random.getrandbits(32)}"
    child = start(job, fault, errors)
    return finish(child, errors, patience, fault if job.fresh else Fault())


def finish(child: int, errors: Path, patience: float = PATIENCE, fault: Fault = Fault()) -> End:  # noqa: B008  # frozen
    """Wait for a command, which gets the signal of the fault."""
    until, late, due = time.monotonic() + patience, False, fault.signal is not None
    while True:
        found, status, used = os.wait4(child, os.WNOHANG)
        if found:
            break
        if due and _spent(child) >= fault.after:
            os.kill(child, SIGNALS[str(fault.signal)])
            due = False
        if time.monotonic() > until and not late:
            late = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.005)
    text = errors.read_text(encoding="utf-8", errors="replace")[-5_000:] if errors.exists() else ""
    about = _about(errors).read_bytes() if _about(errors).exists() else b""
    own, operations = json.loads(about) if about.endswith(b"]") else (0.0, 0)
    for path in (errors, _about(errors)):
        path.unlink(missing_ok=True)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return End(code, text, used.ru_utime + used.ru_stime, late=late, own=own, operations=operations)


def call(job: Job, errors: Path) -> int:
    """The exit status of a command that is called in this process."""
    import traceback

    from tests.preloaded import forked_workers

    from nearfar.cli import main

    _redirect(job, errors)
    sys.stdin = os.fdopen(os.dup(0), encoding="utf-8", errors="surrogateescape")
    sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    sys.stderr = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    sys.argv = ["nearfar", *job.words]
    try:
        with forked_workers():
            main()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _redirect(job: Job, errors: Path) -> None:
    """Go to the folder of a command, and give this process its streams."""
    os.chdir(job.folder)
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    streams = (job.stdin or Path(os.devnull), os.O_RDONLY), (errors.with_name("output"), new), (errors, new)
    for place, (path, flags) in enumerate(streams):
        handle = os.open(path, flags, 0o644)
        os.dup2(handle, place)
        os.close(handle)


OPERATIONS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod")


def _count_operations(folder: Path, last: int | None) -> list[int]:
    """Count the file operations of this process in a folder, and kill it before the last; it cannot be taken back."""
    count, process, place = [0], os.getpid(), str(folder.resolve())

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" and event not in OPERATIONS:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        name = arguments[0]
        if not isinstance(name, str | os.PathLike) or os.getpid() != process:
            return
        if os.path.isabs(name) and not os.fspath(name).startswith(place):
            return
        count[0] += 1
        if count[0] == last:
            os.kill(process, signal.SIGKILL)

    sys.addaudithook(hook)
    return count


def _plant(fault: Fault) -> None:
    """Let something happen to this process; it cannot be taken back."""
    if fault.signal is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if fault.signal == "SIGKILL":  # the timer's own signal ends the process at once, whatever it does
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
        else:
            number = SIGNALS[fault.signal]
            signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), number))
        signal.setitimer(signal.ITIMER_PROF, max(fault.after, 0.02))  # not before the command has begun
    if fault.file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.file_size, resource.RLIM_INFINITY))
    if fault.disk is not None:
        opened, most = 0, fault.disk

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal opened
            if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
                name = str(arguments[0])
                if name.startswith(("/dev", "/proc")) or name.endswith("output") or "errors" in name:
                    return
                opened += 1
                if opened > most:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

        sys.addaudithook(hook)


def run_many(jobs: Sequence[Job], scratch: Path) -> Iterator[End]:
    """Commands one after the other in one process, which is started anew after a crash or a hang; each has bounds."""
    place = 0
    while place < len(jobs):
        for end in _batch(jobs[place:], scratch):
            yield end
            place += 1


def _batch(jobs: Sequence[Job], scratch: Path) -> Iterator[End]:
    """The ends of commands in one process, until the first that ends the process or takes too long."""
    reading, writing = os.pipe()
    errors = scratch / "errors"
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _serve(jobs, errors, writing)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        unread, done, spent, moved, latest = b"", 0, 0.0, time.monotonic(), 0.0
        while done < len(jobs):
            if select.select([pipe], [], [], 0.2)[0]:
                piece = pipe.read(2**16)
                if not piece:
                    break
                *lines, unread = (unread + piece).split(b"\n")
                for line in lines:
                    yield End(**json.loads(line))
                    done, spent = done + 1, _spent(child)
            if _spent(child) != latest:
                latest, moved = _spent(child), time.monotonic()
            if latest - spent > SECONDS or time.monotonic() - moved > STILL:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                yield End(-9, _tail(errors), latest - spent, late=True)
                return
    _, status = os.waitpid(child, 0)
    if done < len(jobs):
        yield End(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1, _tail(errors))


def _serve(jobs: Sequence[Job], errors: Path, writing: int) -> None:
    virtual = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (virtual + 2 * MEMORY, virtual + 2 * MEMORY))
    for job in jobs:
        Path("/proc/self/clear_refs").write_text("5")  # the highest use of memory is counted from here on
        before, began = _status("VmRSS"), time.process_time()
        status = call(job, errors)
        end = {"status": status, "errors": _tail(errors), "seconds": time.process_time() - began,
               "memory": _status("VmHWM") - before, "words": job.words,
               "answered": errors.with_name("output").stat().st_size > 0}  # fmt: skip
        os.write(writing, json.dumps(end).encode() + b"\n")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)


def _spent(child: int) -> float:
    """The processor time of a process so far."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _tail(errors: Path) -> str:
    return errors.read_text(encoding="utf-8", errors="replace")[-3_000:] if errors.exists() else ""
