"""Heads for pairs of texts.

Every head takes two batches of vectors and gives (b, k) outputs: the logits of k classes, or one score. ``concat`` and
``cosine`` are bi-encoder heads, on the vectors of the two texts; the ``joint`` heads are cross-encoder heads, on the
vectors of both texts joined by the tokenizer's separator, in the order given and in the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Required, TypedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.errors import SettingError
from nearfar.shapes import expect


class PairHeadSpec(TypedDict, total=False):
    """A pair head in the model card: its kind, and the settings of that kind."""

    kind: Required[str]
    difference: bool
    product: bool
    symmetric: bool
    dropout: float


class SharedLayer(nn.Module):
    r"""A dense layer in front of heads, of all tasks or of one: :math:`\tanh(W z + b)`, (n, d) -> (n, d).

    One that all tasks share keeps a small task from changing the encoder alone: its gradients pass through a layer that
    the other tasks train, too.

    Args:
        dim: width of the text vector.
        before: share of the coordinates of z that are dropped while training.
        inside: share of the coordinates of W z + b that are dropped while training.
    """

    def __init__(self, dim: int, *, before: float = 0.0, inside: float = 0.0) -> None:
        super().__init__()
        for dropout in (before, inside):
            _check("SharedLayer", dim, dropout)
        self.before, self.inside = nn.Dropout(before), nn.Dropout(inside)
        self.linear = nn.Linear(dim, dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """(n, d) -> (n, d)."""
        return torch.tanh(self.inside(self.linear(self.before(vectors))))


class ConcatHead(nn.Module):
    r"""A linear layer on the concatenation: :math:`W [u; v] + b`, with :math:`|u - v|` and :math:`u v` if asked.

    Not symmetric: u and v have weights of their own.

    Args:
        dim: width of a text vector.
        outputs: classes, or one for a score.
        difference: whether to append |u - v|.
        product: whether to append the elementwise product of u and v.
        dropout: share of coordinates dropped while training.

    >>> head = ConcatHead(2, 1, difference=True)
    >>> head.linear.in_features
    6
    """

    def __init__(
        self, dim: int, outputs: int, *, difference: bool = False, product: bool = False, dropout: float = 0.1
    ) -> None:
        super().__init__()
        _check("ConcatHead", outputs, dropout)
        self.difference, self.product = difference, product
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(dim * (2 + difference + product), outputs)

    @property
    def last(self) -> nn.Linear:
        """The output layer."""
        return self.linear

    @property
    def outputs(self) -> int:
        """Width of the output."""
        return self.linear.out_features

    def describe(self) -> PairHeadSpec:
        """The head in the model card."""
        return {"kind": "concat", "difference": self.difference, "product": self.product, "dropout": self.dropout.p}

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """(b, d) vectors of the left and of the right texts -> (b, k)."""
        expect(left=(left, "b d"), right=(right, "b d"))
        features = [left, right]
        if self.difference:
            features.append((left - right).abs())
        if self.product:
            features.append(left * right)
        outputs: Tensor = self.linear(self.dropout(torch.cat(features, dim=1)))
        return outputs


class JointHead(nn.Module):
    r"""Both orders of a pair, encoded together: h for (a, b) and h' for (b, a).

    Symmetric, the default: swapping a and b changes nothing.

    .. math:: \text{joint} = \tfrac12 (A h + A h'), \qquad
              \text{difference} = C\,[\tfrac12 (\phi(A h) + \phi(A h'));\ \phi(D |h - h'|)]

    As published (``symmetric=False``), with a layer for each order and the signed difference:

    .. math:: \text{joint} = C\,[A h;\ A' h'], \qquad
              \text{difference} = C\,[\phi(A h);\ \phi(A' h');\ \phi(D (h - h'))]

    with φ the identity, or tanh where it is activated. All layers have biases and k outputs.

    Args:
        dim: width of a text vector.
        outputs: k: classes, or one for a score.
        difference: whether the difference of h and h' has a layer, too: DPH.
        activated: whether tanh follows the first layers: DPHA, for a head with ``difference``.
        symmetric: whether the orders share their layer.
        dropout: share of coordinates dropped while training.

    >>> head = JointHead(2, 3, difference=True).eval()
    >>> one, other = torch.randn(4, 2), torch.randn(4, 2)
    >>> torch.equal(head(one, other), head(other, one))
    True
    """

    def __init__(
        self,
        dim: int,
        outputs: int,
        *,
        difference: bool = False,
        activated: bool = False,
        symmetric: bool = True,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        _check("JointHead", outputs, dropout)
        if activated and not difference:
            raise SettingError("JointHead: activated is for a head with the difference; set difference=True.")
        self.activated, self.symmetric = activated, symmetric
        self.dropout = nn.Dropout(dropout)
        self.order = nn.Linear(dim, outputs)
        self.swapped = None if symmetric else nn.Linear(dim, outputs)
        self.difference = nn.Linear(dim, outputs) if difference else None
        read = (1 if symmetric else 2) + difference
        self.combine = nn.Linear(read * outputs, outputs) if read > 1 else None

    @property
    def last(self) -> nn.Linear:
        """The output layer."""
        return self.order if self.combine is None else self.combine

    @property
    def outputs(self) -> int:
        """Width of the output."""
        return self.order.out_features

    @property
    def kind(self) -> str:
        """Its name in a recipe."""
        if self.difference is None:
            return "joint"
        return "joint-difference-activated" if self.activated else "joint-difference"

    def describe(self) -> PairHeadSpec:
        """The head in the model card."""
        return {"kind": self.kind, "symmetric": self.symmetric, "dropout": self.dropout.p}

    def forward(self, given: Tensor, swapped: Tensor) -> Tensor:
        """(b, d) vectors of the pairs as given, and with their texts swapped -> (b, k)."""
        expect(given=(given, "b d"), swapped=(swapped, "b d"))
        h, other = self.dropout(given), self.dropout(swapped)
        phi: Callable[[Tensor], Tensor] = torch.tanh if self.activated else nn.Identity()
        if self.swapped is None:
            features = [(phi(self.order(h)) + phi(self.order(other))) / 2]
        else:
            features = [phi(self.order(h)), phi(self.swapped(other))]
        if self.difference is not None:
            features.append(phi(self.difference((h - other).abs() if self.symmetric else h - other)))
        outputs: Tensor = features[0] if self.combine is None else self.combine(torch.cat(features, dim=1))
        return outputs


class CosineHead(nn.Module):
    """The cosine of the two vectors, without weights: (b, d) and (b, d) -> (b, 1). Symmetric."""

    outputs = 1

    def describe(self) -> PairHeadSpec:
        """The head in the model card."""
        return {"kind": "cosine"}

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """(b, d) vectors of the left and of the right texts -> (b, 1)."""
        expect(left=(left, "b d"), right=(right, "b d"))
        return F.cosine_similarity(left, right, dim=1).unsqueeze(1)


PairHead = ConcatHead | JointHead | CosineHead

_JOINT = {
    "joint": {"difference": False, "activated": False},
    "joint-difference": {"difference": True, "activated": False},
    "joint-difference-activated": {"difference": True, "activated": True},
}
_HEADS: dict[str, Callable[..., PairHead]] = {
    "concat": ConcatHead,
    "cosine": lambda _dim, _outputs, **settings: CosineHead(**settings),
    **dict.fromkeys(_JOINT, JointHead),
}


def make_pair_head(spec: Mapping[str, Any], dim: int, outputs: int) -> PairHead:
    """A head as a recipe or a model card describes it; ValueError or TypeError for one that makes no sense."""
    settings = dict(spec)
    kind = settings.pop("kind", None)
    if kind not in _HEADS:
        raise ValueError(f"unknown pair head {kind!r}")
    return _HEADS[kind](dim, outputs, **settings, **_JOINT.get(kind, {}))


def _check(name: str, outputs: int, dropout: float) -> None:
    if outputs < 1:
        raise SettingError(f"{name}: outputs must be 1 or more, got {outputs}.")
    if not 0 <= dropout < 1:
        raise SettingError(f"{name}: dropout must be at least 0 and below 1, got {dropout}; try 0.1.")
