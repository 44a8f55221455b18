"""Servers in processes of their own: ``nearfar serve``, and the plain one that it is compared with."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

START = 300.0
"""Seconds that a server may take to start."""


@dataclass
class Running:
    """A server that answers."""

    address: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def memory_mb(self) -> float:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def files(self) -> int:
        """Open files and connections of the process."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def stop(self) -> int:
        """End it in good order; its status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def started(command: Sequence[str], port: int, ready: str) -> Iterator[Running]:
    """A server that is ready; it is ended at the end."""
    address = f"http://127.0.0.1:{port}"
    with tempfile.NamedTemporaryFile(suffix=".log", prefix="nearfar-serve-", delete=False) as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    server = Running(address, process, Path(log.name))
    try:
        until = time.monotonic() + START
        while not _answers(address + ready):
            if not server.alive or time.monotonic() > until:
                raise RuntimeError(f"the server did not start:\n{server.log.read_text()[-2_000:]}")
            time.sleep(0.2)
        yield server
    finally:
        if server.alive:
            process.kill()
        process.wait()
        server.log.unlink()


def nearfar(model: str, *flags: str) -> contextlib.AbstractContextManager[Running]:
    """``nearfar serve``."""
    port = free_port()
    command = [sys.executable, "-m", "nearfar", "serve", model, "--port", str(port), *flags]
    return started(command, port, "/health")


def plain(model: str, python: str) -> contextlib.AbstractContextManager[Running]:
    """FastAPI with sentence-transformers, as its documentation shows it."""
    port = free_port()
    return started([python, "-m", "benchmarks.workers.serve_fastapi", model, str(port)], port, "/health")


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
