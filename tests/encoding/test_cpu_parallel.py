"""A batch on several cores: the numbers of the plain fast path, cut by the texts alone."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nearfar.encoding import build, cpu_parallel, tokenize
from nearfar.encoding.dropout import DropoutMasks
from nearfar.encoding.unpadded import Unpadded

TEXTS = [" ".join(["word", "other", "x"][: 1 + k % 3] * (1 + k % 7)) for k in range(40)]


@pytest.fixture(autouse=True)
def several(monkeypatch):
    """Three threads, also where the machine has one core, and parts of few tokens."""
    monkeypatch.setattr(cpu_parallel, "threads", lambda: 3)
    monkeypatch.setattr(cpu_parallel, "LEAST", 16)


def trained(folder: Any, *, dropout: float, logits_only: bool = False, sparse: bool = False, seed: int = 0) -> Any:
    """States, logits and gradients of one backward pass."""
    built = build(str(folder), classes=("a", "b", "c"), seed=1, pooling="first", dropout=dropout)
    model = built.model.train()
    assert model.unpadded is not None
    model.unpadded.words.sparse = sparse
    table = tokenize(built.tokenizer, [TEXTS], max_length=30)
    torch.manual_seed(seed)
    output = model(table.unpadded(np.arange(len(TEXTS))[::-1]), logits_only=logits_only)
    (output.logits.pow(2).sum() + output.states.cos().mean()).backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return output.states.detach(), output.logits.detach(), gradients


@pytest.mark.parametrize("logits_only", [False, True], ids=["all", "firsts"])
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra"])
def test_states_and_gradients_are_those_of_one_thread(tiny, monkeypatch, family, logits_only):
    """Without dropout the parts together compute what the whole batch does, for every weight."""
    states, logits, gradients = trained(tiny(family), dropout=0.0, logits_only=logits_only)
    monkeypatch.setattr(cpu_parallel, "threads", lambda: 1)
    plain_states, plain_logits, plain = trained(tiny(family), dropout=0.0, logits_only=logits_only)

    torch.testing.assert_close(states, plain_states, atol=1e-5, rtol=0)
    torch.testing.assert_close(logits, plain_logits, atol=1e-5, rtol=0)
    assert gradients.keys() == plain.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            gradient, plain[name], atol=1e-5 * float(plain[name].abs().max().clamp(min=1)), rtol=0
        )


def test_row_wise_gradients_of_words_add_up(tiny):
    """Sparse gradients of the parts are those of the whole, in dense form."""
    _, _, dense = trained(tiny("bert"), dropout=0.0)
    _, _, rows = trained(tiny("bert"), dropout=0.0, sparse=True)
    name = next(name for name in dense if "word_embeddings" in name)

    assert rows[name].is_sparse
    torch.testing.assert_close(rows[name].to_dense(), dense[name], atol=1e-5, rtol=1e-5)


def test_the_same_seed_gives_the_same_bits_and_parts_have_other_masks(tiny):
    """Dropout is drawn before the threads start, so that their order does not matter."""
    first = trained(tiny("bert"), dropout=0.3, seed=5)
    again = trained(tiny("bert"), dropout=0.3, seed=5)
    other = trained(tiny("bert"), dropout=0.3, seed=6)

    assert torch.equal(first[0], again[0])
    assert all(torch.equal(first[2][name], again[2][name]) for name in first[2])
    assert not torch.equal(first[0], other[0])

    built = build(str(tiny("bert")), classes=("a", "b"), seed=1, dropout=0.3)
    table = tokenize(built.tokenizer, [["the same words here"] * 24], max_length=30)
    states = built.model.train()(table.unpadded(np.arange(24))).states.view(24, -1)
    assert len({tuple(row.tolist()) for row in states}) == 24


def test_bits_do_not_depend_on_what_else_computes(tiny):
    """A neighbor that keeps the cores busy changes nothing but the time."""
    alone = trained(tiny("bert"), dropout=0.1)

    def work(seed: int) -> None:
        own = torch.Generator().manual_seed(seed)
        for _ in range(20):
            torch.randn(400, 400, generator=own) @ torch.randn(400, 400, generator=own)

    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(work, seed) for seed in range(2)]
        beside = trained(tiny("bert"), dropout=0.1)
        for future in busy:
            future.result()
    assert torch.equal(alone[0], beside[0])
    assert all(torch.equal(alone[2][name], beside[2][name]) for name in alone[2])


def test_without_gradients_nothing_is_kept(tiny):
    """Embedding runs on the threads as well, and leaves no graph."""
    built = build(str(tiny("bert")), classes=None, seed=1)
    table = tokenize(built.tokenizer, [TEXTS], max_length=30)
    with torch.no_grad():
        states = built.model.eval()(table.unpadded(np.arange(len(TEXTS)))).states
    assert not states.requires_grad
    for weight in built.model.parameters():
        weight.requires_grad = False
    frozen = built.model(table.unpadded(np.arange(len(TEXTS)))).states
    assert torch.equal(frozen, states)


def test_frozen_weights_get_no_gradient(tiny):
    """Weights that are not trained stay out of the backward pass."""
    built = build(str(tiny("bert")), classes=("a", "b"), seed=1)
    assert built.model.unpadded is not None
    built.model.unpadded.words.weight.requires_grad = False
    table = tokenize(built.tokenizer, [TEXTS], max_length=30)
    built.model(table.unpadded(np.arange(len(TEXTS)))).logits.sum().backward()
    assert built.model.unpadded.words.weight.grad is None
    assert built.model.unpadded.layers[0].up.weight.grad is not None


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra", "modernbert", "nomic_bert"])
def test_copies_in_bf16_compute_what_autocast_does(tiny, monkeypatch, family):
    """One copy of the matrices serves a pass; states are autocast's to the bit, and gradients reach the fp32 weights."""
    monkeypatch.setattr(cpu_parallel, "threads", lambda: 1)
    built = build(str(tiny(family)), classes=("a", "b"), seed=1, pooling="first", dropout=0.0)
    encoder = built.model.train().unpadded
    assert encoder is not None
    batch = tokenize(built.tokenizer, [TEXTS], max_length=30).unpadded(np.arange(len(TEXTS)))
    found = []
    for compute in (
        cpu_parallel.encode,
        lambda encoder, batch, *, training: encoder.forward(batch, DropoutMasks(training=training)),
    ):
        built.model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16):
            states = compute(encoder, batch, training=True)
        states.float().pow(2).mean().backward()
        found.append((states.detach(), {weight: weight.grad for weight in encoder.weights()}))

    (ours, mine), (plain, theirs) = found
    assert torch.equal(ours, plain)
    for weight, gradient in mine.items():
        assert weight.dtype == torch.float32
        assert gradient is not None
        assert gradient.dtype == torch.float32
        assert torch.equal(gradient, theirs[weight])


