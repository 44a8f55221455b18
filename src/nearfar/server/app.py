"""The application (ASGI): routes, keys, limits of a request, and how it is answered, logged and counted."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import sys
import time
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nearfar.errors import NearfarError
from nearfar.server.batches import Timing
from nearfar.server.endpoints import ENDPOINTS, Endpoint, info
from nearfar.server.errors import RequestError, invalid, slow, timed_out, too_large, unauthorized, unhealthy
from nearfar.server.metrics import CONTENT_TYPE
from nearfar.server.openai import EMBEDDINGS, model_card
from nearfar.server.openapi import describe, render_page
from nearfar.server.schemas import read_body
from nearfar.server.service import Call, Service
from nearfar.server.settings import Settings

logger = logging.getLogger(__name__)

PUBLIC = ("/health", "/health/live", "/health/ready")
"""Paths that need no key: probes have none."""
CLOSED = 499
"""The status in the log of a request whose client has gone."""
POSTS = (EMBEDDINGS, *ENDPOINTS)


def describe_paths(*, keyed: bool = False) -> dict[str, Any]:
    """The OpenAPI document of a server."""
    return describe(POSTS, keyed=keyed)


def application(settings: Settings, *, service: Service | None = None, eager: bool = False) -> ASGIApp:
    """The server as an ASGI application, for uvicorn and for any other server.

    Args:
        settings: what it is started with; host, port and workers belong to the server that runs it.
        service: its parts, where somebody else looks at them, too.
        eager: whether start-up waits for the model, and fails without it; else it is loaded meanwhile.
    """
    app: ASGIApp = Application(service or Service(settings), eager=eager)
    if settings.origins:
        app = CORSMiddleware(
            app, allow_origins=settings.origins, allow_methods=["GET", "POST"], allow_headers=["authorization", "*"]
        )
    return app


class Application:
    """All paths of a server.

    Args:
        service: its parts.
        eager: whether start-up waits for the model.
    """

    def __init__(self, service: Service, *, eager: bool = False) -> None:
        self.service = service
        self.eager = eager
        self._keys = [key.encode("ascii") for key in service.settings.keys]
        routes = [Route(endpoint.path, _Post(service, endpoint), methods=["POST"]) for endpoint in POSTS]
        pages = {
            "/": self._docs, "/docs": self._docs, "/openapi.json": self._openapi, "/info": self._info,
            "/metrics": self._metrics, "/v1/models": self._models, "/v1/models/{name:path}": self._model,
            "/health": self._ready, "/health/ready": self._ready, "/health/live": self._live,
        }  # fmt: skip
        routes += [Route(path, page, methods=["GET"]) for path, page in pages.items()]
        self._router = Router(routes, redirect_slashes=False)
        self._paths = {route.path for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or start and stop."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                if self.eager:
                    await asyncio.to_thread(self.service.slot.load)
                await stack.enter_async_context(self.service.running())
            except NearfarError as error:
                if self.service.files is None:
                    sys.stderr.write(f"error: {error}\n")
                else:  # the process that started this one says it, once for all
                    self.service.files.fail(str(error))
                await send({"type": "lifespan.startup.failed", "message": ""})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to its route; whatever goes wrong is answered in the form of the path, logged and counted."""
        began, path = time.perf_counter(), scope["path"]
        status, started = CLOSED, False
        scope["app"], scope["nearfar.timing"] = self, Timing()

        async def watched(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
            try:
                await send(message)
            except RuntimeError as error:
                if "handler is closed" in str(error):  # uvloop's words for a connection that the client has closed
                    raise ClientDisconnect from None
                raise

        response: Response | None = None
        try:
            if path not in PUBLIC:
                self._check_key(scope)
            await self._router(scope, receive, watched)
        except RequestError as error:
            response = JSONResponse(error.body(path), error.status, error.headers)
        except HTTPException as error:
            response = JSONResponse(_no_route(error).body(path), error.status_code, error.headers)
        except (ClientDisconnect, ConnectionError):
            pass
        except Exception as error:
            logger.error("a request failed", extra={"path": self._label(scope), "error": error})
            message = "the server has a fault; its log has the reason."
            response = JSONResponse(RequestError(500, "Backend", message).body(path), 500)
        if response is not None and not started:
            with contextlib.suppress(ConnectionError):
                await response(scope, receive, watched)
        self._count(scope, status, time.perf_counter() - began)

    def _label(self, scope: Scope) -> str:
        """The path of a route, which a client cannot choose."""
        path: str = scope["path"]
        return path if path in self._paths else "/v1/models/{name}" if path.startswith("/v1/models/") else "other"

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        metrics, timing, label = self.service.metrics, scope["nearfar.timing"], self._label(scope)
        metrics.requests.add(1, label, str(status))
        metrics.request_seconds.observe(seconds, label)
        if timing.texts:
            metrics.texts.add(timing.texts, label)
            metrics.tokens.add(timing.tokens, label)
        client = scope.get("client")
        logger.log(
            logging.DEBUG if label in PUBLIC or label == "/metrics" else logging.INFO,
            "request",
            extra={
                "method": scope["method"],
                "path": label,
                "status": status,
                "client": client[0] if client else None,
                "texts": timing.texts,
                "tokens": timing.tokens,
                "queue_ms": round(1000 * timing.waited, 2),
                "compute_ms": round(1000 * timing.computed, 2),
                "total_ms": round(1000 * seconds, 2),
            },
        )

    def _check_key(self, scope: Scope) -> None:
        """Refuse a request without a valid key, in a time that tells nothing about the keys."""
        if not self._keys:
            return
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, given = header.partition(b" ")
        matches = [hmac.compare_digest(given.strip(), key) for key in self._keys]
        if scheme.lower() != b"bearer" or not any(matches):
            raise unauthorized()

    async def _live(self, _: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _ready(self, _: Request) -> Response:
        if not self.service.ready:
            raise unhealthy("the server is shutting down." if self.service.stopping else "the model is being loaded.")
        return JSONResponse({"status": "ready"})

    async def _info(self, _: Request) -> Response:
        return JSONResponse(info(self.service))

    async def _metrics(self, _: Request) -> Response:
        text = await asyncio.to_thread(self.service.metrics_text)
        return PlainTextResponse(text, media_type=CONTENT_TYPE)

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model_card(self.service)]})

    async def _model(self, request: Request) -> Response:
        if request.path_params["name"] != self.service.settings.model_name:
            raise RequestError(404, "Validation", f"the only model is {self.service.settings.model_name!r}.")
        return JSONResponse(model_card(self.service))

    async def _openapi(self, _: Request) -> Response:
        return JSONResponse(describe_paths(keyed=bool(self._keys)))

    async def _docs(self, _: Request) -> Response:
        policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        page = render_page(describe_paths(keyed=bool(self._keys)))
        return HTMLResponse(page, headers={"content-security-policy": policy})


