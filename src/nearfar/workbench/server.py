"""The application on a port of this machine, until it is interrupted."""

from __future__ import annotations

import ipaddress
import secrets
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace

from nearfar.errors import OutputError, SettingError
from nearfar.workbench.app import Workbench, make_app


def new_token() -> str:
    """A secret for the address of the page."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Address:
    """Where the page is opened."""

    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        """The whole address, with the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/?token={self.token}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; raises OutputError where the address cannot be used. Port 0 takes a free one."""
    listener = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)  # who connects before the server runs waits
    except OSError as cause:
        if listener is not None:
            listener.close()
        raise OutputError(f"--host {host} --port {port}: {cause.strerror}. Choose another --port, or 0.") from cause
    return listener


def serve(bench: Workbench, *, host: str, port: int, announce: Callable[[Address], None]) -> None:
    """Answer requests until Ctrl-C or SIGTERM; what was labeled is on the disk all the time.

    Args:
        bench: the parts of the application.
        host: the address to listen on.
        port: the port; 0 for a free one.
        announce: called with the address when the server listens.
    """
    try:
        import uvicorn
    except ImportError:
        raise SettingError("the page needs uvicorn; install it with: pip install 'nearfar[explore]'") from None
    listener = bind(host, port)
    address = Address(host, listener.getsockname()[1], new_token())
    app = make_app(replace(bench, token=address.token), names=(host, socket.gethostname()))
    config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, lifespan="off")
    server = uvicorn.Server(config)
    announce(address)
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn stops by it, and raises it once more
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        listener.close()
