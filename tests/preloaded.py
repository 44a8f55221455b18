"""Child processes that begin with everything imported: a start costs a fork instead of seconds of imports.

The trials of studies that tests run in their own process are served by such children, and commands that tests stop or
kill are such children. Studies within :func:`fresh_workers`, and commands that are started with :mod:`subprocess`, start
their processes as users do.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkServerContext
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest.mock import patch

WORKER = "nearfar.experiments.worker"
MODULES = (
    "nearfar.pipeline.train",
    "nearfar.experiments.trials",
    "nearfar.evaluation",
    "transformers.models.bert.modeling_bert",
    WORKER,
)


def children() -> ForkServerContext:
    """Where to start processes that begin with everything imported and nothing computed."""
    assert all(map(importlib.util.find_spec, MODULES))  # a module that is not there would be passed over in silence
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(MODULES))
    return context


class PreloadedWorker:
    """What :class:`subprocess.Popen` is to the driver of a study, for a worker that is forked."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], stderr: IO[bytes], start_new_session: bool, **_: Any
    ) -> None:
        assert list(command[:3]) == [sys.executable, "-m", WORKER], command
        assert start_new_session
        context: ForkContext | ForkServerContext = multiprocessing.get_context("fork") if _forked else children()
        stdin, to_worker = context.Pipe(duplex=False)
        from_worker, stdout = context.Pipe(duplex=False)
        ended = [stdin, stdout, Connection(os.dup(stderr.fileno()), readable=False)]
        self._process = context.Process(target=_serve, args=(Path.cwd(), list(command[3:]), dict(env), *ended))
        self._process.start()
        for connection in ended:
            connection.close()
        self.stdin = os.fdopen(os.dup(to_worker.fileno()), "wb", buffering=0)
        self.stdout = os.fdopen(os.dup(from_worker.fileno()), "rb", buffering=0)
        to_worker.close()
        from_worker.close()
        assert self.stdout.read(1) == b"\n"  # from here on it has a session of its own, which may be killed
        assert self._process.pid is not None
        self.pid = self._process.pid

    def wait(self) -> int:
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode


def _serve(folder: Path, arguments: list[str], environment: dict[str, str], *standard: Connection) -> None:
    import torch

    from nearfar.experiments import worker

    os.setsid()
    os.chdir(folder)
    for place, connection in enumerate(standard):
        os.dup2(connection.fileno(), place)
    os.closerange(3, 256)  # nothing of other workers: theirs must end when the driver ends
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.argv = [WORKER, *arguments]
    os.write(1, b"\n")
    worker.main()


class PreloadedCommand:
    """What :class:`subprocess.Popen` is to a test that stops ``nearfar`` or kills it, for a process that is forked."""

    def __init__(self, *words: str | Path) -> None:
        self.stderr = tempfile.NamedTemporaryFile("r", encoding="utf-8", prefix="nearfar-test-")  # noqa: SIM115
        arguments = (Path.cwd(), self.stderr.name, list(map(str, words)))
        self._process = children().Process(target=_command, args=arguments)
        self._process.start()

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, "it still runs"
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        self.wait(timeout)
        with self.stderr:
            return None, self.stderr.read()


_forked = False
"""Whether workers are forked from this process directly."""


def _command(folder: Path, errors: str, words: list[str]) -> None:
    from nearfar.cli import main

    os.chdir(folder)
    with open(os.devnull, "wb") as nowhere, open(errors, "ab") as file:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["nearfar", *words]
    with forked_workers():
        main()


@contextlib.contextmanager
def forked_workers() -> Iterator[None]:
    """Let the studies of this process, which has computed nothing yet, have workers that are forked from it."""
    global _forked
    _forked = True
    with preloaded_workers():
        yield


@contextlib.contextmanager
def preloaded_workers() -> Iterator[None]:
    """Let the studies of this process have workers that are forked."""
    from nearfar.experiments import local_executor

    quick = SimpleNamespace(PIPE=subprocess.PIPE, Popen=PreloadedWorker)
    with patch.object(local_executor, "subprocess", quick):
        yield


@contextlib.contextmanager
def fresh_workers() -> Iterator[None]:
    """Let the studies of this process start their workers as users do, after all."""
    from nearfar.experiments import local_executor

    with patch.object(local_executor, "subprocess", subprocess):
        yield
