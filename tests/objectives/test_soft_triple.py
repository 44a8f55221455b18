"""SoftTriple: against its formula, another library and closed forms. (Laws shared by all: test_contract.py.)"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SoftTripleLoss
from pytorch_metric_learning.regularizers import SparseCentersRegularizer
from pytorch_metric_learning.utils import common_functions
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nearfar.errors import SettingError, ShapeError
from nearfar.objectives import SoftTriple, soft_triple_blocks


def random_case(seed: int, **settings: Any) -> tuple[SoftTriple, Tensor, Tensor]:
    """A float64 objective of two to five classes and up to four centers, with one to nine embeddings."""
    source = torch.Generator().manual_seed(seed)
    n, d, c, k = (
        int(torch.randint(low, high, (), generator=source)) for low, high in ((1, 10), (2, 7), (2, 6), (1, 5))
    )
    objective = SoftTriple(c, d, centers=k, **settings).double()
    objective.centers.data = torch.randn(c, k, d, dtype=torch.float64, generator=source)
    embeddings = torch.randn(n, d, dtype=torch.float64, generator=source)
    return objective, embeddings, torch.randint(0, c, (n,), generator=source)


def unit(vector: list[float]) -> list[float]:
    return [x / math.hypot(*vector) for x in vector]


def dot(u: list[float], v: list[float]) -> float:
    return sum(x * y for x, y in zip(u, v, strict=True))


def by_the_book(
    embeddings: Tensor, labels: Tensor, centers: Tensor, gamma: float, scale: float, margin: float, spread: float
) -> float:
    """The docstring's equations, one loop per sum sign, no tensor tricks."""
    w = [[unit(center) for center in of_class] for of_class in centers.tolist()]
    costs = []
    for row, y in zip(embeddings.tolist(), labels.tolist(), strict=True):
        z = unit(row)
        own = []
        for of_class in w:
            total = sum(math.exp(dot(z, center) / gamma) for center in of_class)
            own.append(sum(math.exp(dot(z, center) / gamma) / total * dot(z, center) for center in of_class))
        right = math.exp(scale * (own[y] - margin))
        costs.append(-math.log(right / (right + sum(math.exp(scale * s) for j, s in enumerate(own) if j != y))))
    k = len(w[0])
    pairs = [
        math.sqrt(2 + 1e-5 - 2 * dot(of_class[i], of_class[j]))
        for of_class in w
        for i in range(k)
        for j in range(i + 1, k)
    ]
    return sum(costs) / len(costs) + (spread * sum(pairs) / (len(w) * k * (k - 1)) if pairs else 0.0)


@given(
    st.integers(0, 2**16), st.sampled_from([0.1, 1.0]), st.sampled_from([3.0, 20.0]), st.sampled_from([0.0, 0.01, 1.0]),
    st.sampled_from([0.0, 0.2, 2.0]),
)  # fmt: skip
def test_matches_the_formula_written_as_loops(seed, gamma, scale, margin, spread):
    """The vectorized and the literal version agree, with one center a class and with several."""
    objective, embeddings, labels = random_case(seed, gamma=gamma, scale=scale, margin=margin, spread=spread)
    expected = by_the_book(embeddings, labels, objective.centers, gamma, scale, margin, spread)

    assert objective(embeddings, labels).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_agrees_with_pytorch_metric_learning_in_value_and_gradients(monkeypatch):
    """Two hundred batches with and without the regularizer; gradients of embeddings and of centers."""
    monkeypatch.setattr(common_functions, "small_val", lambda _dtype: 1e-5)  # it has its own; the paper's code has this
    regularized = 0
    for seed in range(200):
        spread = (0.0, 0.2)[seed % 2]
        objective, embeddings, labels = random_case(seed, gamma=0.2, scale=5.0, margin=0.1, spread=spread)
        c, k, d = objective.centers.shape
        drawn = SparseCentersRegularizer(c, k) if spread and k > 1 else None
        regularized += drawn is not None
        other = SoftTripleLoss(
            c, d, centers_per_class=k, la=5.0, gamma=0.2, margin=0.1, weight_regularizer=drawn, weight_reg_weight=spread
        )  # fmt: skip
        other.fc = nn.Parameter(objective.centers.detach().reshape(c * k, d).T.clone())
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        found, expected = objective(ours, labels), other(theirs, labels)
        found.backward()
        expected.backward()

        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(objective.centers.grad, other.fc.grad.T.reshape(c, k, d), rtol=1e-8, atol=1e-10)
    assert regularized > 50


