"""One task of a model of several as a folder of transformers, where the architecture can say exactly the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from nearfar.encoding.digests import DIGESTS, digest_lines
from nearfar.encoding.heads import LinearHead
from nearfar.encoding.model_files import is_model_file
from nearfar.encoding.task_model import TaskCard, TaskModel
from nearfar.errors import SettingError
from nearfar.exports.class_head import POOLED, PROBES, TOLERANCE, head_layers, save_network, with_class_head
from nearfar.files import write_atomic


def export_task(model: TaskModel, task: str, folder: Path) -> None:
    """Write a folder that ``AutoModelForSequenceClassification`` and ``pipeline`` open to the task's own logits.

    The architecture's head must be able to say the same, as those of BERT's and RoBERTa's kind are: that is a linear
    head on the encoder's pooler, or on the first token through the shared layer. The numbers are compared before
    anything is written.
    """
    card = model.card(task)
    if not isinstance(model.network.head.of(card.name), LinearHead) or card.labels is None:
        raise SettingError(
            f"task {card.name!r} has the head {card.head['kind']!r}, which looks at a pair in a way that no ordinary "
            "classifier can; only tasks of single texts are exported. Use 'nearfar predict --task' for this one."
        )
    network = with_class_head(model.network.encoder.network, card.labels)
    layers = None if network is None else head_layers(network)
    kind = model.network.encoder.network.config.model_type
    if network is None or layers is None or layers[2] != "tanh":
        raise SettingError(
            f"task {task!r}: the class head of {kind} is of another kind than ours, whatever the settings; "
            "use 'nearfar predict --task'."
        )
    if not _fill(layers[:2], model, card) or not _agree(model, card, network):
        raise SettingError(
            f"task {task!r}: the class head of {kind} cannot say the same as this one, which stands on "
            f'{_stand(model)}; train with encoder.pooling = "pooler", or with "first" and shared_layer = true, or '
            "use 'nearfar predict --task'."
        )
    save_network(network, model.model, folder)
    written = {path.name: path for path in folder.iterdir() if is_model_file(path.name) and path.is_file()}
    write_atomic(folder / DIGESTS, digest_lines(written))


def _fill(layers: tuple[nn.Linear, nn.Linear], model: TaskModel, card: TaskCard) -> bool:
    """Give the layers our weights; False where ours have no place in them."""
    encoder, shared = model.network.encoder, model.network.head.shared
    if encoder.pooling == "pooler" and shared is None:
        hidden = encoder.network.base_model.pooler.dense
    elif encoder.pooling == "first" and shared is not None:
        hidden = shared.linear
    else:
        return False
    if card.head.get("hidden_layers"):
        return False
    head: Any = model.network.head.of(card.name)
    last = head.linear.state_dict()
    if card.single_logit:
        last = {name: torch.cat([torch.zeros_like(tensor), tensor]) for name, tensor in last.items()}
    layers[0].load_state_dict(hidden.state_dict())
    layers[1].load_state_dict(last)
    return True


def _agree(model: TaskModel, card: TaskCard, network: Any) -> bool:
    ours = torch.from_numpy(model.outputs(card.name, [PROBES]))
    limit = model.model.card.max_length
    inputs = model.model.tokenizer(PROBES, padding=True, truncation=True, max_length=limit, return_tensors="pt")
    with torch.inference_mode():
        theirs = network(**inputs).logits
    return bool((ours - theirs).abs().max() < TOLERANCE * max(1.0, float(ours.abs().max())))


def _stand(model: TaskModel) -> str:
    shared = ", through the shared layer" if model.network.head.shared is not None else ""
    return f"{POOLED[model.network.encoder.pooling]}{shared}"
