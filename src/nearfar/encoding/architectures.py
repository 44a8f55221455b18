"""Which architectures of transformers the fast path knows, and where their modules are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from nearfar.encoding.disentangled import Distances
from nearfar.encoding.layers import PostNormLayer, PreNormLayer
from nearfar.encoding.positions import RelativeBias, Rotary
from nearfar.encoding.unpadded import UnpaddedEncoder

BERT_LIKE = ("bert", "roberta", "xlm-roberta", "camembert", "electra")
MOVING_ROPES = ("dynamic", "longrope")
"""Rotary positions whose frequencies depend on the longest text of a batch."""


def unpadded_encoder(network: Any) -> UnpaddedEncoder | None:
    """The fast path over the modules of a network; None for an architecture it does not know."""
    config = network.config
    opened = _OPENED.get(config.model_type)
    if opened is None or getattr(config, "is_decoder", False):
        return None
    if getattr(config, "chunk_size_feed_forward", 0) or getattr(config, "add_cross_attention", False):
        return None
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        return None
    try:
        return opened(network.base_model)
    except AttributeError:  # another release of transformers has other names for its modules
        return None


def _bert(base: Any) -> UnpaddedEncoder:
    embeddings, positions = base.embeddings, base.embeddings.position_embeddings
    return UnpaddedEncoder(
        words=embeddings.word_embeddings,
        positions=positions,
        types=embeddings.token_type_embeddings,
        norm=embeddings.LayerNorm,
        dropout=embeddings.dropout.p,
        project=getattr(base, "embeddings_project", None),
        layers=tuple(map(_bert_layer, base.encoder.layer)),
        heads=base.config.num_attention_heads,
        first_position=0 if positions.padding_idx is None else positions.padding_idx + 1,
    )


def _bert_layer(layer: Any) -> PostNormLayer:
    attention, mix = layer.attention.self, layer.attention.output
    return PostNormLayer(
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


def _distilbert(base: Any) -> UnpaddedEncoder:
    embeddings = base.embeddings
    return UnpaddedEncoder(
        words=embeddings.word_embeddings,
        positions=embeddings.position_embeddings,
        types=None,
        norm=embeddings.LayerNorm,
        dropout=embeddings.dropout.p,
        project=None,
        layers=tuple(map(_distilbert_layer, base.transformer.layer)),
        heads=base.config.num_attention_heads,
        first_position=0,
    )


def _distilbert_layer(layer: Any) -> PostNormLayer:
    attention, ffn = layer.attention, layer.ffn
    return PostNormLayer(
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


def _mpnet(base: Any) -> UnpaddedEncoder:
    """BERT with a bias by distance, one for all layers; positions begin after the padding id."""
    embeddings, encoder = base.embeddings, base.encoder
    return UnpaddedEncoder(
        words=embeddings.word_embeddings,
        positions=embeddings.position_embeddings,
        types=None,
        norm=embeddings.LayerNorm,
        dropout=embeddings.dropout.p,
        project=None,
        layers=tuple(map(_mpnet_layer, encoder.layer)),
        heads=base.config.num_attention_heads,
        first_position=embeddings.padding_idx + 1,
        relative=RelativeBias(encoder.relative_attention_bias, encoder.relative_position_bucket),
    )


def _mpnet_layer(layer: Any) -> PostNormLayer:
    attention, inner = layer.attention, layer.attention.attn
    return PostNormLayer(
        query=inner.q,
        key=inner.k,
        value=inner.v,
        mix=inner.o,
        mix_norm=attention.LayerNorm,
        up=layer.intermediate.dense,
        down=layer.output.dense,
        down_norm=layer.output.LayerNorm,
        activation=layer.intermediate.intermediate_act_fn,
        attention_dropout=inner.dropout.p,
        mix_dropout=attention.dropout.p,
        down_dropout=layer.output.dropout.p,
    )


def _deberta(base: Any) -> UnpaddedEncoder | None:
    """DeBERTa v2 and v3: BERT whose attention also compares contents with distances."""
    embeddings, encoder, config = base.embeddings, base.encoder, base.config
    first = encoder.layer[0].attention.self
    if encoder.conv is not None or embeddings.embed_proj is not None or first.all_head_size != config.hidden_size:
        return None
    distances = None
    if first.relative_attention and first.pos_att_type:
        distances = Distances(
            table=encoder.rel_embeddings,
            norm=encoder.LayerNorm if "layer_norm" in encoder.norm_rel_ebd else None,
            buckets=first.position_buckets,
            longest=first.max_relative_positions,
            dropout=first.pos_dropout.p,
            keys="c2p" in first.pos_att_type,
            queries="p2c" in first.pos_att_type,
        )
    return UnpaddedEncoder(
        words=embeddings.word_embeddings,
        positions=embeddings.position_embeddings,
        types=embeddings.token_type_embeddings,
        norm=embeddings.LayerNorm,
        dropout=embeddings.dropout.p,
        project=None,
        layers=tuple(map(_deberta_layer, encoder.layer)),
        heads=config.num_attention_heads,
        first_position=0,
        distances=distances,
    )


def _deberta_layer(layer: Any) -> PostNormLayer:
    attention, mix = layer.attention.self, layer.attention.output
    return PostNormLayer(
        query=attention.query_proj,
        key=attention.key_proj,
        value=attention.value_proj,
        mix=mix.dense,
        mix_norm=mix.LayerNorm,
        up=layer.intermediate.dense,
        down=layer.output.dense,
        down_norm=layer.output.LayerNorm,
        activation=layer.intermediate.intermediate_act_fn,
        attention_dropout=attention.dropout.p,
        mix_dropout=mix.dropout.p,
        down_dropout=layer.output.dropout.p,
        distance_key=getattr(attention, "pos_key_proj", None),
        distance_query=getattr(attention, "pos_query_proj", None),
    )


def _rotary_bert(base: Any) -> UnpaddedEncoder | None:
    """GTE and Nomic: BERT with rotary positions and a gated feed-forward block."""
    embeddings, rotary = base.embeddings, base.rotary_emb
    if rotary.rope_type in MOVING_ROPES or rotary.attention_scaling != 1:
        return None
    turns = Rotary(rotary, "inv_freq")
    return UnpaddedEncoder(
        words=embeddings.word_embeddings,
        positions=None,
        types=embeddings.token_type_embeddings,
        norm=embeddings.LayerNorm,
        dropout=embeddings.dropout.p,
        project=None,
        layers=tuple(_rotary_layer(layer, turns) for layer in base.layers),
        heads=base.config.num_attention_heads,
        first_position=0,
    )


def _rotary_layer(layer: Any, rotary: Rotary) -> PostNormLayer:
    attention, mlp = layer.self_attn, layer.mlp
    inner = getattr(mlp, "dropout", None)
    return PostNormLayer(
        query=attention.q_proj,
        key=attention.k_proj,
        value=attention.v_proj,
        mix=attention.o_proj,
        mix_norm=layer.post_attention_layernorm,
        up=mlp.gate_proj,
        gate=mlp.up_proj,
        down=mlp.down_proj,
        down_norm=layer.post_mlp_layernorm,
        activation=mlp.act_fn,
        attention_dropout=attention.attention_dropout,
        mix_dropout=layer.post_attention_dropout.p,
        inner_dropout=0.0 if inner is None else inner.p,
        down_dropout=layer.post_mlp_dropout.p,
        rotary=rotary,
    )


def _modernbert(base: Any) -> UnpaddedEncoder | None:
    """Norms in front, rotary positions, a gated feed-forward block, and windows of neighbors in most layers."""
    embeddings, rotary = base.embeddings, base.rotary_emb
    kinds = set(base.config.layer_types)
    if any(
        rotary.rope_type[kind] in MOVING_ROPES or getattr(rotary, f"{kind}_attention_scaling") != 1 for kind in kinds
    ):
        return None
    return UnpaddedEncoder(
        words=embeddings.tok_embeddings,
        positions=None,
        types=None,
        norm=embeddings.norm,
        dropout=embeddings.drop.p,
        project=None,
        layers=tuple(_modernbert_layer(layer, rotary, base.config.sliding_window) for layer in base.layers),
        heads=base.config.num_attention_heads,
        first_position=0,
        final_norm=base.final_norm,
    )


def _modernbert_layer(layer: Any, rotary: nn.Module, window: int) -> PreNormLayer:
    attention, mlp, kind = layer.attn, layer.mlp, layer.attention_type
    return PreNormLayer(
        norm=layer.attn_norm if isinstance(layer.attn_norm, nn.LayerNorm) else None,
        joined=attention.Wqkv,
        mix=attention.Wo,
        up_norm=layer.mlp_norm,
        up=mlp.Wi,
        down=mlp.Wo,
        activation=mlp.act,
        attention_dropout=attention.attention_dropout,
        mix_dropout=attention.attention_dropout,
        inner_dropout=mlp.drop.p,
        rotary=Rotary(rotary, f"{kind}_inv_freq"),
        window=window if kind == "sliding_attention" else None,
    )


_OPENED: dict[str, Callable[[Any], UnpaddedEncoder | None]] = {
    **dict.fromkeys(BERT_LIKE, _bert),
    "distilbert": _distilbert,
    "mpnet": _mpnet,
    "deberta-v2": _deberta,
    "modernbert": _modernbert,
    "gte": _rotary_bert,
    "nomic_bert": _rotary_bert,
}
FAMILIES = tuple(_OPENED)
"""The architectures, as ``config.model_type`` has them."""