@pytest.mark.parametrize("c", [2, 7])
def test_equal_centers_cost_the_log_of_the_number_of_classes(c):
    """Without a margin every class is a fair draw, however many centers it has."""
    objective = SoftTriple(c, 3, margin=0.0)
    nn.init.ones_(objective.centers)

    assert objective(torch.randn(5, 3), torch.arange(5) % c).item() == pytest.approx(math.log(c), rel=1e-5)


def test_a_margin_costs_as_if_the_own_class_stood_that_much_farther():
    """With equal centers: log(1 + (c - 1) exp(scale * margin))."""
    objective = SoftTriple(4, 3, margin=0.5, scale=2.0)
    nn.init.ones_(objective.centers)

    assert objective(torch.ones(2, 3), torch.tensor([0, 3])).item() == pytest.approx(math.log1p(3 * math.e), rel=1e-5)


def test_one_center_a_class_is_a_normalized_softmax():
    """The assignment disappears: cross-entropy of scaled cosine similarities."""
    source = torch.Generator().manual_seed(0)
    objective = SoftTriple(3, 4, centers=1, margin=0.0, scale=7.0, spread=0.2)
    embeddings, labels = torch.randn(6, 4, generator=source), torch.tensor([0, 1, 2, 2, 1, 0])
    cosine = torch.cosine_similarity(embeddings.unsqueeze(1), objective.centers.squeeze(1).unsqueeze(0), dim=2)

    torch.testing.assert_close(objective(embeddings, labels), nn.functional.cross_entropy(7.0 * cosine, labels))


def test_opposite_centers_pay_half_their_distance():
    """Two centers a class, 2 apart: the regularizer is 2 / (2 * 1), times its weight."""
    centers = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]] * 3, dtype=torch.float64)
    embeddings, labels = torch.ones(1, 2, dtype=torch.float64), torch.tensor([1])
    values = []
    for spread in (0.0, 0.7):
        objective = SoftTriple(3, 2, centers=2, spread=spread).double()
        objective.centers.data = centers
        values.append(objective(embeddings, labels).item())

    assert values[1] - values[0] == pytest.approx(0.7, rel=1e-5)


@pytest.mark.parametrize("autocast", [False, True])
def test_centers_that_coincide_keep_a_finite_gradient(autocast):
    """The regularizer pulls centers together, so they may coincide; the square root must survive that."""
    objective = SoftTriple(3, 64, centers=4, spread=0.2)
    objective.centers.data = torch.randn(3, 1, 64, generator=torch.Generator().manual_seed(0)).expand(3, 4, 64).clone()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = objective(torch.ones(2, 64), torch.tensor([0, 2]))
    loss.backward()

    assert loss.isfinite()
    assert objective.centers.grad.isfinite().all()


def test_embeddings_of_another_width_than_the_centers_are_refused():
    """The message names the centers and the embeddings."""
    with pytest.raises(
        ShapeError, match=r"centers must be \(c, k, d\) with d = 5 as in embeddings, got shape \(3, 10, 4\)"
    ):
        SoftTriple(3, 4)(torch.zeros(2, 5), torch.tensor([0, 1]))


def test_centers_follow_the_seed_and_lie_within_the_bound():
    """Drawn evenly within one over the root of their number, from torch's generator."""
    drawn = []
    for _ in range(2):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            drawn.append(SoftTriple(8, 50, centers=2).centers.detach())

    assert torch.equal(*drawn)
    assert drawn[0].abs().max() <= 0.25
    assert drawn[0].abs().max() > 0.24


# The blocks. Small ones, so that a few embeddings fill several.

