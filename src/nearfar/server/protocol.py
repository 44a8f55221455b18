"""HTTP/1.1 connections that cannot be held open: one request must be read and answered within a time limit.

uvicorn ends idle connections, but waits for ever for the rest of a header, and for a client that does not read its
answer. With httptools, which is faster than h11, it also keeps headers of any size.
"""

from __future__ import annotations

import asyncio
import importlib.util
from typing import Any

import uvicorn

if importlib.util.find_spec("httptools") is not None:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
else:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Base  # type: ignore[assignment]

GRACE = 5.0
"""Seconds beyond the time limit of a request, in which the application can still answer that it was too slow."""

HEADER = 65_536
"""Bytes of path and headers that a request may have without being complete; the limit of h11 in uvicorn, too."""


class LimitedConfig(uvicorn.Config):
    """Settings of uvicorn for :class:`LimitedProtocol`.

    Args:
        app: the application, or what makes it.
        seconds: the time limit of a request.
        settings: those of uvicorn.
    """

    def __init__(self, app: Any, *, seconds: float, **settings: Any) -> None:
        super().__init__(app, http=LimitedProtocol, ws="none", **settings)
        self.seconds = seconds


class LimitedProtocol(Base):
    """A connection that is closed when a request takes too long, or has too large a header.

    The time is that of its header, its body and the reading of its answer.
    """

    config: LimitedConfig
    _watch: asyncio.TimerHandle | None = None
    _header: int | None = None
    """Bytes of the header so far; None outside of one."""

    def connection_made(self, transport: Any) -> None:
        """Begin to measure the time."""
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        """Begin to measure the time of a further request."""
        self._start()
        super().data_received(data)
        if self._header is not None:
            self._header += len(data)
            if self._header > HEADER:
                self.send_400_response("The header is too large.")

    def on_message_begin(self) -> None:
        """A header begins; httptools calls this, and h11 has a limit of its own."""
        super().on_message_begin()
        self._header = 0

    def on_headers_complete(self) -> None:
        """The header has ended."""
        self._header = None
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """The request is answered; until the next one, the limit of idle connections holds."""
        self._stop()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to measure."""
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        if self._watch is None:
            self._watch = self.loop.call_later(self.config.seconds + GRACE, self.transport.abort)

    def _stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
