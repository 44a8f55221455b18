"""Clients on plain sockets of asyncio: they cost far less than what they measure."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LONGEST = 120.0
"""Seconds after which a request counts as failed."""


@dataclass
class Load:
    """What some clients have seen."""

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    took: float = 0.0

    def add(self, status: int, seconds: float) -> None:
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == 200:
            self.seconds.append(seconds)

    @property
    def rate(self) -> float:
        """Answered requests a second."""
        return len(self.seconds) / self.took if self.took else 0.0

    def quantile(self, share: float) -> float:
        """The time in milliseconds within which this share of the requests was answered."""
        ordered = sorted(self.seconds)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def request(path: str, body: object, *, host: str = "bench") -> bytes:
    """A POST with a JSON body."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def place(address: str) -> tuple[str, int]:
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


async def read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of a response with a length; status 0 where the connection ended before."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        lines = head.lower().split(b"\r\n")
        length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), None)
        body = await (reader.read() if length is None else reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError, ValueError):
        return 0, b""
    return status, body


async def client(address: str, make: Callable[[], bytes], until: float, load: Load) -> None:
    """One client with one connection: it sends the next request when it has the answer to the last."""
    reader, writer = await asyncio.open_connection(*place(address))
    try:
        while time.perf_counter() < until:
            began = time.perf_counter()
            writer.write(make())
            try:
                status, _ = await asyncio.wait_for(read_response(reader), LONGEST)
            except TimeoutError:
                status = 0
            load.add(status, time.perf_counter() - began)
            if not status:
                writer.close()
                reader, writer = await asyncio.open_connection(*place(address))
            elif status == 429:
                await asyncio.sleep(0.05)
    finally:
        writer.close()


async def run_clients(address: str, number: int, make: Callable[[], bytes], seconds: float) -> Load:
    """So many clients at once for some seconds."""
    load, began = Load(), time.perf_counter()
    await asyncio.gather(*(client(address, make, began + seconds, load) for _ in range(number)))
    load.took = time.perf_counter() - began
    return load


async def ask(address: str, data: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection(*place(address))
    try:
        writer.write(data)
        return await asyncio.wait_for(read_response(reader), LONGEST)
    finally:
        writer.close()
