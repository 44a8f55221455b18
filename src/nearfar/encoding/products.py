"""Linear layers in bf16 on the CPU: oneDNN adds the bias inside the matrix product, the backward pass is by hand.

``F.linear`` copies the bias into every row of the output first, and reads it again to add the product.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nearfar.encoding.processor import has_onednn


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(t, d), (e, d) and (e,) -> (t, e); ``x`` is cast where the weights are bf16."""
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu" or not multiplies_bf16():
        return F.linear(x, weight, bias)
    y: Tensor = _Bf16Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return y


@lru_cache(maxsize=1)
def multiplies_bf16() -> bool:
    """Whether oneDNN is there and multiplies bf16 matrices on this processor."""
    return has_onednn() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class _Bf16Linear(torch.autograd.Function):
    """Keeps ``x`` in bf16 only; its gradient is cast back by autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x = x.to(torch.bfloat16)
        ctx.save_for_backward(x, weight)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        (upper,) = gradients
        to_x, to_weight, to_bias = ctx.needs_input_grad
        return (
            upper.mm(weight) if to_x else None,
            upper.t().mm(x) if to_weight else None,
            upper.sum(0) if to_bias else None,
        )
