"""Blend: a weighted sum of objectives on the same tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nearfar.errors import SettingError


class Blend(nn.Module):
    r"""Weighted sum of objectives.

    .. math:: \ell = \sum_j \mu_j \ell_j

    All parts are called with the same arguments. After each call ``parts`` holds the value of each by name, before
    weighting and without a graph: for the journal.

    Reads:    what its parts read
    Batches:  what its parts need
    Related:  ``triple-entropy`` and ``cross-entropy+supcon`` blend objectives on different tensors
    Paper:    e.g. Gunel et al. 2021, arXiv:2011.01403; combo of batch-softmax contrastive and squared error

    Args:
        parts: weight and objective of each part, by name. Weights need not sum to one.

    >>> from nearfar.objectives import Contrastive, SupCon
    >>> blend = Blend({"supcon": (0.9, SupCon()), "contrastive": (0.1, Contrastive())})
    >>> loss = blend(torch.ones(4, 2), torch.tensor([0, 0, 1, 1]))
    >>> {name: round(value.item(), 4) for name, value in blend.parts.items()}
    {'supcon': 1.0986, 'contrastive': 0.3333}
    """

    def __init__(self, parts: Mapping[str, tuple[float, nn.Module]]) -> None:
        super().__init__()
        if not isinstance(parts, Mapping):
            raise SettingError(
                f'Blend: parts must be named, got {type(parts).__name__}; try {{"supcon": (1.0, SupCon())}}.'
            )
        if not parts:
            raise SettingError('Blend: at least one part is needed; try {"supcon": (1.0, SupCon())}.')
        self.objectives = nn.ModuleDict()
        self.weights: dict[str, float] = {}
        for name, part in parts.items():
            weight, objective = _checked(name, part)
            try:
                self.objectives.add_module(name, objective)
            except KeyError:
                raise SettingError(
                    f"Blend: a part cannot be named {name!r}, which is empty, has a dot or is a word of torch's own; "
                    "try one such as 'supcon'."
                ) from None
            self.weights[name] = weight
        if not any(self.weights.values()):
            raise SettingError(f"Blend: a weight must be other than 0, got 0 for {', '.join(map(repr, parts))}; try 1.")
        self.parts: dict[str, Tensor] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """What every part takes -> scalar."""
        values: dict[str, Tensor] = {name: part(*args, **kwargs) for name, part in self.objectives.items()}
        self.parts = {name: value.detach() for name, value in values.items()}
        return torch.stack([self.weights[name] * value for name, value in values.items()]).sum()


def _checked(name: str, part: Any) -> tuple[float, nn.Module]:
    match part:
        case (int() | float() as weight, nn.Module() as objective):
            if not math.isfinite(weight):
                raise SettingError(f"Blend: weight of {name!r} must be a finite number, got {weight}; try 0.5.")
            return float(weight), objective
    raise SettingError(f"Blend: {name!r} must be (weight, objective), got {part!r}; try (0.5, SupCon()).")
