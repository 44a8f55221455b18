"""The model folder: one layout that transformers, sentence-transformers and nearfar all open to the same numbers.

==============================  =======================================================================
file                            read by
==============================  =======================================================================
``config.json``                 everyone; names the class head's architecture and its labels, if native
``model.safetensors``           everyone
``tokenizer*.json``             everyone
``modules.json``, ``1_Pooling`` sentence-transformers: pooling is stated, never guessed
``2_Dense``                     sentence-transformers: the encoder's pooler, where that is the pooling
``2_Dense`` or ``3_Dense``      sentence-transformers: the map behind the pooling, where there is one
``nearfar.json``                nearfar; written last, so a folder that has it is whole
``nearfar.safetensors``         nearfar: our class head, the map and the objective's weights
``README.md``                   people: the model card
==============================  =======================================================================
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nearfar.encoding.encoder import TextModel, quiet_transformers, require_pooler
from nearfar.encoding.pooling_modes import POOLINGS
from nearfar.encoding.sources import CARD as CARD
from nearfar.encoding.sources import STAGING
from nearfar.encoding.transform import TransformedModel
from nearfar.errors import EncoderError
from nearfar.files import flush_tree, remove

FORMAT = 1
EXTRAS = "nearfar.safetensors"
OPTIONAL = (EXTRAS, "2_Dense", "3_Dense", "2_Normalize", "3_Normalize", "4_Normalize")
"""Parts of the layout that not every model has; one that another model left behind goes."""


@dataclass(frozen=True)
class Card:
    """What nearfar must know to use a folder; everything else is in the ordinary files."""

    pooling: str
    max_length: int
    native: bool
    labels: tuple[str, ...] | None = None
    normalize: bool = False
    joined: bool = False
    """Whether the model reads pairs of texts joined in the tokenizer's pair format."""
    head: dict[str, Any] | None = None
    transform: dict[str, Any] | None = None
    """The map behind the pooling: its kind and what it was fitted to; None without one."""
    objective: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    """What the model was trained for: the kind of rows, the range of their scores, the threshold of a positive pair."""
    versions: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT


def save(
    folder: Path,
    model: TextModel,
    tokenizer: Any,
    card: Card,
    *,
    readme: str,
    objective: dict[str, Tensor] | None = None,
) -> None:
    """Write the whole folder; files that are not part of the layout stay as they are.

    All files are written aside and moved in when they are complete, ``nearfar.json`` last.
    """
    staging = folder / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    with quiet_transformers():
        model.network.save_pretrained(staging)
        limit, tokenizer.model_max_length = tokenizer.model_max_length, card.max_length  # what others then cut at
        tokenizer.save_pretrained(staging)
        tokenizer.model_max_length = limit
    extras = {f"objective.{name}": tensor for name, tensor in (objective or {}).items()}
    if model.head is not None:
        extras |= {f"head.{name}": tensor for name, tensor in model.head.state_dict().items()}
    if isinstance(model, TransformedModel):
        extras |= {f"transform.{name}": tensor for name, tensor in model.transform.state_dict().items()}
    if extras:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in extras.items()}, staging / EXTRAS)
    _write_sentence_transformers(staging, model, card)
    (staging / "README.md").write_text(readme, encoding="utf-8")
    _write_json(staging / CARD, asdict(card))
    for path in sorted(staging.rglob("*")):
        if path.is_file():
            os.chmod(path, 0o644)  # safetensors makes its files for their owner alone
    flush_tree(staging)
    (folder / CARD).unlink(missing_ok=True)
    for name in OPTIONAL:
        remove(folder / name)
    entries = sorted(staging.iterdir(), key=lambda entry: entry.name == CARD)
    for entry in entries:
        if (folder / entry.name).is_dir():
            remove(folder / entry.name)
        os.replace(entry, folder / entry.name)
    staging.rmdir()


