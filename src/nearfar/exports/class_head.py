"""The class head that an architecture of transformers has of its own, and a folder with it."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nearfar.encoding.model import Model
from nearfar.encoding.pretrained import MULTI_LABEL, quiet_transformers
from nearfar.files import new_mode

TOLERANCE = 1e-4
PROBES = ["a text", "another one, somewhat longer than the first", "no", "two words", ""]
"""Texts that a head in transformers is compared on, before it is written."""
POOLED = {
    "mean": "the mean of all tokens",
    "last": "the last token",
    "first": "the first token",
    "pooler": "the pooler",
}


def with_class_head(encoder: Any, labels: Sequence[str], *, multilabel: bool = False) -> Any | None:
    """The architecture with the weights of an encoder and a new class head of its own; None where it has none."""
    from transformers import AutoModelForSequenceClassification

    config = copy.deepcopy(encoder.config)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: place for place, label in enumerate(labels)}
    config.problem_type = MULTI_LABEL if multilabel else "single_label_classification"
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        try:
            kind: Any = AutoModelForSequenceClassification
            network: Any = kind.from_config(config)
        except ValueError:  # an architecture without classifiers
            return None
    network.base_model.load_state_dict(encoder.state_dict(), strict=False)
    return network.eval()


def head_layers(network: Any) -> tuple[nn.Linear, nn.Linear, str] | None:
    """The layer behind the first token, the last one, and what is between them; None for a head of another kind."""
    last: Any = getattr(network, "classifier", None)
    pooler = getattr(getattr(network.base_model, "pooler", None), "dense", None)
    if isinstance(last, nn.Linear):
        if isinstance(pooler, nn.Linear):
            return pooler, last, "tanh"
        before = getattr(network, "pre_classifier", None)  # DistilBERT
        return (before, last, "relu") if isinstance(before, nn.Linear) else None
    if hasattr(last, "dense") and hasattr(last, "out_proj"):
        return last.dense, last.out_proj, "gelu" if hasattr(last, "activation") else "tanh"
    return None


def save_network(network: Any, model: Model, folder: Path) -> None:
    """Write a network, and the tokenizer of a model, as transformers does."""
    with quiet_transformers():
        network.save_pretrained(folder)
        tokenizer = model.tokenizer
        limit, tokenizer.model_max_length = tokenizer.model_max_length, model.card.max_length
        tokenizer.save_pretrained(folder)
        tokenizer.model_max_length = limit
    for path in folder.glob("*.safetensors"):
        os.chmod(path, new_mode())  # safetensors makes its files for their owner alone
