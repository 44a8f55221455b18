"""Every layer's anisotropy: against transformers' own hidden states, text by text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nearfar.encoding import TextModel
from nearfar.encoding import load as open_model
from nearfar.errors import SettingError
from nearfar.evaluation import layer_anisotropy

TEXTS = ["a cat sat", "the cat sat on a mat", "dogs bark", "rain", "it will rain all day tomorrow", "the sun is out"]


def mean_cosine(vectors: np.ndarray) -> float:
    """Over all pairs of distinct rows, one by one."""
    cosines = [
        float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
        for place, one in enumerate(vectors)
        for other in vectors[place + 1 :]
    ]
    return float(np.mean(cosines))


@pytest.mark.parametrize(("pooling", "row"), [("mean", None), ("first", 0), ("pooler", 0)])
def test_layers_are_those_of_transformers_pooled_like_the_last(pooling, row):
    """Each text alone, without padding; the pooler stands for the first token."""
    opened = open_model("toy")
    model = TextModel(opened.model.network, pooling=pooling)
    expected = []
    with torch.no_grad():
        states = [
            model.network(**opened.tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
            for text in TEXTS
        ]
    for layer in range(len(states[0])):
        pooled = [one[layer][0].mean(dim=0) if row is None else one[layer][0][row] for one in states]
        expected.append(mean_cosine(torch.stack(pooled).double().numpy()))
    model.train()

    found = layer_anisotropy(model, opened.tokenize(TEXTS), batch_size=4)

    assert model.training
    assert len(found) == model.network.config.num_hidden_layers + 1
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_one_text_has_no_pairs():
    opened = open_model("toy")
    found = layer_anisotropy(opened.model, opened.tokenize(TEXTS[:1]), batch_size=4)

    assert set(found) == {None}


def test_two_equal_texts_have_a_cosine_of_one():
    opened = open_model("toy")
    found = layer_anisotropy(opened.model, opened.tokenize(["same", "same"]), batch_size=4)

    np.testing.assert_allclose(found, 1.0, atol=1e-6)


def test_a_batch_needs_a_text():
    opened = open_model("toy")
    with pytest.raises(SettingError, match="batch_size"):
        layer_anisotropy(opened.model, opened.tokenize(TEXTS), batch_size=0)