def test_parts_in_bf16_add_up_in_fp32(tiny):
    """Three parts give the gradients of fp32 as far as bf16 can, in the weights' own type."""
    built = build(str(tiny("bert")), classes=None, seed=1, dropout=0.0)
    encoder = built.model.train().unpadded
    assert encoder is not None
    batch = tokenize(built.tokenizer, [TEXTS], max_length=30).unpadded(np.arange(len(TEXTS)))
    gradients = []
    for low in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            states = cpu_parallel.encode(encoder, batch, training=True)
        (grown,) = torch.autograd.grad(states.float().cos().sum(), [encoder.layers[0].up.weight])
        gradients.append(grown)
    assert gradients[0].dtype == torch.float32
    assert 0 < (gradients[0] - gradients[1]).norm() < 0.05 * gradients[1].norm()


def test_a_graph_may_outlive_the_next_pass(tiny):
    """Two passes and then their gradients: the copies of the first are not those of the second."""
    built = build(str(tiny("bert")), classes=None, seed=1, dropout=0.0)
    encoder = built.model.train().unpadded
    assert encoder is not None
    batch = tokenize(built.tokenizer, [TEXTS], max_length=30).unpadded(np.arange(len(TEXTS)))
    weight = encoder.layers[0].up.weight
    with torch.autocast("cpu", torch.bfloat16):
        first = cpu_parallel.encode(encoder, batch, training=True).float().cos().sum()
        (alone,) = torch.autograd.grad(cpu_parallel.encode(encoder, batch, training=True).float().cos().sum(), [weight])
        second = cpu_parallel.encode(encoder, batch, training=True).float().cos().sum()
    (both,) = torch.autograd.grad(first + second, [weight])
    torch.testing.assert_close(both, 2 * alone)


