"""The fast path: the outputs and gradients of ``AutoModel``, whatever lengths share a batch."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tests.encoding.conftest import CONFIGS, TOKENIZERS
from torch.overrides import TorchFunctionMode
from transformers import AutoModel, ModernBertConfig, ModernBertModel, NomicBertConfig, NomicBertModel
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from nearfar.encoding import build, cpu_parallel, layers, tokenize
from nearfar.encoding.architectures import FAMILIES, unpadded_encoder
from nearfar.encoding.attention import ALIKE, LANES, NARROW, REST, SLACK, _Attention, attend, attention_blocks
from nearfar.encoding.disentangled import log_buckets
from nearfar.encoding.dropout import DropoutMasks, _DropAdd
from nearfar.encoding.positions import rotate
from nearfar.encoding.pretrained import quiet_transformers
from nearfar.encoding.products import linear
from nearfar.encoding.unpadded import ROUND

FAMILY = ("bert", "roberta", "distilbert", "electra", "mpnet", "modernbert", "gte", "nomic_bert", "deberta-v2")
LIKE_ROBERTA = ("roberta", "xlm-roberta", "camembert", "mpnet")
TEXTS = ["one", "a longer text of words", "x", "so it goes on for quite a while", "two words", "one", "a b c d e f"]
PAIRS = ["other", "b", "second text", "c", "d", "e", "the last one"]
TOLERANCE = 1e-5


def both(
    folder: Any, *, pooling: Any, logits_only: bool = False, pairs: bool = False, texts: Sequence[str] = TEXTS
) -> list[tuple[Any, dict[str, Any]]]:
    """Output and gradients of the fast and of the plain path, without dropout, on the same texts."""
    results = []
    for fast in (True, False):
        built = build(str(folder), classes=("a", "b", "c"), seed=1, pooling=pooling, dropout=0.0, fast=fast)
        assert (built.model.unpadded is not None) == fast
        built.model.train()
        table = tokenize(built.tokenizer, [texts, PAIRS] if pairs else [texts], max_length=30)
        rows = np.array([3, 0, 6, 2, 1, 5, 4])
        output = built.model(built.model.inputs(table, rows), logits_only=logits_only and fast)
        loss = F.cross_entropy(output.logits, torch.arange(len(rows)) % 3)
        if not logits_only:
            states, owners = output.tokens()
            weight = torch.arange(1, len(rows) + 1).float()[owners].unsqueeze(1)
            loss = loss + (weight * states.pow(2)).mean() + output.embedding.cos().mean()
        loss.backward()
        gradients = {name: weight.grad for name, weight in built.model.named_parameters()}
        results.append((output, gradients))
    return results


def agree(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert {name for name in first if first[name] is None} == {name for name in second if second[name] is None}
    largest = max(float(gradient.abs().max()) for gradient in second.values() if gradient is not None)
    assert largest > 1e-3
    for name, gradient in first.items():
        if gradient is not None:
            assert (gradient - second[name]).abs().max() <= TOLERANCE * max(1.0, largest), name


@pytest.mark.parametrize(
    ("family", "pooling", "pairs"),
    [
        *((family, pooling, pairs) for family in FAMILY for pooling, pairs in ((None, 1), ("first", 0), ("mean", 1))),
        *((family, None, 1) for family in FAMILIES if family not in FAMILY),
    ],
)
def test_states_vectors_logits_and_gradients_are_those_of_automodel(tiny, family, pooling, pairs):
    """Without dropout both paths compute the same, for every weight, to the stated tolerance."""
    (fast, ours), (plain, theirs) = both(tiny(family), pooling=pooling, pairs=bool(pairs))

    assert (fast.logits - plain.logits).abs().max() < TOLERANCE
    assert (fast.embedding - plain.embedding).abs().max() < TOLERANCE
    for text in range(len(TEXTS)):
        mine, real = (states[owners == text] for states, owners in (fast.tokens(), plain.tokens()))
        assert (mine - real).abs().max() < TOLERANCE
    agree(ours, theirs)


@pytest.mark.parametrize("pooling", [None, "first", "pooler"])
@pytest.mark.parametrize("family", FAMILY)
def test_first_tokens_alone_give_the_same_logits_and_gradients(tiny, family, pooling):
    """What is left out of the last layer is never read."""
    if pooling == "pooler" and family != "bert":
        pooling = "first"  # the others have no pooler of BERT's kind
    (fast, ours), (plain, theirs) = both(tiny(family), pooling=pooling, logits_only=True)

    assert fast.states.shape == (len(TEXTS), 32)
    assert (fast.logits - plain.logits).abs().max() < TOLERANCE
    agree(ours, theirs)


@pytest.mark.parametrize("family", [*LIKE_ROBERTA, "bert"])
def test_a_padding_token_in_the_text_is_read_as_automodel_reads_it(tiny, family):
    """RoBERTa's kind gives it no position of its own, and the tokens behind it move up; no gradient comes to it."""
    padding = build(str(tiny(family)), classes=None, seed=1).tokenizer.pad_token
    odd = ["one", f"a {padding} b", padding, f"{padding}{padding} so it goes on", "x y", f"z {padding}", "end"]
    (fast, ours), (plain, theirs) = both(tiny(family), pooling="mean", texts=odd)

    assert (fast.embedding - plain.embedding).abs().max() < TOLERANCE
    assert (fast.logits - plain.logits).abs().max() < TOLERANCE
    agree(ours, theirs)


