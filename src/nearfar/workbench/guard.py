"""Who may use the server: the browser that was given the token, from a page of this server, and nobody else."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, QueryParams
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OWN_WINDOW = {"Cross-Origin-Opener-Policy": "same-origin"}
"""For pages of this machine: of others without https, browsers ignore it and complain."""
TOKEN = "x-nearfar-token"  # noqa: S105  # the name of a header
LARGEST = 8_000_000
"""Bytes of the largest request."""


def host_allowed(host: str, names: Collection[str] = ()) -> bool:
    """Whether a Host header names this machine: an address, ``localhost`` or one of the names.

    A page of another site whose name was pointed at this machine (DNS rebinding) sends its own name, and is refused.

    >>> host_allowed("127.0.0.1:8000"), host_allowed("[::1]:8000"), host_allowed("evil.example:8000")
    (True, True, False)
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
        _ = urlsplit(f"//{host}").port
    except ValueError:
        return False
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    """Whether a Host header names this machine as only itself can.

    >>> is_local("localhost:80"), is_local("[::1]:80"), is_local("192.168.1.4:80")
    (True, True, False)
    """
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Guard:
    """Refuses requests by strangers before the application sees them, and adds headers that protect the page.

    Args:
        app: the application.
        token: what every request must carry, in a header or, for the page itself, in the address.
        names: further names of this machine.
        public: paths that need no token: scripts and style sheets.
    """

    def __init__(self, app: ASGIApp, *, token: str, names: Collection[str] = (), public: str = "/assets/") -> None:
        self.app, self.token, self.names, self.public = app, token, frozenset(names), public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        host = Headers(scope=scope).get("host", "")
        own = OWN_WINDOW if host_allowed(host) and is_local(host) else {}
        protection = [(name.lower().encode(), value.encode()) for name, value in (HEADERS | own).items()]

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in protection if name not in given),
                ]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            status, sentence = refusal
            await JSONResponse({"error": sentence}, status)(scope, receive, protected)
            return
        await self.app(scope, receive, protected)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        if not host_allowed(headers.get("host", ""), self.names):
            return 403, "This server answers only under the address that nearfar has printed."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            return 403, "This server answers only its own page."
        if scope["method"] not in ("GET", "HEAD") and origin is None:
            return 403, "This server answers only its own page."
        if not (headers.get("content-length") or "0").isdigit() or int(headers.get("content-length") or 0) > LARGEST:
            return 413, "The request is too large."
        if scope["path"].startswith(self.public):
            return None
        given = headers.get(TOKEN) or QueryParams(scope["query_string"]).get("token") or ""
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            return 401, "The address lacks the token. Open the whole address that nearfar has printed."
        return None
