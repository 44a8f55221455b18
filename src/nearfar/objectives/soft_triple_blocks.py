r"""The arithmetic of SoftTriple in blocks: value and gradients in one pass, and no (n, c, k) tensor.

With *s* the cosine similarity to a center, the similarity to a class is :math:`S' = \sum_k p_k s_k` where
:math:`p = \mathrm{softmax}(s / \gamma)`, so that

.. math:: \frac{\partial S'}{\partial s_k} = p_k \left(1 + \frac{s_k - S'}{\gamma}\right)

The loss is a scalar, so its gradients are known up to a factor as soon as the similarities of a block are. They are
computed at once, and the next block overwrites the similarities.

Where training computes in bf16 and there are many centers, the products and what is between them are bf16; sums over
centers, logits and the gradients that are added up are not. The similarities are then as exact as embeddings are that a
bf16 encoder gives.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

BLOCK = 256
"""Embeddings of a block in fp32, and half of those in bf16. Measured with 12,000 centers of width 384: smaller blocks
take longer and larger ones gain nothing; the two buffers of a block are then hardly larger than the centers. Softmax in
smaller strips would stay in the cache, but its many short steps wait for all threads, which is slow on a busy machine.
"""

SHORTEST = 1e-12
"""A center shorter than this is divided by this instead of its length; an embedding has no direction and is zero."""


class SoftTripleBlocks(torch.autograd.Function):
    """Mean cross-entropy over the similarities to the classes; the vectors need not be normalized.

    ``learning`` is whether gradients may be needed: inside ``forward`` autograd is off. ``low`` is whether to compute
    in bf16.
    """

    @staticmethod
    def forward(
        ctx: Any,
        embeddings: Tensor,
        centers: Tensor,
        labels: Tensor,
        gamma: float,
        scale: float,
        margin: float,
        learning: bool,
        low: bool,
    ) -> Tensor:
        """(n, d) embeddings, (c, k, d) centers, (n,) labels -> scalar."""
        (n, d), (c, k, _) = embeddings.shape, centers.shape
        z_scale, w_scale = _scale(embeddings), _scale(centers).squeeze(2)  # (n, 1), (c, k)
        z_scale.masked_fill_(z_scale >= 1 / SHORTEST, 0)  # no direction: zero, with a zero gradient
        z = embeddings * z_scale
        dtype, size = (torch.bfloat16, 2 * BLOCK) if low else (z.dtype, BLOCK)
        w = (centers * w_scale.unsqueeze(2)).to(dtype).view(c * k, d)
        z_grad = torch.empty_like(z) if learning and ctx.needs_input_grad[0] else None
        w_grad = z.new_zeros(c * k, d) if learning and ctx.needs_input_grad[1] else None
        target = F.one_hot(labels, c).to(z.dtype)  # (n, c)
        costs = z.new_empty(n)
        similarities, shares = (w.new_empty(min(n, size), c, k) for _ in range(2))
        for start in range(0, n, size):
            at = slice(start, min(start + size, n))
            here, s, p = z[at], similarities[: at.stop - start], shares[: at.stop - start]  # (b, d), (b, c, k) twice
            block = s.view(len(s), c * k)
            torch.mm((here / gamma).to(dtype), w.T, out=block)
            torch.softmax(s, dim=2, out=p)  # of s / gamma
            similarity = s.mul_(p).sum(dim=2, dtype=z.dtype)  # (b, c): S' / gamma; s is now p s / gamma
            logits = scale * (gamma * similarity - margin * target[at])
            costs[at] = F.cross_entropy(logits, labels[at], reduction="none")
            if z_grad is not None or w_grad is not None:
                slope = (logits.softmax(dim=1) - target[at]) * (scale / n)  # (b, c): dL / dS'
                s.addcmul_(p, (1 - similarity).unsqueeze(2).to(dtype)).mul_(slope.unsqueeze(2).to(dtype))  # dL / ds
            if z_grad is not None:
                z_grad[at] = torch.mm(block, w)
            if w_grad is not None:
                _add_product_(w_grad, block.T, here.to(dtype))
        if z_grad is not None:
            _across_(z_grad.mul_(z_scale), embeddings, z_scale)
        if w_grad is not None:
            w_scale = w_scale.view(c * k, 1)
            w_grad = _across_(w_grad.mul_(w_scale), centers.reshape(c * k, d), w_scale).view(c, k, d)
        ctx.save_for_backward(z_grad, w_grad)
        return costs.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of ``forward``, times the upstream one."""
        z_grad, w_grad = (None if grad is None else grad * upstream for grad in ctx.saved_tensors)
        return z_grad, w_grad, None, None, None, None, None, None


def _scale(vectors: Tensor) -> Tensor:
    """(..., d) -> (..., 1): what to multiply vectors with to give them length 1."""
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return length.clamp(min=SHORTEST).reciprocal()


def _add_product_(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product to a sum, which is not rounded to the type of the product."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        total.add_(torch.mm(left, right))


def _across_(grad: Tensor, vectors: Tensor, scale: Tensor) -> Tensor:
    """Remove from (m, d) gradients, in place, the part along the vectors: normalizing undoes such a step."""
    along = torch.bmm(grad.unsqueeze(1), vectors.unsqueeze(2)).squeeze(2)  # (m, 1), without an (m, d) product
    along.mul_(scale.square()).masked_fill_(scale >= 1 / SHORTEST, 0)  # too short to be normalized
    return grad.addcmul_(vectors, along, value=-1)
