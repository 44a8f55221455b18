"""Dynamic batching: texts of all requests that wait are computed together, up to a budget of tokens.

One thread computes. It never waits for more texts: it takes what is there, so that a single client has the latency of a
single text, and batches grow by themselves as soon as requests come faster than they are computed. A request with more
tokens than the budget is computed in several pieces, each of which is queued after the pieces of others that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.server.errors import failed, overloaded, unhealthy
from nearfar.server.metrics import Metrics
from nearfar.server.models import Prepared

logger = logging.getLogger(__name__)

Compute = Callable[[Sequence[Prepared]], NDArray[np.float32]]
LONGEST_RETRY = 60
"""Seconds that a client is asked to wait at most."""


@dataclass(frozen=True)
class Work:
    """What is computed with texts: works with equal keys are computed together."""

    key: Hashable
    compute: Compute


@dataclass
class _Piece:
    work: Work
    texts: Prepared
    future: asyncio.Future[NDArray[np.float32]]
    loop: asyncio.AbstractEventLoop
    queued: float
    tokens: int


@dataclass
class Timing:
    """Seconds that the texts of a request waited, and that their batches took."""

    waited: float = 0.0
    computed: float = 0.0
    tokens: int = 0
    texts: int = field(default=0)


class Batches:
    """The queue of texts and the thread that computes them.

    Args:
        tokens: the budget of a batch; one piece may have more if a single text has.
        most: texts that are accepted and not yet answered.
        metrics: what is counted.
    """

    def __init__(self, tokens: int, most: int, metrics: Metrics) -> None:
        self.tokens = tokens
        self.most = most
        self.metrics = metrics
        self.accepted = 0
        self._speed = 0.0
        self._queue: deque[_Piece] = deque()
        self._ready = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="nearfar-compute", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def accept(self, texts: int) -> Iterator[None]:
        """Count the texts of a request until it is answered; refuse it where too many wait.

        It is called from the event loop alone.
        """
        if self._closed:
            raise unhealthy("the server is shutting down.")
        if self.accepted + texts > self.most:
            raise overloaded(self.retry_after())
        self.accepted += texts
        try:
            yield
        finally:
            self.accepted -= texts

    def retry_after(self) -> int:
        """Seconds until about half of the texts that wait are computed."""
        if not self._speed:
            return 1
        return max(1, min(LONGEST_RETRY, math.ceil(self.accepted / 2 / self._speed)))

    async def run(self, work: Work, texts: Prepared, timing: Timing) -> NDArray[np.float32]:
        """(n, k) what the work gives for texts; cancelling this takes them out of the queue."""
        loop = asyncio.get_running_loop()
        results = []
        for start, stop in pieces(texts.lengths, self.tokens):
            part = texts.slice(start, stop)
            now = time.perf_counter()
            piece = _Piece(work, part, loop.create_future(), loop, now, int(part.lengths.sum()))
            with self._ready:
                if self._closed:
                    raise unhealthy("the server is shutting down.")
                self._queue.append(piece)
                self._ready.notify()
            results.append(await piece.future)
            timing.tokens += piece.tokens
            timing.texts += len(part)
            timing.waited += piece.queued
            timing.computed += time.perf_counter() - now - piece.queued
        return results[0] if len(results) == 1 else np.concatenate(results)

    def close(self) -> None:
        """Compute what is queued, and end the thread."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join()

    def _take(self) -> list[_Piece]:
        """The first piece that waits, and others of its kind as far as the budget goes."""
        batch: list[_Piece] = []
        held, kept = 0, deque[_Piece]()
        while self._queue:
            piece = self._queue.popleft()
            if piece.future.cancelled():
                continue
            if batch and (piece.work.key != batch[0].work.key or held + piece.tokens > self.tokens):
                kept.append(piece)
                if held >= self.tokens:
                    break
                continue
            batch.append(piece)
            held += piece.tokens
        self._queue.extendleft(reversed(kept))
        return batch

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._closed:
                    self._ready.wait()
                batch = self._take()
                if not batch and self._closed:
                    return
            if batch:
                self._compute(batch)

    def _compute(self, batch: list[_Piece]) -> None:
        began = time.perf_counter()
        for piece in batch:
            piece.queued = began - piece.queued
            self.metrics.queue_seconds.observe(piece.queued)
        results: list[NDArray[np.float32] | None]
        try:
            values = batch[0].work.compute([piece.texts for piece in batch])
            ends = np.cumsum([len(piece.texts) for piece in batch])
            results = [*np.split(values, ends[:-1])]
        except Exception as error:
            _log_failure(error)
            results = [None] if len(batch) == 1 else [_alone(piece) for piece in batch]
        texts, seconds = sum(len(piece.texts) for piece in batch), time.perf_counter() - began
        speed = texts / max(seconds, 1e-9)
        self._speed = speed if not self._speed else 0.9 * self._speed + 0.1 * speed
        self.metrics.compute_seconds.observe(seconds)
        self.metrics.batch_texts.observe(texts)
        self.metrics.batch_tokens.observe(sum(piece.tokens for piece in batch))
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Piece, Any]]] = {}
        for piece, result in zip(batch, results, strict=True):
            by_loop.setdefault(piece.loop, []).append((piece, result))
        for loop, answered in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed, and nobody waits any more
                loop.call_soon_threadsafe(_deliver, answered)


def _deliver(answered: list[tuple[_Piece, NDArray[np.float32] | None]]) -> None:
    for piece, result in answered:
        if piece.future.done():
            continue
        if result is None:
            piece.future.set_exception(failed())
        else:
            piece.future.set_result(result)


def _alone(piece: _Piece) -> NDArray[np.float32] | None:
    """One piece of a batch that failed: the texts of one request must not fail those of others."""
    try:
        return piece.work.compute([piece.texts])
    except Exception as error:
        _log_failure(error)
        return None


def _log_failure(error: Exception) -> None:
    """Where it failed, without the message, which may have a part of a text."""
    logger.error("a batch failed", extra={"error": error})


def pieces(lengths: NDArray[np.int64], budget: int) -> list[tuple[int, int]]:
    """Spans of texts with at most so many tokens each, or of one text.

    >>> pieces(np.array([3, 3, 9, 1, 2]), 6)
    [(0, 2), (2, 3), (3, 5)]
    """
    spans, start, held = [], 0, 0
    for place, length in enumerate(lengths.tolist()):
        if place > start and held + length > budget:
            spans.append((start, place))
            start, held = place, 0
        held += length
    spans.append((start, len(lengths)))
    return spans
