"""What stands on the vectors of two texts: heads for tasks that ask about pairs.

Every head takes two batches of vectors and gives (b, k) outputs: the logits of k classes, or one score. ``concat`` and
``cosine`` see the two texts encoded apart; the ``joint`` heads see both texts encoded together, joined by the
tokenizer's separator, in the order given and in the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.errors import SettingError
from nearfar.shapes import expect


class SharedLayer(nn.Module):
    r"""One layer in front of the heads of all tasks: :math:`\tanh(W z + b)`, (n, d) -> (n, d).

    It keeps a small task from pulling at the encoder alone: what it learns goes through a layer that the others use.

    Args:
        dim: width of the text vector.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, vectors: Tensor) -> Tensor:
        """(n, d) -> (n, d)."""
        return torch.tanh(self.linear(vectors))


class ConcatHead(nn.Module):
    r"""A linear layer on two vectors side by side: :math:`W [u; v] + b`, with :math:`|u - v|` and :math:`u v` if asked.

    Not symmetric: u and v have weights of their own.

    Args:
        dim: width of a text vector.
        outputs: how many numbers to give: classes, or one for a score.
        difference: whether |u - v| is in it, too.
        product: whether the product of u and v, number by number, is in it, too.
        dropout: share of coordinates left out while training.

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
        """The layer that gives the outputs."""
        return self.linear

    @property
    def outputs(self) -> int:
        """How many numbers it gives."""
        return self.linear.out_features

    def describe(self) -> dict[str, Any]:
        """What the model card says of the head, enough to make an equal one."""
        return {"kind": "concat", "difference": self.difference, "product": self.product, "dropout": self.dropout.p}

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """(b, d) vectors of the left and of the right texts -> (b, k)."""
        expect(left=(left, "b d"), right=(right, "b d"))
        seen = [left, right]
        if self.difference:
            seen.append((left - right).abs())
        if self.product:
            seen.append(left * right)
        outputs: Tensor = self.linear(self.dropout(torch.cat(seen, dim=1)))
        return outputs


class JointHead(nn.Module):
    r"""Both orders of a pair, encoded together: h for (a, b) and h' for (b, a).

    Symmetric, the default: swapping a and b changes nothing.

    .. math:: \text{joint} = \tfrac12 (A h + A h'), \qquad
              \text{difference} = C\,[\tfrac12 (\phi(A h) + \phi(A h'));\ \phi(D |h - h'|)]

    As published (``symmetric=False``), with a layer for each order and the signed difference:

    .. math:: \text{joint} = C\,[A h;\ A' h'], \qquad
              \text{difference} = C\,[\phi(A h);\ \phi(A' h');\ \phi(D (h - h'))]

    with φ the identity, or tanh where it is activated. All layers have biases and k outputs, C reads k for each.

    Args:
        dim: width of a text vector.
        outputs: k, how many numbers to give: classes, or one for a score.
        difference: whether the difference of h and h' has a layer, too: DPH.
        activated: whether tanh stands between the layers: DPHA, for a head with ``difference``.
        symmetric: whether the orders share their layer.
        dropout: share of coordinates left out while training.

    >>> head = JointHead(2, 3, difference=True).eval()
    >>> one, other = torch.randn(4, 2), torch.randn(4, 2)
    >>> torch.equal(head(one, other), head(other, one))
    True
    """

    def __init__(
        self, dim: int, outputs: int, *, difference: bool = False, activated: bool = False, symmetric: bool = True,
        dropout: float = 0.1,
    ) -> None:  # fmt: skip
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
        """The layer that gives the outputs."""
        return self.order if self.combine is None else self.combine

    @property
    def outputs(self) -> int:
        """How many numbers it gives."""
        return self.order.out_features

    @property
    def kind(self) -> str:
        """Its name in a recipe."""
        if self.difference is None:
            return "joint"
        return "joint-difference-activated" if self.activated else "joint-difference"

    def describe(self) -> dict[str, Any]:
        """What the model card says of the head, enough to make an equal one."""
        return {"kind": self.kind, "symmetric": self.symmetric, "dropout": self.dropout.p}

    def forward(self, given: Tensor, swapped: Tensor) -> Tensor:
        """(b, d) vectors of the pairs as given, and with their texts swapped -> (b, k)."""
        expect(given=(given, "b d"), swapped=(swapped, "b d"))
        h, turned = self.dropout(given), self.dropout(swapped)
        if self.swapped is None:
            seen = [(self._step(self.order(h)) + self._step(self.order(turned))) / 2]
        else:
            seen = [self._step(self.order(h)), self._step(self.swapped(turned))]
        if self.difference is not None:
            apart = h - turned
            seen.append(self._step(self.difference(apart.abs() if self.symmetric else apart)))
        outputs: Tensor = seen[0] if self.combine is None else self.combine(torch.cat(seen, dim=1))
        return outputs

    def _step(self, values: Tensor) -> Tensor:
        return torch.tanh(values) if self.activated else values


class CosineHead(nn.Module):
    """The cosine of the two vectors, and nothing to learn: (b, d) and (b, d) -> (b, 1). Symmetric."""

    outputs = 1

    def describe(self) -> dict[str, Any]:
        """What the model card says of the head."""
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
_HEADS: dict[str, Callable[..., PairHead]] = {"concat": ConcatHead, **dict.fromkeys(_JOINT, JointHead)}


def make_pair_head(description: dict[str, Any], dim: int, outputs: int) -> PairHead:
    """A head as a recipe or a model card describes it; ValueError or TypeError for one that makes no sense."""
    settings = dict(description)
    kind = settings.pop("kind", None)
    if kind == "cosine":
        return CosineHead(**settings)
    if kind not in _HEADS:
        raise ValueError(f"unknown pair head {kind!r}")
    return _HEADS[kind](dim, outputs, **settings, **_JOINT.get(kind, {}))


def _check(name: str, outputs: int, dropout: float) -> None:
    if outputs < 1:
        raise SettingError(f"{name}: outputs must be 1 or more, got {outputs}.")
    if not 0 <= dropout < 1:
        raise SettingError(f"{name}: dropout must be at least 0 and below 1, got {dropout}; try 0.1.")
