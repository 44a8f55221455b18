"""Requests a second and times of requests, for 1, 8 and 64 clients, beside a plain server on the same machine."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.serve import servers
from benchmarks.serve.clients import Load, ask, request, run_clients
from benchmarks.tables import markdown

CLIENTS = (1, 8, 64)
WARM = 3.0
SAME = 0.999
"""The least cosine of the two servers' embeddings of a text."""
OURS, PLAIN = "nearfar serve", "FastAPI + sentence-transformers"


@dataclass(frozen=True)
class Job:
    """What is measured."""

    model: str
    """The encoder as nearfar opens it."""
    folder: str
    """The same encoder as sentence-transformers opens it."""
    texts: Sequence[str]
    seconds: float
    repeats: int
    python: str
    flags: tuple[str, ...] = ()


def measure(job: Job) -> dict[tuple[str, int], list[Load]]:
    """Both servers in turns, each with all numbers of clients."""
    loads: dict[tuple[str, int], list[Load]] = {}
    vectors: dict[str, Any] = {}
    for _ in range(job.repeats):
        contenders = {OURS: servers.nearfar(job.model, *job.flags), PLAIN: servers.plain(job.folder, job.python)}
        for name, start in contenders.items():
            with start as server:
                _, body = asyncio.run(ask(server.address, request("/embed", {"inputs": list(job.texts[:8])})))
                vectors[name] = np.array(json.loads(body))
                for clients in CLIENTS:
                    draw = random.Random(clients)
                    make = _maker(job.texts, draw)
                    asyncio.run(run_clients(server.address, clients, make, WARM))
                    load = asyncio.run(run_clients(server.address, clients, make, job.seconds))
                    print(f"{name}, {clients} clients: {load.rate:.1f}/s, p99 {load.quantile(0.99):.1f} ms", flush=True)
                    loads.setdefault((name, clients), []).append(load)
    closest = (vectors[OURS] * vectors[PLAIN]).sum(axis=1).min()
    if closest < SAME:
        raise SystemExit(f"the servers do not compute the same: the cosine of their embeddings is {closest:.5f}")
    return loads


def _maker(texts: Sequence[str], draw: random.Random) -> Any:
    def make() -> bytes:
        return request("/embed", {"inputs": draw.choice(texts)})

    return make


def table(loads: dict[tuple[str, int], list[Load]]) -> str:
    """Medians over the repeats, with the range of the throughput."""
    rows = []
    for (name, clients), found in sorted(loads.items(), key=lambda item: (item[0][1], item[0][0] != OURS)):
        rates = [load.rate for load in found]
        other = [load.rate for load in loads[PLAIN, clients]]
        ratio = statistics.median(rates) / statistics.median(other)
        failed = sum(count for load in found for status, count in load.statuses.items() if status != 200)
        rows.append([
            str(clients), name, f"{statistics.median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f})",
            *(f"{statistics.median(load.quantile(share) for load in found):.1f}" for share in (0.5, 0.99)),
            "" if name == PLAIN else f"{ratio:.2f} x", str(failed),
        ])  # fmt: skip
    return markdown(["clients", "server", "requests/s", "p50 ms", "p99 ms", "throughput", "not answered"], rows)
