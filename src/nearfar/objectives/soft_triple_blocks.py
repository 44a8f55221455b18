r"""The arithmetic of SoftTriple in blocks: value and gradients in one sweep, and no (n, c, k) tensor.

With *s* the cosine similarity to a center, the likeness to a class is :math:`S' = \sum_k p_k s_k` where
:math:`p = \mathrm{softmax}(s / \gamma)`, so that

.. math:: \frac{\partial S'}{\partial s_k} = p_k \left(1 + \frac{s_k - S'}{\gamma}\right)

The loss is one number, so its gradients are known up to a factor as soon as a block's similarities are. They are
formed there and then, and the similarities are overwritten by the next block's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 512
"""Embeddings in one matrix product. Measured with 12,000 centers of width 384: blocks of 128 take a tenth longer and
larger ones gain nothing, while the block of similarities is still about as large as the centers themselves."""

STRIP = 2**20
"""Similarities that go through the softmax together: 4 MiB in fp32, so that its passes find them in the cache. Larger
strips leave it and take more memory; smaller ones wait more often for the slowest thread."""

SHORTEST = 1e-12
"""A vector shorter than this is divided by this instead of its length, as by ``torch.nn.functional.normalize``."""


class SoftTripleBlocks(torch.autograd.Function):
    """Mean cross-entropy over the likenesses to the classes; the vectors need not be normalized.

    ``learning`` says whether gradients may be asked for: inside ``forward`` autograd is off and does not know.
    """

    @staticmethod
    def forward(
        ctx: Any, embeddings: Tensor, centers: Tensor, labels: Tensor, gamma: float, scale: float, margin: float,
        learning: bool,
    ) -> Tensor:  # fmt: skip
        """(n, d) embeddings, (c, k, d) centers, (n,) labels -> scalar."""
        (n, d), (c, k, _) = embeddings.shape, centers.shape
        z, z_length = _unit(embeddings)
        w, w_length = _unit(centers.reshape(c * k, d))
        z_grad = torch.empty_like(z) if learning and ctx.needs_input_grad[0] else None
        w_grad = torch.zeros_like(w) if learning and ctx.needs_input_grad[1] else None
        own = F.one_hot(labels, c).to(z.dtype)  # (n, c)
        costs = z.new_empty(n)
        rows = min(n, BLOCK, max(1, STRIP // (c * k)))  # of a strip
        similarities, shares = z.new_empty(min(n, BLOCK), c * k), z.new_empty(rows, c, k)
        for start in range(0, n, BLOCK):
            here = z[start : start + BLOCK]  # (b, d)
            block = similarities[: len(here)]  # (b, c k)
            torch.mm(here / gamma, w.T, out=block)  # s / gamma
            for first in range(start, start + len(here), rows):
                at = slice(first, min(first + rows, start + len(here)))
                s = block[first - start : at.stop - start].view(-1, c, k)
                p = torch.softmax(s, dim=2, out=shares[: len(s)])
                likeness = s.mul_(p).sum(dim=2)  # (rows, c): S' / gamma; s is now p s / gamma
                logits = scale * (gamma * likeness - margin * own[at])
                costs[at] = F.cross_entropy(logits, labels[at], reduction="none")
                if z_grad is not None or w_grad is not None:
                    slope = (logits.softmax(dim=1) - own[at]) * (scale / n)  # (rows, c): dL / dS'
                    s.addcmul_(p, (1 - likeness).unsqueeze(2)).mul_(slope.unsqueeze(2))  # s is now dL / ds
            if z_grad is not None:
                torch.mm(block, w, out=z_grad[start : start + BLOCK])
            if w_grad is not None:
                w_grad.addmm_(block.T, here)
        ctx.save_for_backward(
            None if z_grad is None else _before_unit_(z_grad, z, z_length),
            None if w_grad is None else _before_unit_(w_grad, w, w_length).view(c, k, d),
        )
        return costs.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """What forward found, times what comes from above."""
        z_grad, w_grad = (None if grad is None else grad * upstream for grad in ctx.saved_tensors)
        return z_grad, w_grad, None, None, None, None, None


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """(m, d) vectors -> the same of length 1, and their (m, 1) lengths."""
    length = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    return vectors / length.clamp(min=SHORTEST), length


def _before_unit_(grad: Tensor, unit: Tensor, length: Tensor) -> Tensor:
    """The gradient of vectors from that of their unit vectors, in place: what points along the vector is lost."""
    along = torch.bmm(grad.unsqueeze(1), unit.unsqueeze(2)).squeeze(2)  # (m, 1): grad * unit would cost its memory
    along.masked_fill_(length < SHORTEST, 0)
    return grad.addcmul_(unit, along, value=-1).div_(length.clamp(min=SHORTEST))
