"""A long run: mixed requests for half an hour, with the memory of the server now and then."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.serve.clients import Load, request, run_clients
from benchmarks.serve.servers import Running

GROWTH = 0.05
"""The growth of memory after the first tenth of the run that is still called constant."""


@dataclass
class Soak:
    """What was seen."""

    load: Load = field(default_factory=Load)
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the start, and megabytes."""
    files: list[int] = field(default_factory=list)

    def growth(self) -> float:
        """The growth of memory from the end of the first tenth to the end of the run."""
        end = self.memory[-1][0]
        settled = [size for moment, size in self.memory if 0.1 * end <= moment <= 0.2 * end] or [self.memory[0][1]]
        last = [size for moment, size in self.memory if moment >= 0.9 * end]
        return max(last) / max(settled) - 1


def mixed(texts: Sequence[str], draw: random.Random) -> bytes:
    """A request: mostly one text, sometimes many or long ones, and now and then one that is refused."""
    kind = draw.random()
    if kind < 0.6:
        return request("/embed", {"inputs": draw.choice(texts)})
    if kind < 0.8:
        several = [draw.choice(texts) for _ in range(draw.randint(2, 32))]
        return request("/v1/embeddings", {"input": several, "encoding_format": draw.choice(("float", "base64"))})
    if kind < 0.9:
        long = " ".join(draw.choice(texts) for _ in range(draw.randint(2, 60)))
        return request("/similarity", {"inputs": {"source_sentence": long, "sentences": [draw.choice(texts)]}})
    if kind < 0.97:
        return request("/tokenize", {"inputs": draw.choice(texts)})
    return request("/embed", {"inputs": draw.choice(([], 1, "", [None]))})


def soak(server: Running, texts: Sequence[str], *, minutes: float, clients: int = 8, every: float = 5.0) -> Soak:
    """Load the server for some minutes."""
    result, draw = Soak(), random.Random(0)
    began = time.perf_counter()

    async def watch() -> None:
        while True:
            result.memory.append((time.perf_counter() - began, server.memory_mb()))
            result.files.append(server.files())
            await asyncio.sleep(every)

    async def both() -> None:
        watching = asyncio.create_task(watch())
        result.load = await run_clients(server.address, clients, lambda: mixed(texts, draw), 60 * minutes)
        watching.cancel()

    asyncio.run(both())
    result.memory.append((time.perf_counter() - began, server.memory_mb()))
    return result


def describe(result: Soak) -> str:
    """One paragraph."""
    statuses = ", ".join(f"{count:,} x {status}" for status, count in sorted(result.load.statuses.items()))
    sizes = [size for _, size in result.memory]
    tenths = ", ".join(f"{sizes[tenth * (len(sizes) - 1) // 10]:.0f}" for tenth in range(11))
    return (
        f"{result.load.took / 60:.1f} minutes, {sum(result.load.statuses.values()):,} requests ({statuses}), "
        f"{result.load.rate:.1f} answered a second, p99 {result.load.quantile(0.99):.0f} ms. Memory in MB "
        f"after each tenth: {tenths}; at most {max(sizes):.0f}: {100 * result.growth():+.1f} % after the first tenth. "
        f"At most {max(result.files)} open files."
    )
