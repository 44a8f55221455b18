"""The model that answers now, and how a changed folder takes its place without a request being lost."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from nearfar.errors import NearfarError
from nearfar.server.errors import unhealthy
from nearfar.server.metrics import Metrics
from nearfar.server.models import ServedModel

logger = logging.getLogger(__name__)

Fingerprint = tuple[tuple[str, int, int, int], ...]


def fingerprint(model: str) -> Fingerprint | None:
    """Names, sizes, times and numbers of the files of a model; None for what is no folder and no file.

    A symbolic link is followed, so that pointing it to another folder is a change.
    """
    place = Path(os.path.expanduser(model))
    try:
        files = [place] if place.is_file() else sorted(place.resolve(strict=True).rglob("*"))
        states = [(str(path), path.stat()) for path in files if path.is_file()]
    except OSError:
        return None
    return tuple((name, state.st_size, state.st_mtime_ns, state.st_ino) for name, state in states) or None


class Slot:
    """Holds the model that answers; requests keep the one that they began with.

    Args:
        name: the folder, or the encoder by name.
        open_model: how it is opened.
        metrics: what is counted.
    """

    def __init__(self, name: str, open_model: Callable[[str], ServedModel], metrics: Metrics) -> None:
        self.name = name
        self.loaded_at = 0.0
        self.generation = 0
        self._open = open_model
        self._metrics = metrics
        self._current: ServedModel | None = None
        self._seen: Fingerprint | None = None

    @property
    def ready(self) -> bool:
        """Whether there is a model."""
        return self._current is not None

    def current(self) -> ServedModel:
        """The model that answers now."""
        if self._current is None:
            raise unhealthy("the model is being loaded.")
        return self._current

    def load(self) -> None:
        """Open the model for the first time."""
        self._seen = fingerprint(self.name)
        self._replace(self._open(self.name))

    async def watch(self, seconds: float) -> None:
        """Look at the folder now and then; load it when it has changed and is at rest."""
        changed: Fingerprint | None = None
        while True:
            await asyncio.sleep(seconds)
            found = await asyncio.to_thread(fingerprint, self.name)
            if found is None or found == self._seen:
                changed = None
            elif found != changed:  # it is being written, maybe: look once more
                changed = found
            else:
                changed, self._seen = None, found
                await asyncio.to_thread(self.reload)

    def reload(self) -> bool:
        """Open the model again; one that cannot be opened changes nothing."""
        try:
            self._replace(self._open(self.name))
        except NearfarError as error:
            self._metrics.reloads.add(1, "failed")
            logger.error("the changed model was not loaded", extra={"reason": str(error)})
            return False
        except Exception as error:
            self._metrics.reloads.add(1, "failed")
            logger.error("the changed model was not loaded", extra={"error": error})
            return False
        self._metrics.reloads.add(1, "loaded")
        logger.info("the model was loaded again", extra={"generation": self.generation})
        return True

    def _replace(self, model: ServedModel) -> None:
        self._current = model
        self.generation += 1
        self.loaded_at = time.time()