@pytest.mark.parametrize("family", ["xlnet", "albert"])
def test_other_encoders_run_as_automodel_has_them_and_say_so(tiny, family):
    """Falling back is automatic and visible."""
    built = build(str(tiny(family)), classes=("a", "b"), seed=1)

    assert built.model.unpadded is None
    assert any("no fast path" in note for note in built.notes)


def test_an_encoder_with_other_parts_falls_back(tiny):
    """A decoder, chunked layers, or modules with other names are not guessed at."""
    network = build(str(tiny("bert")), classes=None, seed=1).model.network
    assert unpadded_encoder(network) is not None
    for key, value in (
        ("is_decoder", True),
        ("chunk_size_feed_forward", 2),
        ("position_embedding_type", "relative_key"),
    ):
        before = getattr(network.config, key, None)
        setattr(network.config, key, value)
        assert unpadded_encoder(network) is None
        setattr(network.config, key, before)
    del network.encoder.layer[0].intermediate
    assert unpadded_encoder(network) is None


@given(st.lists(st.integers(1, 300), min_size=1, max_size=40), st.booleans())
def test_blocks_cover_every_token_once_with_little_padding(sizes, vectors):
    """Each token has one place, each place that is kept one token, and no block is much longer than its shortest text."""
    lengths = sorted(sizes, reverse=True)
    blocks = attention_blocks(lengths, torch.device("cpu"), vectors=vectors)

    assert [block.start for block in blocks] == [0, *(block.stop for block in blocks[:-1])]
    assert blocks[-1].stop == sum(lengths)
    assert sum(block.texts for block in blocks) == len(lengths)
    assert torch.cat([block.begins for block in blocks]).tolist() == [0, *np.cumsum(lengths)[:-1].tolist()]
    for block in blocks:
        tokens = block.stop - block.start
        if block.fill is None:
            assert tokens == block.texts * block.longest
        else:
            assert block.fill[block.keep].tolist() == list(range(tokens))
            assert block.mask is not None
            assert int(block.mask.sum()) == tokens
            shortest = int(block.mask.sum(dim=-1).min())
            slack = LANES if vectors and block.longest <= ALIKE else max(1, SLACK * block.longest)
            assert block.longest - shortest <= slack + (LANES if vectors else 0)
        if vectors:
            assert block.longest % LANES <= REST


def test_the_order_of_the_batch_does_not_matter(tiny):
    """Sorting by length is undone: each text has its own vector wherever it stands."""
    built = build(str(tiny("bert")), classes=("a", "b"), seed=1)
    model = built.model.eval()
    table = tokenize(built.tokenizer, [TEXTS], max_length=30)
    sorted_first = model(model.inputs(table, list(range(len(TEXTS)))))
    reversed_ = model(model.inputs(table, list(range(len(TEXTS)))[::-1]))

    assert (sorted_first.embedding - reversed_.embedding.flip(0)).abs().max() < TOLERANCE
    assert (sorted_first.logits - reversed_.logits.flip(0)).abs().max() < TOLERANCE


