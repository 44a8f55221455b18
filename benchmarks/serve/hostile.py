"""Clients that misbehave: killed, slow, malformed, oversized. The server must go on and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.serve.clients import ask, place, read_response, request
from benchmarks.serve.servers import Running

BODY = 200_000
FLAGS = ("--max-body", str(BODY), "--timeout", "4", "--max-texts", "64", "--max-queue", "256")
"""Of the server: small limits, so that they are reached."""
MEMORY = 1.15
"""How much larger the process may be at the end than when a tenth of the cases was over."""
TOGETHER = 48
"""Clients at the same time."""
GOOD = {200, 429}
EXPECTED: dict[str, set[int]] = {
    "valid": GOOD,
    "killed": {0},
    "slow": {0, 408, 504} | GOOD,
    "not reading": {0} | GOOD,
    "malformed JSON": {400, 422},
    "wrong shape": {400, 413, 422, 424, 429},
    "oversized": {0, 413},
    "no sound HTTP": {0, 200, 400, 404},
    "large headers": {0, 200, 400, 404},
    "other paths": {404, 405},
}


@dataclass
class Hostile:
    """What was seen."""

    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    memory: list[float] = field(default_factory=list)
    files: tuple[int, int] = (0, 0)
    threads: tuple[int, int] = (0, 0)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, kind: str, status: int) -> None:
        self.statuses.setdefault(kind, Counter())[status] += 1
        if status not in EXPECTED[kind]:
            self.faults.append(f"{kind}: status {status}")


async def _killed(address: str, draw: random.Random, data: bytes) -> int:
    """Some bytes of a request, and then a reset, as of a process that was killed."""
    reader, writer = await asyncio.open_connection(*place(address))
    del reader
    writer.write(data[: draw.randint(0, len(data))])
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    await asyncio.sleep(draw.choice((0, 0, 0.002, 0.02)))
    handle = writer.get_extra_info("socket")
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return 0


async def _slow(address: str, draw: random.Random, data: bytes) -> int:
    """Few bytes at a time, until the server has enough of it."""
    reader, writer = await asyncio.open_connection(*place(address))
    answer = asyncio.ensure_future(read_response(reader))
    step = draw.randint(1, 40)
    with contextlib.suppress(ConnectionError):
        for start in range(0, len(data), step):
            writer.write(data[start : start + step])
            await writer.drain()
            await asyncio.wait((answer,), timeout=draw.uniform(0.2, 1.5))
            if answer.done():
                break
    try:
        return (await asyncio.wait_for(answer, 30))[0]
    finally:
        writer.close()


async def _not_reading(address: str, draw: random.Random, texts: Sequence[str]) -> int:
    """Many requests on one connection, whose answers are never read."""
    reader, writer = await asyncio.open_connection(*place(address), limit=1024)
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    with contextlib.suppress(ConnectionError):
        for _ in range(draw.randint(1, 20)):
            writer.write(request("/embed", {"inputs": [draw.choice(texts)] * 16}))
        await asyncio.sleep(draw.uniform(0.1, 1.0))
    writer.transport.abort()
    return 0


def _malformed(draw: random.Random, texts: Sequence[str]) -> bytes:
    """A body that is damaged somewhere."""
    body = bytearray(json.dumps({"inputs": [draw.choice(texts), draw.choice(texts)]}).encode())
    kind = draw.randrange(5)
    if kind == 0:
        del body[draw.randrange(len(body) - 1) :]
    elif kind == 1:
        body[draw.randrange(len(body))] = draw.choice(b"{}[]\x00\xff\x80")
        body += b"}"
    elif kind == 2:
        body = bytearray(draw.choice((b"[", b'{"a":')) * draw.randint(2_000, 30_000))
    elif kind == 3:
        body = bytearray(draw.randbytes(draw.randint(1, 500)))
    else:
        body = bytearray(b'{"inputs": "' + draw.choice((b"\\ud800", b"\\udfff x", b"\\q", b"\\u12")) + b'"}')
    path = draw.choice((b"/embed", b"/predict", b"/v1/embeddings", b"/tokenize"))
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (path, len(body)) + bytes(body)


def _wrong(draw: random.Random) -> bytes:
    """JSON that no path reads."""
    strange = (None, 1, -1.5, True, {}, [], "", [[]], [None], [1, 2], [[1]], ["a", 1], [""], {"a": 1},
               [["a", "b", "c"]], ["a"] * 65, [["a"], "b"], 10**400, "x" * BODY)  # fmt: skip
    value = draw.choice(strange)
    path, body = draw.choice((
        ("/embed", {"inputs": value}),
        ("/embed", {"inputs": "a", "dimensions": draw.choice((0, -1, 1_025, 1e9, "3", 1.5))}),
        ("/v1/embeddings", {"input": value}), ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}),
        ("/predict", {"inputs": value}), ("/predict", {"inputs": "a", "task": "none"}), ("/classify", {"input": value}),
        ("/rerank", {"query": value, "texts": value}), ("/rerank", {"query": "a"}),
        ("/similarity", {"inputs": {"source_sentence": value, "sentences": [value]}}),
        ("/similarity", {"inputs": value}),
        ("/tokenize", {"inputs": value, "add_special_tokens": 3}), ("/embed", value), ("/embed", {"inputs": "a",
         "truncate": False, "prompt_name": "x"}), ("/embed", {"inputs": "word " * 600, "truncate": False}),
    ))  # fmt: skip
    return request(path, body)


def _oversized(draw: random.Random) -> bytes:
    """More bytes than the server reads: declared, or in chunks without an end in sight."""
    if draw.random() < 0.5:
        return request("/embed", {"inputs": "a" * (BODY + draw.randint(1, BODY))})
    head = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"8000\r\n" + b" " * 0x8000 + b"\r\n" + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 8 + b"0\r\n\r\n"


def _no_http(draw: random.Random) -> bytes:
    """What is not HTTP, or no sound one."""
    return draw.choice((
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", draw.randbytes(draw.randint(1, 300)) + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nbroken\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ))  # fmt: skip


def _large_header(draw: random.Random) -> bytes:
    """A path or a header of many bytes."""
    size = draw.choice((20_000, 100_000, 1_000_000))
    return draw.choice((
        b"GET /" + b"a" * size + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"y" * size + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * (size // 6) + b"\r\n",
    ))  # fmt: skip


def _other_path(draw: random.Random) -> bytes:
    method = draw.choice((b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE"))
    path = draw.choice((b"/none", b"/../etc/passwd", b"/%2e%2e/%00", b"/embed/", b"//embed", b"/v1", b"/embed?a=%ff"))
    return method + b" " + path + b" HTTP/1.1\r\nHost: a\r\n\r\n"


async def _alone(address: str, data: bytes) -> int:
    try:
        return (await ask(address, data))[0]
    except ConnectionError:
        return 0


def _case(kind: str, address: str, draw: random.Random, texts: Sequence[str]) -> Awaitable[int]:
    valid = request("/embed", {"inputs": [draw.choice(texts) for _ in range(draw.randint(1, 8))]})
    made: dict[str, Callable[[], Awaitable[int]]] = {
        "valid": lambda: _alone(address, valid),
        "killed": lambda: _killed(address, draw, valid),
        "slow": lambda: _slow(address, draw, valid),
        "not reading": lambda: _not_reading(address, draw, texts),
        "malformed JSON": lambda: _alone(address, _malformed(draw, texts)),
        "wrong shape": lambda: _alone(address, _wrong(draw)),
        "oversized": lambda: _alone(address, _oversized(draw)),
        "no sound HTTP": lambda: _alone(address, _no_http(draw)),
        "large headers": lambda: _alone(address, _large_header(draw)),
        "other paths": lambda: _alone(address, _other_path(draw)),
    }
    return made[kind]()


SHARES = {"valid": 20, "killed": 20, "slow": 3, "not reading": 2, "malformed JSON": 20, "wrong shape": 20,
          "oversized": 5, "no sound HTTP": 8, "large headers": 2, "other paths": 5}  # fmt: skip
"""How often each kind is tried."""


async def attack(server: Running, texts: Sequence[str], number: int, seed: int = 0) -> Hostile:
    """So many cases, several at a time."""
    result, draw = Hostile(), random.Random(seed)
    kinds = draw.choices(list(SHARES), weights=list(SHARES.values()), k=number)
    began = time.perf_counter()
    for _ in range(20):  # all threads exist before they are counted
        await _alone(server.address, request("/embed", {"inputs": "a"}))
        await _alone(server.address, request("/embed", {"inputs": list(texts[:32])}))  # the tokenizer's as well
    before = server.files(), server.threads()
    gate, done = asyncio.Semaphore(TOGETHER), 0

    async def one(kind: str, own: random.Random) -> None:
        nonlocal done
        async with gate:
            try:
                result.add(kind, await _case(kind, server.address, own, texts))
            except Exception as error:
                result.faults.append(f"{kind}: {type(error).__name__}: {error}")
            done += 1
            if done % max(1, number // 50) == 0:
                result.memory.append(server.memory_mb() if server.alive else 0.0)

    await asyncio.gather(*(one(kind, random.Random(draw.random())) for kind in kinds))
    result.seconds = time.perf_counter() - began
    await _settle(server, before[0])
    result.files, result.threads = (before[0], server.files()), (before[1], server.threads())
    _judge(server, result)
    return result


async def _settle(server: Running, files: int) -> None:
    """Wait until connections that were left are closed."""
    until = time.monotonic() + 20
    while server.alive and server.files() > files and time.monotonic() < until:
        await asyncio.sleep(0.2)


def _judge(server: Running, result: Hostile) -> None:
    if not server.alive:
        result.faults.append("the server has ended")
        return
    settled = max(result.memory[len(result.memory) // 10 : len(result.memory) // 5 + 1])
    if result.memory[-1] > MEMORY * settled:
        result.faults.append(f"memory has grown from {settled:.0f} to {result.memory[-1]:.0f} MB")
    if result.files[1] > result.files[0]:
        result.faults.append(f"{result.files[1] - result.files[0]} files or connections are left open")
    if result.threads[1] > result.threads[0]:
        result.faults.append(f"{result.threads[1] - result.threads[0]} threads are left")
    log = server.log.read_text()
    for words in ("Traceback", "a request failed", "a batch failed", "Exception in ASGI"):
        if words in log:
            line = next(line for line in log.splitlines() if words in line)
            result.faults.append(f"the log has: {line[:600]}")


def describe(result: Hostile) -> str:
    """A table of kinds and statuses, and a paragraph."""
    lines = ["| requests | number | statuses (0: closed) |", "|---|--:|---|"]
    for kind in SHARES:
        seen = result.statuses.get(kind, Counter())
        statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(seen.items()))
        lines.append(f"| {kind} | {seen.total():,} | {statuses} |")
    tenths = [f"{result.memory[place * (len(result.memory) - 1) // 10]:.0f}" for place in range(11)]
    lines += [
        "",
        f"{result.seconds:.0f} s. Memory in MB after each tenth: {', '.join(tenths)}; open files {result.files[0]} "
        f"before and {result.files[1]} after; threads {result.threads[0]} and {result.threads[1]}. Faults: "
        f"{len(result.faults)}.",
    ]
    return "\n".join([*lines, *(f"- {fault}" for fault in sorted(set(result.faults))[:20])])
