"""The fast path for use, not for training: weights packed once, in fp32, bf16 or int8.

Around products in int8 everything stays fp32. In bf16 the states are bf16 as well in encoders of BERT's kind: what
torch computes of them, it computes in fp32 inside and rounds once. Rotary positions and biases of attention need more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Literal, Protocol, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.dropout import DropoutMasks
from nearfar.encoding.layers import Layer, PostNormLayer, PreNormLayer, normed
from nearfar.encoding.processor import has_onednn
from nearfar.encoding.products import multiplies_bf16
from nearfar.encoding.unpadded import UnpaddedEncoder
from nearfar.errors import SettingError

Format = Literal["fp32", "bf16", "int8"]
FORMATS: tuple[Format, ...] = get_args(Format)
ROWS = 256
"""Tokens that the layout of packed weights is chosen for."""
LEVELS = 127
"""The largest 8-bit number; -128 is not used."""
FEWER = 63
"""The largest 8-bit weight on processors that add products in pairs, in 16 bits: larger ones would overflow."""
SMALLEST = 1e-12
"""Half the range of a token whose numbers are all the same."""


class Product(Protocol):
    """A linear layer."""

    def __call__(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, e)."""

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """(t, d), and (t, e) that is added to the outputs -> (t, e)."""


class PackedProduct:
    """A linear layer in fp32 or bf16, its weights in the layout that oneDNN computes with.

    Args:
        weight: (e, d).
        bias: (e,), or None.
        dtype: what is multiplied.
        gelu: whether the outputs pass the exact GELU, in the same pass over memory.
        narrow: whether the outputs stay in ``dtype``; they do so behind an activation, too.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, gelu: bool = False, narrow: bool = False
    ) -> None:
        self.dtype, self.gelu, self.wide = dtype, gelu, not (gelu or narrow)
        self.bias = None if bias is None else bias.detach().to(dtype)
        weight = weight.detach().to(dtype).contiguous()
        self.packed = _packs(dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS) if self.packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, e) in fp32, or as it is multiplied next."""
        x = x.to(self.dtype)
        if self.packed:
            name, algorithm = ("gelu", "none") if self.gelu else ("none", "")
            y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, name, [], algorithm)
        else:
            y = F.linear(x, self.weight, self.bias)
            y = F.gelu(y) if self.gelu else y
        return y.float() if self.wide else y

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """(t, d), and (t, e) that is added to the outputs -> (t, e) in the type of the latter, computed in fp32."""
        if self.packed and residual.dtype == self.dtype:
            x = x.to(self.dtype)
            y: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, residual, self.weight, self.bias, "add")
            return y
        return self(x).float().add_(residual).to(residual.dtype)


class Int8Product:
    """A linear layer in 8 bits: one scale for each row of the weights, scale and middle of each token as they come.

    The middle of a token's range is quantized as zero, so numbers of one sign, as behind an activation, and a single
    outlier cost no more than half of the levels. The products are summed exactly, in 32 bits: the result of a token
    does not depend on the others of a batch.

    Args:
        weight: (e, d).
        bias: (e,), or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        weight = weight.detach().float()
        most = FEWER if overflows() else LEVELS
        scales = weight.abs().amax(dim=1).clamp_min(SMALLEST) / most  # (e,)
        levels = (weight / scales[:, None]).round().to(torch.int8)  # (e, d)
        self.weight = levels.t()
        self.scales = scales / LEVELS
        self.sums = levels.sum(dim=1, dtype=torch.int32) * scales  # (e,) what a middle of 1 adds
        self.bias = torch.zeros_like(scales) if bias is None else bias.detach().float()

    def __call__(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, e) in fp32."""
        high, low = x.amax(dim=1, keepdim=True), x.amin(dim=1, keepdim=True)
        middle = (high + low).mul_(0.5)
        half = high.sub_(middle).clamp_min_(SMALLEST)
        levels = (x - middle).mul_(LEVELS / half).round_().to(torch.int8)
        y = torch._int_mm(levels, self.weight).float()  # changed in place: a new large tensor costs as much as a pass
        return y.mul_(self.scales).mul_(half).add_(self.bias).addcmul_(middle, self.sums)

    def plus(self, x: Tensor, residual: Tensor) -> Tensor:
        """(t, d), and (t, e) that is added to the outputs -> (t, e) in fp32."""
        return self(x).add_(residual)


