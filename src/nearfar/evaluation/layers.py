"""The layers of an encoder one by one: where in it the vectors crowd into one direction."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from nearfar.encoding import TextModel, TokenTable, pool
from nearfar.encoding.model import by_length
from nearfar.errors import SettingError
from nearfar.evaluation.geometry import anisotropy


def layer_anisotropy(model: TextModel, table: TokenTable, *, batch_size: int) -> tuple[float | None, ...]:
    """The anisotropy of the pooled states behind the embeddings, and behind each layer, the last one last.

    Every layer is pooled as the model pools the last one; the pooler, which reads the last layer only, stands for the
    first token. A map behind the pooling has no part in it. None in all places for fewer than two texts.

    Args:
        model: the model; it runs as ``AutoModel`` has it, on padded batches.
        table: the texts. One vector a layer is held for each of them, so a sample of a thousand does.
        batch_size: texts that are encoded together.
    """
    if batch_size < 1:
        raise SettingError(f"batch_size must be 1 or more, got {batch_size}.")
    found: list[list[NDArray[np.float32]]] = []
    for layers in _pooled_layers(model, table, batch_size):
        found = found or [[] for _ in layers]
        for vectors, layer in zip(found, layers, strict=True):
            vectors.append(layer)
    return tuple(anisotropy(np.concatenate(vectors)) for vectors in found)


def _pooled_layers(model: TextModel, table: TokenTable, batch_size: int) -> Iterator[list[NDArray[np.float32]]]:
    device = next(model.parameters()).device
    pooling = "first" if model.pooling == "pooler" else model.pooling
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for rows in by_length(table, batch_size):
                inputs = table.padded(rows).to(device).tensors
                states = model.network.base_model(**inputs, output_hidden_states=True).hidden_states
                yield [
                    pool(pooling, layer, inputs["attention_mask"], None).float().cpu().numpy()  # (b, d)
                    for layer in states
                ]
    finally:
        model.train(training)
