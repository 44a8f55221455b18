"""A server as a process of its own, as several, or in a thread of a program that goes on."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from nearfar.errors import EncoderError, NearfarError, SettingError
from nearfar.server.app import application
from nearfar.server.logs import write_logs
from nearfar.server.protocol import LimitedConfig
from nearfar.server.service import Service
from nearfar.server.settings import Settings
from nearfar.server.worker_files import WorkerFiles

IDLE = 65
"""Seconds after which an idle connection is closed: more than the 60 of usual proxies."""
STOP = 10.0
"""Seconds beyond the time limit of requests, after which a stopped server ends whatever is left."""


def run(settings: Settings) -> None:
    """Serve until the process is stopped by Ctrl-C or SIGTERM; what was accepted is answered first.

    The address is printed when the model is loaded.
    """
    listener = listen(settings)
    announce = partial(_announce, settings, address_of(listener))
    with _calm_signals():
        if settings.workers > 1:
            _share_threads(settings.workers)
            with tempfile.TemporaryDirectory(prefix="nearfar-serve-") as place:
                app = _Worker(settings, Path(place))
                workers = _Workers(_config(settings, app, factory=True), listener, announce)
                workers.run()
                workers.check(WorkerFiles(Path(place)))
        else:
            write_logs(sys.stderr)
            service = Service(settings)
            server = _Server(_config(settings, application(settings, service=service)), service, announce)
            server.run(sockets=[listener])
            server.check()
    sys.stderr.write("stopped\n")


def _announce(settings: Settings, address: str) -> None:
    sys.stderr.write(f"serving {settings.model_name} at {address} (docs: {address}/docs); Ctrl-C stops\n")
    if "127.0.0.1" not in address and "[::1]" not in address and not settings.keys:
        sys.stderr.write("note: other machines may reach this server, and it asks for no key: --api-key-file FILE\n")
    sys.stderr.flush()


@contextlib.contextmanager
def background(settings: Settings) -> Iterator[str]:
    """Serve in a thread of this process, and give the address of the server.

    >>> from nearfar.server import Settings, background
    >>> import json, urllib.request
    >>> with background(Settings("toy", port=0)) as address:
    ...     json.load(urllib.request.urlopen(f"{address}/info"))["embedding_size"]
    64
    """
    listener = listen(settings)
    service = Service(settings)
    server = _Server(_config(settings, application(settings, service=service)), service)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="nearfar-serve")
    thread.start()
    try:
        while thread.is_alive() and not (server.started and service.ready):
            time.sleep(0.01)
        server.check()
        yield address_of(listener)
    finally:
        server.should_exit = True
        thread.join()


class _Server(uvicorn.Server):
    """A server that ends when its model cannot be loaded.

    Args:
        config: settings of uvicorn.
        service: the parts of the server.
        announce: called once, when the model is loaded.
    """

    def __init__(self, config: uvicorn.Config, service: Service, announce: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self.service = service
        self.announce: Callable[[], None] | None = announce

    async def on_tick(self, counter: int) -> bool:
        if self.announce is not None and self.service.ready:
            self.announce()
            self.announce = None
        return self.service.failure is not None or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.stopping = True
        await super().shutdown(sockets)

    def check(self) -> None:
        """Raise what kept the model from being loaded."""
        if self.service.failure is not None:
            raise self.service.failure


class _Workers(Multiprocess):
    """Processes that share a socket, each with a model of its own.

    Args:
        config: settings of uvicorn.
        listener: the socket.
        announce: called once, when the first process has loaded its model.
    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket, announce: Callable[[], None]) -> None:
        super().__init__(config, [listener])
        self.announce: Callable[[], None] | None = announce

    def keep_subprocess_alive(self) -> None:
        if self.announce is not None and any(process.is_ready(timeout=1) for process in self.processes):
            self.announce()
            self.announce = None
        super().keep_subprocess_alive()

    def check(self, files: WorkerFiles) -> None:
        """Raise where the server has ended because a process could not start."""
        if (reason := files.failure()) is not None:
            raise EncoderError(reason)
        if any(process.exitcode == STARTUP_FAILURE for process in self.processes):
            raise NearfarError("the server has stopped, because a process could not start; its log has the reason.")


@dataclass(frozen=True)
class _Worker:
    """Makes the application in a process of its own."""

    settings: Settings
    shared: Path
    """The folder of all processes of the server."""

    def __call__(self) -> ASGIApp:
        write_logs(sys.stderr)
        return application(self.settings, service=Service(self.settings, shared=self.shared), eager=True)


@contextlib.contextmanager
def _calm_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the server in good order, and not the process before that.

    uvicorn raises the signal again once it has stopped; then nothing is left to do.
    """

    def nothing(_number: int, _frame: object) -> None:
        """The signal has been handled."""

    before = {number: signal.signal(number, nothing) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _config(settings: Settings, app: Any, *, factory: bool = False) -> uvicorn.Config:
    return LimitedConfig(
        app,
        seconds=settings.limits.timeout,
        factory=factory,
        workers=settings.workers,
        lifespan="on",
        loop="auto",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=int(settings.limits.timeout + STOP),
        h11_max_incomplete_event_size=64 * 1024,
    )


def _share_threads(workers: int) -> None:
    """Give each process its share of the cores, unless the environment says otherwise."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))


def listen(settings: Settings) -> socket.socket:
    """A socket that listens at the address of the settings."""
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, _, _, place = found[0]
        listener = socket.socket(family, kind)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
        except OSError:
            listener.close()
            raise
    except OSError as cause:
        reason = cause.strerror or str(cause)
        raise SettingError(
            f"{host}:{port}: this address cannot be used ({reason}); choose another with --host and --port, or "
            "--port 0 for any free port."
        ) from cause
    return listener


def address_of(listener: socket.socket) -> str:
    """The address of a socket for clients."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
