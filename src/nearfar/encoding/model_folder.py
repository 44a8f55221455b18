"""The model folder: one layout that transformers, sentence-transformers and nearfar all open to the same results.

==============================  =======================================================================
file                            read by
==============================  =======================================================================
``config.json``                 everyone; names the class head's architecture and its labels, if native
``model.safetensors``           everyone
``tokenizer*.json``             everyone
``modules.json``, ``1_Pooling`` sentence-transformers: pooling is stated, never guessed
``2_Dense``                     sentence-transformers: the encoder's pooler, where that is the pooling
``2_Dense`` or ``3_Dense``      sentence-transformers: the map behind the pooling, where there is one
``nearfar.json``                nearfar; written last, so a folder that has it is complete
``nearfar.safetensors``         nearfar: class head, map, scope (class centers), and the objective's weights
``SHA256SUMS``                  nearfar and ``sha256sum``: the digests of the files that loading reads
``README.md``                   the model card
==============================  =======================================================================
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nearfar.encoding.digests import DIGESTS, digest_lines, relisted
from nearfar.encoding.encoder import POOLINGS, Pooling, TextModel, TransformSpec
from nearfar.encoding.folder_files import read_json
from nearfar.encoding.heads import HeadSpec
from nearfar.encoding.pretrained import CARD as CARD
from nearfar.encoding.pretrained import STAGING, quiet_transformers, require_pooler
from nearfar.errors import EncoderError
from nearfar.files import atomic, flush_tree, new_mode, remove, write_atomic

FORMAT = 1
EXTRAS = "nearfar.safetensors"
README = "README.md"
HEADS = "tasks.safetensors"
"""The heads of a model with several tasks, which are written before the rest."""
OPTIONAL = (EXTRAS, "2_Dense", "3_Dense", "2_Normalize", "3_Normalize", "4_Normalize")
"""Parts of the layout that not every model has; those of an earlier model are removed."""


class Calibration(TypedDict):
    """How the probabilities of a classifier were calibrated."""

    temperature: float
    """What the class logits are divided by."""
    by: str
    """What it was chosen by: ``folds``, ``dev`` or ``prior``."""
    texts: int
    """How many held-out texts chose it."""


class TaskSpec(TypedDict, total=False):
    """What a model was trained for, in its card."""

    kind: str
    """The row type, or ``tasks`` for a model of several tasks."""
    low: float
    high: float
    """The range of the training scores."""
    threshold: float | None
    accuracy_threshold: float | None
    """The decision thresholds of positive pairs, by F1 and by accuracy of the dev rows."""
    thresholds: dict[str, float]
    """The probability from which on each label applies, where a text may have several."""
    calibration: Calibration
    shared_layer: bool
    tasks: list[dict[str, Any]]


@dataclass(frozen=True)
class Card:
    """What nearfar needs to use a folder; everything else is in the ordinary files."""

    pooling: Pooling
    max_length: int
    native: bool
    labels: tuple[str, ...] | None = None
    normalize: bool = False
    joined: bool = False
    """Whether the model reads pairs of texts joined in the tokenizer's pair format."""
    head: HeadSpec | None = None
    transform: TransformSpec | None = None
    """The map behind the pooling; None without one."""
    objective: dict[str, Any] = field(default_factory=dict)
    task: TaskSpec = field(default_factory=TaskSpec)
    precision: str | None = None
    """What it was trained in, fp32 or bf16; None where nearfar has not trained it."""
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
    """Write the whole folder; files that are not part of the layout are not touched.

    All files are written to a subfolder and moved when they are complete, ``nearfar.json`` last.
    """
    staging = folder / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    with quiet_transformers():
        model.held.save_pretrained(staging)
        limit, tokenizer.model_max_length = tokenizer.model_max_length, card.max_length  # for other libraries
        tokenizer.save_pretrained(staging)
        tokenizer.model_max_length = limit
    if not card.native:
        name_no_classes(staging / "config.json")
    if extras := _extras(model, objective or {}):
        save_tensors(extras, staging / EXTRAS)
    write_sentence_transformers(staging, model, card)
    (staging / README).write_text(readme, encoding="utf-8")
    _write_json(staging / CARD, asdict(card))
    written = {path.relative_to(staging).as_posix(): path for path in staging.rglob("*") if path.is_file()}
    if card.task.get("kind") == "tasks":
        written[HEADS] = folder / HEADS
    (staging / DIGESTS).write_text(digest_lines(written), encoding="utf-8")
    for path in staging.rglob("*"):
        if path.is_file():
            os.chmod(path, new_mode())  # safetensors makes its files for their owner alone
    flush_tree(staging)
    for name in (CARD, DIGESTS, *OPTIONAL):
        remove(folder / name)
    for entry in sorted(staging.iterdir(), key=lambda entry: entry.name == CARD):
        if (folder / entry.name).is_dir():
            remove(folder / entry.name)
        os.replace(entry, folder / entry.name)
    staging.rmdir()


