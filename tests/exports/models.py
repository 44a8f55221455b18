"""Models to export: heads with random weights on tiny encoders."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.encoding.conftest import CONFIGS, TOKENIZERS
from transformers import AutoModel

from nearfar.encoding import Card, Model, build
from nearfar.encoding.encoder import TextModel
from nearfar.encoding.heads import make_head
from nearfar.encoding.pretrained import quiet_transformers

LABELS = ("10", "9", "11")
TEXTS = ["a cat", "", "the quick brown fox jumps over the lazy dog", "no", "word " * 60, "a"]
PAIRS = [("a cat", "a dog"), ("", "no"), ("the quick brown fox", "jumps over the lazy dog"), ("a", "word " * 60)]


def long_bert(folder: Path) -> Path:
    """A tiny BERT with 512 positions."""
    config = CONFIGS["bert"]()
    config.max_position_embeddings = 512
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(4)
        AutoModel.from_config(config).save_pretrained(folder)
        TOKENIZERS["bert"]().save_pretrained(folder)
    return folder


def model_on(
    folder: Path, *, pooling="mean", head=None, classes=3, joined=False, task=None, max_length=24, **more
) -> Model:
    """An untrained head with random weights on a tiny encoder."""
    built = build(str(folder), classes=None, seed=1, pooling=pooling)
    made = None if head is None else make_head(head, built.model.dim, classes)
    if made is not None:
        generator = torch.Generator().manual_seed(3)
        for name, tensor in made.state_dict().items():
            values = torch.randint(0, classes, tensor.shape, generator=generator) if name == "labels" else torch.randn(tensor.shape, generator=generator)  # fmt: skip
            tensor.copy_(values)
    transform = more.pop("transform", None)
    text_model = TextModel(built.model.network, pooling=pooling, head=made, transform=transform)
    labels = LABELS if made is not None and classes > 1 else None
    card = Card(pooling=pooling, max_length=max_length, native=False, labels=labels, joined=joined, head=head, task=task or {}, **more)  # fmt: skip
    return Model(text_model, built.tokenizer, card)


HEADS = {
    "linear": {"kind": "linear", "dropout": 0.1},
    "logistic": {"kind": "logistic"},
    "nearest-center": {"kind": "nearest-center", "temperature": 0.15, "weighted": True},
    "neighbors": {"kind": "neighbors", "rows": 7, "neighbors": 5, "temperature": 0.1},
}
