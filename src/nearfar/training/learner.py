"""The learner: model and objective in one module, so that every weight is saved, clipped, synchronized and resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.encoding import Inputs, Output, TextModel
from nearfar.errors import SettingError
from nearfar.training.gather import gather_rows
from nearfar.training.precision import Precision

View = Literal["logits", "text", "tokens"]
Views = dict[View, tuple[Tensor, Tensor]]
"""Vectors and their labels, by view."""


@dataclass(frozen=True)
class Batch:
    """What one process sees of a batch."""

    inputs: Inputs
    labels: Tensor
    """(b,) class of each text."""
    rows: NDArray[np.int64]
    """Which rows of the data set these are; empty when a small last batch leaves nothing for this process."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return Batch(self.inputs.to(device), self.labels.to(device), self.rows)


@dataclass(frozen=True)
class Term:
    """One part of the total: its name in the journal, its weight, its objective, and what the objective looks at."""

    name: str
    weight: float
    objective: nn.Module
    view: View


class Learner(nn.Module):
    """A text model under a weighted sum of objectives: batch in, loss and its parts out.

    In several processes each term sees the rows of all of them, so that the loss, its in-batch comparisons and its
    gradients are those of one process with the whole batch.

    Args:
        model: the text model.
        terms: the parts of the total.
        precision: what the model computes in; objectives always compute in fp32, and weights always are fp32.
    """

    def __init__(self, model: TextModel, terms: Sequence[Term], *, precision: Precision = "fp32") -> None:
        super().__init__()
        if not terms:
            raise SettingError("Learner: at least one term is needed.")
        self.precision = precision
        self.model = model
        self.objectives = nn.ModuleDict({term.name: term.objective for term in terms})
        self.terms = tuple(terms)
        self.logits_only = all(term.view == "logits" for term in terms)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The total, and each part before weighting."""
        return self.combine(self.represent(batch))

    def represent(self, batch: Batch) -> Views:
        """What the terms look at: vectors and their labels, for each view that some term has."""
        device = batch.labels.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.precision == "bf16"):
            output: Output = self.model(batch.inputs, logits_only=self.logits_only)
        views: Views = {}
        for term in self.terms:
            vectors, labels = _view(term.view, output, batch.labels)
            if len(batch.rows) == 0:
                vectors, labels = vectors[:0], labels[:0]
            views[term.view] = vectors.float(), labels
        return views

    def combine(self, views: Views) -> tuple[Tensor, dict[str, Tensor]]:
        """The terms on the vectors of all processes."""
        everyone = {view: (gather_rows(vectors), gather_rows(labels)) for view, (vectors, labels) in views.items()}
        total: Tensor | None = None
        parts: dict[str, Tensor] = {}
        for term in self.terms:
            part = self.objectives[term.name](*everyone[term.view])
            parts[term.name] = part.detach()
            total = term.weight * part if total is None else total + term.weight * part
        assert total is not None
        return total, parts


def _view(view: View, output: Output, labels: Tensor) -> tuple[Tensor, Tensor]:
    if view == "text":
        return output.embedding, labels
    if view == "tokens":
        states, owners = output.tokens()
        return states, labels[owners]  # (t, d), (t,)
    if output.logits is None:
        raise SettingError("this objective needs a class head, and the model has none.")
    return output.logits, labels
