"""Tiny encoders with random weights, in folders as the hub would give them; each has its family's own tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, AutoModelForMaskedLM

from nearfar.encoding.pretrained import quiet_transformers, vocabulary

torch.set_num_threads(1)

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
POSITIONS = 40
LOUD = 0.3
"""Wide initial weights: with the usual ones all texts get nearly the same vector, and any mistake would pass."""


def _word_pieces(kind: str) -> Any:
    return getattr(transformers, kind)(vocab=vocabulary(), do_lower_case=True)


def _bytes(special: list[str]) -> dict[str, int]:
    return {sign: place for place, sign in enumerate([*special, *BYTES])}


def _xlnet_pieces() -> list[tuple[str, float]]:
    special = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"]
    return [
        *((piece, 0.0) for piece in special),
        ("▁", -2.0),
        *((sign, -3.0) for sign in "abcdefghijklmnopqrstuvwxyz.,!?"),
    ]


def _modernbert_tokenizer() -> Any:
    vocab = _bytes(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)


TOKENIZERS: dict[str, Callable[[], Any]] = {
    "bert": lambda: _word_pieces("BertTokenizerFast"),
    "roberta": lambda: transformers.RobertaTokenizerFast(
        vocab=_bytes(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]), merges=[]
    ),
    "distilbert": lambda: _word_pieces("DistilBertTokenizerFast"),
    "electra": lambda: _word_pieces("ElectraTokenizerFast"),
    "xlnet": lambda: transformers.XLNetTokenizerFast(vocab=_xlnet_pieces()),  # type: ignore[attr-defined]
    "modernbert": _modernbert_tokenizer,
}
TOKENIZERS |= {"xlm-roberta": TOKENIZERS["roberta"], "camembert": TOKENIZERS["roberta"]}
TOKENIZERS |= dict.fromkeys(("albert", "xlm", "t5", "gte", "deberta-v2"), _modernbert_tokenizer)
TOKENIZERS |= {"nomic_bert": TOKENIZERS["bert"], "mpnet": TOKENIZERS["roberta"]}
CONFIGS: dict[str, Callable[[], Any]] = {
    "bert": lambda: transformers.BertConfig(
        vocab_size=len(vocabulary()), max_position_embeddings=POSITIONS, initializer_range=LOUD, **SIZES
    ),
    "roberta": lambda: transformers.RobertaConfig(
        vocab_size=len(BYTES) + 5, max_position_embeddings=POSITIONS, initializer_range=LOUD, type_vocab_size=1, **SIZES
    ),
    "distilbert": lambda: transformers.DistilBertConfig(
        vocab_size=len(vocabulary()), max_position_embeddings=POSITIONS, initializer_range=LOUD, dim=32, n_layers=2,
        n_heads=4, hidden_dim=48,
    ),
    "electra": lambda: transformers.ElectraConfig(
        vocab_size=len(vocabulary()), max_position_embeddings=POSITIONS, initializer_range=LOUD, embedding_size=16,
        **SIZES,
    ),
    "xlnet": lambda: transformers.XLNetConfig(
        vocab_size=len(_xlnet_pieces()), d_model=32, n_layer=2, n_head=4, d_inner=48, initializer_range=LOUD,
        pad_token_id=5,
    ),
    "modernbert": lambda: transformers.ModernBertConfig(  # type: ignore[call-arg]
        vocab_size=len(BYTES) + 5, max_position_embeddings=POSITIONS, initializer_range=LOUD, local_attention=8,
        global_attn_every_n_layers=2, pad_token_id=0, bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3,
        **SIZES,
    ),
    "mpnet": lambda: transformers.MPNetConfig(
        vocab_size=len(BYTES) + 5, max_position_embeddings=POSITIONS, initializer_range=LOUD, **SIZES
    ),
    "deberta-v2": lambda: transformers.DebertaV2Config(  # type: ignore[call-arg]
        vocab_size=len(BYTES) + 5, max_position_embeddings=POSITIONS, initializer_range=LOUD, type_vocab_size=0,
        pad_token_id=0, relative_attention=True, position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True,
        pos_att_type=["p2c", "c2p"], position_biased_input=False, **SIZES,
    ),
    "gte": lambda: transformers.GteConfig(
        vocab_size=len(BYTES) + 5, max_position_embeddings=POSITIONS, initializer_range=LOUD, type_vocab_size=0,
        pad_token_id=0, **SIZES,
    ),
    "nomic_bert": lambda: transformers.NomicBertConfig(
        vocab_size=len(vocabulary()), max_position_embeddings=POSITIONS, initializer_range=LOUD, **SIZES
    ),
    "xlm-roberta": lambda: transformers.XLMRobertaConfig(
        vocab_size=len(BYTES) + 5, max_position_embeddings=POSITIONS, initializer_range=LOUD, type_vocab_size=1, **SIZES
    ),
    "camembert": lambda: transformers.CamembertConfig(
        vocab_size=len(BYTES) + 5, max_position_embeddings=POSITIONS, initializer_range=LOUD, type_vocab_size=1, **SIZES
    ),
    "albert": lambda: transformers.AlbertConfig(
        vocab_size=len(BYTES) + 5, max_position_embeddings=POSITIONS, embedding_size=16, **SIZES
    ),
    "xlm": lambda: transformers.XLMConfig(  # type: ignore[call-arg]
        vocab_size=len(BYTES) + 5, max_position_embeddings=POSITIONS, emb_dim=32, n_layers=2, n_heads=4, pad_index=0
    ),
    "t5": lambda: transformers.T5Config(  # type: ignore[call-arg]
        vocab_size=len(BYTES) + 5, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, pad_token_id=0,
        decoder_start_token_id=0,
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from the name of a family to the folder of its tiny encoder; tests leave the folder as it is."""
    made: dict[str, Path] = {}

    def folder_of(family: str) -> Path:
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            with torch.random.fork_rng(devices=[]), quiet_transformers():
                torch.manual_seed(len(family))
                AutoModel.from_config(CONFIGS[family]()).save_pretrained(folder)
                TOKENIZERS[family]().save_pretrained(folder)
            made[family] = folder
        return made[family]

    return folder_of


@pytest.fixture
def tiny_with_head(tmp_path: Path) -> Callable[[str], Path]:
    """A function from the name of a family to the folder of a tiny masked language model."""

    def folder_of(family: str) -> Path:
        with torch.random.fork_rng(devices=[]), quiet_transformers():
            torch.manual_seed(3)
            network = AutoModelForMaskedLM.from_config(CONFIGS[family]())
            for weight in network.parameters():
                if weight.ndim == 1:
                    torch.nn.init.normal_(weight, std=LOUD)  # new biases and norms would not be missed
            network.save_pretrained(tmp_path / family)
            TOKENIZERS[family]().save_pretrained(tmp_path / family)
        return tmp_path / family

    return folder_of


@pytest.fixture
def untouched_generator() -> Iterator[None]:
    """The test must leave torch's global generator as it was."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
