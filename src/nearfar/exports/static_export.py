"""A trained model as static token vectors with a head of its own, fitted to what the model says of texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import Tensor

from nearfar.encoding.model import Model, in_batches
from nearfar.errors import SettingError
from nearfar.exports.exported_model import CARD, FORMAT, TOKENIZER
from nearfar.exports.heads import ExportedCard, LabelType
from nearfar.exports.onnx_graph import heads_of, save_tokenizer
from nearfar.exports.static_model import FILE, HEADS, VECTORS, StaticModel
from nearfar.exports.sums import write_sums
from nearfar.exports.token_vectors import static_vectors
from nearfar.files import atomic_folder

PENALTIES = (1e-1, 1e-2, 1e-3, 1e-4)
"""Of the squared weights of a head, among which held-out texts choose."""
FOLDS = 5
STEPS = 200
MOST = 5_000
"""Texts that a head is fitted to at most, evenly taken from those given."""


def export_static(model: Model, out: Path, texts: Sequence[str], *, label_type: LabelType = "str") -> None:
    """Write a folder with token vectors, heads and the tokenizer; a folder that is there is replaced.

    The head is fitted to the outputs of the model for ``texts``; their words also say how frequent tokens are.
    """
    if model.card.joined:
        raise SettingError("a static model reads single texts, and this model reads pairs; export it with --to onnx.")
    if model.card.task.get("kind") == "tasks":
        raise SettingError("a static model has one task, and this model has several; export it with --to onnx.")
    heads = heads_of(model, None, label_type)
    tokenizer = model.tokenizer.backend_tokenizer if getattr(model.tokenizer, "is_fast", False) else None
    if tokenizer is None:
        raise SettingError("this model has no fast tokenizer (tokenizer.json), which an export needs.")
    from nearfar import __version__

    vectors = static_vectors(model, texts)
    card = ExportedCard(
        format=FORMAT, max_length=model.card.max_length, dim=vectors.shape[1], pad_id=0, pad_type=0, pad_left=False,
        typed=False, heads=(), version=__version__,
    )  # fmt: skip
    with atomic_folder(out, out.with_name(f".{out.name}-export")) as folder:
        save_file({VECTORS: vectors}, folder / FILE)
        save_tokenizer(tokenizer, folder / TOKENIZER)
        _write(folder / CARD, card.to_json())
        _write(folder / "config.json", _config(vectors.shape[1], model.card.max_length))
        if heads:
            some = texts[:: max(1, -(-len(texts) // MOST))]
            weights = fit_head(StaticModel(folder).embed(some), targets(model, some), _kind(model))
            save_file(
                {f"{heads[0].output}.{name}": values for name, values in zip(("weight", "bias"), weights, strict=True)},
                folder / HEADS,
            )
            _write(folder / CARD, replace(card, heads=heads).to_json())
        write_sums(folder, (FILE, CARD, TOKENIZER, *([HEADS] if heads else [])))
        (folder / "README.md").write_text(_README, encoding="utf-8")


def targets(model: Model, texts: Sequence[str]) -> NDArray[np.float32]:
    """(n, c) what the model says of texts: probabilities of its classes, or a score."""
    if model.predicts_scores:
        table = model.tokenize(texts)
        scores = in_batches(model.model, table, 64, lambda output: output.logits, width=1, logits_only=True)
        return scores.numpy()
    return model.probabilities(texts)


def fit_head(
    vectors: NDArray[np.float32], goals: NDArray[np.float32], kind: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(c, d) weights and (c,) biases of a linear head, with the penalty that is best for held-out texts."""
    x, y = torch.from_numpy(vectors).double(), torch.from_numpy(goals).double()
    weight, bias = _fitted(x, y, kind, _penalty(x, y, kind))
    return weight.float().numpy(), bias.float().numpy()


def held_out_labels(model: Model, exported: StaticModel, texts: Sequence[str]) -> list[str] | None:
    """The label of each text by a head that was fitted to other texts; None for heads of other kinds than classes."""
    if _kind(model) != "classes" or model.labels is None:
        return None
    x, y = (torch.from_numpy(values).double() for values in (exported.embed(texts), targets(model, texts)))
    outputs = _held_out(x, y, "classes", _penalty(x, y, "classes"))
    return [model.labels[int(place)] for place in outputs.argmax(dim=1)]


def _penalty(x: Tensor, y: Tensor, kind: str) -> float:
    if len(x) < 2 * FOLDS:
        return PENALTIES[-2]
    losses = [float(_loss(kind, _held_out(x, y, kind, penalty), y)) for penalty in PENALTIES]
    return PENALTIES[int(np.argmin(losses))]


def _held_out(x: Tensor, y: Tensor, kind: str, penalty: float) -> Tensor:
    """(n, c) outputs for each fold of the texts by a head fitted to the others."""
    outputs = torch.zeros_like(y)
    for fold in range(FOLDS):
        rows = torch.arange(len(x)) % FOLDS == fold
        weight, bias = _fitted(x[~rows], y[~rows], kind, penalty)
        outputs[rows] = x[rows] @ weight.T + bias
    return outputs


def _fitted(x: Tensor, y: Tensor, kind: str, penalty: float) -> tuple[Tensor, Tensor]:
    weight = torch.zeros(y.shape[1], x.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(y.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = _loss(kind, x @ weight.T + bias, y) + penalty / 10 * weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()


def _loss(kind: str, outputs: Tensor, y: Tensor) -> Tensor:
    if kind == "scores":
        return (outputs - y).square().mean()
    if kind == "multilabel":
        return torch.nn.functional.binary_cross_entropy_with_logits(outputs, y)
    return -(y * outputs.log_softmax(dim=1)).sum(dim=1).mean()


def _kind(model: Model) -> str:
    return "scores" if model.predicts_scores else "multilabel" if model.multilabel else "classes"


def _config(dims: int, max_length: int) -> dict[str, object]:
    """What model2vec reads next to the vectors."""
    return {
        "model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": dims, "seq_length": max_length,
        "normalize": True, "apply_pca": dims, "apply_zipf": True,
    }  # fmt: skip


def _write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2), encoding="utf-8")


_README = """# Static text model

The vector of a text is the mean of the vectors of its tokens; heads are linear.

```python
import nearfar

model = nearfar.load("this-folder")  # NumPy, tokenizers and safetensors; no torch
```

`model2vec.StaticModel.from_pretrained` opens the token vectors, without the heads.
"""
