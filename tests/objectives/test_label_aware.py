"""Label-aware contrast: against its formula, SupCon and closed forms. (Laws shared by all: test_contract.py.)"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor

from nearfar.errors import SettingError, ShapeError
from nearfar.objectives import LabelAware, SupCon
from nearfar.objectives.inputs import same_class

CLASSES = 4


def random_batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Two to nine float64 embeddings in up to four classes, anchors without a positive included, and logits of a weighting network."""
    source = torch.Generator().manual_seed(seed)
    n, d = (int(torch.randint(2, most, (), generator=source)) for most in (10, 7))
    embeddings = torch.randn(n, d, dtype=torch.float64, generator=source)
    labels = torch.randint(0, CLASSES, (n,), generator=source)
    return embeddings, labels, 2 * torch.randn(n, CLASSES, dtype=torch.float64, generator=source)


def by_the_book(embeddings: Tensor, labels: Tensor, probabilities: Tensor, tau: float) -> float:
    """The docstring's equation, one loop per sum sign, no tensor tricks."""
    z = [[x / math.hypot(*row) for x in row] for row in embeddings.tolist()]
    s = [[sum(x * y for x, y in zip(u, v, strict=True)) for v in z] for u in z]
    w, y = probabilities.tolist(), labels.tolist()
    costs = []
    for i in range(len(z)):
        others = [k for k in range(len(z)) if k != i]
        positives = [p for p in others if y[p] == y[i]]
        field = sum(w[i][y[k]] * math.exp(s[i][k] / tau) for k in others)
        if positives:
            costs.append(
                -w[i][y[i]] * sum(math.log(math.exp(s[i][p] / tau) / field) for p in positives) / len(positives)
            )
    return sum(costs) / len(costs) if costs else 0.0


@given(st.integers(0, 2**16), st.sampled_from([0.07, 0.3, 2.0]))
def test_matches_the_formula_written_as_loops(seed, tau):
    """The vectorized and the literal version agree on every batch, anchors without a positive included."""
    embeddings, labels, logits = random_batch(seed)
    probabilities = logits.softmax(dim=1)
    expected = by_the_book(embeddings, labels, probabilities, tau)

    found = LabelAware(temperature=tau)(embeddings, labels, probabilities)

    assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_even_weights_give_supcon_less_the_log_of_the_classes_over_the_classes():
    """The field shrinks to a C-th, and so does the anchor's own weight; with weights of one it is SupCon itself."""
    unpaired = without = 0
    for seed in range(300):
        embeddings, labels, _ = random_batch(seed)
        positives = same_class(labels).any(dim=1)
        unpaired += bool(positives.any() and not positives.all())
        without += not positives.any()
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        ones = torch.ones(len(labels), CLASSES, dtype=torch.float64)
        found, supcon = (
            LabelAware(temperature=0.2)(ours, labels, ones / CLASSES),
            SupCon(temperature=0.2)(theirs, labels),
        )
        expected = (supcon - math.log(CLASSES)) / CLASSES if positives.any() else supcon
        found.backward()
        expected.backward()

        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-10)
        torch.testing.assert_close(LabelAware(temperature=0.2)(ours, labels, ones), supcon, rtol=1e-9, atol=1e-12)
    assert unpaired > 100
    assert without > 10


def test_weights_of_one_agree_with_pytorch_metric_learning_in_value_and_gradient():
    """Its SupCon is an implementation that shares nothing with ours."""
    for seed in range(100):
        embeddings, labels, _ = random_batch(seed)
        if len(labels.unique()) == 1:
            continue
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        found = LabelAware()(ours, labels, torch.ones(len(labels), CLASSES, dtype=torch.float64))
        expected = SupConLoss(temperature=0.3)(theirs, labels)
        found.backward()
        expected.backward()

        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_gradients_flow_into_embeddings_and_probabilities(seed):
    """Central differences agree, with respect to each alone and the network's logits."""
    embeddings, labels, logits = random_batch(seed)
    objective = LabelAware()

    def value(embeddings: Tensor, logits: Tensor) -> Tensor:
        return objective(embeddings, labels, logits.softmax(dim=1))

    assert torch.autograd.gradcheck(value, (embeddings.requires_grad_(), logits.requires_grad_()))
    probabilities = logits.detach().softmax(dim=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: objective(embeddings.detach(), labels, w), (probabilities,))


