"""Cross-entropy: against its formula, torch and closed forms. (Laws shared by all: test_contract.py.)"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nearfar.errors import SettingError, ShapeError
from nearfar.objectives import CrossEntropy, balanced_weights


@st.composite
def labeled_logits(draw) -> tuple[Tensor, Tensor, Tensor]:
    """One to nine float64 rows of logits for two to five classes, their labels, and weights of the classes."""
    n, c = draw(st.integers(1, 9)), draw(st.integers(2, 5))
    source = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    labels = torch.randint(0, c, (n,), generator=source)
    weights = 0.1 + torch.rand(c, dtype=torch.float64, generator=source)
    return 3 * torch.randn(n, c, dtype=torch.float64, generator=source), labels, weights


def by_the_book(logits: Tensor, labels: Tensor, weights: list[float], smoothing: float = 0.0) -> float:
    """The docstring's equation, one loop per sum sign, no tensor tricks."""
    above, below = 0.0, 0.0
    for x, y in zip(logits.tolist(), labels.tolist(), strict=True):
        for c, logit in enumerate(x):
            target = (1 - smoothing) * (c == y) + smoothing / len(x)
            above += weights[y] * target * math.log(math.exp(logit) / sum(math.exp(other) for other in x))
        below += weights[y]
    return -above / below


@given(labeled_logits(), st.sampled_from([0.0, 0.1, 0.9]))
def test_matches_the_formula_written_as_loops(rows, smoothing):
    """With and without weights of the classes."""
    logits, labels, weights = rows
    plain = CrossEntropy(label_smoothing=smoothing)
    weighted = CrossEntropy(label_smoothing=smoothing, class_weights=weights)
    even = [1.0] * logits.shape[1]

    assert plain(logits, labels).item() == pytest.approx(by_the_book(logits, labels, even, smoothing))
    assert weighted(logits, labels).item() == pytest.approx(by_the_book(logits, labels, weights.tolist(), smoothing))


@given(labeled_logits(), st.sampled_from([0.0, 0.1, 0.9]))
def test_agrees_with_torch_in_value_and_gradient(rows, smoothing):
    """torch's own module with the same settings gives the same numbers, but for smoothing and weights together."""
    logits, labels, weights = rows
    weights = None if smoothing else weights
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    found = CrossEntropy(label_smoothing=smoothing, class_weights=weights)(ours, labels)
    expected = nn.CrossEntropyLoss(weight=weights, label_smoothing=smoothing)(theirs, labels)
    found.backward()
    expected.backward()

    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("counts", [[970, 30], [50, 50, 0]])
def test_balanced_weights_and_smoothing_leave_the_own_class_the_likely_one(counts):
    """The best probabilities of a text are its smoothed target, however rare the other classes are."""
    objective = CrossEntropy(label_smoothing=0.1, class_weights=balanced_weights(torch.tensor(counts)))
    target = torch.full((1, len(counts)), 0.1 / len(counts))
    target[0, 0] += 0.9
    logits = target.log().requires_grad_()
    objective(logits, torch.tensor([0])).backward()

    assert logits.grad.abs().max() < 1e-6


@pytest.mark.parametrize("c", [2, 3, 77])
def test_knowing_nothing_costs_the_log_of_the_number_of_classes(c):
    """Equal logits make every class a fair draw, smoothed or weighted."""
    labels = torch.arange(c)
    for objective in (
        CrossEntropy(),
        CrossEntropy(label_smoothing=0.3),
        CrossEntropy(class_weights=torch.rand(c) + 0.1),
    ):
        assert objective(torch.ones(c, c), labels).item() == pytest.approx(math.log(c), rel=1e-5)


def test_a_sure_and_right_answer_costs_nothing_and_a_sure_and_wrong_one_its_distance():
    """Logits a hundred apart."""
    logits = torch.tensor([[100.0, 0.0]])

    assert CrossEntropy()(logits, torch.tensor([0])).item() == 0.0
    assert CrossEntropy()(logits, torch.tensor([1])).item() == pytest.approx(100.0)


def test_weights_for_another_number_of_classes_are_refused():
    """The message names the weights and the logits."""
    objective = CrossEntropy(class_weights=torch.ones(3))

    with pytest.raises(ShapeError, match=r"class_weights must be \(c\) with c = 2 as in logits, got shape \(3\)"):
        objective(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))


def test_weights_are_saved_and_moved_with_the_module():
    """They are part of the state, and follow the module to another type."""
    objective = CrossEntropy(class_weights=torch.ones(3))

    assert list(objective.state_dict()) == ["class_weights"]
    assert objective.double().class_weights.dtype == torch.float64
    assert list(CrossEntropy().state_dict()) == []


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], "must be a tensor"),
        (torch.tensor([-1.0, 2.0]), "must be 0 or more and finite, and not all 0, got"),
        (torch.tensor([float("nan"), 2.0]), "must be 0 or more"),
        (torch.zeros(2), ".*and not all 0"),
    ],
)
def test_impossible_weights_are_refused(weights, message):
    with pytest.raises(SettingError, match=rf"^CrossEntropy: class_weights {message}"):
        CrossEntropy(class_weights=weights)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_texts_that_do_not_count_cost_nothing(smoothing):
    """A batch of nothing but a class of weight zero moves nothing, and whole weights are as good as others."""
    objective = CrossEntropy(class_weights=torch.tensor([0, 2, 1]), label_smoothing=smoothing)
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = objective(logits, torch.zeros(4, dtype=torch.long))
    loss.backward()

    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))
    assert objective(logits, torch.tensor([0, 1, 2, 1])) > 0


def test_labels_without_a_logit_are_refused():
    with pytest.raises(SettingError, match=r"labels must be from 0 to 1, got 2; .*or give logits of 3 classes"):
        CrossEntropy()(torch.zeros(2, 2), torch.tensor([0, 2]))


@given(st.lists(st.integers(1, 50), min_size=2, max_size=6))
def test_balanced_weights_let_every_class_count_the_same(counts):
    """Weight times count is the same for all classes, and the texts' weights are one on average."""
    weights = balanced_weights(torch.tensor(counts)).tolist()
    shares = [weight * count for weight, count in zip(weights, counts, strict=True)]

    assert shares == pytest.approx([shares[0]] * len(shares), rel=1e-5)
    assert sum(shares) / sum(counts) == pytest.approx(1.0, rel=1e-5)


def test_balanced_weights_stay_finite_where_a_class_has_no_texts():
    """A class that only the test data has divides by nothing."""
    assert balanced_weights(torch.tensor([0, 3, 1])).isfinite().all()


@given(labeled_logits(), st.sampled_from([0.0, 0.1]))
def test_weights_of_texts_are_repetitions(rows, smoothing):
    """A text of weight 3 counts as three texts, one of weight 0 not at all; gradients, too."""
    logits, labels, weights = rows
    times = torch.arange(len(labels)) % 4
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    objective = CrossEntropy(label_smoothing=smoothing, class_weights=weights)
    weighted = objective(ours, labels, times.double())
    repeated = objective(theirs.repeat_interleave(times, dim=0), labels.repeat_interleave(times))
    weighted.backward()
    repeated.backward()

    assert weighted.item() == pytest.approx(repeated.item(), abs=1e-12)
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: objective(x, labels, 0.5 + times.double()), logits.requires_grad_())


def test_as_many_weights_as_texts_are_needed():
    """Others are refused by their shape."""
    with pytest.raises(ShapeError):
        CrossEntropy()(torch.zeros(3, 2), torch.tensor([0, 1, 1]), torch.ones(2))