def read_card(folder: Path) -> Card | None:
    """The card of a folder that nearfar saved; None for a folder of another origin."""
    path = folder / CARD
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] > FORMAT:
            raise EncoderError(
                f"{path}: format {values['format']} is newer than this nearfar reads ({FORMAT}); upgrade it."
            )
        if values["labels"] is not None:
            values["labels"] = tuple(values["labels"])
        card = Card(**values)
        _check_card(card)
        return card
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise EncoderError(f"{path}: this is not a card nearfar can read ({cause}). Is the folder whole?") from cause


def _check_card(card: Card) -> None:
    if card.pooling not in POOLINGS:
        raise ValueError(f"unknown pooling {card.pooling!r}")
    if not isinstance(card.max_length, int) or card.max_length < 1:
        raise ValueError(f"max_length is {card.max_length!r}")
    if not all(isinstance(flag, bool) for flag in (card.native, card.normalize, card.joined)):
        raise ValueError("native, normalize and joined must be true or false")
    if card.labels is not None and (len(card.labels) < 2 or not all(isinstance(label, str) for label in card.labels)):
        raise ValueError("labels must be two or more names")
    if not isinstance(card.head, dict | None):
        raise ValueError(f"head is {card.head!r}")
    if not isinstance(card.transform, dict | None):
        raise ValueError(f"transform is {card.transform!r}")
    if not isinstance(card.task, dict):
        raise ValueError(f"task is {card.task!r}")


def read_extras(folder: Path, prefix: str) -> dict[str, Tensor]:
    """The tensors of ``nearfar.safetensors`` below a prefix (``head``, ``transform`` or ``objective``), without it."""
    path = folder / EXTRAS
    if not path.is_file():
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(f"{prefix}.")]  # noqa: SIM118 - not a dict
            return {name.removeprefix(f"{prefix}."): file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as cause:
        raise EncoderError(f"{path}: these weights cannot be read ({cause}). Is the folder whole?") from cause


def _write_sentence_transformers(folder: Path, model: TextModel, card: Card) -> None:
    first = card.pooling in ("first", "pooler")
    width = int(model.network.config.hidden_size)
    modules = ["Transformer", "Pooling"]
    (folder / "1_Pooling").mkdir()
    pooling = {
        "word_embedding_dimension": width,
        "pooling_mode_cls_token": first,
        "pooling_mode_mean_tokens": not first,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    _write_json(folder / "1_Pooling" / "config.json", pooling)
    if card.pooling == "pooler":
        modules.append("Dense")
        weight, bias = require_pooler(model.network.base_model, "the encoder")
        mark = {"nearfar_pooler": True}
        _write_dense(folder / "2_Dense", weight, bias, "torch.nn.modules.activation.Tanh", mark)
    if isinstance(model, TransformedModel):
        modules.append("Dense")
        _write_dense(
            folder / f"{len(modules) - 1}_Dense", model.transform.weight, model.transform.bias,
            "torch.nn.modules.linear.Identity", {},
        )  # fmt: skip
    if card.normalize:
        modules.append("Normalize")
        (folder / f"{len(modules) - 1}_Normalize").mkdir()
    listed = [
        {
            "idx": place,
            "name": str(place),
            "path": "" if place == 0 else f"{place}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for place, kind in enumerate(modules)
    ]
    _write_json(folder / "modules.json", listed)
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": card.max_length, "do_lower_case": False})
    about = {"__version__": card.versions, "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    _write_json(folder / "config_sentence_transformers.json", about)


def _write_dense(folder: Path, weight: Tensor, bias: Tensor, activation: str, more: dict[str, Any]) -> None:
    """A linear layer and an activation behind the pooling."""
    folder.mkdir()
    settings = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": True,
        "activation_function": activation,
        **more,
    }
    _write_json(folder / "config.json", settings)
    tensors = {"linear.weight": weight.detach().cpu().contiguous(), "linear.bias": bias.detach().cpu().contiguous()}
    save_file(tensors, folder / "model.safetensors")


def _write_json(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def objective_weights(objective: torch.nn.Module) -> dict[str, Tensor]:
    """All tensors an objective owns (centers, proxies, temperature), as they are saved."""
    return dict(objective.state_dict())
