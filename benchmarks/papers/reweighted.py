"""Label-aware contrast without what is label-aware in it: controls for its weighting network.

The network is trained as ever, and what it says of the class of a text itself is kept. Its weights of the other classes
are spread evenly (``uniform``), or exchanged at random for every text and step (``random``), so that a negative of an
easily confused class counts no more than another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nearfar.objectives import LabelAware
from nearfar.pipeline.objectives import BuildContext, build_terms, register
from nearfar.recipe import OBJECTIVES
from nearfar.recipe import class_objectives as classes
from nearfar.recipe.capabilities import Capabilities, Single
from nearfar.training import Term

NAME = "label-aware-reweighted"


@dataclass(frozen=True, kw_only=True)
class Reweighted(Single):
    """Label-aware contrast whose negatives are weighted in another way.

    Reads:    single texts, one class each
    Paper:    a control for Suresh and Ong 2021, arXiv:2109.05427
    """

    name: Literal["label-aware-reweighted"] = NAME
    learning_rate: float | None = None
    weight: float = 0.5
    temperature: float = 0.3
    negatives: Literal["uniform", "random"] = "uniform"

    @property
    def does(self) -> Capabilities:
        """As label-aware."""
        return self.original.does

    @property
    def original(self) -> classes.LabelAware:
        """The objective that it is a control of."""
        return classes.LabelAware(weight=self.weight, temperature=self.temperature)


class ReweightedLabelAware(nn.Module):
    """:class:`nearfar.objectives.LabelAware` with other weights of the classes that a text does not have."""

    def __init__(self, *, temperature: float, negatives: Literal["uniform", "random"]) -> None:
        super().__init__()
        self.inner, self.negatives = LabelAware(temperature=temperature), negatives
        self.source = torch.Generator().manual_seed(0)

    def forward(self, embeddings: Tensor, labels: Tensor, class_probabilities: Tensor) -> Tensor:
        """(n, d) embeddings, (n,) labels, (n, c) class probabilities -> scalar."""
        return self.inner(embeddings, labels, self.reweighted(class_probabilities, labels))

    def reweighted(self, probabilities: Tensor, labels: Tensor) -> Tensor:
        """(n, c) probabilities with those of other classes spread evenly, or exchanged."""
        own = nn.functional.one_hot(labels, probabilities.shape[1]).bool()  # (n, c)
        if self.negatives == "uniform":
            rest = probabilities.masked_fill(own, 0).sum(dim=1, keepdim=True) / (probabilities.shape[1] - 1)
            return torch.where(own, probabilities, rest)
        order = torch.rand(probabilities.shape, generator=self.source).masked_fill(own, 2.0).argsort(dim=1)
        places = torch.arange(probabilities.shape[1]).expand_as(own).masked_fill(own, 10**6).argsort(dim=1)
        # both list the other classes of a text, in a random order and in their own, and its own class last
        return probabilities.scatter(1, places, probabilities.gather(1, order))


def build(settings: Reweighted, context: BuildContext) -> tuple[list[Term], list[str]]:
    """The terms of label-aware contrast with another module for its contrastive one."""
    labels = torch.repeat_interleave(torch.arange(len(context.classes)), torch.from_numpy(context.counts)).numpy()
    terms, notes = build_terms(settings.original, classes=context.classes, dim=context.dim, labels=labels, seed=0)
    module: Any = ReweightedLabelAware(temperature=settings.temperature, negatives=settings.negatives)
    return [replace(term, objective=module) if term.name == "label_aware" else term for term in terms], notes


def register_once() -> None:
    """Let recipes of this process name it."""
    if NAME not in OBJECTIVES:
        register(Reweighted, build)
