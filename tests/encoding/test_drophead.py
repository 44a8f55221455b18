"""Drophead and feature cut-off: what they drop and how often, on the fast path as on ``AutoModel``'s own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from nearfar.encoding import EncoderNoise, TextModel, build, tokenize
from nearfar.encoding.dropout import DropoutMasks, scale_heads
from nearfar.errors import SettingError

FAMILY = ("bert", "roberta", "distilbert", "electra")
TEXTS = ["so it goes on for quite a while", "a longer text of words", "a b c d e f", "two words", "one", "x"]
"""The longest first, as the fast path has them, so that both paths draw for the same texts in the same order."""
HEADS = 4
MANY = 40_000
TOLERANCE = 1e-5


def opened(folder: Any, *, fast: bool = True, **noise: float) -> tuple[TextModel, Any]:
    """A model without dropout, and the table of the texts."""
    built = build(str(folder), classes=("a", "b"), seed=1, dropout=0.0, fast=fast, noise=EncoderNoise(**noise))
    return built.model, tokenize(built.tokenizer, [TEXTS], max_length=30)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.97])
def test_heads_count_once_on_average_and_never_go_all(p):
    """Within five standard errors: the mean factor is 1 for each head, and a head goes as often as it should."""
    torch.manual_seed(1)
    scales = DropoutMasks(training=True).heads(MANY, HEADS, p).double()
    stays = scales > 0

    assert stays.any(dim=1).all()
    assert torch.allclose(scales.sum(dim=1), torch.full((MANY,), float(HEADS), dtype=torch.float64))
    assert all(len(set(row[row > 0].tolist())) == 1 for row in scales[:200])
    error = 5 * scales.std(dim=0) / MANY**0.5
    assert ((scales.mean(dim=0) - 1).abs() < error).all()
    goes = p - p**HEADS / HEADS  # one stays where all would go
    assert ((1 - stays.double().mean(dim=0) - goes).abs() < 5 * (goes * (1 - goes) / MANY) ** 0.5).all()


def test_heads_of_different_texts_and_layers_are_independent():
    """Two draws agree as often as chance has it."""
    torch.manual_seed(2)
    masks = DropoutMasks(training=True)
    first, second = (masks.heads(MANY, 12, 0.5) > 0 for _ in range(2))

    assert abs(float((first == second).double().mean()) - 0.5) < 0.01
    assert abs(float((first[1:] == first[:-1]).double().mean()) - 0.5) < 0.01


def test_coordinates_are_cut_as_many_as_asked_and_each_alike():
    """Of each text others."""
    torch.manual_seed(3)
    cut = DropoutMasks(training=True).cutoff(MANY, 16, 0.25)

    assert (cut.sum(dim=1) == 4).all()
    assert ((cut.double().mean(dim=0) - 0.25).abs() < 5 * (0.25 * 0.75 / MANY) ** 0.5).all()
    assert len({tuple(row) for row in cut[:100].tolist()}) > 90


def test_a_factor_reaches_the_coordinates_of_its_head():
    values = torch.arange(1.0, 13.0).view(2, 6)
    scales = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])

    assert scale_heads(values, scales).tolist() == [[1, 2, 0, 0, 10, 12], [0, 0, 27, 30, 0, 0]]


@pytest.mark.parametrize("logits_only", [False, True], ids=["all", "firsts"])
@pytest.mark.parametrize("settings", [{"drophead": 0.6}, {"cutoff": 0.3}, {"drophead": 0.3, "cutoff": 0.2}], ids=str)
@pytest.mark.parametrize("family", FAMILY)
def test_both_paths_drop_the_same_and_learn_the_same(tiny, family, settings, logits_only):
    """From one seed both draw the same heads and coordinates, so logits and gradients must agree; and matter."""
    results = []
    for fast in (True, False):
        model, table = opened(tiny(family), fast=fast, **settings)
        torch.manual_seed(5)
        logits = model.train()(model.inputs(table, np.arange(len(TEXTS))), logits_only=logits_only).logits
        logits.square().sum().backward()
        results.append((logits.detach(), {name: own.grad for name, own in model.named_parameters()}))
    (fast_logits, ours), (plain_logits, theirs) = results
    model, table = opened(tiny(family))
    whole = model.train()(model.inputs(table, np.arange(len(TEXTS)))).logits

    assert (fast_logits - plain_logits).abs().max() < TOLERANCE
    assert (fast_logits - whole).abs().max() > 100 * TOLERANCE
    largest = max(float(gradient.abs().max()) for gradient in theirs.values() if gradient is not None)
    for name, gradient in ours.items():
        if gradient is not None:
            assert (gradient - theirs[name]).abs().max() <= TOLERANCE * max(1.0, largest), name


def test_the_plain_path_drops_heads_before_they_are_mixed(tiny):
    """Against the network itself with the columns of these heads scaled by hand, one text, one layer."""
    model, table = opened(tiny("bert"), fast=False, drophead=0.5)
    layers = model.network.base_model.encoder.layer
    del layers[1:]
    small = TextModel(model.network, pooling="mean", native=True, fast=False, noise=EncoderNoise(drophead=0.5))
    inputs = small.inputs(table, [0])
    torch.manual_seed(11)
    dropped = small.train()(inputs).states
    torch.manual_seed(11)
    scales = DropoutMasks(training=True).heads(1, HEADS, 0.5)[0]
    with torch.no_grad():
        layers[0].attention.output.dense.weight.mul_(scales.repeat_interleave(8))
    expected = small.eval()(inputs).states

    assert Counter(scales.tolist()) != Counter({1.0: HEADS})
    assert (dropped - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("settings", [{"drophead": 0.5}, {"cutoff": 0.3}], ids=str)
def test_noise_follows_torchs_seed_differs_by_text_and_is_off_in_evaluation(tiny, settings, fast):
    model, table = opened(tiny("bert"), fast=fast, **settings)
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())

    def vectors(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return model(model.inputs(table, np.zeros(6, dtype=np.int64))).embedding

    model.train()
    assert vectors(1).equal(vectors(1))
    assert not vectors(1).equal(vectors(2))
    assert len(vectors(1).unique(dim=0)) > 2
    model.eval()
    assert vectors(1).equal(vectors(2))
    assert (vectors(1) - vectors(1)[0]).abs().max() < TOLERANCE
    assert hooks == sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_in_bf16_dropped_heads_stay_close(tiny):
    """The tokens are padded there, and the padding belongs to no text."""
    model, table = opened(tiny("bert"), drophead=0.5, cutoff=0.1)
    results = []
    for enabled in (False, True):
        torch.manual_seed(7)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            results.append(model.train()(model.inputs(table, np.arange(len(TEXTS)))).logits.float())

    assert (results[0] - results[1]).abs().max() < 0.1 * results[0].abs().max() + 0.05


@pytest.mark.parametrize("setting", ["drophead", "cutoff"])
@pytest.mark.parametrize("family", ["xlnet", "albert"])
def test_other_encoders_are_refused_with_those_that_work(tiny, family, setting):
    with pytest.raises(SettingError, match=rf"encoder\.{setting} .* bert, roberta, .* this encoder is {family}"):
        opened(tiny(family), **{setting: 0.1})


@pytest.mark.parametrize("setting", ["drophead", "cutoff"])
@pytest.mark.parametrize("value", [-0.1, 1.0])
def test_dropping_everything_is_refused(tiny, setting, value):
    with pytest.raises(SettingError, match=rf"encoder\.{setting} must be 0 or more and below 1, got {value}"):
        opened(tiny("bert"), **{setting: value})


def test_on_several_threads_heads_are_dropped_by_the_seed_alone(tiny):
    """Each part of the batch has a stream of its own, so nothing depends on which is first."""
    built = build(str(tiny("bert")), classes=None, seed=1, dropout=0.0, noise=EncoderNoise(drophead=0.5, cutoff=0.1))
    table = tokenize(built.tokenizer, [["a text of some words that goes on and on"] * 24], max_length=30)
    model = built.model.train()
    results = []
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for _ in range(3):
            model.zero_grad()
            torch.manual_seed(4)
            vectors = model(model.inputs(table, np.arange(24))).embedding
            vectors.square().sum().backward()
            results.append((vectors.detach(), model.network.encoder.layer[0].attention.self.value.weight.grad.clone()))
    finally:
        torch.set_num_threads(threads)

    assert int(table.lengths.sum()) >= 2 * 128  # enough for more than one thread
    assert len(results[0][0].unique(dim=0)) > 20
    for vectors, gradient in results[1:]:
        assert vectors.equal(results[0][0])
        assert gradient.equal(results[0][1])


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_masks_are_the_same_bits_in_every_type(p):
    """A bf16 mask is written as bits, others are converted: the same seed drops the same places."""
    wide, low = (
        DropoutMasks(training=True, seed=3).mask((129, 77), p, torch.zeros((), dtype=dtype))
        for dtype in (torch.float32, torch.bfloat16)
    )

    assert low.dtype == torch.bfloat16
    assert torch.equal(low.float(), wide)
    assert set(wide.unique().tolist()) == {0.0, 1.0}
    assert float(wide.mean()) == pytest.approx(1 - p, abs=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dropping_and_adding_is_what_its_formula_says(dtype):
    """Values and both gradients, with a residual in fp32 and values in either type."""
    p, draw = 0.1, torch.Generator().manual_seed(1)
    x = torch.randn(40, 16, generator=draw).to(dtype).requires_grad_()
    residual, upper = (torch.randn(40, 16, generator=draw).requires_grad_() for _ in range(2))
    kept = DropoutMasks(training=True, seed=3).mask(x.shape, p, residual)

    summed = DropoutMasks(training=True, seed=3).drop_and_add(x, residual, p)
    to_x, to_residual = torch.autograd.grad(summed, [x, residual], upper)

    torch.testing.assert_close(summed, residual + x.float() * kept / (1 - p))
    torch.testing.assert_close(to_x, (upper * kept / (1 - p)).to(dtype))
    assert torch.equal(to_residual, upper)
