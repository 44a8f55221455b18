"""The tokenizer of a folder that nearfar has saved, opened without transformers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearfar.encoding.folder_files import is_panic, read_json, regular_file

TYPED = {"BertTokenizer": True, "BertTokenizerFast": True, "RobertaTokenizer": False, "RobertaTokenizerFast": False,
         "XLMRobertaTokenizer": False, "XLMRobertaTokenizerFast": False, "CamembertTokenizer": False,
         "CamembertTokenizerFast": False}  # fmt: skip
"""The tokenizers that are nothing but their file, and whether their encoders read token types."""


class LightTokenizer:
    """What :func:`~nearfar.encoding.tokens.tokenize` reads of a tokenizer of transformers.

    Args:
        backend: the tokenizer itself.
        typed: whether the encoder reads token types.
        pad_token_id: the id of the padding token.
        opener: opens the tokenizer of transformers.
    """

    is_fast = True
    padding_side = truncation_side = "right"
    pad_token_type_id = 0

    def __init__(self, backend: Any, *, typed: bool, pad_token_id: int, opener: Callable[[], Any]) -> None:
        self.backend_tokenizer = backend
        self.model_input_names = ["input_ids", *(["token_type_ids"] if typed else []), "attention_mask"]
        self.pad_token_id = pad_token_id
        self.whole = opener

    def num_special_tokens_to_add(self, *, pair: bool = False) -> int:
        """How many special tokens a text or a pair gets."""
        return int(self.backend_tokenizer.num_special_tokens_to_add(pair))


def light_tokenizer(folder: Path, opener: Callable[[], Any]) -> LightTokenizer | None:
    """The tokenizer of a folder; None where transformers must open it."""
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
    if path is None or typed is None or not plain or lower:
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
    return LightTokenizer(backend, typed=typed, pad_token_id=padding, opener=opener)
