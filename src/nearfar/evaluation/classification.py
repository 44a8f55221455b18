"""A model on a data set: predictions and what they are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from nearfar.encoding import TextModel, TokenTable
from nearfar.encoding.model import by_length
from nearfar.errors import SettingError
from nearfar.evaluation.metrics import ClassReport, class_report, most_likely


def classify(model: TextModel, table: TokenTable, *, batch_size: int) -> NDArray[np.float32]:
    """(n, c) class probabilities, computed by all processes together and given back in order to each."""
    if batch_size < 1:
        raise SettingError(f"batch_size must be 1 or more, got {batch_size}.")
    rank, world = (dist.get_rank(), dist.get_world_size()) if _several() else (0, 1)
    batches = list(by_length(table, batch_size))[rank::world]
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    found: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
    try:
        with torch.inference_mode():
            for rows in batches:
                logits = model(model.inputs(table, rows).to(device), logits_only=True).logits
                found.append((rows, logits.float().softmax(dim=1).cpu().numpy()))
    finally:
        model.train(training)
    everyone: list[Any] = [None] * world
    if world > 1:
        dist.all_gather_object(everyone, found)
    else:
        everyone[0] = found
    result = np.zeros((len(table), model.classes), dtype=np.float32)
    for share in everyone:
        for rows, chances in share:
            result[rows] = chances
    return result


def evaluate_classes(
    model: TextModel, table: TokenTable, truth: NDArray[np.int64], classes: Sequence[str], *, batch_size: int
) -> ClassReport:
    """Predict every row and compare with the truth."""
    chances = classify(model, table, batch_size=batch_size)
    return class_report(truth, most_likely(chances), tuple(classes))


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
