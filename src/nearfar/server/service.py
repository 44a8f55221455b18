"""All parts of a running server, and what every endpoint does with texts: accept, tokenize, queue, compute."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import NearfarError
from nearfar.server.batches import Batches, Timing, Work
from nearfar.server.errors import not_text, too_large
from nearfar.server.memory import return_freed
from nearfar.server.metrics import Metrics
from nearfar.server.models import Prepared, Rows, ServedHead, ServedModel, Token, open_served
from nearfar.server.settings import CPU_TOKENS, GPU_TOKENS, Settings
from nearfar.server.slot import Slot
from nearfar.server.worker_files import PERIOD, WorkerFiles

logger = logging.getLogger(__name__)

TRIM = 20.0
"""Seconds between two times that freed memory is given back."""


@dataclass
class Call:
    """One request on its way: the model that answers it, and what it took."""

    model: ServedModel
    timing: Timing = field(default_factory=Timing)


class Service:
    """The model, the queue and the metrics of a server.

    Args:
        settings: what the server is started with.
        shared: the folder of the processes that serve together; None for a server of one process.
    """

    def __init__(self, settings: Settings, *, shared: Path | None = None) -> None:
        self.settings = settings
        self.files = None if shared is None else WorkerFiles(shared)
        self.limits = settings.limits
        self.metrics = Metrics()
        self.stopping = False
        self.failure: BaseException | None = None
        """Why the model could not be loaded."""
        self.slot = Slot(
            settings.model, partial(open_served, device=settings.device, precision=settings.precision), self.metrics
        )
        budget = self.limits.batch_tokens or (GPU_TOKENS if _on_gpu(settings) else CPU_TOKENS)
        self.batches = Batches(budget, self.limits.queue, self.metrics)
        self._tokenizer = ThreadPoolExecutor(1, thread_name_prefix="nearfar-tokenize")
        self.metrics.gauge("nearfar_queue_texts", "Texts that are accepted and not answered.", self._waiting)
        self.metrics.gauge("nearfar_ready", "1 if the server answers.", lambda: float(self.ready))
        self.metrics.gauge("nearfar_model_loaded_seconds", "When the model was loaded.", lambda: self.slot.loaded_at)

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return self.slot.ready and not self.stopping

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the model in the background, look at its folder, and answer what was accepted before the end."""
        tasks = [asyncio.create_task(work) for work in (self._load_and_watch(), _return_memory(), self._write_counts())]
        try:
            yield
        finally:
            self.stopping = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the threads, after all that is queued."""
        self._tokenizer.shutdown()
        self.batches.close()
        if self.files is not None:
            self.files.write(self.metrics)

    def metrics_text(self) -> str:
        """The metrics of this server, of all its processes together."""
        return self.metrics.text() if self.files is None else self.files.text(self.metrics)

    async def _write_counts(self) -> None:
        """Let the other processes of this server know what was counted here."""
        while self.files is not None:
            await asyncio.to_thread(self.files.write, self.metrics)
            await asyncio.sleep(PERIOD)

    async def _load_and_watch(self) -> None:
        if not self.slot.ready:
            try:
                await asyncio.to_thread(self.slot.load)
            except Exception as error:
                self.failure = error
                return
            logger.info("the model is loaded", extra={"model": self.settings.model_name})
        if self.settings.watch:
            await self.slot.watch(self.settings.watch)

    async def prepare(self, call: Call, rows: Rows, head: ServedHead | None, *, truncate: bool = True) -> Prepared:
        """Texts or pairs to tokens; longer ones than the model reads are refused unless they may be truncated."""
        loop = asyncio.get_running_loop()
        try:
            prepared = await loop.run_in_executor(self._tokenizer, call.model.prepare, rows, head)
        except NearfarError:
            raise not_text("a text has no tokens, or is none that the tokenizer of this model can read.") from None
        if prepared.truncated and not truncate:
            raise too_large(
                f"this model reads {call.model.max_length} tokens, and {prepared.truncated:,} of {len(rows):,} texts "
                "are longer; shorten them, or set 'truncate' to true."
            )
        return prepared

    async def embed(self, call: Call, texts: list[str], *, truncate: bool = True) -> NDArray[np.float32]:
        """(n, d) the embeddings of texts."""
        prepared = await self.prepare(call, texts, None, truncate=truncate)
        work = Work((id(call.model), "embed"), call.model.embed)
        return await self.batches.run(work, prepared, call.timing)

    async def outputs(self, call: Call, head: ServedHead, rows: Rows, *, truncate: bool = True) -> NDArray[np.float32]:
        """(n, k) what a head gives for texts or pairs."""
        prepared = await self.prepare(call, rows, head, truncate=truncate)
        work = Work((id(call.model), "predict", head.name), partial(_outputs, call.model, head))
        return await self.batches.run(work, prepared, call.timing)

    async def tokens(self, call: Call, texts: list[str], *, special: bool) -> list[list[Token]]:
        """The tokens of texts."""
        loop = asyncio.get_running_loop()
        tokens = await loop.run_in_executor(self._tokenizer, partial(call.model.tokens, texts, special=special))
        call.timing.texts, call.timing.tokens = len(texts), sum(map(len, tokens))
        return tokens

    def _waiting(self) -> float:
        return float(self.batches.accepted)


async def _return_memory() -> None:
    """Give freed memory back now and then, as long as that works here."""
    while await asyncio.to_thread(return_freed):
        await asyncio.sleep(TRIM)


def _outputs(model: ServedModel, head: ServedHead, parts: Sequence[Prepared]) -> NDArray[np.float32]:
    return model.outputs(head, parts)


def _on_gpu(settings: Settings) -> bool:
    from nearfar.exports.folders import is_exported

    if is_exported(settings.model):
        return False
    from nearfar.encoding.devices import choose_device

    return bool(choose_device(settings.device).type != "cpu")
