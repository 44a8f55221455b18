"""What stands on a text vector: class heads, trained with the encoder or fitted to its vectors afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.errors import SettingError


class LinearHead(nn.Module):
    """Dropout and one linear layer: (b, d) text vectors -> (b, c) class logits.

    Args:
        dim: width of the text vector.
        classes: how many classes there are.
        dropout: share of coordinates left out while training.
    """

    def __init__(self, dim: int, classes: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        _check_classes("LinearHead", classes)
        if not 0 <= dropout < 1:
            raise SettingError(f"LinearHead: dropout must be at least 0 and below 1, got {dropout}; try 0.1.")
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(dim, classes)

    @property
    def classes(self) -> int:
        """How many classes the head tells apart."""
        return self.linear.out_features

    def describe(self) -> dict[str, Any]:
        """What the model card says of the head, enough to make an equal one."""
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

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        _check_classes("LogisticHead", classes)
        self.weight: Tensor
        self.bias: Tensor
        self.register_buffer("weight", torch.zeros(classes, dim))
        self.register_buffer("bias", torch.zeros(classes))

    @property
    def classes(self) -> int:
        """How many classes the head tells apart."""
        return len(self.bias)

    def describe(self) -> dict[str, Any]:
        """What the model card says of the head."""
        return {"kind": "logistic"}

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, c)."""
        return F.linear(F.normalize(vectors.float(), dim=1), self.weight, self.bias)


class CenterHead(nn.Module):
    """The nearest class center: (b, d) -> (b, c) closeness over a temperature.

    Closeness is x · c - |c|² / 2 of the L2-normalized vector x, which is highest for the center c of the least
    Euclidean distance. A center of zeros is that of a class without training texts, and nobody's nearest.

    Args:
        dim: width of the text vector.
        classes: how many classes there are.
        temperature: divisor of the closeness; it moves the probabilities, never the label.
    """

    def __init__(self, dim: int, classes: int, *, temperature: float = 0.15) -> None:
        super().__init__()
        _check_classes("CenterHead", classes)
        self.centers: Tensor
        self.register_buffer("centers", torch.zeros(classes, dim))
        self.temperature = temperature

    @property
    def classes(self) -> int:
        """How many classes the head tells apart."""
        return len(self.centers)

    def describe(self) -> dict[str, Any]:
        """What the model card says of the head."""
        return {"kind": "nearest-center", "temperature": self.temperature}

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, c)."""
        close = F.normalize(vectors.float(), dim=1) @ self.centers.T - self.centers.square().sum(dim=1) / 2
        return (close / self.temperature).masked_fill(~self.centers.any(dim=1), -1e4)


class NeighborHead(nn.Module):
    """The k nearest training texts vote, each by its cosine: (b, d) -> (b, c) logs of the shares of the votes.

    Args:
        dim: width of the text vector.
        classes: how many classes there are.
        rows: how many training texts are kept.
        neighbors: k, how many of them vote; all of them where there are fewer.
        temperature: how much faster a vote fades with its distance; lower listens more to the nearest.
    """

    def __init__(self, dim: int, classes: int, *, rows: int, neighbors: int = 5, temperature: float = 0.1) -> None:
        super().__init__()
        _check_classes("NeighborHead", classes)
        if neighbors < 1:
            raise SettingError(f"NeighborHead: neighbors must be 1 or more, got {neighbors}; try 5.")
        self.vectors: Tensor
        self.labels: Tensor
        self.register_buffer("vectors", torch.zeros(rows, dim))
        self.register_buffer("labels", torch.zeros(rows, dtype=torch.long))
        self.classes = classes
        self.neighbors = neighbors
        self.temperature = temperature

    def describe(self) -> dict[str, Any]:
        """What the model card says of the head."""
        return {"kind": "neighbors", "rows": len(self.labels), "neighbors": self.neighbors,
                "temperature": self.temperature}  # fmt: skip

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, c)."""
        cosines = F.normalize(vectors.float(), dim=1) @ self.vectors.T  # (b, rows)
        nearest, places = cosines.topk(min(self.neighbors, len(self.labels)), dim=1)
        votes = (nearest / self.temperature).softmax(dim=1)
        shares = votes.new_zeros(len(vectors), self.classes).scatter_add_(1, self.labels[places], votes)
        return shares.clamp(min=1e-6).log()


Head = LinearHead | LogisticHead | CenterHead | NeighborHead

_HEADS: dict[str, Callable[..., Head]] = {
    "linear": LinearHead,
    "logistic": LogisticHead,
    "nearest-center": CenterHead,
    "neighbors": NeighborHead,
}


def make_head(description: dict[str, Any] | None, dim: int, classes: int) -> Head:
    """An empty head as a model card describes it; ValueError or TypeError for a description that makes no sense."""
    settings = dict(description or {"kind": "linear"})
    kind = settings.pop("kind", "linear")
    if kind not in _HEADS:
        raise ValueError(f"unknown class head {kind!r}")
    return _HEADS[kind](dim, classes, **settings)


def _check_classes(name: str, classes: int) -> None:
    if classes < 2:
        raise SettingError(f"{name}: classes must be 2 or more, got {classes}.")
