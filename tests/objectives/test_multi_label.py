"""Objectives of several labels against loops, torch, closed forms and finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nearfar.errors import SettingError, ShapeError
from nearfar.objectives import BinaryCrossEntropy, MultiLabelSupCon, SupCon, positive_weights


def batch(n, c=4, d=5, seed=0, share=0.4):
    """Random vectors and labels; some texts have none."""
    source = torch.Generator().manual_seed(seed)
    vectors = torch.randn(n, d, dtype=torch.float64, generator=source)
    return vectors, (torch.rand(n, c, generator=source) < share).long()


def entropy_in_loops(logits, labels, weights, smoothing):
    total, (n, c) = 0.0, logits.shape
    for i in range(n):
        for k in range(c):
            target = (1 - smoothing) * labels[i, k].item() + smoothing / 2
            p = 1 / (1 + math.exp(-logits[i, k].item()))
            total -= weights[k] * target * math.log(p) + (1 - target) * math.log(1 - p)
    return total / (n * c)


def supcon_in_loops(vectors, labels, temperature):
    n, costs = len(vectors), []
    z = [[x / math.sqrt(sum(y * y for y in row)) for x in row] for row in vectors.tolist()]
    sets = [{k for k, applies in enumerate(row) if applies} for row in labels.tolist()]
    s = [[sum(a * b for a, b in zip(z[i], z[j], strict=True)) / temperature for j in range(n)] for i in range(n)]
    for i in range(n):
        weights = {p: len(sets[i] & sets[p]) / len(sets[i] | sets[p]) for p in range(n) if p != i and sets[i] | sets[p]}
        if not sum(weights.values()):
            continue
        log_sum = math.log(sum(math.exp(s[i][a]) for a in range(n) if a != i))
        costs.append(-sum(w * (s[i][p] - log_sum) for p, w in weights.items()) / sum(weights.values()))
    return sum(costs) / len(costs) if costs else 0.0


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 7), smoothing=st.sampled_from([0.0, 0.2]))
def test_binary_cross_entropy_is_the_formula_in_loops(seed, n, smoothing):
    logits, labels = batch(n, c=5, seed=seed)
    weights = torch.linspace(0, 3, 5, dtype=torch.float64)
    found = BinaryCrossEntropy(label_smoothing=smoothing, class_weights=weights)(logits, labels)
    assert found.item() == pytest.approx(entropy_in_loops(logits, labels, weights.tolist(), smoothing), abs=1e-9)


def test_binary_cross_entropy_is_torchs():
    logits, labels = batch(6, c=5)
    wanted = torch.nn.BCEWithLogitsLoss(pos_weight=torch.full((5,), 2.0))(logits, labels.double())
    torch.testing.assert_close(BinaryCrossEntropy(class_weights=torch.full((5,), 2.0))(logits, labels), wanted)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 7), share=st.sampled_from([0.1, 0.4, 0.9]))
def test_the_contrastive_objective_is_the_formula_in_loops(seed, n, share):
    vectors, labels = batch(n, seed=seed, share=share)
    found = MultiLabelSupCon(temperature=0.3)(vectors, labels)
    assert found.item() == pytest.approx(supcon_in_loops(vectors, labels, 0.3), abs=1e-5)


def test_with_one_label_a_text_it_is_supcon():
    vectors, _ = batch(9)
    classes = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0, 3])
    indicators = torch.nn.functional.one_hot(classes)
    torch.testing.assert_close(MultiLabelSupCon()(vectors, indicators), SupCon()(vectors, classes), check_dtype=False)


def test_a_text_with_more_shared_labels_is_pulled_more():
    """The gradient towards a positive is proportional to the Jaccard index, where all cosines are equal."""
    vectors = torch.eye(3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 0, 1]])
    logits = vectors @ vectors.T
    MultiLabelSupCon(temperature=1.0)(vectors, labels).backward()
    assert logits is not None
    assert vectors.grad[0, 1] < vectors.grad[0, 2]  # nearer to the text that shares both labels


@pytest.mark.parametrize("labels", [[[0, 0], [0, 0]], [[1, 0], [0, 1]], [[1, 0], [0, 0]]])
def test_without_a_shared_label_nothing_is_learned(labels):
    vectors = batch(2)[0].requires_grad_()
    loss = MultiLabelSupCon()(vectors, torch.tensor(labels))
    loss.backward()
    assert loss.item() == 0
    assert not vectors.grad.any()


@pytest.mark.parametrize("objective", [MultiLabelSupCon(), BinaryCrossEntropy()])
@pytest.mark.parametrize("n", [0, 1])
def test_degenerate_batches(objective, n):
    vectors = batch(n, d=4)[0].requires_grad_()
    loss = objective(vectors, torch.zeros(n, 4, dtype=torch.long))
    loss.backward()
    assert loss.isfinite()
    assert vectors.grad.isfinite().all()


def test_gradients_agree_with_finite_differences():
    vectors, labels = batch(5, d=4)
    vectors.requires_grad_()
    for objective in (
        MultiLabelSupCon(),
        BinaryCrossEntropy(label_smoothing=0.1, class_weights=torch.ones(4).double()),
    ):
        assert torch.autograd.gradcheck(lambda x, part=objective: part(x, labels), (vectors,))


def test_the_order_of_rows_and_labels_and_the_scale_do_not_matter():
    vectors, labels = batch(8)
    rows, columns = torch.randperm(8), torch.randperm(4)
    objective = MultiLabelSupCon()
    wanted = objective(vectors, labels)
    torch.testing.assert_close(objective(3 * vectors[rows], labels[rows][:, columns]), wanted)


def test_balanced_positives_weigh_as_much_as_negatives():
    weights = positive_weights(torch.tensor([2, 5, 0, 10]), 10)
    assert weights.tolist() == pytest.approx([4.0, 1.0, 10.0, 0.1])
    assert 2 * weights[0] == 8


@pytest.mark.parametrize("settings", [{"label_smoothing": 1.0}, {"class_weights": torch.tensor([-1.0])}])
def test_settings_are_checked(settings):
    with pytest.raises(SettingError, match="BinaryCrossEntropy"):
        BinaryCrossEntropy(**settings)


def test_shapes_and_temperature_are_checked():
    with pytest.raises(ShapeError):
        MultiLabelSupCon()(torch.ones(3, 2), torch.ones(3))
    with pytest.raises(ShapeError):
        BinaryCrossEntropy()(torch.ones(3, 2), torch.ones(3, 4))
    with pytest.raises(SettingError, match="temperature"):
        MultiLabelSupCon(temperature=0)
