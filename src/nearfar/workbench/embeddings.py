"""The vectors of all texts, and what the model predicts, computed in the background and kept in the project."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import NearfarError, SettingError
from nearfar.files import atomic
from nearfar.seeds import generator

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearfar.encoding import Model

logger = logging.getLogger(__name__)

WINDOW = 512
"""Texts that are embedded before the progress is reported."""


class Embeddings:
    """(n, d) vectors of length 1 of texts; rows that are not computed yet are zero.

    Args:
        name: a model folder, or an encoder by name.
        texts: what is embedded, in a random order, so that the first ones are a sample of all.
        folder: where the vectors are kept for the next start.
    """

    def __init__(self, name: str, texts: list[str], folder: Path) -> None:
        self.name, self.texts, self.folder = name, texts, folder
        self.done = 0
        """How many texts are embedded."""
        self.error: str | None = None
        self.classes: tuple[str, ...] = ()
        """The classes of the model; empty for an encoder without a class head."""
        self.vectors = np.zeros((len(texts), 0), dtype=np.float32)
        self.probabilities: NDArray[np.float32] | None = None
        """(n, c) what the model predicts, for a model with classes."""
        self.ready = np.zeros(len(texts), dtype=np.bool_)
        self.opened = threading.Event()
        """Set when the model is open, or cannot be opened: opening two at once is not safe in transformers."""
        self._model: Model | None = None
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def complete(self) -> bool:
        """Whether all texts are embedded."""
        return self.done == len(self.texts)

    def start(self, then: Callable[[], None] = lambda: None) -> None:
        """Compute in the background; ``then`` is called after the last text."""

        def work() -> None:
            try:
                self.compute()
                if self.complete:
                    then()
            except NearfarError as error:
                self.error = str(error)
            except Exception as error:
                logger.exception("the texts could not be embedded")
                self.error = f"The texts could not be embedded: {error}"
            finally:
                self.opened.set()

        self._thread = threading.Thread(target=work, name="embeddings", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the computation after the texts that are computed now."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def compute(self) -> None:
        """Compute what is missing, window by window."""
        model = self._open()
        path = self._path(model)
        if self._load(path):
            return
        self.vectors = np.zeros((len(self.texts), model.model.dim), dtype=np.float32)
        if self.classes:
            self.probabilities = np.zeros((len(self.texts), len(self.classes)), dtype=np.float32)
        order = generator(0, "embeddings").permutation(len(self.texts))
        for start in range(0, len(order), WINDOW):
            if self._stop.is_set():
                return
            rows = order[start : start + WINDOW]
            vectors, chances = self._outputs(model, [self.texts[row] for row in rows])
            self.vectors[rows] = vectors
            if chances is not None and self.probabilities is not None:
                self.probabilities[rows] = chances
            self.ready[rows] = True
            self.done = start + len(rows)
        self._save(path)

    def embed(self, text: str) -> NDArray[np.float32]:
        """(d,) the vector of a new text."""
        model = self._open()
        vector: NDArray[np.float32] = self._outputs(model, [text])[0][0]
        return vector

    def _open(self) -> Model:
        from nearfar.encoding import load
        from nearfar.pipeline.evaluate import require_vectors

        with self._turn:
            if self._model is None:
                model = load(self.name)
                require_vectors(model)
                if model.card.joined:
                    raise SettingError(f"{self.name} reads pairs of texts, and single texts are shown here.")
                if model.labels is not None and not model.multilabel and not model.predicts_scores:
                    self.classes = model.labels
                self._model = model
                self.opened.set()
        return self._model

    def _outputs(self, model: Model, texts: list[str]) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Vectors of length 1, and probabilities, by one pass of the model; one thread at a time."""
        from scipy.special import softmax

        from nearfar.batching.nearest_neighbors import unit
        from nearfar.evaluation.inference import embed_table, logits_and_vectors

        table = model.tokenize(texts)
        with self._turn:
            if not self.classes:
                return unit(embed_table(model.model, table, batch_size=64)), None
            logits, vectors = logits_and_vectors(model.model, table, batch_size=64)
        return unit(vectors), softmax(logits, axis=1).astype(np.float32)

    def _path(self, model: Model) -> Path:
        """The file for these texts and this model: another one if any of both changes."""
        from nearfar.encoding.vectors import fingerprint

        digest = hashlib.sha256(json.dumps(fingerprint(model), sort_keys=True).encode())
        for text in self.texts:
            digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        return self.folder / f"vectors-{digest.hexdigest()[:16]}.npy"

    def _load(self, path: Path) -> bool:
        width = len(self.classes)
        try:
            values = np.load(path, allow_pickle=False)
        except (OSError, ValueError):
            return False
        if values.ndim != 2 or len(values) != len(self.texts) or values.dtype != np.float32 or values.shape[1] <= width:
            return False
        self.vectors = np.ascontiguousarray(values[:, width:])
        self.probabilities = np.ascontiguousarray(values[:, :width]) if width else None
        self.ready[:] = True
        self.done = len(self.texts)
        return True

    def _save(self, path: Path) -> None:
        parts = [self.vectors] if self.probabilities is None else [self.probabilities, self.vectors]
        try:
            with atomic(path) as temporary, temporary.open("wb") as file:
                np.save(file, np.concatenate(parts, axis=1), allow_pickle=False)
        except OSError as cause:  # they are computed again at the next start
            logger.warning("%s: the vectors could not be kept: %s", path, cause.strerror)
