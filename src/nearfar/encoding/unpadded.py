"""The fast path: BERT's family on the real tokens of a batch, without padding.

A batch of texts is one (t, d) tensor of tokens, the texts sorted by length. Everything but attention works on it as it
is; attention takes the texts in blocks of similar length. The weights are those of the network that ``AutoModel``
opened, so saving, loading, heads and optimizers need not know about it, and the results are the network's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nearfar.encoding.attention import Block, attend, attend_first, attention_blocks
from nearfar.encoding.dropout_masks import NO_NOISE, DropoutMasks, EncoderNoise, scale_heads

BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
FAMILIES = (*BERT_LIKE, "distilbert")
ROUND = 64
"""In bf16 the tokens are padded to a multiple of this: kernels are compiled and kept for every shape they meet."""


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


@dataclass(frozen=True)
class Layer:
    """The modules of one transformer layer, whatever its architecture calls them."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    mix: nn.Linear
    mix_norm: nn.LayerNorm
    up: nn.Linear
    down: nn.Linear
    down_norm: nn.LayerNorm
    activation: Callable[[Tensor], Tensor]
    attention_dropout: float
    mix_dropout: float
    down_dropout: float

    def project(self, x: Tensor, *parts: nn.Linear) -> Tensor:
        """The outputs of several linear layers, concatenated: one matrix product."""
        return F.linear(x, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))

    def output(self, heads: Tensor, residual: Tensor, masks: DropoutMasks) -> Tensor:
        """What follows the attention heads: their output layer, and the feed-forward layers."""
        x = _normed(self.mix_norm, masks.drop_and_add(self.mix(heads), residual, self.mix_dropout))
        inner = self.down(self.activation(self.up(x)))
        return _normed(self.down_norm, masks.drop_and_add(inner, x, self.down_dropout))


@dataclass(frozen=True)
class UnpaddedEncoder:
    """The modules of an encoder of BERT's family, applied to unpadded batches."""

    words: nn.Embedding
    positions: nn.Embedding
    types: nn.Embedding | None
    norm: nn.LayerNorm
    dropout: float
    project: nn.Linear | None
    layers: tuple[Layer, ...]
    heads: int
    first_position: int
    noise: EncoderNoise = NO_NOISE

    def weights(self) -> list[Tensor]:
        """All weights of the encoder."""
        layers = [part for layer in self.layers for part in vars(layer).values() if isinstance(part, nn.Module)]
        modules = [self.words, self.positions, self.types, self.norm, self.project, *layers]
        return [weight for module in modules if module is not None for weight in module.parameters()]

    def forward(self, batch: Unpadded, masks: DropoutMasks, *, first_only: bool = False) -> Tensor:
        """(t, d) last hidden states of all tokens, in the order of the batch.

        With ``first_only`` it is (b, d), those of the first tokens alone, in the sorted order: the last layer, most of
        whose work a head on the first token never reads, is not computed for the others.
        """
        device, lengths, noise = batch.ids.device, batch.lengths, self.noise
        words = F.embedding(batch.ids, self.words.weight, self.words.padding_idx, sparse=self.words.sparse)
        x = words + F.embedding(self._positions(batch), self.positions.weight, self.positions.padding_idx)
        if self.types is not None:
            kinds = torch.zeros_like(batch.ids) if batch.types is None else batch.types
            x = x + F.embedding(kinds, self.types.weight)
        x = masks.drop(_normed(self.norm, x), self.dropout)
        owners = torch.from_numpy(np.repeat(np.arange(len(lengths)), lengths)).to(device)  # (t,) the text of each token
        if not masks.off(noise.cutoff):
            x = x.masked_fill(masks.cutoff(len(lengths), x.shape[1], noise.cutoff).to(device)[owners], 0)
        if self.project is not None:
            x = self.project(x)
        t = len(x)
        if torch.is_autocast_enabled(device.type):
            x = F.pad(x, (0, 0, 0, -t % ROUND))
            owners = F.pad(owners, (0, len(x) - t))
        blocks = attention_blocks(lengths, device)
        for layer in self.layers[:-1]:
            x = self._layer(layer, x, blocks, masks, owners)
        if first_only:
            return self._first_tokens(self.layers[-1], x, blocks, masks)
        return self._layer(self.layers[-1], x, blocks, masks, owners)[:t]

    def _positions(self, batch: Unpadded) -> Tensor:
        """(t,) the position of each token; where they begin after the padding id, a padding token takes up none."""
        device = batch.ids.device
        if not self.first_position:
            sizes = np.array(batch.lengths, dtype=np.int64)
            return torch.from_numpy(np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)).to(device)
        padding = self.first_position - 1
        real = (batch.ids != padding).long()
        before = real.cumsum(0) - real  # (t,) real tokens before each, through all texts
        lengths = torch.tensor(batch.lengths, device=device)
        begins = before[lengths.cumsum(0) - lengths]  # (b,)
        return padding + real * (1 + before - begins.repeat_interleave(lengths))

    def _layer(self, layer: Layer, x: Tensor, blocks: Sequence[Block], masks: DropoutMasks, owners: Tensor) -> Tensor:
        qkv = layer.project(x, layer.query, layer.key, layer.value)
        padding = len(x) - blocks[-1].stop
        pieces = torch.split(qkv, [*(block.stop - block.start for block in blocks), padding])
        outputs = [
            attend(piece, block, self.heads, layer.attention_dropout, masks)
            for piece, block in zip(pieces, blocks, strict=False)
        ]
        if padding:
            outputs.append(qkv.new_zeros(padding, outputs[0].shape[1]))
        heads = torch.cat(outputs)
        if not masks.off(self.noise.drophead):
            texts = sum(block.texts for block in blocks)
            heads = scale_heads(heads, masks.heads(texts, self.heads, self.noise.drophead).to(heads)[owners])
        return layer.output(heads, x, masks)

    def _first_tokens(self, layer: Layer, x: Tensor, blocks: Sequence[Block], masks: DropoutMasks) -> Tensor:
        """One query for each text, keys and values for all its tokens; what follows them for the first tokens only."""
        kv = layer.project(x, layer.key, layer.value)
        first = x.index_select(0, torch.cat([block.begins for block in blocks]))  # (b, d)
        queries = torch.split(layer.query(first), [block.texts for block in blocks])
        pieces = torch.split(kv, [*(block.stop - block.start for block in blocks), len(x) - blocks[-1].stop])
        outputs = [
            attend_first(q, piece, block, self.heads, layer.attention_dropout, masks)
            for q, piece, block in zip(queries, pieces, blocks, strict=False)
        ]
        heads = torch.cat(outputs)
        if not masks.off(self.noise.drophead):
            heads = scale_heads(heads, masks.heads(len(heads), self.heads, self.noise.drophead).to(heads))
        return layer.output(heads, first, masks)


