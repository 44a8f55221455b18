"""Tokenizers of BERT's and RoBERTa's kind, opened without transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nearfar.encoding.folder_files import is_panic, read_json, regular_file

NAMED = tuple(f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""The special tokens that have a name, in the order of transformers."""
MORE = ("additional_special_tokens", "extra_special_tokens")
"""Lists of others."""
OPENING = ("name_or_path", "is_local", "local_files_only")
"""Settings of how a tokenizer was opened, not of the tokenizer."""
TYPED = {"BertTokenizer": True, "BertTokenizerFast": True, "RobertaTokenizer": False, "RobertaTokenizerFast": False,
         "XLMRobertaTokenizer": False, "XLMRobertaTokenizerFast": False, "CamembertTokenizer": False,
         "CamembertTokenizerFast": False}  # fmt: skip
"""The tokenizers that are nothing but their file, and whether their encoders read token types."""


class LightTokenizer:
    """What training and use read of a tokenizer of transformers; for anything else, transformers opens the tokenizer.

    Args:
        backend: the tokenizer itself.
        settings: those of ``tokenizer_config.json``.
        typed: whether the encoder reads token types.
        pad_token_id: the id of the padding token.
        opener: opens the tokenizer of transformers.
    """

    is_fast = True
    padding_side = truncation_side = "right"
    pad_token_type_id = 0

    def __init__(
        self, backend: Any, settings: Mapping[str, Any], *, typed: bool, pad_token_id: int, opener: Callable[[], Any]
    ) -> None:
        self.backend_tokenizer = backend
        self.model_input_names = ["input_ids", *(["token_type_ids"] if typed else []), "attention_mask"]
        self.pad_token_id = pad_token_id
        self.model_max_length: Any = settings.get("model_max_length")
        self._settings, self._opener, self._opened = settings, opener, None

    def whole(self) -> Any:
        """The tokenizer of transformers."""
        if self._opened is None:
            self._opened = self._opener()
        return self._opened

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        token = self._settings.get(name.removesuffix("_id"))
        if name.removesuffix("_id") not in NAMED or not isinstance(token, str):
            return getattr(self.whole(), name)
        return self.backend_tokenizer.token_to_id(token) if name.endswith("_id") else token

    def __call__(self, *texts: Any, **settings: Any) -> Any:
        """What transformers makes of texts."""
        return self.whole()(*texts, **settings)

    def __len__(self) -> int:
        """How many tokens there are, added ones included."""
        return int(self.backend_tokenizer.get_vocab_size())

    @property
    def all_special_ids(self) -> list[int]:
        """The numbers of the special tokens."""
        stated = [self._settings[name] for name in NAMED if self._settings.get(name) is not None]
        if not all(isinstance(token, str) for token in stated) or any(self._settings.get(name) for name in MORE):
            return list(self.whole().all_special_ids)
        return [self.backend_tokenizer.token_to_id(token) for token in dict.fromkeys(stated)]

    def get_vocab(self) -> dict[str, int]:
        """Tokens and their numbers."""
        return dict(self.backend_tokenizer.get_vocab())

    def save_pretrained(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
        self.backend_tokenizer.no_truncation()
        self.backend_tokenizer.no_padding()
        self.backend_tokenizer.save(os.fspath(folder / "tokenizer.json"))
        kept = {name: value for name, value in self._settings.items() if name not in OPENING}
        settings = {**kept, "model_max_length": self.model_max_length}
        text = json.dumps(settings, indent=2, ensure_ascii=False, sort_keys=True)
        (folder / "tokenizer_config.json").write_text(f"{text}\n", encoding="utf-8")

    def num_special_tokens_to_add(self, *, pair: bool = False) -> int:
        """How many special tokens a text or a pair gets."""
        return int(self.backend_tokenizer.num_special_tokens_to_add(pair))


def light_tokenizer(folder: Path, opener: Callable[[], Any], *, stated: bool = False) -> LightTokenizer | None:
    """The tokenizer of a folder; None where transformers must open it.

    With ``stated`` the folder is of another library, where ``tokenizer_config.json`` may state something else than
    ``tokenizer.json`` does; transformers follows the former.
    """
    settings, path = read_json(folder, "tokenizer_config.json") or {}, regular_file(folder, "tokenizer.json")
    typed = TYPED.get(str(settings.get("tokenizer_class")))
    plain = (
        settings.get("padding_side", "right") == "right"
        and settings.get("truncation_side", "right") == "right"
        and settings.get("pad_token_type_id", 0) == 0
        and not settings.get("split_special_tokens")
        and "model_input_names" not in settings
        and isinstance(settings.get("pad_token"), str)
    )
    lower = (read_json(folder, "sentence_bert_config.json") or {}).get("do_lower_case") is True
    if path is None or typed is None or not plain or lower or (stated and not _does_as_stated(path, settings)):
        return None
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(os.fspath(path))
    except BaseException as cause:  # tokenizers raises Exception itself, and panics; transformers gives the reason
        if not isinstance(cause, Exception) and not is_panic(cause):
            raise
        return None
    padding = backend.token_to_id(settings["pad_token"])
    if padding is None or backend.get_vocab_size() <= len(backend.get_added_tokens_decoder()):
        return None
    return LightTokenizer(backend, settings, typed=typed, pad_token_id=padding, opener=opener)


SPECIAL = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "unk", "cls", "sep", "mask")}


def _does_as_stated(path: Path, settings: Mapping[str, Any]) -> bool:
    """Whether a tokenizer of BERT's kind is the one that its settings describe."""
    lower = settings.get("do_lower_case")
    if settings.get("tokenizer_class") not in ("BertTokenizer", "BertTokenizerFast") or not isinstance(lower, bool):
        return False
    if any(settings.get(name) != token for name, token in SPECIAL.items()):
        return False
    try:
        file = json.loads(path.read_text(encoding="utf-8"))
        normalizer, model = dict(file["normalizer"]), dict(file["model"])
        added = {token["content"] for token in file["added_tokens"]}
        special = [part for part in file["post_processor"]["pair"] if "SpecialToken" in part]
        marks = [(part["SpecialToken"]["id"], part["SpecialToken"]["type_id"]) for part in special]
        splits = file["pre_tokenizer"]["type"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    expected = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
        "strip_accents": settings.get("strip_accents"),
        "lowercase": lower,
    }
    return (
        normalizer == expected
        and splits == "BertPreTokenizer"
        and added <= set(SPECIAL.values())
        and marks == [("[CLS]", 0), ("[SEP]", 0), ("[SEP]", 1)]
        and (model.get("type", "WordPiece"), model.get("unk_token"), model.get("continuing_subword_prefix"))
        == ("WordPiece", "[UNK]", "##")
    )
