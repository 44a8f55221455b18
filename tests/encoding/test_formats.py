"""Number formats for use: how near to fp32 they are, what is chosen, and what is reported."""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModel

from nearfar.encoding import Card, TextModel, build, formats, load, packed
from nearfar.encoding.dropout import DropoutMasks
from nearfar.encoding.formats import choose_format, use_precision
from nearfar.encoding.heads import LinearHead
from nearfar.encoding.model import Model
from nearfar.encoding.packed import FORMATS, Int8Product, PackedProduct
from nearfar.encoding.pretrained import toy_tokenizer, vocabulary
from nearfar.encoding.processor import has_onednn
from nearfar.encoding.task_model import TaskCard, TaskModel, TaskNetwork, describe_tasks
from nearfar.encoding.unpadded import padded_size
from nearfar.errors import SettingError

PAIRS = [["a text", "b", "one of two"], ["b", "a longer text of words", "two of two"]]
TEXTS = ["", "a text", "another one, somewhat longer than the first", *(f"text {n} " * n for n in range(1, 12))]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def network():
    """MiniLM's width with two layers and random weights, wide enough that texts differ; some weights are outliers."""
    sizes = {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 12, "intermediate_size": 1536}
    config = transformers.BertConfig(vocab_size=len(vocabulary()), max_position_embeddings=512, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = AutoModel.from_config(config).eval()
        with torch.no_grad():
            for layer in network.encoder.layer:
                layer.output.dense.weight[7] *= 20
    return network


def model_of(network, *, pooling="mean", joined=False, classes=3, **settings) -> Model:
    torch.manual_seed(1)
    head = LinearHead(384, classes)
    torch.nn.init.normal_(head.linear.weight, std=1.0)
    labels = tuple("abcdefgh"[:classes])
    card = Card(pooling, 512, native=False, labels=labels, joined=joined, head={"kind": "linear"})
    return Model(TextModel(network, pooling=pooling, head=head, **settings), toy_tokenizer(), card)


def cosines(one, other):
    return (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


@pytest.mark.parametrize(("form", "least"), [("fp32", 1 - 1e-6), ("bf16", 0.9999), ("int8", 0.99)])
@pytest.mark.parametrize("pooling", ["mean", "first", "pooler", "last"])
def test_vectors_are_near_to_those_in_fp32(network, form, least, pooling):
    model = model_of(network, pooling=pooling)
    exact, chances = model.embed(TEXTS), model.probabilities(TEXTS)
    assert use_precision(model, form).form == form
    assert model.model.form == form
    found = cosines(model.embed(TEXTS), exact)
    assert found.mean() >= least
    assert found.min() >= 1 - 3 * (1 - least)
    steep = {"fp32": 1e-5, "bf16": 0.04, "int8": 0.2}  # the head's weights are as large as 1
    np.testing.assert_allclose(model.probabilities(TEXTS), chances, atol=steep[form])
    with model.model.unpacked():
        np.testing.assert_array_equal(model.embed(TEXTS), exact)


@pytest.mark.parametrize("form", ["bf16", "int8"])
def test_long_texts_and_pairs_and_transforms_are_near_too(network, form):
    long = ["word " * 600, "b"]
    model = model_of(network)
    exact = model.embed(long)
    use_precision(model, form)
    assert model.tokenize(long).lengths.max() == 512
    assert cosines(model.embed(long), exact).min() > 0.98
    pairs = model_of(network, joined=True)
    sides = [("a text", "b"), ("", "c")]
    exact = pairs.embed(sides)
    use_precision(pairs, form)
    assert cosines(pairs.embed(sides), exact).min() > 0.98
    from nearfar.encoding.encoder import Transform

    turned = model_of(network, transform=Transform(torch.randn(16, 384), torch.zeros(16)))
    exact = turned.embed(TEXTS)
    use_precision(turned, form)
    assert cosines(turned.embed(TEXTS), exact).mean() > 0.98


def test_in_bf16_states_have_16_bits_where_the_architecture_bears_it(network, tiny):
    """Rotary positions, biases of attention and norms in front of a layer are computed in fp32."""
    narrow = packed.packed(model_of(network).model.unpadded, "bf16")
    assert narrow.states == torch.bfloat16
    x = torch.randn(64, 384, generator=torch.Generator().manual_seed(0)).bfloat16()
    masks = DropoutMasks(training=False)
    with torch.inference_mode():
        for layer in narrow.layers:
            assert layer.qkv(x).dtype == layer.kv(x).dtype == layer.q(x).dtype == torch.bfloat16
            assert layer.output(x, x, masks).dtype == torch.bfloat16
    assert packed.packed(model_of(network).model.unpadded, "int8").states is None
    for family in ("mpnet", "deberta-v2", "modernbert", "nomic_bert"):
        encoder = build(str(tiny(family)), classes=None, seed=1, pooling="mean").model.unpadded
        assert packed.packed(encoder, "bf16").states is None


def test_a_sum_in_16_bits_is_near_to_that_in_fp32():
    """Without units for bf16 the product is rounded, too."""
    source = torch.Generator().manual_seed(0)
    weight, bias, x, residual = (torch.randn(*shape, generator=source) for shape in ((48, 32), (48,), (5, 32), (5, 48)))
    x, residual = x.bfloat16(), residual.bfloat16()
    exact = torch.nn.functional.linear(x.float(), weight.bfloat16().float(), bias.bfloat16().float()) + residual.float()
    found = packed.product(weight, bias, "bf16", narrow=True).plus(x, residual)
    assert found.dtype == torch.bfloat16
    largest = (exact - residual.float()).abs() + residual.float().abs()
    assert ((found.float() - exact).abs() <= 2**-7 * largest).all()


TASKS = [
    TaskCard("kind", "classes", {"kind": "linear"}, "accuracy", ("a", "b", "c")),
    TaskCard("same", "pairs", {"kind": "joint-difference"}, "accuracy", ("0", "1")),
    TaskCard("near", "scores", {"kind": "concat"}, "spearman", None, low=1.0, high=5.0),
    TaskCard("like", "pairs", {"kind": "cosine"}, "f1", ("0", "1"), threshold=0.9, accuracy_threshold=0.5),
]


@pytest.mark.parametrize("form", ["bf16", "int8"])
def test_the_heads_of_several_tasks_read_vectors_in_any_format(network, form):
    """Single texts, and pairs encoded together or apart: the outputs move a little, and are those of the format."""
    encoder = TextModel(network, pooling="mean")
    card = Card("mean", 512, native=False, task=describe_tasks(TASKS, shared=True))
    model = Model(encoder, toy_tokenizer(), card)
    tasks = TaskModel(model, TaskNetwork(encoder, TASKS, shared=True, seed=1), TASKS)

    def outputs():
        return [tasks.outputs(one.name, [TEXTS[1:]] if one.reads == "texts" else PAIRS) for one in TASKS]

    exact = outputs()
    assert use_precision(model, form).form == form
    for task, before, after in zip(TASKS, exact, outputs(), strict=True):
        assert not np.array_equal(before, after), task.name
        np.testing.assert_allclose(after, before, atol=0.05 * max(1, np.abs(before).max()), err_msg=task.name)


@pytest.mark.parametrize(("form", "least"), [("fp32", 1 - 1e-6), ("bf16", 0.999), ("int8", 0.99)])
@pytest.mark.parametrize("family", ["electra", "mpnet", "deberta-v2", "modernbert", "gte", "nomic_bert"])
def test_every_architecture_computes_in_every_format(tiny, family, form, least):
    """Relative positions, gates and norms in front; also where the last layer computes first tokens alone."""
    torch.manual_seed(0)
    head = LinearHead(32, 3)
    built = build(str(tiny(family)), classes=None, seed=1, pooling="first")
    encoder = TextModel(built.model.network, pooling="first", head=head).eval()
    card = Card("first", 30, native=False, labels=("a", "b", "c"), head={"kind": "linear"})
    model = Model(encoder, built.tokenizer, card)
    texts = [text for text in TEXTS if text]
    exact, chances = model.embed(texts), model.probabilities(texts)
    encoder.pack(form)
    found = cosines(model.embed(texts), exact)
    assert found.mean() >= least
    assert (found.min() < 1 - 1e-6) == (form != "fp32"), "it computes in this format"
    np.testing.assert_allclose(model.probabilities(texts), chances, atol={"fp32": 1e-5, "bf16": 0.02}.get(form, 0.1))


def test_a_text_has_the_same_vector_in_int8_products_whatever_is_beside_it():
    source = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(48, 32, generator=source), torch.randn(48, generator=source)
    x = torch.randn(40, 32, generator=source) * torch.logspace(-3, 3, 40)[:, None]
    together = Int8Product(weight, bias)(x)
    for row in range(40):
        torch.testing.assert_close(Int8Product(weight, bias)(x[row : row + 1])[0], together[row], rtol=0, atol=0)


def test_int8_keeps_small_numbers_beside_an_outlier_in_another_token():
    source = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 32, generator=source)
    x = torch.randn(2, 32, generator=source) + 5  # all of one sign
    x[1] *= 1000
    exact = x @ weight.T
    error = (Int8Product(weight, None)(x) - exact).abs().amax(1) / exact.abs().amax(1)
    assert error.max() < 0.02
    constant = torch.full((1, 32), 3.0)
    torch.testing.assert_close(Int8Product(weight, None)(constant), constant @ weight.T, rtol=0.02, atol=0.5)


def test_int8_weights_have_a_scale_for_each_output():
    source = torch.Generator().manual_seed(0)
    weight, x = torch.randn(8, 32, generator=source), torch.randn(5, 32, generator=source)
    weight[3] *= 1000
    exact = x @ weight.T
    error = (Int8Product(weight, None)(x) - exact).abs().amax(0) / exact.abs().amax(0)
    assert error.max() < 0.05


def test_products_are_those_of_the_layer():
    source = torch.Generator().manual_seed(0)
    weight, bias, x = (torch.randn(*shape, generator=source) for shape in ((48, 32), (48,), (5, 32)))
    exact = torch.nn.functional.linear(x, weight, bias)
    assert PackedProduct(weight, bias, torch.float32).packed == has_onednn()
    assert (Int8Product(weight, bias)(x) - exact).abs().max() < 0.3
    torch.testing.assert_close(PackedProduct(weight, bias, torch.float32)(x), exact, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(PackedProduct(weight, bias, torch.bfloat16)(x), exact, atol=0.2, rtol=0.02)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("form", ["fp32", "bf16", "int8"])
def test_a_residual_is_added_to_a_product_in_fp32(form, biased):
    source = torch.Generator().manual_seed(0)
    weight, bias, x, residual = (torch.randn(*shape, generator=source) for shape in ((48, 32), (48,), (5, 32), (5, 48)))
    layer, kept = packed.product(weight, bias if biased else None, form), residual.clone()
    found = layer.plus(x, 1000 * residual)
    torch.testing.assert_close(found, layer(x) + 1000 * residual, atol=1e-3, rtol=1e-6)
    assert found.dtype == torch.float32
    assert torch.equal(residual, kept)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 2e-2)])