def _packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN is there and has a layout of its own for matrices of this type."""
    return has_onednn() if dtype == torch.float32 else multiplies_bf16()


@lru_cache(maxsize=1)
def overflows() -> bool:
    """Whether sums of products of the largest 8-bit numbers are wrong, as on x86 without VNNI."""
    largest = torch.full((64, 64), LEVELS, dtype=torch.int8)
    return bool((torch._int_mm(largest, largest.t()) != 64 * LEVELS**2).any())


def product(weight: Tensor, bias: Tensor | None, form: Format, *, gelu: bool = False, narrow: bool = False) -> Product:
    """A linear layer in a number format, or one in fp32 or bf16 with the GELU behind it."""
    if form == "int8":
        return Int8Product(weight, bias)
    dtype = torch.bfloat16 if form == "bf16" else torch.float32
    return PackedProduct(weight, bias, dtype, gelu=gelu, narrow=narrow)


@dataclass(frozen=True, kw_only=True)
class _PackedPostNorm(PostNormLayer):
    """BERT's kind; query, key and value are packed together, when they are first used so."""

    form: Format
    narrow: bool
    """Whether states are as the products are, not fp32."""
    kept: dict[int, Product] = field(default_factory=dict)

    def q(self, x: Tensor) -> Tensor:
        """(t, d) -> (t, d) queries."""
        return self.project(x, self.query)

    def project(self, x: Tensor, *parts: nn.Linear) -> Tensor:
        """The outputs of several linear layers, concatenated: one matrix product."""
        if len(parts) not in self.kept:
            bias = None if parts[0].bias is None else torch.cat([part.bias for part in parts])
            weight = torch.cat([part.weight for part in parts])
            self.kept[len(parts)] = product(weight, bias, self.form, narrow=self.narrow)
        return self.kept[len(parts)](x)

    def output(self, heads: Tensor, residual: Tensor, masks: DropoutMasks) -> Tensor:
        """What follows the attention heads: their output layer, and the feed-forward block."""
        assert not masks.training
        x = normed(self.mix_norm, self._plus(self.mix, heads, residual))
        inner = self.activation(self.up(x))
        if self.gate is not None:
            inner = inner * self.gate(x)
        return normed(self.down_norm, self._plus(self.down, inner, x))

    def _plus(self, part: Any, x: Tensor, residual: Tensor) -> Tensor:
        linear: Product = part
        return linear.plus(x, residual)


@dataclass(frozen=True, kw_only=True)
class _PackedPreNorm(PreNormLayer):
    """ModernBERT's kind."""

    form: Format
    whole: nn.Linear
    kept: dict[int, Product] = field(default_factory=dict)

    def _some(self, x: Tensor, parts: slice) -> Tensor:
        if parts.start not in self.kept:
            weight, bias = self.whole.weight, self.whole.bias
            chosen = weight.view(3, -1, weight.shape[1])[parts].flatten(0, 1)
            added = None if bias is None else bias.view(3, -1)[parts].flatten()
            self.kept[parts.start] = product(chosen, added, self.form)
        return self.kept[parts.start](x)


def packed(encoder: UnpaddedEncoder, form: Format) -> UnpaddedEncoder:
    """The encoder with packed weights; it computes without gradients, on the CPU.

    Later changes of the weights do not reach it.
    """
    if form not in FORMATS:
        raise SettingError(f"the precision must be one of {', '.join(FORMATS)}, got {form!r}.")
    project: Any = encoder.project and product(encoder.project.weight, encoder.project.bias, form)
    narrow = form == "bf16" and has_narrow_states(encoder)
    with torch.inference_mode():
        return replace(
            encoder,
            project=project,
            layers=tuple(packed_layer(layer, form, narrow=narrow) for layer in encoder.layers),
            few_sizes=True,
            states=torch.bfloat16 if narrow else None,
        )


def has_narrow_states(encoder: UnpaddedEncoder) -> bool:
    """Whether states may be bf16 between layers: no rotary positions, no bias of attention, norms behind the blocks."""
    if encoder.relative is not None or encoder.distances is not None:
        return False
    return all(isinstance(layer, PostNormLayer) and layer.rotary is None for layer in encoder.layers)


def packed_layer(layer: Layer, form: Format, *, narrow: bool = False) -> Layer:
    """A layer with packed weights, with states in bf16 where they are ``narrow``."""
    values: dict[str, Any] = {each.name: getattr(layer, each.name) for each in fields(layer)}
    together = ("query", "key", "value")
    for name, part in values.items():
        if isinstance(part, nn.Linear) and name not in together:
            values[name] = product(part.weight, part.bias, form, narrow=narrow)
    if isinstance(layer, PostNormLayer):
        if _exact_gelu(layer.activation):
            values["activation"] = torch.ops.aten.gelu_
            if form != "int8":
                values["up"] = product(layer.up.weight, layer.up.bias, form, gelu=True)
                values["activation"] = _unchanged
        return _PackedPostNorm(**values, form=form, narrow=narrow)
    assert isinstance(layer, PreNormLayer)
    return _PackedPreNorm(**values, form=form, whole=layer.joined)


def _unchanged(x: Tensor) -> Tensor:
    return x


def _exact_gelu(activation: Any) -> bool:
    """Whether an activation is the GELU by the error function, as torch or transformers have it."""
    function = getattr(activation, "act", activation)
    return function is F.gelu or (isinstance(function, nn.GELU) and function.approximate == "none")