def test_dropout_follows_torchs_seed_and_is_off_in_evaluation(tiny):
    """Same seed, same masks; another seed, others; none while evaluating."""
    built = build(str(tiny("bert")), classes=("a", "b"), seed=1, dropout=0.2)
    table = tokenize(built.tokenizer, [TEXTS], max_length=30)
    rows = list(range(len(TEXTS)))

    def logits(seed: int) -> Any:
        torch.manual_seed(seed)
        return built.model(built.model.inputs(table, rows)).logits

    built.model.train()
    assert logits(1).equal(logits(1))
    assert not logits(1).equal(logits(2))
    built.model.eval()
    assert logits(1).equal(logits(2))


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5])
def test_dropout_keeps_the_expectation(p):
    """The share that goes is p and the mean stays, within five standard errors; drop_and_add is drop and add."""
    torch.manual_seed(3)
    masks = DropoutMasks(training=True)
    x = torch.ones(400, 500)
    dropped = masks.drop(x, p)
    error = 5 * (p * (1 - p) / x.numel()) ** 0.5

    assert abs(float((dropped == 0).float().mean()) - p) < error
    assert abs(float(dropped.mean()) - 1) < error / (1 - p)
    torch.manual_seed(3)
    again = DropoutMasks(training=True)
    assert torch.allclose(again.drop_and_add(x, x, p), dropped + x)
    assert DropoutMasks(training=False).drop(x, p) is x


def test_masks_of_different_places_are_independent():
    """Two masks drawn one after the other agree as often as chance has it."""
    torch.manual_seed(4)
    masks = DropoutMasks(training=True)
    first, second = (masks.mask((300, 300), 0.5, torch.ones(1)) for _ in range(2))

    assert abs(float((first == second).float().mean()) - 0.5) < 0.01


def test_the_gradient_of_dropout_is_its_mask():
    """Numerically, in double precision, for the sum with dropout and for attention with it."""
    torch.manual_seed(5)
    block = attention_blocks([4, 3, 3], torch.device("cpu"))[0]
    own = torch.randn(10, 3 * 4, dtype=torch.float64, requires_grad=True)
    mask = (torch.rand(3 * 2, 4, 4) > 0.3).double()

    assert block.texts * block.longest > 10
    x, base = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    keep = (torch.rand(3, 4) > 0.3).double()
    assert torch.autograd.gradcheck(lambda a, b: _DropAdd.apply(a, b, keep, 1.4), (x, base))
    assert torch.autograd.gradcheck(lambda a: _Attention.apply(a, block, 2, mask, 1.3, None), (own,))
    for shape in ((1, 2, 4, 4), (3, 2, 4, 4), (1, 1, 4, 4)):
        bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda a, b: _Attention.apply(a, block, 2, mask, 1.3, b), (own, bias))
    angles = torch.randn(10, 1, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a: rotate(a, (angles.cos(), angles.sin()), 2, parts=3), (own,))


class Drops(TorchFunctionMode):
    """The dropouts of the network itself: how many there are, and with which probability."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[float] = Counter()

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        named = named or {}
        if function is F.dropout and named.get("training", arguments[2] if len(arguments) > 2 else True):
            self.seen[arguments[1] if len(arguments) > 1 else named.get("p", 0.5)] += 1
        if function is F.scaled_dot_product_attention:
            self.seen[named.get("dropout_p", 0.0)] += 1
        return function(*arguments, **named)


DROPOUTS = {
    "modernbert": {"attention_dropout": 0.3, "mlp_dropout": 0.2, "embedding_dropout": 0.1},
    "distilbert": {"attention_dropout": 0.3, "dropout": 0.1},
}


@pytest.mark.parametrize("family", ["bert", "distilbert", "mpnet", "modernbert", "gte", "nomic_bert", "deberta-v2"])
def test_dropout_is_where_the_network_has_it(tiny, tmp_path, family, monkeypatch):
    """As many masks as in the network itself, with the same probabilities."""
    shutil.copytree(tiny(family), tmp_path / family)
    place = tmp_path / family / "config.json"
    values = json.loads(place.read_text())
    values |= DROPOUTS.get(family, {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.3})
    place.write_text(json.dumps(values))
    ours: Counter[float] = Counter()
    plain = DropoutMasks.mask

    def counted(self: DropoutMasks, shape: Any, p: float, like: Any) -> Any:
        ours[p] += 1
        return plain(self, shape, p, like)

    monkeypatch.setattr(DropoutMasks, "mask", counted)
    theirs = Drops()
    for fast in (True, False):
        built = build(str(place.parent), classes=None, seed=1, pooling="mean", fast=fast)
        built.model.train()
        table = tokenize(built.tokenizer, [["of one length"] * 3], max_length=30)
        with theirs:
            built.model(built.model.inputs(table, [0, 1, 2]))
    assert {p: count for p, count in theirs.seen.items() if p} == ours
    assert len(ours) >= 2


def test_a_head_of_modernbert_may_read_the_mean_of_all_tokens(tiny, tmp_path):
    """The architecture's own class head reads what its settings say."""
    shutil.copytree(tiny("modernbert"), tmp_path / "mean")
    place = tmp_path / "mean" / "config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "classifier_pooling": "mean"}))
    for logits_only in (False, True):
        (fast, ours), (plain, theirs) = both(tmp_path / "mean", pooling=None, logits_only=logits_only)
        assert (fast.logits - plain.logits).abs().max() < TOLERANCE
        agree(ours, theirs)


