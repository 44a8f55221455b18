"""Laws that every class objective keeps. A new one joins by one line in CASES."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nearfar.objectives
from nearfar.errors import SettingError, ShapeError
from nearfar.objectives import Contrastive, CrossEntropy, LabelAware, ProxyNCA, SoftTriple, SupCon, Triplet

CLASSES = 4
WIDTH = 4
"""As wide as there are classes, so that class logits are one more kind of embedding."""

Renaming = Callable[[nn.Module, Tensor, Tensor], Tensor]
Arguments = tuple[Tensor, ...]


def only_names(_objective: nn.Module, vectors: Tensor, _old: Tensor) -> Tensor:
    """The classes are names and nothing else."""
    return vectors


def move_columns(objective: nn.Module, vectors: Tensor, old: Tensor) -> Tensor:
    """Column c of the logits, and weight c, belong to class c."""
    if objective.class_weights is not None:
        objective.class_weights = objective.class_weights[old]
    return vectors[:, old]


def move_centers(objective: nn.Module, vectors: Tensor, old: Tensor) -> Tensor:
    """Centers c belong to class c."""
    objective.centers.data = objective.centers.data[old]
    return vectors


def move_proxies(objective: nn.Module, vectors: Tensor, old: Tensor) -> Tensor:
    """Proxy c belongs to class c."""
    objective.proxies.data = objective.proxies.data[old]
    return vectors


def move_probabilities(_objective: nn.Module, vectors: Tensor, old: Tensor) -> Tensor:
    """Coordinates are class logits too; in another order they make the same angles."""
    return vectors[:, old]


def no_more(vectors: Tensor, labels: Tensor) -> Arguments:
    """Vectors and labels are all it takes."""
    return vectors, labels


def own_probabilities(vectors: Tensor, labels: Tensor) -> Arguments:
    """The vectors are logits of the weighting network as well, so that gradients reach them both ways."""
    return vectors, labels, vectors.softmax(dim=-1)


@dataclass(frozen=True)
class Case:
    """An objective under the laws: how to make it, what moves with its classes, what its settings refuse, how it is called."""

    make: Callable[..., nn.Module]
    renamed: Renaming
    refused: dict[str, Sequence[Any]]
    arguments: Callable[[Tensor, Tensor], Arguments] = no_more


NAN, INF = float("nan"), float("inf")
POSITIVE = (0, -0.1, NAN, INF)
UNIT = {"gamma": (0, -0.1, NAN), "scale": (0, -1.0, NAN), "margin": (-0.1, NAN), "spread": (-0.1, NAN)}
SIZES = {"classes": (1, 0, -3), "dim": (0, -1), "centers": (0, -1)}


def soft_triple(**settings: Any) -> SoftTriple:
    """SoftTriple for the sizes of this suite, unless told otherwise."""
    return SoftTriple(**{"classes": CLASSES, "dim": WIDTH, "centers": 3, **settings})


def weighted(**settings: Any) -> CrossEntropy:
    """Cross-entropy with unequal classes and a smoothed target."""
    weights = torch.tensor([0.5, 1.0, 2.0, 4.0])
    return CrossEntropy(**{"class_weights": weights, "label_smoothing": 0.1, **settings})


def proxy_nca(**settings: Any) -> ProxyNCA:
    """ProxyNCA for the sizes of this suite, unless told otherwise."""
    return ProxyNCA(**{"classes": CLASSES, "dim": WIDTH, **settings})


def triplet(**fixed: Any) -> Case:
    """One of the ways to select triplets and to measure distances."""
    refused = {"margin": POSITIVE, "select": ("hardest", "", None), "distance": ("cosine", "", 2)}
    return Case(lambda **settings: Triplet(**{**fixed, **settings}), only_names, refused)


CASES = {
    "cross-entropy": Case(CrossEntropy, move_columns, {"label_smoothing": (-0.1, 1.0, NAN)}),
    "cross-entropy, weighted": Case(weighted, move_columns, {"label_smoothing": (-0.1, 1.0, NAN)}),
    "supcon": Case(SupCon, only_names, {"temperature": (0, -0.1, NAN)}),
    "soft-triple": Case(soft_triple, move_centers, {**UNIT, **SIZES}),
    "soft-triple, spread": Case(lambda **settings: soft_triple(**{"spread": 0.2, **settings}), move_centers, UNIT),
    "proxy-nca": Case(proxy_nca, move_proxies, {"scale": POSITIVE, "classes": (1, 0, -3), "dim": (0, -1)}),
    "proxy-nca, euclidean": Case(
        lambda **settings: proxy_nca(**{"distance": "euclidean", **settings}),
        move_proxies,
        {"distance": ("cosine", "")},
    ),
    "label-aware": Case(LabelAware, move_probabilities, {"temperature": POSITIVE}, own_probabilities),
    "triplet, all": triplet(),
    "triplet, hard": triplet(select="hard"),
    "triplet, semihard": triplet(select="semihard"),
    "triplet, all, squared": triplet(distance="squared", margin=1.0),
    "triplet, hard, squared": triplet(select="hard", distance="squared"),
    "triplet, semihard, squared": triplet(select="semihard", distance="squared"),
    "contrastive": Case(Contrastive, only_names, {"margin": POSITIVE}),
}

every_objective = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def made(case: Case, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return case.make().to(dtype)


def batch(n: int = 9, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Random vectors, some of them without a positive."""
    source = torch.Generator().manual_seed(seed)
    vectors = torch.randn(n, WIDTH, dtype=dtype, generator=source)
    return vectors, torch.randint(0, CLASSES, (n,), generator=source)