BLOCK = 8


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of eight embeddings."""
    monkeypatch.setattr(soft_triple_blocks, "BLOCK", BLOCK)


def dense(objective: SoftTriple, embeddings: Tensor, labels: Tensor) -> Tensor:
    """The formula in one piece, with an (n, c, k) tensor for every step of it."""
    z, w = F.normalize(embeddings, dim=1), F.normalize(objective.centers, dim=2)
    s = torch.einsum("nd,ckd->nck", z, w)
    similarity = (s * (s / objective.gamma).softmax(dim=2)).sum(dim=2)
    margin = objective.margin * F.one_hot(labels, len(w)).to(similarity.dtype)
    return F.cross_entropy(objective.scale * (similarity - margin), labels)


def sized_case(n: int, c: int = 3, k: int = 4, d: int = 5, **settings: Any) -> tuple[SoftTriple, Tensor, Tensor]:
    """A float64 objective with random centers, and n embeddings that ask for gradients."""
    source = torch.Generator().manual_seed(n + 100 * k)
    objective = SoftTriple(c, d, centers=k, **settings).double()
    objective.centers.data = torch.randn(c, k, d, dtype=torch.float64, generator=source)
    embeddings = torch.randn(n, d, dtype=torch.float64, generator=source).requires_grad_()
    return objective, embeddings, torch.randint(0, c, (n,), generator=source)


class Watch(TorchDispatchMode):
    """Notes the size of the largest tensor made, and how often every operation ran."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.calls[name] = self.calls.get(name, 0) + 1
        sizes = [leaf.untyped_storage().nbytes() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.largest = max([self.largest, *sizes])
        return result


@pytest.mark.parametrize("k", [1, 4, 50])
@pytest.mark.parametrize("n", [1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 5])
@pytest.mark.usefixtures("small_blocks")
def test_blocks_compute_like_the_formula_in_one_piece(n, k):
    """Value and both gradients, for one block, several and a broken one."""
    objective, embeddings, labels = sized_case(n, k=k)
    found, expected = (compute(embeddings, labels) for compute in (objective, lambda *batch: dense(objective, *batch)))
    wanted = [embeddings, objective.centers]

    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    for ours, plain in zip(torch.autograd.grad(found, wanted), torch.autograd.grad(expected, wanted), strict=True):
        assert plain.abs().sum() > 0
        torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-14)


def test_blocks_compute_like_the_formula_at_their_real_size():
    """In fp32, with more embeddings than a block and thousands of centers."""
    objective, embeddings, labels = sized_case(soft_triple_blocks.BLOCK + 37, c=4, k=2000, d=16)
    objective, embeddings = objective.float(), embeddings.detach().float().requires_grad_()
    found, expected = objective(embeddings, labels), dense(objective, embeddings, labels)
    wanted = [embeddings, objective.centers]

    torch.testing.assert_close(found, expected)
    for ours, plain in zip(torch.autograd.grad(found, wanted), torch.autograd.grad(expected, wanted), strict=True):
        assert (ours - plain).abs().max() < 1e-5 * plain.abs().max()


@pytest.mark.parametrize("gamma", [0.003, 0.1, 10.0])
@pytest.mark.usefixtures("small_blocks")
def test_hard_and_soft_assignments_keep_their_gradients(gamma):
    """In fp32: exp(s / gamma) alone would overflow with the first of these."""
    objective, embeddings, labels = sized_case(2 * BLOCK + 1, k=20, gamma=gamma)
    expected = torch.autograd.grad(dense(objective, embeddings, labels), [embeddings, objective.centers])
    objective, embeddings = objective.float(), embeddings.detach().float().requires_grad_()
    found = torch.autograd.grad(objective(embeddings, labels), [embeddings, objective.centers])

    for ours, exact in zip(found, expected, strict=True):
        assert (ours.double() - exact).abs().max() < 1e-4 * exact.abs().max()


@pytest.mark.parametrize("spread", [0.0, 0.2])
@pytest.mark.parametrize("labels", [[0] * 11, [2, 1, 0], [0] * 10 + [2]], ids=["one class", "all alone", "one alone"])
@pytest.mark.usefixtures("small_blocks")
def test_gradients_are_those_of_the_value_across_blocks(labels, spread):
    """Central differences in float64, with classes that one embedding has or none."""
    objective, embeddings, _ = sized_case(len(labels), spread=spread)

    def value(vectors: Tensor, centers: Tensor) -> Tensor:
        return torch.func.functional_call(objective, {"centers": centers}, (vectors, torch.tensor(labels)))

    assert torch.autograd.gradcheck(value, (embeddings, objective.centers))


