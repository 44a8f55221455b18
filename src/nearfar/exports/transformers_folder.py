"""A trained model as a folder of transformers, where the architecture can say exactly the same."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nearfar.encoding.heads import LinearHead
from nearfar.encoding.model import Model
from nearfar.encoding.model_folder import write_sentence_transformers
from nearfar.encoding.pretrained import MULTI_LABEL, quiet_transformers
from nearfar.errors import SettingError
from nearfar.files import atomic_folder, new_mode

SMALL = 2.0**-10
"""tanh(SMALL x) / SMALL is x to seven digits: so a layer with tanh leaves its input as it is."""
SHIFT = 64.0
"""relu(x + SHIFT) - SHIFT is x for all states of an encoder, which a layer norm keeps smaller."""
TOLERANCE = 1e-4
PROBES = ["a text", "another one, somewhat longer than the first", "no", "two words", ""]
POOLED = {"mean": "the mean of all tokens", "last": "the last token"}
INSTEAD = "--to onnx exports it exactly"


def export_transformers(model: Model, out: Path) -> None:
    """Write a folder for ``AutoModelForSequenceClassification``, or for ``AutoModel`` and ``SentenceTransformer``.

    The latter is for a model without a class head. A head that the architecture has no place for is refused, with the
    reason; the logits of the others are compared before anything is written.
    """
    encoder = model.model
    if model.labels is None and not model.predicts_scores:
        with atomic_folder(out, out.with_name(f".{out.name}-export")) as folder:
            _save(encoder.network, model, folder)
            write_sentence_transformers(folder, encoder, model.card)
        return
    network = copy.deepcopy(encoder.network) if encoder.native else _with_head(model)
    if encoder.native:
        _divide(network, encoder.temperature, model.model.classes)
    _check(model, network)
    with atomic_folder(out, out.with_name(f".{out.name}-export")) as folder:
        _save(network, model, folder)


def _save(network: Any, model: Model, folder: Path) -> None:
    with quiet_transformers():
        network.save_pretrained(folder)
        tokenizer = model.tokenizer
        limit, tokenizer.model_max_length = tokenizer.model_max_length, model.card.max_length
        tokenizer.save_pretrained(folder)
        tokenizer.model_max_length = limit
    for path in folder.glob("*.safetensors"):
        os.chmod(path, new_mode())  # safetensors makes its files for their owner alone


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
    network = _classifier(model)
    found = None if network is None else _layers(network)
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


def _classifier(model: Model) -> Any | None:
    from transformers import AutoModelForSequenceClassification

    encoder, labels = model.model.network, model.labels or ()
    config = copy.deepcopy(encoder.config)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: place for place, label in enumerate(labels)}
    config.problem_type = MULTI_LABEL if model.multilabel else "single_label_classification"
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        try:
            kind: Any = AutoModelForSequenceClassification
            network: Any = kind.from_config(config)
        except ValueError:  # an architecture without classifiers
            return None
    network.base_model.load_state_dict(encoder.state_dict(), strict=False)
    return network.eval()


def _layers(network: Any) -> tuple[nn.Linear, nn.Linear, str] | None:
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
