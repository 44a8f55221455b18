"""Linear layers in bf16 with the bias inside the product."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from nearfar.encoding import products
from nearfar.encoding.products import linear

ROWS, WIDTH, OUT = 96, 48, 80


def tensors(*, bias: bool = True) -> list[torch.Tensor | None]:
    """Inputs in fp32, weights in bf16, all of them trained."""
    made = torch.Generator().manual_seed(3)
    x, weight, added = (
        torch.randn(*shape, generator=made).to(dtype).requires_grad_()
        for shape, dtype in (((ROWS, WIDTH), None), ((OUT, WIDTH), torch.bfloat16), ((OUT,), torch.bfloat16))
    )
    return [x, weight, added if bias else None]


def gradients(y: torch.Tensor, inputs: list[torch.Tensor | None]) -> tuple[torch.Tensor, ...]:
    """Of a loss whose gradient differs from number to number."""
    return torch.autograd.grad(y.float().cos().sum(), [each for each in inputs if each is not None])


@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_those_of_fp32_rounded_once(bias):
    """The sums are formed in fp32: each output is off by the rounding of its inputs and its own, 2^-8 of its size."""
    inputs = tensors(bias=bias)
    x, weight, added = inputs
    y = linear(x, weight, added)
    wide = [None if each is None else each.detach().to(torch.bfloat16).float().requires_grad_() for each in inputs]
    exact = F.linear(*wide)

    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), exact, rtol=2**-8, atol=1e-5)
    for own, true in zip(
        gradients(y, inputs), gradients(y.float().detach() + exact - exact.detach(), wide), strict=True
    ):
        torch.testing.assert_close(own.float(), true, rtol=0.02, atol=0.02 * float(true.abs().max()))
    assert [own.dtype for own in gradients(linear(*inputs), inputs)] == [
        each.dtype for each in inputs if each is not None
    ]


def test_without_onednn_it_is_the_linear_layer_of_torch(monkeypatch):
    """The two agree within bf16, in outputs and in gradients."""
    inputs = tensors()
    here = linear(*inputs)
    monkeypatch.setattr(products, "multiplies_bf16", lambda: False)
    with torch.autocast("cpu", torch.bfloat16):
        there = linear(*inputs)

    torch.testing.assert_close(here, there, rtol=2**-7, atol=1e-5)
    for own, other in zip(gradients(here, inputs), gradients(there, inputs), strict=True):
        torch.testing.assert_close(own, other, rtol=0.02, atol=0.02 * float(other.abs().max()))


def test_what_is_not_trained_gets_no_gradient():
    x, weight, added = tensors()
    y = linear(x.detach(), weight, added.detach())
    (only,) = torch.autograd.grad(y.float().sum(), [weight])
    assert only.shape == weight.shape


def test_weights_in_fp32_are_left_to_torch():
    x, weight, added = (each.detach().float() for each in tensors())
    assert torch.equal(linear(x, weight, added), F.linear(x, weight, added))
