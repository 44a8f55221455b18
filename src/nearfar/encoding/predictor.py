"""One head of a saved model: what it reads, and its predictions. A plain model has one, a model of tasks several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nearfar.data import Records
from nearfar.encoding.model import Model, Prediction, load
from nearfar.encoding.scope import NO_SCOPE, check_level
from nearfar.encoding.task_model import TaskModel, is_task_model, load_tasks
from nearfar.errors import MEMORY, DataError, Problem, SettingError

Columns = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Predictor:
    """A head of a saved model.

    Args:
        name: what messages call it.
        paired: whether it reads pairs of texts; else single texts.
        answer: one or two columns of texts and a batch size to predictions.
        remedy: what else can be tried where the rows do not fit.
        typical: the same as ``answer`` with the typicality of each row; None where the head cannot reject rows.
    """

    name: str
    paired: bool
    answer: Callable[[Columns, int], list[Prediction]]
    remedy: str = ""
    typical: Callable[[Columns, int], list[Prediction]] | None = None
    form: tuple[str, ...] = ()
    """The number format, where it is another than fp32."""

    def predict(self, texts: Columns, *, batch_size: int = 64, typicality: bool = False) -> list[Prediction]:
        """The prediction for each row of one or two columns of texts; maybe with how typical it is of the classes."""
        if not typicality:
            return self.answer(texts, batch_size)
        if self.typical is None:
            raise SettingError(NO_SCOPE)
        return self.typical(texts, batch_size)

    def check_reject(self, level: float | None) -> None:
        """Refuse a level that is no share, and to reject rows where the head cannot, before anything is computed."""
        if level is None:
            return
        check_level(level)
        if self.typical is None:
            raise SettingError(NO_SCOPE)

    def texts(self, columns: Columns) -> Any:
        """The columns as :meth:`Model.predict` takes them: a list of texts or of pairs."""
        return list(zip(*columns, strict=True)) if self.paired else columns[0]

    def check(self, records: Records) -> None:
        """Refuse rows that the head does not read."""
        if (records.shape != "texts") == self.paired and len(records.texts) <= 2:
            return
        wanted = "pairs of texts" if self.paired else "single texts"
        has = "single texts" if records.shape == "texts" else records.shape
        message = f"{self.name} reads {wanted}, and the file has {has}"
        columns = "both columns: --text and --pair" if self.paired else "the column to read: --text"
        remedy = f"Name {columns}{self.remedy}."
        if records.source.startswith(MEMORY):
            message = f"{self.name} reads {wanted}, and these are {has}"
            remedy = "Give a list of (left, right) tuples." if self.paired else "Give a list of texts."
        raise DataError([Problem(records.source, message, remedy)])


def open_predictor(
    name: str | Path,
    task: str | None = None,
    *,
    prepare: Callable[[Model], Model] | None = None,
    device: str | None = None,
) -> Predictor:
    """Open a model folder, and one of its tasks where it has several; ``prepare`` is called with the open model."""
    model = load(name, device=device)
    model = model if prepare is None else prepare(model)
    if task is not None or is_task_model(model.card):
        return task_predictor(load_tasks(name, model), task)
    return predictor_of(model)


def predictor_of(model: Model) -> Predictor:
    """The class head of a plain model."""
    paired = model.card.joined

    def answer(texts: Columns, batch_size: int, *, typicality: bool = False) -> list[Prediction]:
        rows: Any = list(zip(*texts, strict=True)) if paired else texts[0]
        return model.predict(rows, batch_size=batch_size, typicality=typicality)

    typical = None if model.model.scope is None else partial(answer, typicality=True)
    return Predictor("the model", paired, answer, typical=typical, form=form_of(model))


def task_predictor(model: TaskModel, task: str | None) -> Predictor:
    """The head of a task; a model with one task needs no name."""
    card = model.card(task)

    def answer(texts: Columns, batch_size: int) -> list[Prediction]:
        return model.predict(card.name, texts, batch_size=batch_size)

    return Predictor(
        f"task {card.name!r}", card.reads != "texts", answer, "; or another task: --task", form=form_of(model.model)
    )


def form_of(model: Model) -> tuple[str, ...]:
    """The number format of a model where it is another than fp32: what predictions and vectors depend on, too."""
    return () if model.model.form == "fp32" else (model.model.form,)
