"""The toy encoder: a tiny untrained BERT whose vocabulary is made of letter pairs. Nothing is downloaded.

It takes every path that real encoders take (tokenizer, ``AutoModel``, saving, loading elsewhere) in milliseconds, which
is what tests, documents and first runs need. It knows no language: do not judge an objective by it.
"""

from __future__ import annotations

from itertools import product
from string import ascii_lowercase, digits, punctuation
from typing import Any

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def vocabulary() -> dict[str, int]:
    """Special tokens, all single characters, and all pairs of letters, at the start of a word and inside it."""
    signs = ascii_lowercase + digits
    pairs = ["".join(pair) for pair in product(ascii_lowercase, repeat=2)]
    pieces = [*SPECIAL, *punctuation, *signs, *pairs, *(f"##{piece}" for piece in [*signs, *pairs])]
    return {piece: place for place, piece in enumerate(pieces)}


def toy_tokenizer() -> Any:
    """A fast WordPiece tokenizer over :func:`vocabulary`."""
    from transformers import BertTokenizer

    return BertTokenizer(vocab=vocabulary(), do_lower_case=True, model_max_length=128)


def toy_config() -> Any:
    """Two layers, 64 wide."""
    from transformers import BertConfig

    layers: dict[str, Any] = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    }
    return BertConfig(vocab_size=len(vocabulary()), max_position_embeddings=128, hidden_dropout_prob=0.1, **layers)