@pytest.mark.parametrize(
    "settings",
    [
        {"share_att_key": False, "position_biased_input": True, "type_vocab_size": 2},
        {"share_att_key": False, "position_buckets": -1, "max_relative_positions": 5, "norm_rel_ebd": "none"},
        {"pos_att_type": ["c2p"]}, {"pos_att_type": ["p2c"]}, {"relative_attention": False, "pos_att_type": []},
    ],
    ids=["layers of their own", "without buckets", "c2p", "p2c", "absolute"],
)  # fmt: skip
def test_kinds_of_disentangled_attention(tmp_path, settings):
    """Whatever a DeBERTa compares, states and gradients are those of AutoModel; texts are longer than the buckets."""
    config = CONFIGS["deberta-v2"]()
    for key, value in settings.items():
        setattr(config, key, value)
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(3)
        AutoModel.from_config(config).save_pretrained(tmp_path)
        TOKENIZERS["deberta-v2"]().save_pretrained(tmp_path)
    for logits_only in (False, True):
        (fast, ours), (plain, theirs) = both(tmp_path, pooling="first", logits_only=logits_only)
        assert (fast.logits - plain.logits).abs().max() < TOLERANCE
        agree(ours, theirs)


@pytest.mark.parametrize(("buckets", "longest"), [(256, 512), (32, 512), (8, 40)])
def test_buckets_of_distances_are_those_of_the_network(buckets, longest):
    distances = torch.arange(-600, 601)
    theirs = make_log_bucket_position(distances, buckets, longest).long()
    assert torch.equal(log_buckets(distances, buckets, longest), theirs)


@pytest.mark.parametrize("settings", [{"conv_kernel_size": 3}, {"embedding_size": 16}])
def test_a_deberta_with_other_parts_falls_back(settings):
    config = CONFIGS["deberta-v2"]()
    for key, value in settings.items():
        setattr(config, key, value)
    assert unpadded_encoder(AutoModel.from_config(config)) is None


@pytest.mark.parametrize("kind", ["dynamic", "yarn"])
def test_rotary_positions_that_change_with_the_text_fall_back(kind):
    """Nothing is guessed: frequencies that move, and scores that are scaled."""
    rope = {"rope_type": kind, "rope_theta": 1000.0, "factor": 2.0}
    sizes: dict[str, Any] = {
        "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
        "max_position_embeddings": 64, "pad_token_id": 0,
    }  # fmt: skip
    assert unpadded_encoder(NomicBertModel(NomicBertConfig(rope_parameters=rope, **sizes))) is None
    both_kinds = {"full_attention": rope, "sliding_attention": rope}
    assert unpadded_encoder(ModernBertModel(ModernBertConfig(rope_parameters=both_kinds, **sizes))) is None


