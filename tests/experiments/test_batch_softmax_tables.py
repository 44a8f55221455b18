"""The tables of the batch-softmax paper against its own rules: equations, rows, and what is trained and searched."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from nearfar.experiments.published import FOLDER
from nearfar.experiments.study import read_study
from nearfar.pipeline.objectives import build_terms
from nearfar.recipe.objectives import parts_of
from nearfar.recipe.pair_objectives import BatchSoftmax


def all_batch_softmax() -> list[tuple[str, BatchSoftmax]]:
    """Every batch-softmax objective of the paper's study files, with the name of its study and contender."""
    found = []
    for path in sorted((FOLDER / "batch-softmax").glob("*.toml")):
        study = read_study(path)
        for contender in study.contenders:
            recipe = study.recipe(contender)
            for objective in [recipe.objective, *(stage.objective for stage in recipe.stage)]:
                for part in parts_of(objective).values():
                    if isinstance(part, BatchSoftmax):
                        found.append((f"{path.stem}: {contender.name}", part))
    return found


def published_loss(left: torch.Tensor, right: torch.Tensor, positive: list[bool], tau: float) -> float:
    """Eq. 5 and its counterpart of the other direction, as loops: 1/m over all rows, every row in the denominator."""
    q = [[x / math.hypot(*row) for x in row] for row in left.tolist()]
    a = [[x / math.hypot(*row) for x in row] for row in right.tolist()]
    total, m = 0.0, len(q)
    for i in range(m):
        if positive[i]:
            own = sum(x * y for x, y in zip(q[i], a[i], strict=True)) / tau
            across = [math.exp(sum(x * y for x, y in zip(q[i], a[j], strict=True)) / tau) for j in range(m)]
            back = [math.exp(sum(x * y for x, y in zip(a[i], q[j], strict=True)) / tau) for j in range(m)]
            total += (-own + math.log(sum(across))) / m + (-own + math.log(sum(back))) / m
    return total


def test_batch_softmax_is_that_of_equations_3_to_5_in_every_table():
    """Groups and reduction of every recipe, and the combination of CQA-A (eq. 6) on a batch against loops."""
    found = all_batch_softmax()
    assert len(found) >= 26
    assert [name for name, part in found if part.groups or part.reduction != "all"] == []
    study = read_study(FOLDER / "batch-softmax/table-2-cqa-a.toml")
    objective = study.recipe(next(each for each in study.contenders if each.name == "combo")).objective
    terms, _ = build_terms(objective, classes=(), dim=5, labels=np.zeros(0, dtype=np.int64), seed=0)
    assert {term.view for term in terms} == {"pairs"}, "a group would change the denominator"
    left, right = torch.randn(2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    left[1] = left[0]  # the same question twice
    targets = torch.tensor([1.0, 1, 0, 1, 0, 0], dtype=torch.float64)
    value = sum(term.weight * term.objective(left, right, targets).item() for term in terms)
    cosines = torch.cosine_similarity(left, right)
    mse = sum((c - y) ** 2 for c, y in zip(cosines.tolist(), targets.tolist(), strict=True)) / 6
    assert value == pytest.approx(0.1 * published_loss(left, right, (targets == 1).tolist(), 0.055) + 0.9 * mse)