def test_the_activation_behind_a_product_is_the_exact_gelu(dtype, tolerance):
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(384, 512), 3 * torch.randn(40, 384)
    expected = torch.nn.functional.gelu(layer(x))
    found = PackedProduct(layer.weight, layer.bias, dtype, gelu=True)(x)
    torch.testing.assert_close(found.float(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu"])
@pytest.mark.parametrize("form", ["fp32", "bf16", "int8"])
def test_every_activation_is_computed(activation, form):
    config = transformers.BertConfig(
        vocab_size=len(vocabulary()), hidden_size=384, num_hidden_layers=1, intermediate_size=512, hidden_act=activation
    )
    torch.manual_seed(0)
    model = model_of(AutoModel.from_config(config).eval())
    exact = model.embed(TEXTS)
    use_precision(model, form)
    least = {"fp32": 1 - 1e-6, "bf16": 0.9999, "int8": 0.999}
    assert cosines(model.embed(TEXTS), exact).min() >= least[form]


def test_without_a_wish_the_processor_decides(network, monkeypatch):
    model = model_of(network)
    monkeypatch.setattr(formats, "may_use_bf16", lambda: True)
    monkeypatch.setattr(formats, "cpu_bf16_units", lambda: "AMX")
    assert choose_format(model.model, None) == formats.Choice("bf16", "the processor has AMX")
    monkeypatch.setattr(formats, "cpu_bf16_units", lambda: None)
    assert choose_format(model.model, None).form == "fp32"


def test_a_narrow_encoder_computes_as_ever():
    model = load("toy")
    before = model.embed(TEXTS[1:])
    for asked in (None, "auto", "fp32"):
        assert use_precision(model, asked).form == "fp32"
        assert model.model.packed is None
        np.testing.assert_array_equal(model.embed(TEXTS[1:]), before)


def test_auto_takes_the_fastest_and_keeps_what_it_measured(network, monkeypatch, cache):
    model = model_of(network)
    monkeypatch.setattr(formats, "measure", lambda *_, **__: {"fp32": 3.0, "bf16": 2.0, "int8": 1.0})
    choice = use_precision(model, "auto")
    assert choice.form == "int8"
    assert "3.0 times as fast" in choice.reason
    assert "labels change" in choice.reason
    (kept,) = json.loads((cache / "precision.json").read_text()).values()
    assert kept == {"fp32": 3.0, "bf16": 2.0, "int8": 1.0}
    monkeypatch.setattr(formats, "measure", None)  # not called again
    assert use_precision(model, "auto").form == "int8"


def test_auto_is_fp32_where_nothing_is_faster(network, monkeypatch, cache):
    monkeypatch.setattr(formats, "measure", lambda *_, **__: {"fp32": 1.0, "bf16": 0.99, "int8": 5.0})
    assert use_precision(model_of(network), "auto").form == "fp32"
    cache.joinpath("precision.json").write_text("no json")
    assert use_precision(model_of(network), "auto").form == "fp32"


def test_a_measurement_takes_a_fraction_of_a_second(network):
    model = model_of(network)
    seconds = formats.measure(model.model.unpadded.layers[0], 384, narrow=True)
    assert set(seconds) == {"fp32", "bf16", "int8"}
    assert all(0 < value < 1 for value in seconds.values())


def test_slow_first_turns_of_a_format_do_not_decide(network, monkeypatch):
    """int8 has the largest temporary tensors, and memory that is new costs it most."""
    turns = dict.fromkeys(FORMATS, 0)
    now = 0.0

    def passed(layer, x):
        nonlocal now
        turns[layer.form] += 1
        now += {"fp32": 0.006, "bf16": 0.0035, "int8": 0.005 if turns["int8"] < 12 else 0.003}[layer.form]

    monkeypatch.setattr(formats, "_pass", passed)
    monkeypatch.setattr("time.thread_time", lambda: now)
    seconds = formats.measure(model_of(network).model.unpadded.layers[0], 384, narrow=True)
    assert min(seconds, key=seconds.get) == "int8"
    assert now < 1, "a fraction of a second"


def test_a_measurement_ends_where_a_pass_takes_long(network, monkeypatch):
    turns = []
    monkeypatch.setattr(formats, "_pass", lambda layer, x: turns.append(layer.form))
    monkeypatch.setattr("time.thread_time", lambda: float(len(turns)))
    formats.measure(model_of(network).model.unpadded.layers[0], 384, narrow=True)
    assert turns == [*FORMATS] * formats.REPEATS


def test_int8_that_is_too_far_from_fp32_is_refused(network, monkeypatch):
    monkeypatch.setattr(formats, "LIMIT", 0.0)
    model = model_of(network)
    choice = use_precision(model, "int8")
    assert choice.form == model.model.form != "int8"
    assert "the limit is 0" in choice.reason


def test_numbers_that_are_none_are_too_far_from_fp32(monkeypatch):
    monkeypatch.setattr(formats, "_drift", lambda *_: formats.Drift(float("nan"), None, 3))
    model = load("toy")
    assert use_precision(model, "int8").form == "fp32"
    assert model.model.packed is None, "a narrow encoder computes as ever"


def test_what_int8_changes_is_measured_against_fp32_every_time(network, monkeypatch):
    model, seen, plain = model_of(network), [], formats._drift
    monkeypatch.setattr(formats, "_drift", lambda *sides: seen.append(plain(*sides)) or plain(*sides))
    for _ in range(2):
        use_precision(model, "int8")
    assert seen[0] == seen[1]
    assert seen[0].distance > 1e-6


def test_int8_is_compared_on_texts_of_the_model_where_there_are_some(network, tmp_path):
    model, asked = model_of(network), []

    def own_texts(folder, most):
        asked.append((folder, most))
        return (["a text of mine", "and another"],)

    assert "on 19 sentences, " in use_precision(model, "int8", own_texts=own_texts).reason
    assert not asked, "a model that was not opened from a folder has no texts"
    model.folder = tmp_path
    assert "on 2 training texts, " in use_precision(model, "int8", own_texts=own_texts).reason
    assert asked == [(tmp_path, formats.COMPARED)]
    assert "on 19 sentences, " in use_precision(model, "int8", own_texts=lambda *_: ()).reason
    use_precision(model, "bf16", own_texts=own_texts)
    assert len(asked) == 1, "nothing is read for other formats"
    pairs = model_of(network, joined=True)
    pairs.folder = tmp_path
    assert "sentences" in use_precision(pairs, "int8", own_texts=own_texts).reason
    assert "2 training texts" in use_precision(pairs, "int8", own_texts=lambda *_: (["a", "b"], ["c", "d"])).reason


def test_a_measurement_is_kept_for_one_shape_and_measured_again_where_the_file_is_damaged(network, monkeypatch, cache):
    calls = []

    def measured(layer, width, *, narrow):
        calls.append(width)
        return {"fp32": 2.0, "bf16": 1.0, "int8": 3.0}

    monkeypatch.setattr(formats, "measure", measured)
    layer = model_of(network).model.unpadded.layers[0]
    for _ in range(2):
        assert formats.kept_seconds(layer, 384, narrow=True)["bf16"] == 1.0
    assert calls == [384]
    small = load("toy").model.unpadded.layers[0]
    formats.kept_seconds(small, 64, narrow=True)
    assert calls == [384, 64]
    path = cache / "precision.json"
    kept = json.loads(path.read_text())
    assert len(kept) == 2
    path.write_text(json.dumps({key: {"fp32": 1.0, "bf16": "fast"} for key in kept}))
    assert formats.kept_seconds(layer, 384, narrow=True) == {"fp32": 2.0, "bf16": 1.0, "int8": 3.0}
    assert calls == [384, 64, 384]
    formats.kept_seconds(layer, 384, narrow=False)
    assert calls == [384, 64, 384, 384], "an encoder of this shape with states in fp32 is measured, too"


def test_on_other_devices_formats_do_not_apply():
    encoder = copy.deepcopy(load("toy").model).to("meta")
    assert choose_format(encoder, "int8") == formats.Choice("fp32", "other formats are for the CPU", packs=False)


def test_biases_of_joined_products_are_packed_too(tiny, tmp_path):
    """A ModernBERT may have them; first tokens take one part of the product, and keys and values the others."""
    shutil.copytree(tiny("modernbert"), tmp_path / "biased")
    place = tmp_path / "biased" / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "attention_bias": True, "mlp_bias": True}))
    built = build(str(place.parent), classes=None, seed=1, pooling="first")
    for name, weight in built.model.network.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)
    card = Card("first", 30, native=False, labels=("a", "b"), head={"kind": "linear"})
    encoder = TextModel(built.model.network, pooling="first", head=LinearHead(32, 2)).eval()
    model = Model(encoder, built.tokenizer, card)
    exact = model.embed(TEXTS[1:]), model.probabilities(TEXTS[1:])
    encoder.pack("fp32")
    for before, after in zip(exact, (model.embed(TEXTS[1:]), model.probabilities(TEXTS[1:])), strict=True):
        np.testing.assert_allclose(after, before, atol=1e-5)


