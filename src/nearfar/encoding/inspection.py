"""A model folder, checked before anything of it is opened: it may be damaged, or made to do harm.

Only regular files inside the folder are read. Sizes, numbers, names and nesting have bounds, the weights must fit into
their files and into memory, and the numbers of the settings must fit the weights. Whatever is refused is refused before
transformers and tokenizers allocate anything by it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from nearfar.encoding.digests import DIGESTS, check_digests
from nearfar.encoding.folder_files import LARGE, read_bytes, read_json, regular_file
from nearfar.encoding.tensor_headers import Tensors, read_header
from nearfar.errors import EncoderError

CONFIG = "config.json"
EXTRAS = ("nearfar.safetensors", "tasks.safetensors")
INDEX = "model.safetensors.index.json"
SETTINGS = (
    *("nearfar.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json"),
    *("processor_config.json", "preprocessor_config.json", "chat_template.json", "adapter_config.json"),
)
VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", "bpe.codes", "tokenizer.model",
                "spiece.model", "sentencepiece.bpe.model")  # fmt: skip
OTHERS = ("README.md", "recipe.toml", "metrics.json", "estimator.json", "chat_template.jinja")
LARGEST = 2**31
"""No number in the settings of an encoder is as large."""
LAYERS = 1_000
"""Layers, blocks and groups of an encoder, at most, where it has fewer tensors."""
NAMED = 20_000
"""Tokens that are added to a vocabulary, at most."""
GROWTH = 100
"""How many times as long a tokenizer may make a text before it splits it."""
_COUNTS = re.compile(r"layer|block|group|expert|depth|stage")
_SIZES = re.compile(r"(^|_)(size|dim|model|embd|embeddings|layers?|heads?|vocab|groups?|blocks?|experts?|depth)($|_)")
_NEEDED = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "d_model", "n_layers", "n_heads")
"""Sizes of 1 or more; others may be 0 or -1 for none."""
_MODULE = re.compile(r"[0-9]+_\w{1,60}")


def inspect(folder: Path) -> Tensors:
    """The tensors of the encoder in a folder; an error that names the file where it is damaged, incomplete or harmful.

    What was checked is not checked again while its files stay as they are.
    """
    return _inspect(folder, tuple(_signature(folder)))


def _signature(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    """Name, size, time and place of all files that are opened."""
    patterns = ("model*.safetensors", "*.tiktoken", "additional_chat_templates/*")
    names = {path.relative_to(folder).as_posix() for pattern in patterns for path in folder.glob(pattern)}
    parts = [path.name for path in folder.glob("[0-9]*_*") if _MODULE.fullmatch(path.name)]
    names |= {f"{part}/{name}" for part in parts for name in (CONFIG, "model.safetensors")}
    for name in sorted({CONFIG, INDEX, DIGESTS, *EXTRAS, *SETTINGS, *VOCABULARIES, *OTHERS, *names}):
        path = regular_file(folder, name)
        if path is not None:
            about = path.stat()
            yield name, about.st_size, about.st_mtime_ns, about.st_ino


@lru_cache(maxsize=8)
def _inspect(folder: Path, files: tuple[tuple[str, int, int, int], ...]) -> Tensors:
    names = [name for name, *_ in files]
    check_digests(folder)
    tensors = _encoder_tensors(folder, names)
    for name in names:
        if name in EXTRAS or name.endswith("/model.safetensors"):
            read_header(folder / name)
    for name in OTHERS:
        read_bytes(folder, name)
    _check_config(folder, tensors)
    most = 2 * tensors.widest + NAMED
    for name in SETTINGS:
        values = read_json(folder, name, (dict, list))
        if name in ("added_tokens.json", "tokenizer_config.json"):
            settings = values if isinstance(values, dict) else {}
            added = settings if name == "added_tokens.json" else settings.get("added_tokens_decoder")
            _check_number(folder / name, "added tokens", added, NAMED)
            _check_places(folder, name, settings)
    for name in names:
        if name.endswith("/" + CONFIG):
            read_json(folder, name)
    for name in VOCABULARIES:
        _check_vocabulary(folder, name, most)
    return tensors


def _encoder_tensors(folder: Path, names: list[str]) -> Tensors:
    """The tensors of all files of weights that the encoder is loaded from."""
    index = read_json(folder, INDEX)
    parts = ["model.safetensors"] if "model.safetensors" in names else []
    if index is not None and not parts:
        places = index.get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise EncoderError(f"{folder / INDEX}: this lists no files of weights. Is the folder complete?")
        parts = sorted(set(places.values()))
        lost = [name for name in parts if name not in names or not name.endswith(".safetensors")]
        if lost:
            raise EncoderError(f"{folder / INDEX}: {lost[0][:80]!r} is no file in this folder. Is the folder complete?")
    shapes: dict[str, tuple[int, ...]] = {}
    for name in parts:
        shapes |= read_header(folder / name)
    tensors = Tensors(shapes)
    needed, free = 4 * tensors.elements, available_memory()
    if free is not None and needed > free:
        raise EncoderError(
            f"{folder}: its weights need {needed / 1e9:.1f} GB of memory, and this machine has {free / 1e9:.1f} GB "
            "available. Close other programs, or choose a smaller encoder."
        )
    return tensors


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes of memory that a program can have; None where the system does not tell."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
        return 1024 * sum(int(lines[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    except (OSError, ValueError, KeyError):
        return None


def _check_config(folder: Path, tensors: Tensors) -> None:
    """Refuse numbers of ``config.json`` that cannot be those of these weights."""
    config = read_json(folder, CONFIG)
    if config is None:
        return
    path = folder / CONFIG
    for key, value in _numbers(config):
        if not -LARGEST < value < LARGEST:
            raise EncoderError(f"{path}: {key} is {_short(value)}, which no encoder has. Is the file damaged?")
    for key, value in config.items():
        if not _SIZES.search(key) or value is None or isinstance(value, list | dict):
            continue
        least = 1 if key in _NEEDED else -1
        if isinstance(value, int) and value < least:
            raise EncoderError(f"{path}: {key} is {_short(value)}, and must be {least} or more. Is the file damaged?")
        most = max(LAYERS, len(tensors.shapes)) if _COUNTS.search(key) else max(LAYERS, tensors.elements)
        if tensors.shapes and isinstance(value, int) and value > most:
            raise EncoderError(
                f"{path}: {key} is {value:,}, which does not fit weights of {len(tensors.shapes):,} tensors with "
                f"{tensors.elements:,} numbers. Is the folder complete?"
            )
    labels, kinds = config.get("num_labels"), config.get("architectures")
    for key, value, kind, what in (
        ("num_labels", labels, int, "a whole number"),
        ("architectures", kinds, list, "a list of names"),
    ):
        if value is not None and not isinstance(value, kind):
            raise EncoderError(f"{path}: {key} is {str(value)[:60]!r}, and must be {what}. Is the file damaged?")
    if isinstance(labels, int) and labels > max(LAYERS, tensors.widest):
        raise EncoderError(
            f"{path}: num_labels is {labels:,}, and no tensor of the weights has as many rows. Is the folder complete?"
        )


def _numbers(values: Any, key: str = "") -> Iterator[tuple[str, int]]:
    """All whole numbers in settings with the keys they are found under."""
    if isinstance(values, dict):
        for name, value in values.items():
            yield from _numbers(value, str(name)[:60])
    elif isinstance(values, list):
        for value in values:
            yield from _numbers(value, key)
    elif isinstance(values, int):
        yield key, values


def _short(value: int) -> str:
    return f"{value:,}" if abs(value) < 10**15 else "a number of more than 15 digits"


def _check_number(path: Path, what: str, values: object, most: int) -> None:
    if isinstance(values, dict | list) and len(values) > most:
        raise EncoderError(
            f"{path}: {len(values):,} {what}, and the encoder has room for {most:,} at most. Is the folder complete?"
        )


def _check_places(folder: Path, name: str, settings: Mapping[str, object]) -> None:
    """Refuse settings of a tokenizer that have it read files elsewhere."""
    for key in ("vocab_file", "merges_file", "tokenizer_file", "spm_file"):
        value = settings.get(key)
        if isinstance(value, str) and os.sep in value and os.path.lexists(value):
            raise EncoderError(
                f"{folder / name}: {key} is {value[:80]!r}, a file outside the folder, which is not read. Remove it."
            )


def _check_vocabulary(folder: Path, name: str, most: int) -> None:
    """Refuse a vocabulary that is much larger than the encoder's, and rules that make texts endless."""
    path = folder / name
    if name == "tokenizer.json":
        values = read_json(folder, name, most=LARGE)
        if values is None:
            return
        model = values.get("model")
        if not isinstance(model, dict):
            raise EncoderError(f"{path}: this file has no model of a tokenizer. Is the folder complete?")
        _check_number(path, "tokens", model.get("vocab"), most)
        _check_number(path, "merges", model.get("merges"), 8 * most)
        _check_number(path, "added tokens", values.get("added_tokens"), NAMED)
        growth = _growth(values.get("normalizer")) * _growth(values.get("pre_tokenizer"))
        if growth > GROWTH:
            raise EncoderError(
                f"{path}: its rules make texts more than {GROWTH} times as long, so it is not used. Choose another "
                "encoder."
            )
    elif name == "vocab.json":
        _check_number(path, "tokens", read_json(folder, name, most=LARGE), most)
    else:
        content = read_bytes(folder, name, most=LARGE)
        if content is not None and name.endswith(".txt") and content.count(b"\n") > 8 * most:
            raise EncoderError(f"{path}: this file has too many lines for this encoder. Is the folder complete?")


def _growth(rule: object) -> float:
    """How many times as long the rules of a tokenizer may make a text: the product of all replacements."""
    if isinstance(rule, list):
        factor = 1.0
        for part in rule:
            factor = min(factor * _growth(part), 1e9)
        return factor
    if not isinstance(rule, dict):
        return 1.0
    factor = 1.0
    for key in ("normalizers", "pretokenizers"):
        factor *= _growth(rule.get(key))
    if rule.get("type") == "Replace" and isinstance(rule.get("content"), str):
        pattern = rule.get("pattern")
        text = pattern.get("String") if isinstance(pattern, dict) else None
        matched = len(text) if isinstance(text, str) else 1
        factor *= max(1.0, len(rule["content"]) / matched if matched else len(rule["content"]) + 1)
    return min(factor, 1e9)