@pytest.mark.usefixtures("small_blocks")
def test_embeddings_too_short_to_normalize_stay_and_centers_get_the_gradients_of_normalize():
    """A zero embedding and a tiny one are zero and do not move; a zero center is as the formula in one piece has it."""
    objective, embeddings, labels = sized_case(BLOCK + 2)
    objective.centers.data[1, 2] = 0
    scale = torch.ones(len(embeddings), 1, dtype=torch.float64)
    scale[0], scale[-1] = 0, 1e-15
    embeddings = (embeddings.detach() * scale).requires_grad_()
    wanted = [embeddings, objective.centers]
    found = torch.autograd.grad(objective(embeddings, labels), wanted)
    embeddings.data[[0, -1]] = 0
    moved, centers = torch.autograd.grad(dense(objective, embeddings, labels), wanted)
    moved[[0, -1]] = 0

    torch.testing.assert_close(found, (moved, centers), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("frozen", ["embeddings", "centers"])
@pytest.mark.usefixtures("small_blocks")
def test_only_what_asks_for_a_gradient_gets_one(frozen):
    """The other gradient is the same as ever, and its product is saved."""
    objective, embeddings, labels = sized_case(2 * BLOCK)
    expected = dict(
        zip(("embeddings", "centers"), torch.autograd.grad(objective(embeddings, labels), [embeddings, objective.centers]), strict=True)
    )  # fmt: skip
    tensors = {"embeddings": embeddings, "centers": objective.centers}
    tensors.pop(frozen).requires_grad_(False)
    with Watch() as watch:
        objective(embeddings, labels).backward()

    ((name, tensor),) = tensors.items()
    torch.testing.assert_close(tensor.grad, expected[name])
    assert {"embeddings": embeddings, "centers": objective.centers}[frozen].grad is None
    products = sum(watch.calls.get(name, 0) for name in ("mm", "addmm", "addmm_"))
    assert products == 2 * 2  # two blocks: similarities, one gradient


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode, None])
@pytest.mark.usefixtures("small_blocks")
def test_without_gradients_only_the_value_is_computed(off):
    """One product a block, and the same value."""
    objective, embeddings, labels = sized_case(2 * BLOCK + 1)
    expected = objective(embeddings, labels).detach()
    if off is None:
        objective.requires_grad_(False)
        embeddings = embeddings.detach()
    with Watch() as watch, off() if off else torch.enable_grad():
        found = objective(embeddings, labels)

    assert torch.equal(found, expected)
    assert not found.requires_grad
    assert watch.calls["mm"] == 3
    assert "addmm_" not in watch.calls


@pytest.mark.usefixtures("small_blocks")
def test_what_comes_from_above_multiplies_the_gradients():
    """A factor, a sum with another loss of the same tensors, and accumulation over calls."""
    objective, embeddings, labels = sized_case(BLOCK + 3)
    once = torch.autograd.grad(objective(embeddings, labels), [embeddings, objective.centers])
    (3.7 * objective(embeddings, labels) + embeddings.sum() + objective.centers.sum()).backward()
    objective(embeddings, labels).backward()

    torch.testing.assert_close(embeddings.grad, 4.7 * once[0] + 1)
    torch.testing.assert_close(objective.centers.grad, 4.7 * once[1] + 1)


