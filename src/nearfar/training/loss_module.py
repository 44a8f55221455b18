"""The learner: model and objective in one module, so that every weight is saved, clipped, synchronized and resumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nearfar.encoding import Inputs, Output, TextModel
from nearfar.encoding.masked_words import MaskedWords
from nearfar.errors import SettingError
from nearfar.training.gather import gather_rows
from nearfar.training.precision import Precision

View = Literal[
    "logits", "text", "tokens", "padded-tokens", "weighted", "weighting", "pairs", "grouped-pairs", "masked-words",
]  # fmt: skip
Pieces = dict[str, Tensor]
"""What terms look at, by name. Every tensor has a first dimension that grows with the batch, so that the pieces of
chunks and of processes are put together by concatenation."""


@dataclass(frozen=True)
class Batch:
    """What one process sees of a batch: ``columns`` texts for each row, column after column."""

    inputs: Inputs
    labels: Tensor
    """(b,) class of each row; zeros where rows have none."""
    rows: NDArray[np.int64]
    """Which rows of the data set these are; empty when a small last batch leaves nothing for this process."""
    columns: int = 1
    """How many texts belong to a row: 2 for pairs or two views of a text, 3 with a negative."""
    targets: Tensor | None = None
    """(b,) graded or binary target of each pair."""
    groups: Tensor | None = None
    """(columns, b) ids; texts of one id belong together."""

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return Batch(
            self.inputs.to(device),
            self.labels.to(device),
            self.rows,
            self.columns,
            None if self.targets is None else self.targets.to(device),
            None if self.groups is None else self.groups.to(device),
        )


@dataclass(frozen=True)
class Term:
    """One part of the total: its name in the journal, its weight, its objective, and what the objective looks at."""

    name: str
    weight: float
    objective: nn.Module
    view: View
    learning_rate: float | None = None
    """Of the objective's own weights; None for that of all objectives."""


