"""The fast path: a text encoder on the real tokens of a batch, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.attention import attend, attend_first, attention_blocks
from nearfar.encoding.disentangled import Distances, LayerDistances
from nearfar.encoding.dropout import NO_NOISE, DropoutMasks, EncoderNoise, scale_heads
from nearfar.encoding.layers import Layer, PostNormLayer, normed
from nearfar.encoding.positions import RelativeBias, Rotary, offsets, rotate, window_bias

ROUND = 64
"""In bf16 the tokens are padded to a multiple of this: kernels are compiled and kept for every shape they meet."""
STEPS = ((32, 2), (64, 4), (512, 16), (2048, 64))
"""Up to so many tokens, packed weights meet multiples of the second number only; beyond, of ``COARSE``."""
COARSE = 256


@dataclass(frozen=True)
class Unpadded:
    """A batch of texts without padding."""

    ids: Tensor
    """(t,) token ids of all texts, the longest text first."""
    types: Tensor | None
    """(t,) token types, where the encoder reads them."""
    lengths: tuple[int, ...]
    """Tokens of each text, sorted."""
    place: Tensor
    """(b,) the index of each text of the batch in the sorted order."""

    def to(self, device: torch.device) -> Unpadded:
        """The same batch on a device."""
        types = None if self.types is None else self.types.to(device)
        return Unpadded(self.ids.to(device), types, self.lengths, self.place.to(device))


def padded_size(tokens: int) -> int:
    """The size that so many tokens are padded to, where kernels are kept for every size.

    >>> [padded_size(tokens) for tokens in (1, 23, 64, 65, 380, 1000, 3000)]
    [2, 24, 64, 80, 384, 1024, 3072]
    """
    step = next((step for most, step in STEPS if tokens <= most), COARSE)
    return tokens + -tokens % step


class Stream:
    """What all layers of one pass share: the texts, the blocks of their attention, and where their tokens stand.

    Args:
        lengths: the tokens of each text, sorted.
        size: the tokens of the stream, with those that fill it up.
        vectors: whether the attention of short texts is padded to whole vectors of the processor.
        relative: a bias by distance that all layers have.
        device: where all of it is.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        size: int,
        *,
        relative: RelativeBias | None,
        device: torch.device,
        vectors: bool = False,
    ) -> None:
        self.texts = len(lengths)
        self.device = device
        self.blocks = attention_blocks(lengths, device, vectors=vectors)
        self.tokens = [block.stop - block.start for block in self.blocks]
        """Of each block."""
        self.padding = size - sum(self.tokens)
        self._lengths = lengths
        self._relative = relative
        self._angles: dict[Rotary, tuple[Tensor, Tensor]] = {}
        self._biases: dict[int | None, list[Tensor | None]] = {}

    def owners(self) -> Tensor:
        """(t,) the text of each token; any of those that fill the stream up."""
        owners = torch.from_numpy(np.repeat(np.arange(self.texts), self._lengths)).to(self.device)
        return F.pad(owners, (0, self.padding))

    def angles(self, rotary: Rotary) -> tuple[Tensor, Tensor]:
        """(t, e / 2) cosines and sines of all tokens."""
        if rotary not in self._angles:
            self._angles[rotary] = rotary.angles(F.pad(offsets(self._lengths, self.device), (0, self.padding)))
        return self._angles[rotary]

    def biases(self, window: int | None) -> list[Tensor | None]:
        """For each block, what is added to the scores of a layer with such a window."""
        if window not in self._biases:
            self._biases[window] = [self._bias(block.longest, window) for block in self.blocks]
        return self._biases[window]

    def _bias(self, length: int, window: int | None) -> Tensor | None:
        near = None if window is None else window_bias(length, window, self.device)
        if self._relative is None:
            return near
        return self._relative(length, self.device) + (0 if near is None else near)


