"""A classifier that is trained in the background while labels come in, and how accurate it is."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from nearfar.errors import NearfarError, counted
from nearfar.workbench.project import CURVE, MODEL, Project

logger = logging.getLogger(__name__)

LEAST = 8
"""Labels that the first training needs."""
LEAST_OF_CLASS = 2
"""Labels that each of two classes needs."""
GROWTH = 0.2
"""The share of new labels after which the model is trained again."""


class Trainer:
    """Trains a model on the labels of a project, one training at a time.

    Args:
        project: whose labels and folder.
        encoder: the encoder that is fine-tuned.
        after: what a training waits for; None for nothing.
        then: called after each training.
        settings: further arguments of `nearfar.Classifier`.
    """

    def __init__(
        self,
        project: Project,
        encoder: str,
        *,
        after: threading.Event | None = None,
        then: Callable[[], None] = lambda: None,
        **settings: Any,
    ) -> None:
        self.project, self.encoder, self.settings = project, encoder, settings
        self.after, self.then = after, then
        self.error: str | None = None
        curve = project.curve()
        self.trained = int(curve[-1]["labels"]) if curve and (project.folder / MODEL).is_dir() else 0
        """Labels that the last model was trained on."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def active(self) -> bool:
        """Whether a training runs now."""
        return self._thread is not None and self._thread.is_alive()

    def obstacle(self) -> str | None:
        """Why no model can be trained yet, as a sentence; None if it can."""
        rows = self.project.result_rows()
        counts = Counter(row["label"] for row in rows)
        enough = [label for label, count in counts.items() if count >= LEAST_OF_CLASS]
        if len(enough) < 2:
            return f"A model needs {LEAST_OF_CLASS} labels of each of two classes."
        if len(rows) < LEAST:
            return f"A model needs {counted(LEAST, 'label')}; there are {len(rows)}."
        return None

    def consider(self) -> bool:
        """Start a training if there are enough new labels; returns whether one was started."""
        count = len(self.project.result_rows())
        if count - self.trained < max(LEAST, GROWTH * self.trained):
            return False
        return self.start()

    def start(self) -> bool:
        """Train now, unless a training runs or none is possible."""
        with self._lock:
            if self.active or self.obstacle() is not None:
                return False
            self._thread = threading.Thread(target=self._work, name="trainer", daemon=True)
            self._thread.start()
            return True

    def join(self) -> None:
        """Wait for the training that runs."""
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        self.error = None
        if self.after is not None:
            self.after.wait()
        try:
            self.train()
            self.then()
        except NearfarError as error:
            self.error = f"Training failed: {error}"
        except Exception as error:
            logger.exception("training failed")
            self.error = f"Training failed: {error}"

    def train(self) -> None:
        """Train on the labels that there are, save the model and record its accuracy."""
        from nearfar.estimators.classifier import Classifier

        rows, began = self.project.result_rows(), time.perf_counter()
        model = Classifier(self.encoder, **self.settings)
        model.fit([str(row["text"]) for row in rows], [str(row["label"]) for row in rows])
        model.save(self.project.folder / MODEL)
        point: dict[str, Any] = {"labels": len(rows), "seconds": round(time.perf_counter() - began, 1)}
        estimate = model.estimate_
        if estimate is not None:
            point |= {"accuracy": estimate.value, "low": estimate.low, "high": estimate.high}
        with (self.project.folder / CURVE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.trained = len(rows)
        self.project.export()
