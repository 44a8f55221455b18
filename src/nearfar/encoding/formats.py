"""In which number format a model is used: asked for, by the processor, or by a measurement that is kept."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from nearfar.encoding.cpu_parallel import PART, run_alone
from nearfar.encoding.dropout import DropoutMasks
from nearfar.encoding.encoder import TextModel
from nearfar.encoding.layers import Layer
from nearfar.encoding.model import Model, Texts
from nearfar.encoding.packed import FORMATS, Format, has_narrow_states, packed_layer
from nearfar.encoding.processor import cpu_bf16_units, describe_cpu, may_use_bf16
from nearfar.errors import SettingError, did_you_mean
from nearfar.files import write_atomic

Precision = Literal["auto", "fp32", "bf16", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
WIDE = 256
"""The hidden size from which on packed weights and bf16 gain something; docs/why/precision.md has figures."""
LIMIT = 0.01
"""The largest mean 1 - cosine of vectors in int8."""
COMPARED = 64
"""Texts of a model that its int8 is compared with fp32 on, at most."""
REPEATS = 5
"""Turns of a measurement, at least."""
SECONDS = 0.3
"""Processor time of all turns, at least. In many turns int8, whose temporary tensors are the largest, waits for new
memory; the least of five was often one of these, and bf16 was chosen where int8 is faster."""
GAIN = 1.05
"""How many times as fast as fp32 another format must be to be chosen."""
CACHE = "NEARFAR_CACHE"
"""The variable that names the folder of what is kept for this machine."""
SENTENCES = (
    "Where is my parcel? It should have arrived on Monday, but nobody was there.",
    "I was charged twice for the same order.",
    "great",
    "The film is slow, badly cut and far too long, and yet I could not stop watching it.",
    "What is the capital of the country with the highest mountain in Africa?",
    "Please cancel my subscription and refund the last payment of 19.99 EUR.",
    "not bad at all!",
    "The committee approved the budget for 2024 after a debate of three hours.",
    "How do I reset my password if I no longer have access to my e-mail account?",
    "Proteins fold into shapes that determine what they do in a cell.",
    "le service est lent, mais les gens sont aimables",
    "ok",
    "He said that the train from Berlin to Prague was late again because of snow on the tracks near the border.",
    "Error 404: the page /help/contact could not be found.",
    "A recipe for bread needs flour, water, salt, yeast and patience.",
    "Why would anybody buy this phone when last year's model costs half as much?",
)
"""Texts of several lengths and topics, that int8 is compared with fp32 on."""


@dataclass(frozen=True)
class Choice:
    """A number format, and why."""

    form: Format
    reason: str
    packs: bool = True
    """Whether weights are packed: not where nothing is gained."""


@dataclass(frozen=True)
class Drift:
    """How far a format is from fp32, on some texts."""

    distance: float
    """The mean of 1 - cosine."""
    changed: int | None
    """Labels that change; None without classes."""
    texts: int
    kind: str = "texts"
    """Whose texts they are."""

    def __str__(self) -> str:
        labels = "" if self.changed is None else f", {self.changed} of {self.texts} labels change"
        return f"mean 1 - cosine to fp32 is {self.distance:.4f} on {self.texts} {self.kind}{labels}"


def use_precision(
    model: Model,
    asked: Precision | None = None,
    *,
    own_texts: Callable[[Path, int], Sequence[Sequence[str]]] | None = None,
) -> Choice:
    """Have a model compute in a number format; the choice, with its reason.

    Args:
        model: it computes so from now on.
        asked: None: bf16 on processors with units for it, else fp32; ``"auto"``: the fastest by a measurement, int8
            among them.
        own_texts: the folder of a model and a number to so many of its training texts, as one or two columns, or to
            none. int8 is compared with fp32 on them; without, on the names of the classes and some sentences.
    """
    if asked is not None and asked not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        raise SettingError(f"precision must be one of {known}, got {asked!r}.{did_you_mean(str(asked), PRECISIONS)}")
    choice = choose_format(model.model, asked)
    model.model.pack(None)
    texts, kind = _compared(model, own_texts) if choice.form == "int8" else ([], "")
    before = _answers(model, texts) if texts else None
    if choice.packs:
        model.model.pack(choice.form)
    if before is not None:
        drift = replace(_drift(before, _answers(model, texts)), kind=kind)
        if not drift.distance <= LIMIT:
            other = choose_format(model.model, None)
            model.model.pack(other.form if other.packs else None)
            return Choice(other.form, f"{drift} in int8, and the limit is {LIMIT}")
        choice = Choice("int8", f"{choice.reason}; {drift}")
    return choice


def choose_format(model: TextModel, asked: Precision | None) -> Choice:
    """The format to use for a model on this machine."""
    encoder = model.unpadded
    wanted = asked not in (None, "fp32")
    if next(model.parameters()).device.type != "cpu":
        return Choice("fp32", "other formats are for the CPU" if wanted else "on a GPU", packs=False)
    if encoder is None:
        return Choice("fp32", "this encoder has no fast path", packs=False)
    width = int(encoder.words.weight.shape[1])
    if asked is not None and asked != "auto":
        return Choice(asked, "as asked", packs=width >= WIDE or asked != "fp32")
    if width < WIDE:
        return Choice("fp32", f"vectors of {width} numbers gain nothing from others", packs=False)
    if asked == "auto":
        seconds = kept_seconds(encoder.layers[0], width, narrow=has_narrow_states(encoder))
        fastest = min(FORMATS, key=lambda form: seconds[form] * (1 if form == "fp32" else GAIN))
        return Choice(fastest, f"{seconds['fp32'] / seconds[fastest]:.1f} times as fast as fp32 in a measurement")
    units = cpu_bf16_units() if may_use_bf16() else None
    if units is None:
        return Choice("fp32", "the processor has no bf16 units")
    return Choice("bf16", f"the processor has {units}")


def kept_seconds(layer: Layer, width: int, *, narrow: bool) -> dict[Format, float]:
    """Seconds of a layer in every format, measured once for a processor and a shape, and kept in a file."""
    shapes = [tuple(part.weight.shape) for part in _linears(layer)]
    states = "narrow" if narrow else "wide"
    key = f"{describe_cpu()} torch {torch.__version__} {shapes} {states} {SECONDS} s"
    path = cache_folder() / "precision.json"
    kept = _read(path)
    known = kept.get(key)
    if isinstance(known, dict) and all(isinstance(known.get(form), float) for form in FORMATS):
        return {form: known[form] for form in FORMATS}
    seconds = run_alone(partial(measure, layer, width, narrow=narrow))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({**_read(path), key: seconds}, indent=2) + "\n")
    except OSError:  # measured again next time
        pass
    return seconds


def measure(layer: Layer, width: int, *, narrow: bool) -> dict[Format, float]:
    """Seconds of the linear layers of a layer in every format: processor time, the least of several turns.

    On one thread, as large batches are computed: what others do on the machine hardly counts. ``narrow`` is whether the
    encoder keeps its states in bf16 when it computes in bf16.
    """
    source = torch.Generator().manual_seed(0)
    x = torch.randn(PART, width, generator=source)
    states = {form: x.bfloat16() if form == "bf16" and narrow else x for form in FORMATS}
    best = dict.fromkeys(FORMATS, float("inf"))
    turns, spent = 0, 0.0
    with torch.inference_mode():
        layers = {form: packed_layer(layer, form, narrow=narrow and form == "bf16") for form in FORMATS}
        while turns < REPEATS or spent < SECONDS:
            for form, each in layers.items():
                began = time.thread_time()
                _pass(each, states[form])
                seconds = time.thread_time() - began
                best[form] = min(best[form], seconds)
                spent += seconds
            turns += 1
    return best


def _pass(layer: Layer, x: Tensor) -> Tensor:
    layer.qkv(layer.entry(x))
    return layer.output(x, x, DropoutMasks(training=False))


def _linears(layer: Layer) -> list[nn.Linear]:
    parts = [getattr(layer, each.name) for each in fields(layer)]
    return [part for part in parts if isinstance(part, nn.Linear)]


def cache_folder() -> Path:
    """The folder of what is kept for this machine: ``NEARFAR_CACHE``, or the user's cache."""
    named = os.environ.get(CACHE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nearfar"


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _compared(model: Model, own_texts: Callable[[Path, int], Sequence[Sequence[str]]] | None) -> tuple[Texts, str]:
    """The texts that formats are compared on, and what to call them."""
    columns = () if own_texts is None or model.folder is None else own_texts(model.folder, COMPARED)
    joined = model.card.joined
    if len(columns) > joined and len(columns[0]):
        own: Texts = list(zip(columns[0], columns[1], strict=True)) if joined else list(columns[0])
        return own, "training texts"
    plain = [*SENTENCES, *list(model.labels or ())[:16]]
    return (list(zip(plain, [*plain[1:], plain[0]], strict=True)) if joined else plain), "sentences"


def _answers(model: Model, texts: Texts) -> tuple[Any, Any]:
    """Vectors of some texts, and the classes where the model has some."""
    classes = model.probabilities(texts).argmax(axis=1) if model.labels is not None else None
    return model.embed(texts), classes


def _drift(before: tuple[Any, Any], after: tuple[Any, Any]) -> Drift:
    norms = np.linalg.norm(before[0], axis=1) * np.linalg.norm(after[0], axis=1)
    cosines = (before[0] * after[0]).sum(axis=1) / np.maximum(norms, 1e-12)
    changed = None if before[1] is None else int((before[1] != after[1]).sum())
    return Drift(max(0.0, float(1 - cosines.mean())), changed, len(cosines))