@dataclass(frozen=True)
class UnpaddedEncoder:
    """The modules of an encoder, applied to unpadded batches."""

    words: nn.Embedding
    positions: nn.Embedding | None
    types: nn.Embedding | None
    norm: nn.LayerNorm
    dropout: float
    project: nn.Linear | None
    layers: tuple[Layer, ...]
    heads: int
    first_position: int
    relative: RelativeBias | None = None
    distances: Distances | None = None
    final_norm: nn.LayerNorm | None = None
    noise: EncoderNoise = NO_NOISE
    few_sizes: bool = False
    """Whether the number of tokens is padded to one of few sizes: a process that is used for long meets all others, and
    keeps kernels for each. Attention is padded to whole vectors of the processor."""
    states: torch.dtype | None = None
    """The type of the states between layers, where it is not that of the weights."""

    def weights(self) -> list[Tensor]:
        """All weights of the encoder."""
        layers = [part for layer in self.layers for part in vars(layer).values() if isinstance(part, nn.Module)]
        modules = [self.words, self.positions, self.types, self.norm, self.project, self.final_norm, *layers]
        if self.relative is not None:
            modules.append(self.relative.table)
        if self.distances is not None:
            modules += [self.distances.table, self.distances.norm]
        return [weight for module in modules if module is not None for weight in module.parameters()]

    def forward(self, batch: Unpadded, masks: DropoutMasks, *, first_only: bool = False) -> Tensor:
        """(t, d) last hidden states of all tokens, in the order of the batch, in the type of the weights.

        With ``first_only`` it is (b, d), those of the first tokens alone, in the sorted order: the last layer, most of
        whose work a head on the first token never reads, is not computed for the others.
        """
        device, noise, t = batch.ids.device, self.noise, len(batch.ids)
        x = F.embedding(batch.ids, self.words.weight, self.words.padding_idx, sparse=self.words.sparse)
        if self.positions is not None:
            x = x + F.embedding(self._positions(batch), self.positions.weight, self.positions.padding_idx)
        if self.types is not None:
            kinds = torch.zeros_like(batch.ids) if batch.types is None else batch.types
            x = x + F.embedding(kinds, self.types.weight)
        x = masks.drop(normed(self.norm, x), self.dropout)
        size = padded_size(t) if self.few_sizes else t + (-t % ROUND if torch.is_autocast_enabled(device.type) else 0)
        stream = Stream(batch.lengths, size, relative=self.relative, device=device, vectors=self.few_sizes)
        if not masks.off(noise.cutoff):
            cut = masks.cutoff(stream.texts, x.shape[1], noise.cutoff).to(device)
            x = x.masked_fill(cut[stream.owners()[:t]], 0)
        if self.project is not None:
            x = self.project(x)
        wide = x.dtype
        if self.states is not None:
            x = x.to(self.states)
        if size > t:
            x = F.pad(x, (0, 0, 0, size - t))
        for layer in self.layers[:-1]:
            x = self._layer(layer, x, stream, masks)
        last = self._first_tokens if first_only else self._layer
        x = last(self.layers[-1], x, stream, masks)[: stream.texts if first_only else t]
        x = x if self.states is None else x.to(wide)
        return x if self.final_norm is None else normed(self.final_norm, x)

    def _positions(self, batch: Unpadded) -> Tensor:
        """(t,) the position of each token; where they begin after the padding id, a padding token takes up none."""
        device = batch.ids.device
        if not self.first_position:
            return offsets(batch.lengths, device)
        padding = self.first_position - 1
        real = (batch.ids != padding).long()
        before = real.cumsum(0) - real  # (t,) real tokens before each, through all texts
        lengths = torch.tensor(batch.lengths, device=device)
        begins = before[lengths.cumsum(0) - lengths]  # (b,)
        return padding + real * (1 + before - begins.repeat_interleave(lengths))

    def _layer(self, layer: Layer, x: Tensor, stream: Stream, masks: DropoutMasks) -> Tensor:
        qkv = layer.qkv(layer.entry(x))
        if layer.rotary is not None:
            qkv = rotate(qkv, stream.angles(layer.rotary), self.heads, parts=3)
        biases = stream.biases(layer.window)
        near = self._distances(layer, stream, masks)
        if near is not None:
            qkv = near.shrunk(qkv, parts=3)
        pieces = torch.split(qkv, [*stream.tokens, stream.padding])
        if near is not None:
            biases = [near.scores(piece, block) for piece, block in zip(pieces, stream.blocks, strict=False)]
        outputs = [
            attend(piece, block, self.heads, layer.attention_dropout, masks, bias=bias)
            for piece, block, bias in zip(pieces, stream.blocks, biases, strict=False)
        ]
        if stream.padding:
            outputs.append(qkv.new_zeros(stream.padding, outputs[0].shape[1]))
        heads = torch.cat(outputs) if len(outputs) > 1 else outputs[0]
        if not masks.off(self.noise.drophead):
            scales = masks.heads(stream.texts, self.heads, self.noise.drophead).to(heads)
            heads = scale_heads(heads, scales[stream.owners()])
        return layer.output(heads, x, masks)

    def _distances(self, layer: Layer, stream: Stream, masks: DropoutMasks) -> LayerDistances | None:
        if self.distances is None:
            return None
        assert isinstance(layer, PostNormLayer)
        return LayerDistances(self.distances, layer, self.heads, stream.blocks[0].longest, masks)

    def _first_tokens(self, layer: Layer, x: Tensor, stream: Stream, masks: DropoutMasks) -> Tensor:
        """One query for each text, keys and values for all its tokens; what follows them for the first tokens only.

        A rotary position turns the first token by nothing.
        """
        begins = torch.cat([block.begins for block in stream.blocks])  # (b,)
        inside = layer.entry(x)
        kv = layer.kv(inside)
        if layer.rotary is not None:
            kv = rotate(kv, stream.angles(layer.rotary), self.heads, parts=2)
        q, near = layer.q(inside.index_select(0, begins)), self._distances(layer, stream, masks)
        if near is not None:
            q = near.shrunk(q, parts=1)
        queries = torch.split(q, [block.texts for block in stream.blocks])
        pieces = torch.split(kv, [*stream.tokens, stream.padding])
        biases = stream.biases(layer.window)
        if near is not None:
            biases = [near.first_scores(*each) for each in zip(queries, pieces, stream.blocks, strict=False)]
        outputs = [
            attend_first(q, piece, block, self.heads, layer.attention_dropout, masks, bias=bias)
            for q, piece, block, bias in zip(queries, pieces, stream.blocks, biases, strict=False)
        ]
        heads = torch.cat(outputs)
        if not masks.off(self.noise.drophead):
            heads = scale_heads(heads, masks.heads(len(heads), self.heads, self.noise.drophead).to(heads))
        return layer.output(heads, x.index_select(0, begins), masks)
