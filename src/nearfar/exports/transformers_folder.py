"""A trained model as a folder of transformers, where the architecture can say exactly the same."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nearfar.encoding.heads import LinearHead
from nearfar.encoding.model import Model
from nearfar.encoding.model_folder import name_no_classes, write_sentence_transformers
from nearfar.errors import SettingError
from nearfar.exports.class_head import POOLED, PROBES, TOLERANCE, head_layers, save_network, with_class_head
from nearfar.files import atomic_folder

SMALL = 2.0**-10
"""tanh(SMALL x) / SMALL is x to seven digits: so a layer with tanh leaves its input as it is."""
SHIFT = 64.0
"""relu(x + SHIFT) - SHIFT is x for all states of an encoder, which a layer norm keeps smaller."""
INSTEAD = "--to onnx exports it exactly"


def export_transformers(model: Model, out: Path) -> None:
    """Write a folder for ``AutoModelForSequenceClassification``, or for ``AutoModel`` and ``SentenceTransformer``.

    The latter is for a model without a class head. A head that the architecture has no place for is refused, with the
    reason; the logits of the others are compared before anything is written.
    """
    encoder = model.model
    if model.labels is None and not model.predicts_scores:
        with atomic_folder(out, out.with_name(f".{out.name}-export")) as folder:
            save_network(encoder.network, model, folder)
            name_no_classes(folder / "config.json")
            write_sentence_transformers(folder, encoder, model.card)
        return
    network = copy.deepcopy(encoder.network) if encoder.native else _with_head(model)
    if encoder.native:
        _divide(network, encoder.temperature, model.model.classes)
    _check(model, network)
    with atomic_folder(out, out.with_name(f".{out.name}-export")) as folder:
        save_network(network, model, folder)


def _with_head(model: Model) -> Any:
    """The architecture's own classifier with the weights of our encoder and head."""
    encoder, head = model.model, model.model.head
    kind = encoder.network.config.model_type
    if not isinstance(head, LinearHead):
        name = "scores" if model.predicts_scores else (model.card.head or {"kind": "fitted"})["kind"]
        raise SettingError(
            f"this model has a head of kind {name!r}, which reads vectors of length one, and no classifier of "
            f"transformers has such a step; {INSTEAD}."
        )
    if encoder.pooling not in ("first", "pooler"):
        raise SettingError(
            f"the class head of {kind} reads the first token, and that of this model {POOLED[encoder.pooling]}, so "
            f'transformers cannot express it; {INSTEAD}, or train with encoder.pooling = "first".'
        )
    network = with_class_head(encoder.network, model.labels or (), multilabel=model.multilabel)
    found = None if network is None else head_layers(network)
    if network is None or found is None:
        raise SettingError(f"transformers has no class head of our kind for {kind}; {INSTEAD}.")
    first, last, activation = found
    with torch.no_grad():
        weight, bias = head.linear.weight / encoder.temperature, head.linear.bias / encoder.temperature
        if encoder.pooling == "pooler":
            if activation != "tanh":
                raise SettingError(f"the class head of {kind} has no pooler of BERT's kind; {INSTEAD}.")
            first.load_state_dict(encoder.network.base_model.pooler.dense.state_dict())
        elif activation == "tanh":
            first.weight.copy_(SMALL * torch.eye(len(first.weight)))
            first.bias.zero_()
            weight = weight / SMALL
        else:
            first.weight.copy_(torch.eye(len(first.weight)))
            first.bias.fill_(SHIFT)
            bias = bias - SHIFT * weight.sum(dim=1)
        last.weight.copy_(weight)
        last.bias.copy_(bias)
    return network


def _divide(network: Any, temperature: float, classes: int) -> None:
    """Put the temperature of the probabilities into the last layer."""
    if temperature == 1:
        return
    last = [one for one in network.modules() if isinstance(one, nn.Linear) and one.out_features == classes][-1:]
    with torch.no_grad():
        for weight in (weight for one in last for weight in one.parameters()):
            weight.div_(temperature)


def _check(model: Model, network: Any) -> None:
    texts: list[Any] = [(text, "a text") for text in PROBES] if model.card.joined else list(PROBES)
    inputs = model.tokenizer(
        texts, padding=True, truncation=True, max_length=model.card.max_length, return_tensors="pt"
    )
    with torch.inference_mode():
        logits = network.to("cpu").eval()(**inputs).logits
    theirs = (logits.sigmoid() if model.multilabel else logits.softmax(dim=1)).numpy()
    worst = float(abs(theirs - model.probabilities(texts)).max())
    if not worst < TOLERANCE:
        kind = network.config.model_type
        raise SettingError(
            f"the class head of {kind} cannot say the same as that of this model: probabilities differ by {worst:.2g}; "
            f"{INSTEAD}."
        )