def _extras(model: TextModel, objective: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What other libraries have no place for: class head, map, scope and objective."""
    extras = {f"objective.{name}": tensor for name, tensor in objective.items()}
    for prefix, module in (("head", model.head), ("transform", model.transform), ("scope", model.scope)):
        state = {} if module is None else module.state_dict()
        extras |= {f"{prefix}.{name}": tensor for name, tensor in state.items()}
    return extras


def update(folder: Path, model: TextModel, card: Card, *, readme: str) -> None:
    """Write the card, the README and ``nearfar.safetensors`` of a saved model again; its weights stay as they are."""
    with relisted(folder, EXTRAS, CARD):
        if extras := _extras(model, read_extras(folder, "objective")):
            with atomic(folder / EXTRAS, folder / f".{EXTRAS}") as temporary:
                save_tensors(extras, temporary)
        write_atomic(folder / README, readme, folder / f".{README}")
        write_atomic(folder / CARD, _json(asdict(card)), folder / f".{CARD}")


def name_no_classes(path: Path) -> None:
    """Leave a model without a class head of transformers' own without classes there.

    Otherwise ``pipeline("text-classification")`` would draw a head at random and give its labels with a warning only;
    without classes it fails.
    """
    config = json.loads(path.read_text(encoding="utf-8"))
    _write_json(path, {**config, "id2label": {}, "label2id": {}})


def read_card(folder: Path) -> Card | None:
    """The card of a folder that nearfar saved; None for a folder of another library."""
    path, values = folder / CARD, read_json(folder, CARD)
    if values is None:
        return None
    try:
        if values["format"] > FORMAT:
            raise EncoderError(
                f"{path}: format {values['format']} is newer than this nearfar reads ({FORMAT}); upgrade it."
            )
        if values["labels"] is not None:
            values["labels"] = tuple(values["labels"])
        return _checked(Card(**values))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as cause:
        raise EncoderError(f"{path}: this is not a card nearfar can read ({cause}). Is the folder complete?") from cause


LONG = 10_000
"""Characters that the name of a class has at most."""


def _checked(card: Card) -> Card:
    if card.pooling not in POOLINGS:
        raise ValueError(f"unknown pooling {card.pooling!r:.60}")
    if type(card.max_length) is not int or not 1 <= card.max_length < 1_000_000:
        raise ValueError(f"max_length is {card.max_length!r:.60}")
    if not all(isinstance(flag, bool) for flag in (card.native, card.normalize, card.joined)):
        raise ValueError("native, normalize and joined must be true or false")
    if card.labels is not None and not _are_labels(card.labels):
        raise ValueError("labels must be two or more different names")
    for name, kind in (("head", dict | None), ("transform", dict | None), ("task", dict), ("objective", dict),
                       ("versions", dict), ("precision", str | None)):  # fmt: skip
        if not isinstance(getattr(card, name), kind):
            raise ValueError(f"{name} is {getattr(card, name)!r:.60}")
    temperature = card.task.get("calibration", {"temperature": 1.0})["temperature"]
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise ValueError(f"the temperature of its probabilities is {temperature!r:.60}")
    task = card.task
    numbers = [task.get(name) for name in ("low", "high", "threshold", "accuracy_threshold")]
    thresholds = task.get("thresholds", {})
    if not isinstance(thresholds, dict) or not all(map(_is_number, [*thresholds.values(), *numbers])):
        raise ValueError("the scores and thresholds of its task must be numbers")
    what = task.get("kind")
    if what in ("multilabel", "text-scores") and (card.labels is None) == (what == "multilabel"):
        raise ValueError(f"a task of kind {what!r} and labels that do not go with it")
    return card


def _are_labels(labels: tuple[object, ...]) -> bool:
    named = all(isinstance(label, str) and len(label) <= LONG for label in labels)
    return named and len(set(labels)) == len(labels) >= 2


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value))


def read_extras(folder: Path, prefix: str) -> dict[str, Tensor]:
    """The tensors of ``nearfar.safetensors`` below a prefix: ``head``, ``transform``, ``scope`` or ``objective``."""
    path = folder / EXTRAS
    if not path.is_file():
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(f"{prefix}.")]  # noqa: SIM118 - not a dict
            # a copy: the tensors are the mapped file, whose weights change when it is written again
            return {name.removeprefix(f"{prefix}."): file.get_tensor(name).clone() for name in names}
    except (OSError, SafetensorError) as cause:
        raise EncoderError(f"{path}: these weights cannot be read ({cause}). Is the folder complete?") from cause


def write_sentence_transformers(folder: Path, model: TextModel, card: Card) -> None:
    """Write what sentence-transformers reads next to the encoder: pooling, map and normalization."""
    first = card.pooling in ("first", "pooler")
    pooling = {
        "word_embedding_dimension": int(model.held.config.hidden_size),
        "pooling_mode_cls_token": first,
        "pooling_mode_mean_tokens": card.pooling == "mean",
        "pooling_mode_lasttoken": card.pooling == "last",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    modules: list[dict[str, Any]] = []

    def add(kind: str) -> Path:
        number = len(modules)
        path = f"{number}_{kind}" if number else ""
        modules.append(
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        )
        (folder / path).mkdir(exist_ok=True)
        return folder / path

    add("Transformer")
    _write_json(add("Pooling") / "config.json", pooling)
    if card.pooling == "pooler":
        weight, bias = require_pooler(model.held.base_model, "the encoder")
        _write_dense(add("Dense"), weight, bias, "torch.nn.modules.activation.Tanh", {"nearfar_pooler": True})
    if model.transform is not None:
        identity = "torch.nn.modules.linear.Identity"
        _write_dense(add("Dense"), model.transform.weight, model.transform.bias, identity, {})
    if card.normalize:
        add("Normalize")
    _write_json(folder / "modules.json", modules)
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": card.max_length, "do_lower_case": False})
    about = {"__version__": card.versions, "prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    _write_json(folder / "config_sentence_transformers.json", about)


def _write_dense(folder: Path, weight: Tensor, bias: Tensor, activation: str, more: dict[str, Any]) -> None:
    """A linear layer and an activation behind the pooling."""
    settings = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": True,
        "activation_function": activation,
        **more,
    }
    _write_json(folder / "config.json", settings)
    save_tensors({"linear.weight": weight, "linear.bias": bias}, folder / "model.safetensors")


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors of any device to a safetensors file."""
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)


def _write_json(path: Path, values: Any) -> None:
    path.write_text(_json(values), encoding="utf-8")


def _json(values: Any) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
