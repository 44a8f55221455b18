"""The arithmetic of SoftTriple, a block of embeddings at a time: value and gradients in one sweep, no n x (c k) tensor.

With *s* the cosine similarity to a center, the likeness to a class is :math:`S' = \\sum_k p_k s_k`,
:math:`p = \\mathrm{softmax}(s / \\gamma)`, and

.. math:: \\frac{\\partial S'}{\\partial s_k} = p_k \\left(1 + \\frac{s_k - S'}{\\gamma}\\right)

The loss is one number, so its gradients are known up to a factor as soon as a block's similarities are: they are formed
there and then, and the similarities forgotten.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 256
"""Embeddings reckoned at once."""

EPSILON = 1e-12
"""A vector shorter than this is divided by this instead of its length, as in ``torch.nn.functional.normalize``."""


class SoftTripleBlocks(torch.autograd.Function):
    """Mean cross-entropy over soft-assigned class likenesses; one of embeddings and centers may need no gradient.

    ``grads`` says whether gradients are wanted at all: inside ``forward`` autograd is off and cannot be asked.
    """

    @staticmethod
    def forward(
        ctx: Any, embeddings: Tensor, centers: Tensor, labels: Tensor, gamma: float, scale: float, margin: float,
        grads: bool,
    ) -> Tensor:  # fmt: skip
        """(n, d) embeddings, (c, k, d) centers, (n,) labels -> scalar."""
        (n, d), (c, k, _) = embeddings.shape, centers.shape
        to_z, to_w = (grads and needed for needed in ctx.needs_input_grad[:2])
        z, z_length = _unit(embeddings)
        w, w_length = _unit(centers.reshape(c * k, d))
        z_grad = torch.empty_like(z) if to_z else None
        w_grad = torch.zeros_like(w) if to_w else None
        own = F.one_hot(labels, c).to(z.dtype)  # (n, c)
        costs = z.new_empty(n)
        similarity, share = (z.new_empty(min(n, BLOCK), c, k) for _ in range(2))
        for start in range(0, n, BLOCK):
            here = slice(start, min(start + BLOCK, n))
            b = here.stop - here.start
            s, p = similarity[:b], share[:b]  # (b, c, k)
            torch.mm(z[here] / gamma, w.T, out=s.view(b, c * k))  # s / gamma
            torch.softmax(s, dim=2, out=p)
            mean = _dot(p.view(b * c, k), s.view(b * c, k)).view(b, c)  # S' / gamma
            logits = scale * (gamma * mean - margin * own[here])
            costs[here] = F.cross_entropy(logits, labels[here], reduction="none")
            if not (to_z or to_w):
                continue
            slope = (logits.softmax(dim=1) - own[here]) * (scale / n)  # (b, c): dL / dS'
            s.sub_((mean - 1).unsqueeze(2)).mul_(p).mul_(slope.unsqueeze(2))  # dL / ds
            if z_grad is not None:
                torch.mm(s.view(b, c * k), w, out=z_grad[here])
            if w_grad is not None:
                w_grad.addmm_(s.view(b, c * k).T, z[here])
        ctx.save_for_backward(
            None if z_grad is None else _before_unit_(z_grad, z, z_length),
            None if w_grad is None else _before_unit_(w_grad, w, w_length).view(c, k, d),
        )
        return costs.mean()

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of forward, times what comes from above."""
        return *(None if grad is None else grad * upstream for grad in ctx.saved_tensors), *[None] * 5


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """(m, d) vectors -> the same of length 1, and (m, 1) lengths."""
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / length.clamp(min=EPSILON), length


def _before_unit_(grad: Tensor, unit: Tensor, length: Tensor) -> Tensor:
    """The gradient of vectors from that of their unit vectors, in place: what points along the vector is lost."""
    along = _dot(grad, unit).masked_fill_(length < EPSILON, 0)
    return grad.addcmul_(unit, along, value=-1).div_(length.clamp(min=EPSILON))


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """(m, d) and (m, d) -> (m, 1): row by row, without their product in memory."""
    return torch.bmm(left.unsqueeze(1), right.unsqueeze(2)).squeeze(2)
