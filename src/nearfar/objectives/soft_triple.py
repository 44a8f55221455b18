"""SoftTriple: each class has several centers, and a text should be near one of its own."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.objectives.inputs import class_indices, count, full_precision, positive, widened
from nearfar.objectives.soft_triple_blocks import SoftTripleBlocks
from nearfar.shapes import expect

MANY = 1024
"""Centers of all classes from which bf16 is used where training uses it: fewer take hardly any time."""
SOFT = 0.05
"""The smallest gamma in bf16: similarities are divided by it, and their rounding with them."""


class SoftTriple(nn.Module):
    r"""SoftTriple objective: Qian et al. 2019, arXiv:1909.05235, eq. 6 to 8.

    Class *c* has centers :math:`w_c^1 \dots w_c^K`; the similarity of an embedding to the class is soft-assigned,

    .. math:: S'_{i,c} = \sum_k \mathrm{softmax}_k(z_i^\top w_c^k / \gamma)\; z_i^\top w_c^k

    and the loss is cross-entropy over the classes with a margin on the own one:

    .. math:: \ell_i = -\log \frac{\exp(\lambda(S'_{i,y_i} - \delta))}
              {\exp(\lambda(S'_{i,y_i} - \delta)) + \sum_{j \neq y_i} \exp(\lambda S'_{i,j})}

    *z* and *w* are L2-normalized. ``spread`` adds the paper's regularizer, which pulls centers of a class together:
    :math:`\frac{\tau_r}{C K (K-1)} \sum_c \sum_{i<j} \sqrt{2 + 10^{-5} - 2\, w_c^{i\top} w_c^j}`.

    Reads:    single texts, one class each; or their tokens, each with its text's class
    Batches:  any
    Related:  :class:`SupCon` compares with the batch instead of centers
    Paper:    Sosnowski et al. 2022 (TripleEntropy) add it to cross-entropy on all tokens

    Args:
        classes: how many classes there are.
        dim: width of the embeddings.
        centers: K above, centers of each class.
        gamma: how soft the assignment to the centers is.
        scale: lambda above.
        margin: delta above.
        spread: weight of the regularizer; the SoftTriple paper takes 0.2, TripleEntropy none.

    >>> one_point = SoftTriple(3, 2, centers=1, margin=0.0)
    >>> _ = nn.init.ones_(one_point.centers)
    >>> round(one_point(torch.ones(5, 2), torch.tensor([0, 1, 2, 0, 1])).item(), 4)  # log(3)
    1.0986
    """

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        centers: int = 10,
        gamma: float = 0.1,
        scale: float = 20.0,
        margin: float = 0.01,
        spread: float = 0.0,
    ) -> None:
        super().__init__()
        for name, value, least in (("classes", classes, 2), ("dim", dim, 1), ("centers", centers, 1)):
            count("SoftTriple", name, value, least)
        for name, number, usual in (("gamma", gamma, "0.1"), ("scale", scale, "3 to 20")):
            positive("SoftTriple", name, number, usual)
        for name, number, usual in (("margin", margin, "0.01 to 1"), ("spread", spread, "0 or 0.2")):
            positive("SoftTriple", name, number, usual, zero=True)
        self.gamma, self.scale, self.margin, self.spread = gamma, scale, margin, spread
        self.centers = nn.Parameter(torch.empty(classes, centers, dim))
        nn.init.uniform_(self.centers, -1 / math.sqrt(classes * centers), 1 / math.sqrt(classes * centers))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """(n, d) embeddings, (n,) labels -> scalar."""
        c = expect(embeddings=(embeddings, "n d"), labels=(labels, "n"), centers=(self.centers, "c k d"))["c"]
        labels = class_indices("SoftTriple", labels, c)
        if len(labels) == 0:
            return (embeddings.sum() + self.centers.sum()) * 0
        vectors, centers = widened(embeddings, self.centers)
        low = self._in_bf16(vectors)
        with full_precision(vectors):
            loss: Tensor = SoftTripleBlocks.apply(  # type: ignore[no-untyped-call]
                vectors, centers, labels, self.gamma, self.scale, self.margin, torch.is_grad_enabled(), low
            )
        return loss + self.spread * self._regularizer(F.normalize(centers, dim=2)) if self.spread > 0 else loss

    def _in_bf16(self, vectors: Tensor) -> bool:
        """Whether training computes in bf16, the products are large, and rounded similarities are exact enough."""
        low = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
        many = self.centers.shape[0] * self.centers.shape[1] >= MANY
        wide = vectors.device.type != "cpu" or vectors.dtype == torch.float64
        return low and many and not wide and self.gamma >= SOFT

    def _regularizer(self, w: Tensor) -> Tensor:
        c, k, _ = w.shape
        if k < 2:
            return w.new_zeros(())
        with full_precision(w):
            similarity = w @ w.transpose(1, 2)  # (c, k, k)
        above = torch.triu(torch.ones(k, k, dtype=torch.bool, device=w.device), diagonal=1)
        distance = (2 + 1e-5 - 2 * similarity[:, above]).clamp(min=0).sqrt()
        return distance.sum() / (c * k * (k - 1))