def _no_route(error: HTTPException) -> RequestError:
    """What is wrong with a path or a method that there is not, as a sentence."""
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "another one").split(", ")))
        return invalid(f"this path has another method: {allowed}. GET /docs lists all paths.")
    return invalid("there is no such path; GET /docs lists all paths.")


class _Post:
    """A path that reads JSON.

    Args:
        service: the parts of the server.
        endpoint: the path.
    """

    def __init__(self, service: Service, endpoint: Endpoint) -> None:
        self.service = service
        self.endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limits, service = self.service.limits, self.service
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limits.timeout
        try:
            async with asyncio.timeout_at(deadline):
                body = await _read(scope, receive, limits.body)
        except TimeoutError:
            raise slow(limits.timeout) from None
        values = read_body(self.endpoint.fields, body)
        del body
        texts = self.endpoint.count(values)
        if texts > limits.texts:
            raise too_large(f"the request has {texts:,} texts; send at most {limits.texts:,} at a time.")
        with service.batches.accept(texts):
            call = Call(service.slot.current(), scope["nearfar.timing"])
            answer = asyncio.ensure_future(self.endpoint.answer(service, call, values))
            gone = asyncio.ensure_future(_until_gone(receive))
            try:
                waits = deadline - loop.time()
                await asyncio.wait((answer, gone), timeout=waits, return_when=asyncio.FIRST_COMPLETED)
                if not answer.done() and not gone.done():
                    raise timed_out(limits.timeout)
                if not answer.done():
                    raise ClientDisconnect
                result = answer.result()
            finally:
                for task in (answer, gone):
                    task.cancel()
                await asyncio.gather(answer, gone, return_exceptions=True)
        await JSONResponse(result)(scope, receive, send)


async def _read(scope: Scope, receive: Receive, most: int) -> bytes:
    """The body of a request; one that is too large is refused before it is read."""
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"application/json").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise RequestError(
            415, "Validation", "the body must be JSON: send the header 'Content-Type: application/json'."
        )
    message = f"the body is larger than the {most:,} bytes that this server reads; send fewer texts at a time."
    if (length := headers.get(b"content-length", b"")).isdigit() and int(length) > most:
        raise too_large(message)
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientDisconnect
        part: Any = event.get("body", b"")
        size += len(part)
        if size > most:
            raise too_large(message)
        parts.append(part)
        if not event.get("more_body", False):
            return b"".join(parts)


async def _until_gone(receive: Receive) -> None:
    """Wait until the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