def test_one_point_for_all_costs_what_the_weights_leave():
    """Two texts each of two classes, own class at 0.9: 0.9 log(0.9 + 2 * 0.1)."""
    probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]], dtype=torch.float64)
    loss = LabelAware()(torch.ones(4, 3, dtype=torch.float64), torch.tensor([0, 0, 1, 1]), probabilities)

    assert loss.item() == pytest.approx(0.9 * math.log(1.1))


def test_a_class_that_seems_likely_pushes_its_texts_away_harder():
    """Two negatives at the same angle on either side: the gradient turns the anchor away from the likelier one."""
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8], [0.6, -0.8]], requires_grad=True)
    probabilities = torch.tensor([[0.5, 0.4, 0.1]]).expand(4, -1)
    LabelAware()(embeddings, torch.tensor([0, 0, 1, 2]), probabilities).backward()

    assert embeddings.grad[0, 1] > 0


@pytest.mark.parametrize("labels", [[0], [0, 1], [2, 1, 0]])
def test_a_batch_without_positives_costs_nothing_and_moves_nothing(labels):
    """Exactly zero with zero gradients, never NaN: the optimizer may step as if nothing happened."""
    source = torch.Generator().manual_seed(0)
    embeddings = torch.randn(len(labels), 3, generator=source).requires_grad_()
    probabilities = torch.rand(len(labels), 3, generator=source).requires_grad_()
    loss = LabelAware()(embeddings, torch.tensor(labels), probabilities)
    loss.backward()

    assert loss.item() == 0.0
    assert torch.equal(embeddings.grad, torch.zeros_like(embeddings))
    assert torch.equal(probabilities.grad, torch.zeros_like(probabilities))


@pytest.mark.parametrize("likely", range(4))
def test_probabilities_of_exactly_zero_stay_finite(likely):
    """A sure network, right or wrong, or sure of a class that no text of the batch has."""
    embeddings, labels, _ = random_batch(4)
    labels = torch.arange(len(labels)) % 3
    assert same_class(labels).any()
    probabilities = torch.zeros(len(labels), CLASSES)
    probabilities[:, likely] = 1
    ours = embeddings.float().requires_grad_()
    loss = LabelAware()(ours, labels, probabilities.requires_grad_())
    loss.backward()

    assert loss.isfinite()
    assert ours.grad.isfinite().all()
    assert probabilities.grad.isfinite().all()
    if likely == 3:
        assert loss.item() == 0.0


def test_a_low_temperature_stays_finite():
    """At a temperature of 0.001 exponentials overflow, their logarithms do not."""
    embeddings, labels, logits = random_batch(1)
    probabilities = logits.float().softmax(dim=1)
    loss = LabelAware(temperature=0.001)(embeddings.float(), torch.zeros_like(labels), probabilities)

    assert loss.isfinite()
    assert loss > 0


def test_lengths_of_embeddings_do_not_matter():
    """Only directions count."""
    embeddings, labels, logits = random_batch(5)
    probabilities = logits.softmax(dim=1)
    assert same_class(labels).any()

    found, expected = (LabelAware()(factor * embeddings, labels, probabilities) for factor in (30, 1))

    torch.testing.assert_close(found, expected)


def test_probabilities_that_do_not_fit_are_refused():
    """Another number of texts, no axis of classes, and labels that have no column: -1 is not the last one."""
    embeddings, labels = torch.ones(3, 2), torch.tensor([0, 1, 1])

    with pytest.raises(
        ShapeError, match=r"class_probabilities must be \(n, c\) with n = 3 as in embeddings, got .*4, 2"
    ):
        LabelAware()(embeddings, labels, torch.ones(4, 2))
    with pytest.raises(ShapeError, match="class_probabilities must have 2 axes"):
        LabelAware()(embeddings, labels, torch.ones(3))
    with pytest.raises(SettingError, match=r"labels must be from 0 to 1, got 2; .*or give probabilities of 3 classes"):
        LabelAware()(embeddings, torch.tensor([0, 1, 2]), torch.ones(3, 2))
    with pytest.raises(SettingError, match=r"labels must be from 0 to 1, got -1; number the classes from 0\.$"):
        LabelAware()(embeddings, torch.tensor([0, 1, -1]), torch.ones(3, 2))
    for wrong in (-0.5, 3.0):  # logits
        with pytest.raises(
            SettingError, match=rf"class_probabilities must be from 0 to 1, got {wrong:g}; use .*softmax"
        ):
            LabelAware()(embeddings, labels, torch.tensor([[0.0, wrong]]).expand(3, -1))
