"""Anisotropy by layer: where in an encoder the vectors concentrate in one direction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nearfar.encoding import TextModel, TokenTable, pool
from nearfar.evaluation.geometry import anisotropy
from nearfar.evaluation.inference import batches, inference


def layer_anisotropy(model: TextModel, table: TokenTable, *, batch_size: int) -> tuple[float | None, ...]:
    """The anisotropy of the pooled states after the embeddings and after each layer, in this order.

    Every layer is pooled as the model pools the last one; for the pooler, which reads the last layer only, the first
    token is taken. A transform after the pooling is not included. None for every layer with fewer than two texts.

    Args:
        model: the encoder; it runs like ``AutoModel``, on padded batches.
        table: the texts; one vector for each layer is held in memory, so take a sample of about a thousand.
        batch_size: texts that are encoded together.
    """
    pooling = "first" if model.pooling == "pooler" else model.pooling
    pooled: list[list[NDArray[np.float32]]] = []
    rows_of_batches = batches(table, batch_size)
    with inference(model) as device:
        for rows in rows_of_batches:
            inputs = table.padded(rows).to(device).tensors
            states = model.network.base_model(**inputs, output_hidden_states=True).hidden_states
            mask = inputs["attention_mask"]
            pooled.append([pool(pooling, layer, mask, None).float().cpu().numpy() for layer in states])  # (b, d) each
    return tuple(anisotropy(np.concatenate(layer)) for layer in zip(*pooled, strict=True))