def value_and_gradients(
    case: Case, objective: nn.Module, vectors: Tensor, labels: Tensor, *, autocast: bool = False
) -> tuple[Tensor, list[Tensor]]:
    vectors = vectors.clone().requires_grad_()
    arguments = case.arguments(vectors, labels)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = objective(*arguments)
    return loss.detach(), list(torch.autograd.grad(loss, [vectors, *objective.parameters()]))


def test_every_class_objective_is_under_these_laws():
    """Whatever the room exports and calls with labels has its line in CASES."""
    exported = [getattr(nearfar.objectives, name) for name in nearfar.objectives.__all__]
    wanted = {
        part
        for part in exported
        if isinstance(part, type)
        and issubclass(part, nn.Module)
        and list(inspect.signature(part.forward).parameters)[2:3] == ["labels"]
    }

    assert wanted == {type(made(case)) for case in CASES.values()}
    assert len(wanted) >= 7


@every_objective
@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_rows_does_not_matter(case, seed):
    """Value and gradients follow their rows."""
    objective, (vectors, labels) = made(case, seed), batch(seed=seed)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    loss, (moved, *weights) = value_and_gradients(case, objective, vectors, labels)
    other, (shuffled, *same) = value_and_gradients(case, objective, vectors[order], labels[order])

    assert loss.ndim == 0
    assert moved.abs().sum() > 0
    torch.testing.assert_close(other, loss)
    torch.testing.assert_close(shuffled, moved[order])
    torch.testing.assert_close(same, weights)


@every_objective
@pytest.mark.parametrize("seed", range(5))
def test_renaming_the_classes_does_not_matter(case, seed):
    """Whatever belongs to a class moves with its name, and the loss stays."""
    objective, (vectors, labels) = made(case, seed), batch(seed=seed)
    before = objective(*case.arguments(vectors, labels))
    new = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(seed + 1))  # old name -> new name
    vectors = case.renamed(objective, vectors, new.argsort())

    torch.testing.assert_close(objective(*case.arguments(vectors, new[labels])), before)


@every_objective
@pytest.mark.parametrize("seed", range(3))
def test_gradients_are_those_of_the_value(case, seed):
    """Central differences agree in float64, for the embeddings and for every weight of the objective."""
    objective, (vectors, labels) = made(case, seed), batch(n=6, seed=seed)
    names = [name for name, _ in objective.named_parameters()]

    def value(vectors: Tensor, *weights: Tensor) -> Tensor:
        arguments = case.arguments(vectors, labels)
        return torch.func.functional_call(objective, dict(zip(names, weights, strict=True)), arguments)

    assert torch.autograd.gradcheck(value, (vectors.requires_grad_(), *objective.parameters()))


DEGENERATE = {
    "one text": lambda vectors, labels: (vectors[:1], labels[:1]),
    "two texts of one class": lambda vectors, labels: (vectors[:2], torch.full((2,), 3)),
    "one class": lambda vectors, labels: (vectors, torch.zeros_like(labels)),
    "all alone": lambda vectors, _labels: (vectors[:CLASSES], torch.arange(CLASSES)),
    "identical embeddings": lambda vectors, labels: (vectors[:1].expand(len(labels), -1), labels),
    "zero vectors": lambda vectors, labels: (torch.zeros_like(vectors), labels),
    "one zero vector": lambda vectors, labels: (vectors * (torch.arange(len(labels)) > 0).unsqueeze(1), labels),
    "opposite embeddings": lambda vectors, labels: (
        vectors[:1] * (-1) ** torch.arange(len(labels)).unsqueeze(1),
        labels,
    ),
    "huge embeddings": lambda vectors, labels: (1e8 * vectors, labels),
    "tiny embeddings": lambda vectors, labels: (1e-20 * vectors, labels),
}


@every_objective
@pytest.mark.parametrize("degenerate", DEGENERATE.values(), ids=DEGENERATE.keys())
def test_degenerate_batches_stay_finite(case, degenerate):
    """One badly drawn batch must not fill a run with NaN, neither by its value nor by its gradients."""
    vectors, labels = batch(dtype=torch.float32)
    loss, gradients = value_and_gradients(case, made(case, dtype=torch.float32), *degenerate(vectors, labels))

    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients)


@every_objective
def test_a_zero_vector_does_not_drown_the_gradients_of_the_others(case):
    """It has no direction to turn: divided by a tiny length instead, it would be all that clipping leaves."""
    objective, (vectors, labels) = made(case, dtype=torch.float32), batch(dtype=torch.float32)
    vectors[0] = 0
    _, gradients = value_and_gradients(case, objective, vectors, labels)

    assert max(float(gradient.norm()) for gradient in gradients) < 100