@pytest.mark.parametrize("lengths", [(150, 140, 120), (40, 33, 25, 25), (37,), (20, 19), (5, 1)])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_that_is_padded_to_whole_vectors_is_the_same(lengths, biased):
    heads, e = 2, 8
    made = torch.Generator().manual_seed(5)
    stream = torch.randn(sum(lengths), 3 * heads * e, generator=made)
    biases = torch.randn(1, heads, 160, 160, generator=made)
    found = []
    for vectors in (False, True):
        blocks = attention_blocks(lengths, torch.device("cpu"), vectors=vectors)
        pieces = torch.split(stream, [block.stop - block.start for block in blocks])
        found.append(
            torch.cat(
                [
                    attend(
                        piece, block, heads, 0.0, DropoutMasks(training=False),
                        bias=biases[:, :, : block.longest, : block.longest] if biased else None,
                    )
                    for piece, block in zip(pieces, blocks, strict=True)
                ]
            )
        )  # fmt: skip
    torch.testing.assert_close(found[1], found[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("lengths", [(NARROW + 20, NARROW + 9), (NARROW, NARROW), (21, 18), (5,)])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_in_bf16_is_that_of_fp32_to_a_hundredth(lengths, biased):
    """Outputs and gradients of queries, keys, values and bias, for short and long texts, with and without padding."""
    heads, e, dropout = 2, 8, 0.25
    made = torch.Generator().manual_seed(5)
    (block,) = attention_blocks(lengths, torch.device("cpu"))
    stream = torch.randn(sum(lengths), 3 * heads * e, generator=made).to(torch.bfloat16)
    bias = torch.randn(1, heads, block.longest, block.longest, generator=made) if biased else None
    upper = torch.randn(sum(lengths), heads * e, generator=made).to(torch.bfloat16)
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        qkv = stream.to(dtype).requires_grad_()
        added = None if bias is None else bias.clone().requires_grad_()
        values = attend(qkv, block, heads, dropout, DropoutMasks(training=True, seed=7), bias=added)
        inputs = [qkv] if added is None else [qkv, added]
        found.append([values.detach(), *torch.autograd.grad(values, inputs, upper.to(dtype))])
    for near, exact in zip(*found, strict=True):
        assert (near.float() - exact).norm() < 0.01 * exact.norm()


def test_bf16_stays_close(tiny):
    """Under autocast the tokens are padded to whole tiles and the logits stay near."""
    built = build(str(tiny("bert")), classes=("a", "b"), seed=1)
    model = built.model.eval()
    table = tokenize(built.tokenizer, [TEXTS], max_length=30)
    rows = list(range(len(TEXTS)))
    exact = model(model.inputs(table, rows)).logits
    with torch.autocast("cpu", torch.bfloat16):
        near = model(model.inputs(table, rows)).logits

    assert (exact - near.float()).abs().max() < 0.1 * exact.abs().max() + 0.05


@pytest.mark.parametrize("logits_only", [False, True])
def test_in_bf16_products_have_few_shapes_and_the_same_results(tiny, monkeypatch, logits_only):
    """Rows are texts or whole tiles, never tokens, because kernels are kept for each shape; filling up moves nothing."""

    class Shapes(TorchFunctionMode):
        seen: list[int] = []  # noqa: RUF012

        def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            if function is F.linear:
                self.seen.append(len(arguments[0]))
            return function(*arguments, **(named or {}))

    def noted(x: Any, *weights: Any) -> Any:
        Shapes.seen.append(len(x))
        return linear(x, *weights)

    for module in (layers, cpu_parallel):
        monkeypatch.setattr(module, "linear", noted)
    built = build(str(tiny("bert")), classes=("a", "b"), seed=1, dropout=0.0)
    table = tokenize(built.tokenizer, [TEXTS], max_length=30)
    rows = list(range(len(TEXTS)))
    tokens = int(table.lengths.sum())
    assert tokens % ROUND
    results = []
    for kind in (torch.float32, torch.bfloat16):
        built.model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=kind is torch.bfloat16), Shapes() as shapes:
            output = built.model(built.model.inputs(table, rows), logits_only=logits_only)
        if kind is torch.bfloat16:
            assert set(shapes.seen) == {-(-tokens // ROUND) * ROUND, len(rows)}
        F.cross_entropy(output.logits.float(), torch.arange(len(rows)) % 2).backward()
        results.append([output.logits, *(own.grad for own in built.model.parameters() if own.grad is not None)])
        shapes.seen.clear()
    assert len(results[0]) == len(results[1]) > 10
    for exact, near in zip(*results, strict=True):
        assert (exact - near).abs().max() <= 0.1 * exact.abs().max() + 0.02