def unpadded_encoder(network: Any) -> UnpaddedEncoder | None:
    """The fast path over the modules of a network; None for an architecture it does not know."""
    config = network.config
    if config.model_type not in FAMILIES or getattr(config, "is_decoder", False):
        return None
    if getattr(config, "chunk_size_feed_forward", 0) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return None
    base, distil = network.base_model, config.model_type == "distilbert"
    try:
        embeddings, positions = base.embeddings, base.embeddings.position_embeddings
        return UnpaddedEncoder(
            words=embeddings.word_embeddings,
            positions=positions,
            types=None if distil else embeddings.token_type_embeddings,
            norm=embeddings.LayerNorm,
            dropout=embeddings.dropout.p,
            project=getattr(base, "embeddings_project", None),
            layers=tuple(map(_distilbert, base.transformer.layer) if distil else map(_bert, base.encoder.layer)),
            heads=config.num_attention_heads,
            first_position=0 if distil or positions.padding_idx is None else positions.padding_idx + 1,
        )
    except AttributeError:  # another release of transformers has other names for its modules
        return None


def _bert(layer: Any) -> Layer:
    attention, mix = layer.attention.self, layer.attention.output
    return Layer(
        query=attention.query,
        key=attention.key,
        value=attention.value,
        mix=mix.dense,
        mix_norm=mix.LayerNorm,
        up=layer.intermediate.dense,
        down=layer.output.dense,
        down_norm=layer.output.LayerNorm,
        activation=layer.intermediate.intermediate_act_fn,
        attention_dropout=attention.dropout.p,
        mix_dropout=mix.dropout.p,
        down_dropout=layer.output.dropout.p,
    )


def _distilbert(layer: Any) -> Layer:
    attention, ffn = layer.attention, layer.ffn
    return Layer(
        query=attention.q_lin,
        key=attention.k_lin,
        value=attention.v_lin,
        mix=attention.out_lin,
        mix_norm=layer.sa_layer_norm,
        up=ffn.lin1,
        down=ffn.lin2,
        down_norm=layer.output_layer_norm,
        activation=ffn.activation,
        attention_dropout=attention.dropout.p,
        mix_dropout=0.0,
        down_dropout=ffn.dropout.p,
    )


def _normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
