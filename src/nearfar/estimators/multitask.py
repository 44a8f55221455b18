"""A trained model of several tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import SettingError
from nearfar.estimators.encoder import EmbeddingEstimator
from nearfar.estimators.folder import ModelFolder
from nearfar.estimators.rows import read_texts

if TYPE_CHECKING:
    from nearfar.data import Records
    from nearfar.encoding import Model
    from nearfar.encoding.task_model import TaskModel


class MultiTask(EmbeddingEstimator):
    """A model of several tasks that share an encoder, as ``nearfar.train`` and ``nearfar.load`` return it.

    Args:
        encoder: what the training began with.

    >>> import nearfar
    >>> rows = {"text": ["an apple", "a plum", "a saw", "a drill"], "label": ["fruit", "fruit", "tool", "tool"]}
    >>> tasks = [{"name": "things", "objective": {"name": "cross-entropy"}}]
    >>> tables = {"encoder": {"name": "toy"}, "task": tasks, "training": {"epochs": 1}}
    >>> model = nearfar.train(tables, data={"things": rows})
    >>> model.tasks, model.predict_proba(["a pear"], task="things").shape
    (('things',), (1, 2))
    """

    columns = None

    def __init__(self, encoder: Any = "minilm") -> None:
        self.encoder = encoder

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(self._tasks().tasks)

    def classes(self, task: str | None = None) -> tuple[str, ...] | None:
        """The classes of a task; None for a task of scores. A model with one task needs no name."""
        return self._tasks().card(task).labels

    def predict(self, texts: Any, *, task: str | None = None, batch_size: int = 64) -> NDArray[Any]:
        """(n,) the class of each text or pair, or its score, in a task."""
        model, records = self._tasks(), read_texts(texts, self._layout())
        answers = model.predict(self._checked(task, records), records.texts, batch_size=batch_size)
        return np.array([answer.score if answer.label is None else answer.label for answer in answers])

    def predict_proba(self, texts: Any, *, task: str | None = None, batch_size: int = 64) -> NDArray[np.float64]:
        """(n, c) the probability of each class of a task, in the order of ``classes(task)``."""
        model, records = self._tasks(), read_texts(texts, self._layout())
        name = self._checked(task, records)
        answers = model.predict(name, records.texts, batch_size=batch_size)
        if any(not answer.probabilities for answer in answers):
            raise SettingError(f"task {name!r} predicts scores or cosines, which are no probabilities; use predict.")
        return np.array([list(answer.probabilities.values()) for answer in answers])

    def _checked(self, task: str | None, records: Records) -> str:
        from nearfar.encoding.predictor import task_predictor

        task_predictor(self._tasks(), task).check(records)
        return self._tasks().card(task).name

    def _tasks(self) -> TaskModel:
        model: Model = self.model_
        opened: TaskModel | None = self.__dict__.get("_heads")
        if opened is None:
            from nearfar.encoding.task_model import load_tasks

            opened = self._heads = load_tasks(self._path(), model)
        return opened

    def _open(self, folder: ModelFolder | None, model: Model | None = None) -> None:
        self.__dict__.pop("_heads", None)
        super()._open(folder, model)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_heads"}
