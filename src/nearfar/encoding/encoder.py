"""The text model: a pretrained transformer, a pooling, and a class head where one is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Literal, NotRequired, TypedDict, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.architectures import FAMILIES, unpadded_encoder
from nearfar.encoding.cpu_parallel import encode, encode_packed
from nearfar.encoding.dropout import NO_NOISE, DropoutMasks, EncoderNoise, scale_heads
from nearfar.encoding.heads import Head
from nearfar.encoding.light_network import LightNetwork
from nearfar.encoding.packed import Format, packed
from nearfar.encoding.scope import Scope
from nearfar.encoding.tokens import Indices, Inputs, Padded, TokenTable
from nearfar.encoding.unpadded import Unpadded, UnpaddedEncoder
from nearfar.errors import EncoderError, SettingError
from nearfar.shapes import expect

Pooling = Literal["first", "mean", "pooler", "last"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
FIRST: tuple[Pooling, ...] = ("first", "pooler")
"""Those that read nothing but the first token."""
_changed_network = Lock()
"""Held while a network has a hook or another forward, which all threads would see."""
AT_ONCE = 16_384
"""Tokens that are computed together with packed weights, in parts: so many that no core waits for others."""
NO_POOLER = "pooling 'pooler' needs an encoder that has a pooler; use 'first' or 'mean'."


def pool(pooling: Pooling, states: Tensor, mask: Tensor, pooler: Tensor | None = None) -> Tensor:
    """(b, l, d) last hidden states, (b, l) mask of real tokens -> (b, d).

    ``first`` and ``last`` take the first or last real token on whichever side the padding is, ``mean`` averages the
    real tokens, ``pooler`` is the output of the encoder's own pooler.

    >>> states = torch.tensor([[[1.0], [3.0], [100.0]]])
    >>> pool("mean", states, torch.tensor([[1, 1, 0]])).item()
    2.0
    """
    b = expect(states=(states, "b l d"), mask=(mask, "b l"))["b"]
    if pooling == "first":
        first = mask.long().argmax(dim=1)  # (b,): padding may be on the left
        return states[torch.arange(b, device=states.device), first]
    if pooling == "last":
        last = mask.shape[1] - 1 - mask.long().flip(1).argmax(dim=1)  # (b,)
        return states[torch.arange(b, device=states.device), last]
    if pooling == "mean":
        real = mask.bool().unsqueeze(-1)  # (b, l, 1)
        total = states.masked_fill(~real, 0).sum(dim=1)  # filled, not multiplied: padding may hold anything, even NaN
        return total / real.sum(dim=1).clamp(min=1)
    if pooling == "pooler":
        if pooler is None:
            raise SettingError(NO_POOLER)
        return pooler
    raise SettingError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}.")


class TransformSpec(TypedDict):
    """A map in the model card: what it is and what it was fitted to."""

    kind: str
    dims: int
    texts: int
    before: NotRequired[TransformSpec | None]


class Transform(nn.Module):
    """(b, d) text vectors -> (b, k): x Wᵀ + b. It is fitted, never trained.

    Args:
        weight: (k, d) W.
        bias: (k,) b.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        expect(weight=(weight, "k d"), bias=(bias, "k"))
        self.register_buffer("weight", weight.detach().float().cpu().clone())
        self.register_buffer("bias", bias.detach().float().cpu().clone())

    def forward(self, vectors: Tensor) -> Tensor:
        """(b, d) -> (b, k)."""
        return F.linear(vectors.float(), self.weight, self.bias)


@dataclass(frozen=True)
class Output:
    """The model's output for a batch of texts."""

    embedding: Tensor
    """(b, d) pooled text vectors."""
    logits: Tensor | None
    """(b, c) class logits, where the model has a class head."""
    states: Tensor
    """Last hidden states: (b, l, d) with a mask, (t, d) of an unpadded batch with its owners."""
    mask: Tensor | None = None
    """(b, l) 1 for real tokens, special ones included."""
    owners: Tensor | None = None
    """(t,) which text of the batch each token of an unpadded batch belongs to."""
    typicality: Tensor | None = None
    """(b,) how typical each text is of the classes, where the model has a scope."""

    def tokens(self) -> tuple[Tensor, Tensor]:
        """(t, d) states of all real tokens, and (t,) the text each belongs to."""
        if self.owners is not None:
            return self.states, self.owners
        assert self.mask is not None
        real = self.mask.bool()
        return self.states[real], real.nonzero()[:, 0]