def test_new_weights_are_read_in_the_next_pass(tiny):
    """The copies follow the weights, also where an optimizer changes them unnoticed by autograd."""
    built = build(str(tiny("bert")), classes=None, seed=1)
    encoder = built.model.eval().unpadded
    assert encoder is not None
    batch = tokenize(built.tokenizer, [TEXTS], max_length=30).unpadded(np.arange(len(TEXTS)))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = cpu_parallel.encode(encoder, batch, training=False)
        encoder.layers[0].up.weight.data.mul_(2)
        after = cpu_parallel.encode(encoder, batch, training=False)
    assert not torch.equal(before, after)


def test_the_callers_threads_stay_as_they_were(monkeypatch):
    """Only the pool's own threads compute alone."""
    monkeypatch.setattr(cpu_parallel, "_pools", {})  # so that a pool begins here
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert cpu_parallel.run_parallel([torch.get_num_threads, torch.get_num_threads], 3) == [1, 1]
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)


def test_parts_of_large_encoders_are_fewer_and_have_more_threads(tiny, monkeypatch):
    """The gradients of all parts but one stay below the bound, and no thread is left out."""
    monkeypatch.setattr(cpu_parallel, "threads", lambda: 6)
    weights = [torch.zeros(1000, 100), torch.zeros(100)]
    size = 4 * 100_100
    for bound, parts in ((0, 1), (size - 1, 1), (size, 2), (2 * size, 3), (100 * size, 6)):
        monkeypatch.setattr(cpu_parallel, "EXTRA", bound)
        assert cpu_parallel.workers(weights) == parts
    assert cpu_parallel.workers([]) == 6
    assert cpu_parallel.run_parallel([torch.get_num_threads] * 3, 3) == [2, 2, 2]

    monkeypatch.setattr(cpu_parallel, "EXTRA", 0)
    gone = "no part of its own"
    monkeypatch.setattr(cpu_parallel, "run_parallel", lambda *_: pytest.fail(gone))
    trained(tiny("bert"), dropout=0.1)
    built = build(str(tiny("bert")), classes=None, seed=1)
    table = tokenize(built.tokenizer, [TEXTS], max_length=30)
    with torch.no_grad(), pytest.raises(pytest.fail.Exception, match=gone):  # without gradients nothing is in the way
        built.model.eval()(table.unpadded(np.arange(len(TEXTS))))


def test_what_goes_wrong_in_a_thread_is_told_to_the_caller():
    """An error is not lost."""

    def wrong() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cpu_parallel.run_parallel([wrong, wrong], 2)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80), st.integers(1, 9))
def test_parts_are_the_stream_in_order(lengths, most):
    """Every text is in one part, in its place, and no part has much more to do than another."""
    ordered = tuple(sorted(lengths, reverse=True))
    ids = torch.arange(sum(ordered))
    parts = cpu_parallel.split(Unpadded(ids, ids % 2, ordered, torch.arange(len(ordered))), most)

    assert len(parts) <= most
    assert sum((part.lengths for part in parts), ()) == ordered
    assert torch.equal(torch.cat([part.ids for part in parts]), ids)
    assert torch.equal(torch.cat([part.types for part in parts if part.types is not None]), ids % 2)
    for part in parts:
        assert len(part.ids) == sum(part.lengths) > 0
    if len(parts) > 1:
        work = [sum(length * (1 + length / cpu_parallel.SQUARE) for length in part.lengths) for part in parts]
        assert max(work) <= sum(work) / len(parts) + 1.06 * ordered[0]


def _in_a_child(queue: Any) -> None:
    queue.put(cpu_parallel.run_parallel([torch.get_num_threads] * 2, 3))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    """Threads do not survive a fork; the child starts new ones."""
    cpu_parallel.run_parallel([torch.get_num_threads] * 2, 3)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_a_child, args=(queue,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert queue.get() == [1, 1]


def test_a_small_job_runs_alone_with_one_torch_thread_and_the_modes_of_the_caller():
    def state() -> tuple[int, bool, str]:
        return torch.get_num_threads(), torch.is_grad_enabled(), threading.current_thread().name

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with torch.no_grad():
            threads, gradients, name = cpu_parallel.run_alone(state)
        assert (threads, gradients) == (1, False)
        assert name.startswith("nearfar-encoder")
        assert cpu_parallel.run_alone(state)[1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
