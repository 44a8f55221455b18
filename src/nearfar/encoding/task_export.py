"""One task's classifier as an ordinary ``AutoModelForSequenceClassification`` folder, where its head allows it."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nearfar.encoding.heads import LinearHead
from nearfar.encoding.pretrained import quiet_transformers
from nearfar.encoding.task_model import TaskCard, TaskModel
from nearfar.errors import SettingError

PROBES = ["a text", "another one, somewhat longer than the first", "no", "two words", ""]
TOLERANCE = 1e-4


def export_task(model: TaskModel, task: str, folder: Path) -> None:
    """Write a folder that ``AutoModelForSequenceClassification`` and ``pipeline`` open to the task's own logits.

    The architecture's head must be able to say the same, as those of BERT's and RoBERTa's kind are: that is a linear
    head on the encoder's pooler, or on the first token through the shared layer. The numbers are compared before
    anything is written.
    """
    card = model.card(task)
    network = _classifier(model, card)
    layers = None if network is None else _layers(network)
    kind = model.network.encoder.network.config.model_type
    if network is None or layers is None:
        raise SettingError(
            f"task {task!r}: the class head of {kind} is of another kind than ours, whatever the settings; "
            "use 'nearfar predict --task'."
        )
    if not _fill(layers, model, card) or not _agree(model, card, network):
        raise SettingError(
            f"task {task!r}: the class head of {kind} cannot say the same as this one, which stands on "
            f'{_stand(model)}; train with encoder.pooling = "pooler", or with "first" and shared_layer = true, or '
            "use 'nearfar predict --task'."
        )
    with quiet_transformers():
        network.save_pretrained(folder)
        tokenizer = model.model.tokenizer
        limit, tokenizer.model_max_length = tokenizer.model_max_length, model.model.card.max_length
        tokenizer.save_pretrained(folder)
        tokenizer.model_max_length = limit
    for path in folder.glob("*.safetensors"):
        os.chmod(path, 0o644)  # safetensors makes its files for their owner alone


def _classifier(model: TaskModel, card: TaskCard) -> Any | None:
    """The architecture with our encoder and a class head of its own; None where it has none."""
    from transformers import AutoModelForSequenceClassification

    if not isinstance(model.network.head.of(card.name), LinearHead) or card.labels is None:
        raise SettingError(
            f"task {card.name!r} has the head {card.head['kind']!r}, which looks at a pair in a way that no ordinary "
            "classifier can; only tasks of single texts are exported. Use 'nearfar predict --task' for this one."
        )
    encoder = model.network.encoder
    config = copy.deepcopy(encoder.network.config)
    config.id2label = dict(enumerate(card.labels))
    config.label2id = {label: place for place, label in enumerate(card.labels)}
    config.problem_type = "single_label_classification"
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        try:
            kind: Any = AutoModelForSequenceClassification
            network: Any = kind.from_config(config)
        except ValueError:  # an architecture without classifiers
            return None
    network.base_model.load_state_dict(encoder.network.state_dict(), strict=False)
    return network.eval()


def _layers(network: Any) -> tuple[nn.Linear, nn.Linear] | None:
    """The layer behind the first token, which tanh follows, and the last one; None for a head of another kind."""
    last: Any = getattr(network, "classifier", None)
    pooler = getattr(getattr(network.base_model, "pooler", None), "dense", None)
    if isinstance(last, nn.Linear) and isinstance(pooler, nn.Linear):
        return pooler, last
    if hasattr(last, "dense") and hasattr(last, "out_proj") and not hasattr(last, "activation"):
        return last.dense, last.out_proj
    return None


def _fill(layers: tuple[nn.Linear, nn.Linear], model: TaskModel, card: TaskCard) -> bool:
    """Give the layers our weights; False where ours have no place in them."""
    encoder, shared = model.network.encoder, model.network.head.shared
    if encoder.pooling == "pooler" and shared is None:
        hidden = encoder.network.base_model.pooler.dense
    elif encoder.pooling == "first" and shared is not None:
        hidden = shared.linear
    else:
        return False
    head: Any = model.network.head.of(card.name)
    layers[0].load_state_dict(hidden.state_dict())
    layers[1].load_state_dict(head.linear.state_dict())
    return True


def _agree(model: TaskModel, card: TaskCard, network: Any) -> bool:
    ours = torch.from_numpy(model.outputs(card.name, [PROBES]))
    limit = model.model.card.max_length
    inputs = model.model.tokenizer(PROBES, padding=True, truncation=True, max_length=limit, return_tensors="pt")
    with torch.inference_mode():
        theirs = network(**inputs).logits
    return bool((ours - theirs).abs().max() < TOLERANCE * max(1.0, float(ours.abs().max())))


def _stand(model: TaskModel) -> str:
    named = {"mean": "the mean of all tokens", "first": "the first token", "pooler": "the encoder's pooler"}
    shared = ", through the shared layer" if model.network.head.shared is not None else ""
    return f"{named[model.network.encoder.pooling]}{shared}"
