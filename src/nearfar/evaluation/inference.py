"""A model over a table of texts: class probabilities and embeddings.

Under several processes each computes a share of the batches, and every process gets all rows, equal to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from nearfar.encoding import Output, TextModel, TokenTable
from nearfar.encoding.model import by_length
from nearfar.errors import SettingError

ROWS = 16_384
"""Rows that processes exchange at once."""


def embed_table(model: TextModel, table: TokenTable, *, batch_size: int) -> NDArray[np.float32]:
    """(n, d) text vectors, not normalized, in the order of the table."""
    return _outputs(model, table, batch_size, lambda output: output.embedding.float(), width=model.dim)


def classify(model: TextModel, table: TokenTable, *, batch_size: int) -> NDArray[np.float32]:
    """(n, c) class probabilities, in the order of the table."""

    def probabilities(output: Output) -> Tensor:
        assert output.logits is not None
        return output.logits.float().softmax(dim=1)

    return _outputs(model, table, batch_size, probabilities, width=model.classes, logits_only=True)


@contextmanager
def inference(model: TextModel) -> Iterator[torch.device]:
    """Evaluation mode without gradients, on the device of the model; afterwards the mode is as before."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield next(model.parameters()).device
    finally:
        model.train(training)


def batches(table: TokenTable, batch_size: int) -> list[NDArray[np.int64]]:
    """Rows of similar length, the longest first."""
    if batch_size < 1:
        raise SettingError(f"batch_size must be 1 or more, got {batch_size}.")
    return list(by_length(table, batch_size))


def _outputs(
    model: TextModel,
    table: TokenTable,
    batch_size: int,
    view: Callable[[Output], Tensor],
    *,
    width: int,
    logits_only: bool = False,
) -> NDArray[np.float32]:
    """(n, width) one view of the outputs, computed by all processes together."""
    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    rank, world = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
    result = torch.zeros(len(table), width)
    share = batches(table, batch_size)[rank::world]
    with inference(model) as device:
        for rows in share:
            output = model(model.inputs(table, rows).to(device), logits_only=logits_only)
            result[torch.from_numpy(rows)] = view(output).cpu()
    if several:  # each row is zero in all processes but one, so the sum changes no bit
        for start in range(0, len(result), ROWS):
            piece = result[start : start + ROWS].to(device)
            dist.all_reduce(piece)
            result[start : start + ROWS] = piece.cpu()
    return result.numpy()