def test_other_words_are_refused(network):
    with pytest.raises(SettingError, match="precision must be one of auto, fp32, bf16, int8, got 'int4'"):
        use_precision(model_of(network), "int4")
    with pytest.raises(SettingError, match="has no fast path"):
        model_of(network, fast=False).model.pack("int8")
    assert use_precision(model_of(network, fast=False), "int8").reason == "this encoder has no fast path"


def test_training_and_gradients_compute_with_the_weights(network):
    model = model_of(network)
    use_precision(model, "int8")
    batch = model.model.inputs(model.tokenize(["a text"]), [0])
    output = model.model(batch)
    assert output.embedding.requires_grad
    output.embedding.sum().backward()
    network.zero_grad()


def test_other_batches_and_threads_move_a_vector_by_no_more_than_rounding(network):
    """The last digit of what is rounded to 8 bits depends on the batch, as in fp32: now and then by one level."""
    model = model_of(network)
    use_precision(model, "int8")
    texts = [f"some text of number {number} " * (number % 7 + 1) for number in range(60)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = model.embed(texts)
        torch.set_num_threads(2)
        assert cosines(model.embed(texts), one).min() > 0.9999
        assert cosines(model.embed(texts[:1]), one[:1]).min() > 0.9999
        np.testing.assert_array_equal(model.embed(texts), model.embed(texts))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("isa", ["AVX512_CORE", "AVX2"])
def test_int8_does_not_overflow_without_vnni(isa):
    code = (
        "import torch; from nearfar.encoding.packed import Int8Product, PackedProduct, overflows\n"
        "weight = torch.rand(64, 512) + 0.5; x = torch.rand(8, 512); x[0] = 1; x[1, :256] = -1\n"
        "exact = x @ weight.T\n"
        "error = ((Int8Product(weight, None)(x) - exact).abs() / exact.abs().amax()).max()\n"
        "assert error < 0.02, error\n"
        "bf16 = PackedProduct(weight, None, torch.bfloat16)(x)\n"
        "assert ((bf16 - exact).abs() / exact.abs().amax()).max() < 0.02\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"ONEDNN_MAX_CPU_ISA": isa}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_fewer_levels_where_sums_overflow(monkeypatch):
    monkeypatch.setattr(packed, "overflows", lambda: True)
    weight = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    product = Int8Product(weight, None)
    assert product.weight.abs().max() == packed.FEWER
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(product(x), x @ weight.T, atol=0.3, rtol=0.05)


@pytest.mark.parametrize("form", ["fp32", "bf16", "int8"])
def test_products_meet_few_numbers_of_tokens(network, form, monkeypatch):
    """Kernels are kept for every number of rows, so that many of them fill the memory of a long-lived process."""
    met = set()

    def watched(product):
        call = product.__call__

        def record(self, x):
            met.add(len(x))
            return call(self, x)

        monkeypatch.setattr(product, "__call__", record)

    for product in (PackedProduct, Int8Product):
        watched(product)
    model = model_of(network)
    use_precision(model, form)
    met.clear()
    texts = [" ".join(["word"] * count) for count in range(1, 60)]
    for text in texts:
        model.embed([text])
    assert 5 <= len(met) <= len(texts) / 2, sorted(met)
    assert met <= {padded_size(tokens) for tokens in range(1, 5000)}
    model.embed(texts)
    assert met <= {padded_size(tokens) for tokens in range(1, 5000)}


def test_sizes_that_tokens_are_padded_to_are_few_and_near():
    sizes = [padded_size(tokens) for tokens in range(1, 513)]
    assert len(set(sizes)) <= 52
    assert all(0 <= size - tokens < 16 for tokens, size in enumerate(sizes, start=1))
    assert padded_size(25) == 26, "one text is not padded to much more than it has"
    assert all(padded_size(size) == size for size in map(padded_size, range(1, 9000)))