class Learner(nn.Module):
    """A text model under a weighted sum of objectives: batch in, loss and its parts out.

    In several processes each term sees the rows of all of them, so that the loss, its in-batch comparisons and its
    gradients are those of one process with the whole batch.

    Args:
        model: the text model.
        terms: the parts of the total.
        precision: what the model computes in; objectives always compute in fp32, and weights always are fp32.
        weighting: a second model with a class head, which helps in training only (label-aware contrastive).
        projection: a layer between the text vectors and the terms, for training only (SimCSE's).
        masked: hides words and names them, for training only (a masked language model beside SimCSE).
    """

    def __init__(
        self,
        model: TextModel,
        terms: Sequence[Term],
        *,
        precision: Precision = "fp32",
        weighting: TextModel | None = None,
        projection: nn.Module | None = None,
        masked: MaskedWords | None = None,
    ) -> None:
        super().__init__()
        if not terms:
            raise SettingError("Learner: at least one term is needed.")
        self.precision = precision
        self.model = model
        self.objectives = nn.ModuleDict({term.name: term.objective for term in terms})
        self.terms = tuple(terms)
        self.weighting = weighting
        self.projection = projection
        self.masked = masked
        self.logits_only = all(term.view in ("logits", "weighting") for term in terms)
        self._makers = tuple(dict.fromkeys(_MAKERS[term.view] for term in terms))
        if weighting is None and any(term.view in ("weighted", "weighting") for term in terms):
            raise SettingError("Learner: a label-aware term needs a weighting model.")
        if masked is None and any(term.view == "masked-words" for term in terms):
            raise SettingError("Learner: a term on masked words needs a head for them.")

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The total, and each part before weighting."""
        return self.combine(self.represent(batch))

    def represent(self, batch: Batch) -> Pieces:
        """What the terms look at, for the rows of this process."""
        device = batch.labels.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.precision == "bf16"):
            output: Output = self.model(batch.inputs, logits_only=self.logits_only)
            vectors = output.embedding if self.projection is None else self.projection(output.embedding)
            help_from = None if self.weighting is None else self.weighting(batch.inputs, logits_only=True).logits
        seen = _Seen(output, vectors.float(), help_from, batch)
        pieces: Pieces = {}
        for make in self._makers:
            pieces |= make(seen)
        if self.masked is not None:
            pieces |= self._masked(batch, self.masked)
        if len(batch.rows) == 0:
            pieces = {name: piece[:0] for name, piece in pieces.items()}
        return pieces

    def _masked(self, batch: Batch, masked: MaskedWords) -> Pieces:
        """The states of hidden words, from a pass of their own; drawn last, so that the other pieces stay the same."""
        hidden = masked.hide(batch.inputs)
        with torch.autocast(batch.labels.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            output: Output = self.model(hidden.inputs)
        states = output.states.flatten(0, -2)[hidden.places]
        return {"masked_states": states.float(), "masked_words": hidden.words}  # (m, d), (m,)

    def combine(self, pieces: Pieces) -> tuple[Tensor, dict[str, Tensor]]:
        """The terms on the pieces of all processes."""
        everyone = {name: gather_rows(piece) for name, piece in pieces.items()}
        total: Tensor | None = None
        parts: dict[str, Tensor] = {}
        for term in self.terms:
            given, named = _ARGUMENTS[term.view](everyone)
            if term.view == "masked-words":
                assert self.masked is not None
                given = (self.masked(given[0]), *given[1:])
            part = self.objectives[term.name](*given, **named)
            parts[term.name] = part.detach()
            total = term.weight * part if total is None else total + term.weight * part
        assert total is not None
        return total, parts


@dataclass(frozen=True)
class _Seen:
    output: Output
    vectors: Tensor
    """(columns * b, d) text vectors, through the projection where there is one."""
    weighting: Tensor | None
    batch: Batch

    @property
    def labels(self) -> Tensor:
        return self.batch.labels.repeat(self.batch.columns)

    def column(self, place: int) -> Tensor:
        rows = len(self.batch.labels)
        return self.vectors[place * rows : (place + 1) * rows]


def _logits(seen: _Seen) -> Pieces:
    if seen.output.logits is None:
        raise SettingError("this objective needs a class head, and the model has none.")
    return {"logits": seen.output.logits.float(), "labels": seen.labels}


def _text(seen: _Seen) -> Pieces:
    return {"text": seen.vectors, "labels": seen.labels}


def _tokens(seen: _Seen) -> Pieces:
    states, owners = seen.output.tokens()
    return {"tokens": states.float(), "token_labels": seen.labels[owners]}  # (t, d), (t,)


def _padded_tokens(seen: _Seen) -> Pieces:
    states = seen.output.states
    if states.ndim != 3:
        raise SettingError("padding tokens exist only where batches are padded: set encoder.fast = false.")
    return {
        "padded_tokens": states.float().flatten(0, 1),
        "padded_labels": seen.labels.repeat_interleave(len(states[0])),
    }


def _weighting(seen: _Seen) -> Pieces:
    assert seen.weighting is not None
    return {"weighting": seen.weighting.float(), "labels": seen.labels}


def _weighted(seen: _Seen) -> Pieces:
    return _text(seen) | _weighting(seen)


def _pairs(seen: _Seen) -> Pieces:
    batch = seen.batch
    if batch.columns < 2:
        raise SettingError("this objective compares pairs of texts, and the data has single ones.")
    pieces = {"left": seen.column(0), "right": seen.column(1)}
    if batch.columns > 2:
        pieces["extra"] = seen.column(2)
    if batch.targets is not None:
        pieces["targets"] = batch.targets
    if batch.groups is not None:
        names = ("left_groups", "right_groups", "extra_groups")
        pieces |= dict(zip(names, batch.groups, strict=False))
    return pieces


_MAKERS: dict[View, Callable[[_Seen], Pieces]] = {
    "logits": _logits,
    "text": _text,
    "tokens": _tokens,
    "padded-tokens": _padded_tokens,
    "weighted": _weighted,
    "weighting": _weighting,
    "pairs": _pairs,
    "grouped-pairs": _pairs,
    "masked-words": lambda _seen: {},
}


def _stacked(pieces: Pieces, first: str, then: str) -> Tensor:
    return torch.cat([pieces[first], pieces[then]]) if then in pieces else pieces[first]


def _pair_arguments(pieces: Pieces) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (pieces["left"], _stacked(pieces, "right", "extra"), pieces.get("targets")), {}


def _grouped_arguments(pieces: Pieces) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given, _ = _pair_arguments(pieces)
    if "left_groups" not in pieces:
        return given, {}
    return given, {
        "left_groups": pieces["left_groups"],
        "right_groups": _stacked(pieces, "right_groups", "extra_groups"),
    }


_ARGUMENTS: dict[View, Callable[[Pieces], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "logits": lambda pieces: ((pieces["logits"], pieces["labels"]), {}),
    "text": lambda pieces: ((pieces["text"], pieces["labels"]), {}),
    "tokens": lambda pieces: ((pieces["tokens"], pieces["token_labels"]), {}),
    "padded-tokens": lambda pieces: ((pieces["padded_tokens"], pieces["padded_labels"]), {}),
    "weighted": lambda pieces: ((pieces["text"], pieces["labels"], pieces["weighting"].softmax(dim=1)), {}),
    "weighting": lambda pieces: ((pieces["weighting"], pieces["labels"]), {}),
    "pairs": _pair_arguments,
    "grouped-pairs": _grouped_arguments,
    "masked-words": lambda pieces: ((pieces["masked_states"], pieces["masked_words"]), {}),
}