class TextModel(nn.Module):
    """Token ids to text vectors and, with a head, to class logits.

    Args:
        network: what ``AutoModel`` or ``AutoModelForSequenceClassification`` opened.
        pooling: how token vectors become a text vector.
        native: whether ``network`` has the architecture's own class head.
        head: our class head on the pooled vector, for a network without one.
        fast: whether an encoder of BERT's family takes the fast path; others always run as ``AutoModel`` has them.
        noise: in training, DropHead and feature cutoff; BERT's family only.
        transform: a map of the text vectors; the class head reads them as they were before it.

    ``temperature`` divides the class logits in evaluation mode; ``scope`` says how typical a text is of the classes;
    both are set once the model is trained.
    """

    def __init__(
        self,
        network: Any,
        *,
        pooling: Pooling,
        native: bool = False,
        head: Head | None = None,
        fast: bool = True,
        noise: EncoderNoise = NO_NOISE,
        transform: Transform | None = None,
    ) -> None:
        super().__init__()
        if native and head is not None:
            raise SettingError("TextModel: a network with its own class head takes no second head.")
        self._modules["network"] = network
        self.head: Head | None = head
        self.pooling: Pooling = pooling
        self.native = native
        if transform is not None:
            expect(transform=(transform.weight, f"k {int(network.config.hidden_size)}"))
        self.transform = transform
        self.temperature = 1.0
        self.scope: Scope | None = None
        known = unpadded_encoder(network)
        if known is None and noise:
            raise SettingError(
                f"encoder.{'drophead' if noise.drophead else 'cutoff'} works in the layers of {', '.join(FAMILIES)}, "
                f"and this encoder is {network.config.model_type}; set it to 0, or choose one of these."
            )
        self._known = known and replace(known, noise=noise)
        self.unpadded = self._known if fast else None
        self.packed: UnpaddedEncoder | None = None
        """The encoder with weights packed for use, where :meth:`pack` was called."""
        self.form: Format = "fp32"
        """The number format of its matrix products."""

    def pack(self, form: Format | None) -> None:
        """Compute in a number format from now on, outside of training, with the weights as they are now.

        None computes with the weights themselves again.
        """
        self.packed, self.form = None, "fp32"
        if form is not None:
            if self.unpadded is None:
                raise SettingError("TextModel: this encoder has no fast path, so it computes in fp32 only.")
            self.packed, self.form = packed(self.unpadded, form), form

    @contextmanager
    def unpacked(self) -> Iterator[None]:
        """Compute with the weights themselves inside of this block."""
        kept, self.packed, self.form = (self.packed, self.form), None, "fp32"
        try:
            yield
        finally:
            self.packed, self.form = kept

    @property
    def tokens_at_once(self) -> int:
        """How many tokens may be computed together whatever the batch size; 0 where memory grows with them."""
        return 0 if self.packed is None else AT_ONCE

    @property
    def _native_first(self) -> bool:
        """Whether the architecture's own head reads first tokens; a ModernBERT may have one that reads their mean."""
        return getattr(self.network.config, "classifier_pooling", "cls") == "cls"

    @property
    def network(self) -> Any:
        """The network of transformers; where it was opened without, transformers is imported now."""
        held = self.held
        if isinstance(held, LightNetwork):
            held = self._modules["network"] = held.whole()
            known = unpadded_encoder(held)
            self._known = known and replace(known, noise=self._known.noise if self._known else NO_NOISE)
            self.unpadded = self._known if self.unpadded is not None else None
        return held

    @property
    def held(self) -> Any:
        """The network, in whichever form it is open."""
        return self._modules["network"]

    @property
    def dim(self) -> int:
        """Width of a text vector."""
        return int(self.held.config.hidden_size) if self.transform is None else len(self.transform.bias)

    @property
    def vocabulary(self) -> int:
        """How many tokens the encoder has vectors for."""
        return int(self.held.get_input_embeddings().weight.shape[0])

    @property
    def classes(self) -> int:
        """How many classes the head has; 0 without a head."""
        if self.native:
            return int(self.network.config.num_labels)
        return 0 if self.head is None else self.head.classes

    def inputs(self, table: TokenTable, rows: Indices) -> Inputs:
        """Rows of a table in the form this model reads fastest; an error for tokens that it does not have."""
        if table.highest >= self.vocabulary:
            raise EncoderError(
                f"the tokenizer gives token {table.highest:,}, and the encoder has {self.vocabulary:,} tokens: they do "
                "not belong together. Is the folder complete?"
            )
        return table.padded(rows) if self.unpadded is None else table.unpadded(rows)

    def forward(self, inputs: Inputs, *, logits_only: bool = False) -> Output:
        """A batch, padded or unpadded -> states, text vectors, logits.

        With ``logits_only`` the rest may be left out where that saves work: the states are then those of the first
        tokens, and the text vectors are undefined.
        """
        if isinstance(inputs, Padded):
            with self._noise_hooks():
                output = self._padded(inputs.tensors)
        else:
            first_only = logits_only and (self._native_first if self.native else self.pooling in FIRST)
            output = self._unpadded(inputs, first_only=first_only)
        if output.logits is not None and self.temperature != 1 and not self.training:
            output = replace(output, logits=output.logits / self.temperature)
        if self.scope is not None and not logits_only:
            output = replace(output, typicality=self.scope(output.embedding))
        if self.transform is None or logits_only:
            return output
        return replace(output, embedding=self.transform(output.embedding))

    def _unpadded(self, batch: Unpadded, *, first_only: bool) -> Output:
        if self.unpadded is None:
            raise SettingError("TextModel: this encoder has no fast path; give it a padded batch.")
        if self.packed is None or self.training or torch.is_grad_enabled() or batch.ids.device.type != "cpu":
            states = encode(self.unpadded, batch, training=self.training, first_only=first_only)
        else:
            states = encode_packed(self.packed, batch, first_only=first_only)
        sizes = torch.tensor(batch.lengths, device=states.device)
        first = (states if first_only else states[sizes.cumsum(0) - sizes])[batch.place]  # (b, d): the first tokens
        pooler = None
        if self.native or self.pooling == "pooler":
            module = getattr(self.held.base_model, "pooler", None)
            pooler = None if module is None else module(first.unsqueeze(1))
        embedding = mean = first
        if not first_only and (self.pooling == "mean" or (self.native and not self._native_first)):
            mean = torch.segment_reduce(states.float(), "mean", lengths=sizes, unsafe=True)[batch.place]
        if self.pooling == "mean" and not first_only:
            embedding = mean
        elif self.pooling == "last" and not first_only:
            embedding = states[sizes.cumsum(0) - 1][batch.place]
        elif self.pooling == "pooler":
            if pooler is None:
                raise SettingError(NO_POOLER)
            embedding = pooler
        logits = self.head(embedding) if self.head is not None else None
        if self.native:
            logits = _native_logits(self.network, first if self._native_first else mean, pooler, batch.ids)
        owners = batch.place.argsort() if first_only else torch.repeat_interleave(batch.place.argsort(), sizes)
        return Output(embedding=embedding, logits=logits, states=states, owners=owners)

    @contextmanager
    def _noise_hooks(self) -> Iterator[None]:
        """In training, have the network itself drop heads and cut coordinates, where the settings ask for it."""
        known = self._known
        if known is None or not self.training or not known.noise:
            yield
            return
        masks, noise = DropoutMasks(training=True), known.noise

        def drop_heads(_module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
            values = given[0]  # (b, l, d)
            scales = masks.heads(len(values), known.heads, noise.drophead).to(values)
            return (scale_heads(values, scales.unsqueeze(1).expand(-1, values.shape[1], -1)),)

        def cut_off(_module: nn.Module, _given: Any, embeddings: Tensor) -> Tensor:
            mask = masks.cutoff(len(embeddings), embeddings.shape[2], noise.cutoff).to(embeddings.device)
            return embeddings.masked_fill(mask.unsqueeze(1), 0)

        handles = []
        if noise.drophead:
            handles += [layer.mix.register_forward_pre_hook(drop_heads) for layer in known.layers]
        if noise.cutoff:
            handles.append(self.network.base_model.embeddings.register_forward_hook(cut_off))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _padded(self, inputs: dict[str, Tensor]) -> Output:
        logits: Tensor | None = None
        if self.native:
            outputs: list[Any] = []
            base = self.network.base_model
            with _changed_network:
                handle = base.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
                try:
                    logits = self.network(**inputs).logits
                finally:
                    handle.remove()
            output = outputs[0]
        else:
            output = self.network(**inputs)
        states, mask = output[0], inputs["attention_mask"]
        embedding = pool(self.pooling, states, mask, getattr(output, "pooler_output", None))
        if self.head is not None:
            logits = self.head(embedding)
        return Output(embedding=embedding, logits=logits, states=states, mask=mask)


def _native_logits(network: Any, first: Tensor, pooler: Tensor | None, ids: Tensor) -> Tensor:
    """(b, d) what the architecture's own class head reads of a text, its first token or their mean -> (b, c).

    The network runs as always, but its encoder returns what is already known.
    """
    from transformers import modeling_outputs

    outputs: Any = modeling_outputs
    known = outputs.BaseModelOutputWithPooling(last_hidden_state=first.unsqueeze(1), pooler_output=pooler)
    base = network.base_model
    with _changed_network:
        base.forward = lambda *_arguments, **_settings: known
        try:
            logits: Tensor = network(input_ids=ids[:1].unsqueeze(0)).logits
        finally:
            del base.forward
    return logits