def test_a_second_backward_needs_a_kept_graph():
    """Torch's own error without one; the same gradients again with one."""
    objective, embeddings, labels = sized_case(5)
    loss = objective(embeddings, labels)
    loss.backward(retain_graph=True)
    first = embeddings.grad.clone()
    loss.backward()

    torch.testing.assert_close(embeddings.grad, 2 * first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_gradients_of_gradients_are_refused():
    """The first ones are constants to autograd, so it cannot go through them."""
    objective, embeddings, labels = sized_case(5)
    (grad,) = torch.autograd.grad(objective(embeddings, labels), [embeddings], create_graph=True)

    with pytest.raises(RuntimeError, match="does not require grad"):
        grad.sum().backward()


@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_many_centers_in_bf16_are_as_exact_as_embeddings_from_bf16(noise):
    """Value and gradients beside those in fp32, near the centers and far, for whole blocks and a broken one."""
    source = torch.Generator().manual_seed(3)
    n, c, k, d = 2 * soft_triple_blocks.BLOCK + 9, 4, 500, 32
    objective = SoftTriple(c, d, centers=k)
    middles, labels = torch.randn(c, d, generator=source), torch.randint(0, c, (n,), generator=source)
    objective.centers.data = middles[:, None] + noise * torch.randn(c, k, d, generator=source)
    embeddings = (middles[labels] + noise * torch.randn(n, d, generator=source)).requires_grad_()
    results = []
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast), Watch() as watch:
            loss = objective(embeddings, labels)
        assert watch.largest == soft_triple_blocks.BLOCK * c * k * 4, "the buffers of a block have as many bytes"
        results.append([loss.detach(), *torch.autograd.grad(loss, [embeddings, objective.centers])])
    (value, *exact), (near, *found) = results
    assert not torch.equal(value, near), "it computes in bf16"
    assert near.dtype == found[0].dtype == found[1].dtype == torch.float32
    torch.testing.assert_close(near, value, rtol=0.005, atol=0)
    for ours, plain in zip(found, exact, strict=True):
        assert (ours - plain).norm() < 0.03 * plain.norm()


def test_a_hard_assignment_stays_in_fp32():
    """Similarities are divided by a small gamma, and their rounding with them."""
    objective, embeddings, labels = sized_case(20, c=4, k=500, d=8, gamma=0.01)
    objective, embeddings = objective.float(), embeddings.detach().float()
    with torch.autocast("cpu", torch.bfloat16):
        low = objective(embeddings, labels)
    assert torch.equal(low, objective(embeddings, labels))


def test_autocast_changes_nothing_across_blocks():
    """The products of few centers stay in fp32 under bf16 autocast, forward and backward."""
    objective, embeddings, labels = sized_case(soft_triple_blocks.BLOCK + 9, k=30)
    objective, embeddings = objective.float(), embeddings.detach().float().requires_grad_()
    results = []
    for autocast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = objective(embeddings, labels)
        results.append([loss.detach(), *torch.autograd.grad(loss, [embeddings, objective.centers])])

    assert all(map(torch.equal, *results))


def test_the_same_call_gives_the_same_bits():
    """Blocks are summed in one order."""
    objective, embeddings, labels = sized_case(soft_triple_blocks.BLOCK + 9, k=30)
    embeddings = embeddings.detach().float().requires_grad_()
    objective = objective.float()
    first, second = (
        torch.autograd.grad(objective(embeddings, labels), [embeddings, objective.centers]) for _ in range(2)
    )

    assert all(map(torch.equal, first, second))


def test_labels_outside_the_classes_are_refused():
    """A negative one too: no embedding is left out silently."""
    for wrong in (3, -1, -100):
        with pytest.raises(SettingError, match="labels must be from 0 to 2"):
            SoftTriple(3, 4)(torch.ones(2, 4), torch.tensor([0, wrong]))


@pytest.mark.parametrize("blocks", [2, 5])
@pytest.mark.usefixtures("small_blocks")
def test_no_tensor_is_larger_than_a_block_of_similarities(blocks):
    """However many embeddings come: neither while computing nor while going back, and nothing such is kept."""
    n, c, k, d = blocks * BLOCK, 3, 100, 2
    objective, embeddings, labels = sized_case(n, c, k, d)
    kept = []
    with Watch() as watch, torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        objective(embeddings, labels).backward()

    assert watch.largest == BLOCK * c * k * 8  # bytes
    assert sorted(kept) == [n * d, c * k * d]

    with Watch() as plain:
        dense(objective, embeddings, labels).backward()
    assert plain.largest >= n * c * k * 8  # the watch bites
