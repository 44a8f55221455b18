"""Small parts of a run, each against what it should say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from tests.training.modules import loss_module

from nearfar.encoding import build, make_head, tokenize
from nearfar.evaluation import embed_table
from nearfar.objectives import CrossEntropy, LabelAware, ProxyNCA
from nearfar.pipeline.defaults import Stage
from nearfar.pipeline.heads import STRENGTH, TrainingRows, fit_head
from nearfar.pipeline.loaders import Rows, distinct
from nearfar.recipe import Data, Recipe
from nearfar.training import Term
from nearfar.training.optimizer import parameter_groups, part_of

TEXTS = [f"{'apple pear plum' if n % 3 else 'hammer saw'} number {n}" for n in range(20)]


def fitted(kind, labels, classes, weight="none"):
    """A head for the vectors of TEXTS, these vectors, and the same of length one."""
    built = build("toy", classes=None, seed=1, pooling="mean")
    table = tokenize(built.tokenizer, [TEXTS], max_length=32)
    vectors = embed_table(built.model, table, batch_size=8)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return (
        fit_head(kind, built.model, TrainingRows(table, labels, tuple("abcdefgh")[:classes], weight)),
        torch.from_numpy(vectors),
        unit,
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_a_logistic_head_is_scikit_learns(classes):
    """For two classes, too, where scikit-learn has one row of weights."""
    labels = np.array([n % 3 % classes for n in range(20)])
    head, vectors, unit = fitted("logistic", labels, classes)
    wanted = LogisticRegression(C=STRENGTH, max_iter=1_000).fit(unit, labels).predict_proba(unit)

    np.testing.assert_allclose(head(vectors).softmax(dim=1).numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 4])
def test_a_nearest_center_is_scikit_learns(classes):
    labels = np.arange(20) % classes
    head, vectors, unit = fitted("nearest-center", labels, classes)

    found = head(vectors).argmax(dim=1).numpy()
    np.testing.assert_array_equal(found, NearestCentroid().fit(unit, labels).predict(unit))
    assert len(set(found)) == classes


def test_the_probabilities_of_centers_are_those_of_equally_wide_normal_classes():
    """The formula in loops: exp(-distance² / (2 · temperature)) over its sum; how large a class is plays no part."""
    labels = np.array([0] * 12 + [1] * 5 + [2] * 3)
    head, vectors, unit = fitted("nearest-center", labels, 3)
    wanted = np.zeros((20, 3))
    for row in range(20):
        for number in range(3):
            center = unit[labels == number].mean(axis=0)
            wanted[row, number] = np.exp(-((unit[row] - center) ** 2).sum() / (2 * head.temperature))
    wanted /= wanted.sum(axis=1, keepdims=True)

    np.testing.assert_allclose(head(vectors).softmax(dim=1).numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("weight", ["balanced", {"b": 3.0, "c": 0.5}])
def test_the_class_weights_of_a_logistic_head_are_scikit_learns(weight):
    labels = np.array([0] * 14 + [1] * 4 + [2] * 2)
    head, vectors, unit = fitted("logistic", labels, 3, weight)
    by_number = weight if weight == "balanced" else {0: 1.0, 1: 3.0, 2: 0.5}
    wanted = LogisticRegression(C=STRENGTH, max_iter=1_000, class_weight=by_number).fit(unit, labels)

    np.testing.assert_allclose(head(vectors).softmax(dim=1).numpy(), wanted.predict_proba(unit), atol=1e-4)
    plain = fitted("logistic", labels, 3)[0]
    assert not torch.allclose(head(vectors), plain(vectors), atol=1e-2)


def test_class_weights_multiply_the_odds_of_centers():
    """Centers weigh all classes the same, so that balanced changes nothing; a weight of zero excludes a class."""
    labels = np.array([0] * 14 + [1] * 4 + [2] * 2)
    plain, vectors, _ = fitted("nearest-center", labels, 3)
    balanced = fitted("nearest-center", labels, 3, "balanced")[0]
    weighted = fitted("nearest-center", labels, 3, {"b": 3.0, "c": 0.0})[0]

    assert torch.equal(plain(vectors), balanced(vectors))
    wanted = plain(vectors).softmax(dim=1) * torch.tensor([1.0, 3.0, 0.0])
    torch.testing.assert_close(weighted(vectors).softmax(dim=1), wanted / wanted.sum(dim=1, keepdim=True))
    assert balanced.describe() == plain.describe() == {"kind": "nearest-center", "temperature": 0.15}
    again = make_head(weighted.describe(), vectors.shape[1], 3)
    again.load_state_dict(weighted.state_dict())
    assert torch.equal(again(vectors), weighted(vectors))


def test_centers_of_length_one_are_compared_by_cosine():
    """As older model folders have them."""
    head = make_head({"kind": "nearest-center", "temperature": 0.1}, 4, 3)
    centers = torch.nn.functional.normalize(torch.randn(3, 4, generator=torch.Generator().manual_seed(3)), dim=1)
    head.load_state_dict({"centers": centers})
    vectors = torch.randn(9, 4, generator=torch.Generator().manual_seed(4))

    cosines = torch.nn.functional.normalize(vectors, dim=1) @ centers.T
    torch.testing.assert_close(head(vectors).softmax(dim=1), (cosines / 0.1).softmax(dim=1))


def test_groups_join_texts_by_positive_pairs_only():
    """The same text on either side, and texts with a partner in common; a labeled negative joins nothing."""
    texts, columns = distinct([["a", "b", "c", "d"], ["x", "x", "y", "a"]])
    table = tokenize(build("toy", classes=None, seed=1).tokenizer, [texts], max_length=8)
    rows = Rows("pairs", table, columns, np.zeros(4, dtype=np.int64), np.array([1, 1, 0, 1], dtype=np.float32))
    left, right = rows.groups()

    assert left[0] == left[1] == right[0] == right[1] == left[3] == right[3]
    assert len({left[0], left[2], right[2]}) == 3


def test_groups_begin_where_the_objective_says():
    """Scores above the threshold join texts, others do not."""
    texts, columns = distinct([["a", "a", "b"], ["x", "y", "z"]])
    table = tokenize(build("toy", classes=None, seed=1).tokenizer, [texts], max_length=8)
    rows = Rows("scores", table, columns, np.zeros(3, dtype=np.int64), np.array([0.4, 0.9, 0.1], dtype=np.float32))
    for threshold, joined in ((0.3, True), (0.5, False)):
        _, right = rows.groups(threshold)
        assert (right[0] == right[1]) == joined


def test_a_term_may_have_a_learning_rate_of_its_own():
    """Its weights are a part of their own, and the others keep theirs."""
    model = build("toy", classes=("a", "b"), seed=1, pooling="mean").model
    terms = [
        Term("near", 1.0, ProxyNCA(2, 32), "text", learning_rate=0.5),
        Term("far", 1.0, ProxyNCA(2, 32), "text"),
        Term("entropy", 1.0, CrossEntropy(), "logits"),
    ]
    groups = parameter_groups(loss_module(model, terms), {"encoder": 1e-5, "head": 1e-3, "objective": 1e-2}, 0.01)
    rates = {name: (group["part"], group["lr"], group["weight_decay"]) for group in groups for name in group["names"]}
    assert rates["objectives.near.proxies"] == ("objective/near", 0.5, 0.0)
    assert rates["objectives.far.proxies"] == ("objective", 1e-2, 0.0)
    assert {part for part, *_ in rates.values()} == {"encoder", "head", "objective", "objective/near"}


def test_a_weighting_network_has_a_head_of_its_own_rate():
    model, helper = (build("toy", classes=("a", "b"), seed=seed, pooling="mean").model for seed in (1, 2))
    terms = [Term("a", 1.0, LabelAware(), "weighted"), Term("b", 1.0, CrossEntropy(), "weighting")]
    learner = loss_module(model, terms, weighting=helper)
    parts = {name: part_of(name, learner) for name, _ in learner.named_parameters()}

    assert {name for name, part in parts.items() if part == "head"} == {
        f"{owner}.head.linear.{kind}" for owner in ("model", "weighting") for kind in ("weight", "bias")
    }


def test_stages_draw_other_random_numbers_than_each_other():
    recipe = Recipe(data=Data(train="a.csv"), seed=5)
    assert Stage(1, 2, recipe).seed == 5
    assert len({Stage(number, 3, recipe).seed for number in (1, 2, 3)}) == 3
