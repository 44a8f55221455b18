"""Masked language modeling: which tokens are masked and how, and that the head is that of transformers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForMaskedLM

from nearfar.encoding import Unpadded, build, tokenize
from nearfar.encoding.masked_lm import MaskedLMHead, make_masked_lm_head
from nearfar.encoding.pretrained import quiet_transformers
from nearfar.errors import SettingError

FAMILY = ("bert", "roberta", "distilbert", "electra")
TEXTS = ["one", "a longer text of words", "x", "so it goes on for quite a while", "two words"]


def opened(folder: Path, **settings: Any) -> tuple[Any, MaskedLMHead, str | None]:
    built = build(str(folder), classes=None, seed=1, dropout=0.0, **settings)
    return built, *make_masked_lm_head(str(folder), built, seed=2)


@pytest.mark.parametrize("family", FAMILY)
def test_the_head_of_a_checkpoint_names_words_as_transformers_does(tiny_with_head, family):
    """The same logits at every token of every text, and no note."""
    folder = tiny_with_head(family)
    built, head, note = opened(folder)
    with quiet_transformers():
        whole = AutoModelForMaskedLM.from_pretrained(folder).eval()
    table = tokenize(built.tokenizer, [TEXTS], max_length=30)
    states, owners = built.model.eval()(built.model.inputs(table, np.arange(len(TEXTS)))).tokens()
    logits = head(states)

    assert note is None
    for text in range(len(TEXTS)):
        expected = whole(**table.padded([text]).tensors).logits[0]
        assert expected.abs().max() > 0.1
        assert (logits[owners == text] - expected).abs().max() < 1e-4


@pytest.mark.parametrize("family", FAMILY)
def test_a_checkpoint_without_a_head_gets_a_new_one_drawn_by_the_seed(tiny, family):
    built, head, note = opened(tiny(family))
    again, _ = make_masked_lm_head(str(tiny(family)), built, seed=2)
    other, _ = make_masked_lm_head(str(tiny(family)), built, seed=4)

    assert note is not None
    assert "a new one is drawn" in note
    assert head.dense.weight.equal(again.dense.weight)
    assert not head.dense.weight.equal(other.dense.weight)
    assert head.words is built.model.network.base_model.get_input_embeddings().weight


@pytest.mark.parametrize("fast", [True, False], ids=["stream", "padded"])
def test_fifteen_percent_are_hidden_four_fifths_of_them_by_the_mask(tiny, fast):
    """And a tenth by any other ordinary token; special tokens and all others stay as they are."""
    built, head, _ = opened(tiny("bert"), fast=fast)
    tokenizer = built.tokenizer
    table = tokenize(tokenizer, [[*TEXTS, "snow ☃ man"] * 600], max_length=30)
    inputs = built.model.inputs(table, np.arange(len(table)))
    torch.manual_seed(1)
    hidden = head.mask(inputs)
    torch.manual_seed(1)
    again = head.mask(inputs)
    before, after = (
        one.ids if isinstance(one, Unpadded) else one.tensors["input_ids"] for one in (inputs, hidden.inputs)
    )
    flat, changed = before.flatten(), after.flatten()
    special = torch.isin(flat, torch.tensor(tokenizer.all_special_ids))
    chosen = torch.zeros_like(special)
    chosen[hidden.places] = True
    now = changed[hidden.places]

    assert isinstance(inputs, Unpadded) == fast
    assert hidden.places.equal(again.places)
    assert hidden.words.equal(flat[hidden.places])
    assert not (chosen & special).any()
    assert changed[~chosen].equal(flat[~chosen])
    ordinary, m = int((~special).sum()), len(now)
    assert m > 3000
    assert abs(m / ordinary - 0.15) < 5 * (0.15 * 0.85 / ordinary) ** 0.5
    assert abs(float((now == tokenizer.mask_token_id).float().mean()) - 0.8) < 5 * (0.8 * 0.2 / m) ** 0.5
    others = now[(now != tokenizer.mask_token_id) & (now != hidden.words)]
    assert abs(len(others) / m - 0.1) < 5 * (0.1 * 0.9 / m) ** 0.5 + 2 / len(tokenizer)
    assert not torch.isin(others, torch.tensor(tokenizer.all_special_ids)).any()
    assert len(others.unique()) > 0.5 * min(len(others), len(tokenizer))
    if not fast:
        assert hidden.inputs.tensors["attention_mask"].equal(inputs.tensors["attention_mask"])


def test_the_tied_weight_learns_and_is_stored_with_the_encoder_alone(tiny, tmp_path):
    built, head, _ = opened(tiny("bert"))
    head(torch.randn(5, 32)).logsumexp(dim=1).sum().backward()
    state = head.state_dict()

    assert head.words.grad is not None
    assert head.words.grad.abs().sum() > 0
    assert set(state) == {"bias", "dense.weight", "dense.bias", "norm.weight", "norm.bias"}
    save_file(state, tmp_path / "head.safetensors")
    words = head.words.detach().clone()
    with torch.no_grad():
        head.bias.add_(1)
    head.load_state_dict({name: tensor.clone() for name, tensor in state.items()} | {"bias": torch.zeros(len(words))})
    assert head.bias.abs().sum() == 0
    assert head.words is built.model.network.base_model.get_input_embeddings().weight
    assert head.words.equal(words)


def test_no_hidden_word_gives_no_logits(tiny):
    _, head, _ = opened(tiny("bert"))
    assert head(torch.zeros(0, 32)).shape == (0, len(head.words))


def test_encoders_without_such_a_head_or_mask_are_refused(tiny):
    with pytest.raises(SettingError, match=r"objective\.mlm_weight .* modernbert, .* choose an encoder of bert, "):
        opened(tiny("modernbert"))
    built = build(str(tiny("bert")), classes=None, seed=1)
    built = replace(built, tokenizer=built.tokenizer.whole())
    built.tokenizer.mask_token = None
    with pytest.raises(SettingError, match=r"no mask token; set it to 0"):
        make_masked_lm_head(str(tiny("bert")), built, seed=1)
