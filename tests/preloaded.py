"""Child processes that begin with everything imported: a start costs a fork instead of seconds of imports.

The trials of studies that tests run in their own process are served by such children. Studies that are started as a
command, and those within :func:`fresh_workers`, start their processes as users do.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
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
        context = children()
        stdin, to_worker = context.Pipe(duplex=False)
        from_worker, stdout = context.Pipe(duplex=False)
        ended = [stdin, stdout, Connection(os.dup(stderr.fileno()), readable=False)]
        self._process = context.Process(target=_serve, args=(list(command[3:]), dict(env), *ended))
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


def _serve(
    arguments: list[str], environment: dict[str, str], stdin: Connection, stdout: Connection, stderr: Connection
) -> None:
    import torch

    from nearfar.experiments import worker

    os.setsid()
    for place, connection in enumerate((stdin, stdout, stderr)):
        os.dup2(connection.fileno(), place)
        connection.close()
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.argv = [WORKER, *arguments]
    os.write(1, b"\n")
    worker.main()


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