@every_objective
def test_half_precision_of_the_encoder_is_not_that_of_the_objective(case):
    """Under autocast the arithmetic stays in fp32: value and gradients are those without it."""
    objective, (vectors, labels) = made(case, dtype=torch.float32), batch(dtype=torch.float32)
    expected = value_and_gradients(case, objective, vectors, labels)
    found = value_and_gradients(case, objective, vectors, labels, autocast=True)

    torch.testing.assert_close(found, expected)


@every_objective
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_vectors_of_half_precision_are_computed_in_full(case, dtype):
    """The value is that of the same vectors in fp32, and gradients come back in the type that was given."""
    objective, (vectors, labels) = made(case, dtype=torch.float32), batch(dtype=torch.float32)
    vectors = vectors.to(dtype)
    expected, (moved, *weights) = value_and_gradients(case, objective, vectors.float(), labels)
    found, (narrow, *same) = value_and_gradients(case, objective, vectors, labels)

    assert found.dtype == torch.float32
    assert narrow.dtype == dtype
    exact = len(case.arguments(vectors, labels)) == 2  # probabilities of half precision are rounded before they come
    torch.testing.assert_close(found, expected, **({} if exact else {"rtol": 0.02, "atol": 0.02}))
    torch.testing.assert_close(narrow.float(), moved, rtol=0.05, atol=0.02)
    torch.testing.assert_close(same, weights)


@every_objective
def test_vectors_of_double_precision_are_computed_in_double(case):
    """Also where the weights of the objective are fp32."""
    objective, (vectors, labels) = made(case, dtype=torch.float32), batch()
    found, (moved, *weights) = value_and_gradients(case, objective, vectors, labels)
    expected, (same, *_) = value_and_gradients(case, objective.double(), vectors, labels)

    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(moved, same)
    assert all(gradient.dtype == torch.float32 for gradient in weights)


@every_objective
def test_labels_are_whole_numbers_of_any_width(case):
    """A score taken for a class would make every text a class of its own, so numbers with a fraction are refused."""
    objective, (vectors, labels) = made(case), batch()
    wanted = objective(*case.arguments(vectors, labels))

    for kind in (torch.int32, torch.uint8):
        torch.testing.assert_close(objective(*case.arguments(vectors, labels.to(kind))), wanted)
    with pytest.raises(SettingError, match=r"^\w+: labels must be whole numbers, got torch\.float32; use"):
        objective(*case.arguments(vectors, labels.float()))


@every_objective
def test_labels_of_another_length_are_refused_naming_both_sides(case):
    """The message holds both names and both sizes."""
    with pytest.raises(
        ShapeError, match=r"^labels must be \(n\) with n = 6 as in (embeddings|logits), got shape \(5\)"
    ):
        made(case)(*case.arguments(torch.randn(6, WIDTH, dtype=torch.float64), torch.zeros(5, dtype=torch.long)))


@every_objective
@pytest.mark.parametrize(
    ("vectors", "labels"), [((6,), (6,)), ((6, 2, WIDTH), (6,)), ((6, WIDTH), (6, 1)), ((6, WIDTH), ())]
)
def test_tensors_with_too_few_or_too_many_axes_are_refused(case, vectors, labels):
    """The message says how many axes fit and which shape came."""
    with pytest.raises(ShapeError, match=r"must have (1 axis|2 axes) .*got shape"):
        made(case)(*case.arguments(torch.randn(vectors, dtype=torch.float64), torch.zeros(labels, dtype=torch.long)))


REFUSED = [
    pytest.param(case, setting, value, id=f"{name}, {setting} {value}")
    for name, case in CASES.items()
    for setting, values in case.refused.items()
    for value in values
]


@pytest.mark.parametrize(("case", "setting", "value"), REFUSED)
def test_impossible_settings_are_refused_by_name(case, setting, value):
    """The message names the part, the setting and the value that came."""
    with pytest.raises(SettingError, match=rf"^\w+: {setting} must be .*, got {value!r}"):
        case.make(**{setting: value})


@pytest.mark.parametrize(
    ("case", "setting"),
    [
        pytest.param(case, setting, id=f"{name}, {setting}")
        for name, case in CASES.items()
        for setting in case.refused
        if setting != "label_smoothing"
    ],
)
@pytest.mark.parametrize("value", ["0.1", None])
def test_what_is_no_number_is_refused_by_name(case, setting, value):
    """As a number that does not fit, and not as an error of the comparison."""
    with pytest.raises(SettingError, match=rf"^\w+: {setting} must be .*, got {value!r}; "):
        case.make(**{setting: value})


@every_objective
def test_settings_of_every_objective_are_tried(case):
    """All settings of an objective are in its table of refused values."""
    part = type(made(case))
    settings = set(inspect.signature(part.__init__).parameters) - {"self", "class_weights"}
    tried = {name for other in CASES.values() if type(made(other)) is part for name in other.refused}

    assert tried == settings
