"""Class heads on a text vector: trained with the encoder, or fitted to its vectors afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Required, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.errors import SettingError


class HeadSpec(TypedDict, total=False):
    """A class head in the model card: its kind, and the settings of that kind."""

    kind: Required[str]
    dropout: float
    temperature: float
    weighted: bool
    rows: int
    neighbors: int


class LinearHead(nn.Module):
    """Dropout and one linear layer: (b, d) text vectors -> (b, c) class logits.

    Args:
        dim: width of the text vector.
        classes: how many classes there are.
        dropout: share of coordinates dropped while training.
        outputs: how many numbers it gives; None for a logit of each class.
    """

    def __init__(self, dim: int, classes: int, *, dropout: float = 0.1, outputs: int | None = None) -> None:
        super().__init__()
        _check_classes("LinearHead", classes)
        if not 0 <= dropout < 1:
            raise SettingError(f"LinearHead: dropout must be at least 0 and below 1, got {dropout}; try 0.1.")
        self.classes = classes
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(dim, outputs or classes)

    def describe(self) -> HeadSpec:
        """The head in the model card."""
        return {"kind": "linear", "dropout": self.dropout.p}

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, c)."""
        logits: Tensor = self.linear(self.dropout(vectors))
        return logits


class LogisticHead(nn.Module):
    """Logistic regression on L2-normalized text vectors, fitted after the encoder was trained.

    Args:
        dim: width of the text vector.
        classes: how many classes there are.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        _check_classes("LogisticHead", classes)
        self.classes = classes
        self.register_buffer("weight", torch.zeros(classes, dim))
        self.register_buffer("bias", torch.zeros(classes))

    def describe(self) -> HeadSpec:
        """The head in the model card."""
        return {"kind": "logistic"}

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, c)."""
        return F.linear(F.normalize(vectors.float(), dim=1), self.weight, self.bias)


class CenterHead(nn.Module):
    """Nearest class center (prototype): (b, d) -> (b, c) similarity over a temperature.

    The similarity is x · c - |c|² / 2 of the L2-normalized vector x, which is highest for the center c of the least
    Euclidean distance. A center of zeros is that of a class without training texts, which is never predicted.

    Args:
        dim: width of the text vector.
        classes: how many classes there are.
        temperature: divisor of the similarity; it changes the probabilities, never the label of equal weights.
        weighted: whether classes have weights; ``bias`` holds their logarithms, which are added to the logits.
    """

    centers: Tensor
    bias: Tensor | None

    def __init__(self, dim: int, classes: int, *, temperature: float = 0.15, weighted: bool = False) -> None:
        super().__init__()
        _check_classes("CenterHead", classes)
        self.classes, self.temperature = classes, temperature
        self.register_buffer("centers", torch.zeros(classes, dim))
        self.register_buffer("bias", torch.zeros(classes) if weighted else None)

    def describe(self) -> HeadSpec:
        """The head in the model card."""
        spec: HeadSpec = {"kind": "nearest-center", "temperature": self.temperature}
        return spec if self.bias is None else {**spec, "weighted": True}

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, c)."""
        similarity = F.normalize(vectors.float(), dim=1) @ self.centers.T - self.centers.square().sum(dim=1) / 2
        logits = similarity / self.temperature
        logits = logits if self.bias is None else logits + self.bias
        return logits.masked_fill(~self.centers.any(dim=1), -1e4)


class NeighborHead(nn.Module):
    """k nearest neighbors: the nearest training texts vote, weighted by cosine: (b, d) -> (b, c) log vote shares.

    Args:
        dim: width of the text vector.
        classes: how many classes there are.
        rows: how many training texts are kept.
        neighbors: k, how many of them vote; all of them where there are fewer.
        temperature: lower gives the nearest texts more of the vote.
    """

    vectors: Tensor
    labels: Tensor

    def __init__(self, dim: int, classes: int, *, rows: int, neighbors: int = 5, temperature: float = 0.1) -> None:
        super().__init__()
        _check_classes("NeighborHead", classes)
        if neighbors < 1:
            raise SettingError(f"NeighborHead: neighbors must be 1 or more, got {neighbors}; try 5.")
        self.classes, self.neighbors, self.temperature = classes, neighbors, temperature
        self.register_buffer("vectors", torch.zeros(rows, dim))
        self.register_buffer("labels", torch.zeros(rows, dtype=torch.long))

    def describe(self) -> HeadSpec:
        """The head in the model card."""
        rows, neighbors, temperature = len(self.labels), self.neighbors, self.temperature
        return {"kind": "neighbors", "rows": rows, "neighbors": neighbors, "temperature": temperature}

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, c)."""
        cosines = F.normalize(vectors.float(), dim=1) @ self.vectors.T  # (b, rows)
        nearest, places = cosines.topk(min(self.neighbors, len(self.labels)), dim=1)
        votes = (nearest / self.temperature).softmax(dim=1)
        shares = votes.new_zeros(vectors.shape[0], self.classes).scatter_add_(1, self.labels[places], votes)
        return shares.clamp(min=1e-6).log()


class ScoreHead(nn.Module):
    """Dropout, one linear layer, and the range of the training scores: (b, d) text vectors -> (b, 1) scores.

    The linear layer predicts standardized scores; mean and deviation of the training scores make them the user's.

    Args:
        dim: width of the text vector.
        classes: 1, one score.
        dropout: share of coordinates dropped while training.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, dim: int, classes: int = 1, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.classes = _one_output("ScoreHead", classes)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(dim, 1)
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("deviation", torch.ones(1))

    def describe(self) -> HeadSpec:
        """The head in the model card."""
        return {"kind": "score", "dropout": self.dropout.p}

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, 1)."""
        standardized: Tensor = self.linear(self.dropout(vectors))
        return self.mean + self.deviation * standardized.float()


class RidgeHead(nn.Module):
    """Ridge regression on L2-normalized text vectors, fitted after the encoder was trained: (b, d) -> (b, 1) scores.

    Args:
        dim: width of the text vector.
        classes: 1, one score.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, dim: int, classes: int = 1) -> None:
        super().__init__()
        self.classes = _one_output("RidgeHead", classes)
        self.register_buffer("weight", torch.zeros(1, dim))
        self.register_buffer("bias", torch.zeros(1))

    def describe(self) -> HeadSpec:
        """The head in the model card."""
        return {"kind": "ridge"}

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, 1)."""
        return F.linear(F.normalize(vectors.float(), dim=1), self.weight, self.bias)


Head = LinearHead | LogisticHead | CenterHead | NeighborHead | ScoreHead | RidgeHead

_HEADS: dict[str, Callable[..., Head]] = {
    "linear": LinearHead,
    "logistic": LogisticHead,
    "nearest-center": CenterHead,
    "neighbors": NeighborHead,
    "score": ScoreHead,
    "ridge": RidgeHead,
}


def make_head(spec: Mapping[str, Any] | None, dim: int, classes: int) -> Head:
    """An empty head as a model card describes it; ValueError or TypeError for a description that makes no sense."""
    settings = dict(spec or {})
    kind = settings.pop("kind", "linear")
    if kind not in _HEADS:
        raise ValueError(f"unknown class head {kind!r}")
    return _HEADS[kind](dim, classes, **settings)


def _one_output(name: str, classes: int) -> int:
    if classes != 1:
        raise SettingError(f"{name}: it predicts one score, so classes must be 1, got {classes}.")
    return 1


def _check_classes(name: str, classes: int) -> None:
    if classes < 2:
        raise SettingError(f"{name}: classes must be 2 or more, got {classes}.")
