"""The glossary names everything that a recipe can name, and names of other libraries that exist there."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from nearfar.recipe import OBJECTIVES, Recipe
from nearfar.recipe.keys import entries
from nearfar.recipe.schema import HeadKind, Metric, Shuffle
from nearfar.recipe.tasks import TaskHeadKind, TaskRecipe
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    [body] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return body


def first_column(title: str) -> str:
    """The first cells of all tables of a section."""
    return "\n".join(line.split(" | ")[0] for line in section(title).splitlines() if line.startswith("| "))


def quoted(text: str) -> set[str]:
    """What stands in code marks, without quotes and the key before them."""
    return {name.split("=")[-1].strip(' "[]') for name in re.findall(r"`([^`]+)`", text)}


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Objectives", list(OBJECTIVES)),
        ("Batches", [name for name in get_args(Shuffle) if name != "auto"]),
        ("Classification heads", [name for name in get_args(HeadKind) if name != "auto"]),
        ("Classification heads", [name for name in get_args(TaskHeadKind) if name != "auto"]),
        ("Metrics", [name for name in get_args(Metric) if name != "auto"]),
        ("Recipe tables", sorted({*entries(Recipe), *entries(TaskRecipe)} - {"seed", "shared_layer"})),
    ],
)
def test_every_name_has_its_row(title, names):
    assert len(names) >= 4
    assert set(names) <= quoted(first_column(title))


def test_names_of_other_libraries_exist():
    """Losses and evaluators are spelled as the installed versions spell them."""
    from pytorch_metric_learning import losses as metric_losses
    from pytorch_metric_learning import samplers
    from pytorch_metric_learning.utils import distributed
    from sentence_transformers.cross_encoder import evaluation as cross_evaluation
    from sentence_transformers.sentence_transformer import evaluation, losses

    places = (losses, evaluation, cross_evaluation, metric_losses, samplers, distributed)
    names = set(re.findall(r"`(\w+(?:Loss|Losses|Evaluator|Sampler|Wrapper))(?:`|\()", PAGE))
    assert len(names) >= 20
    assert {name for name in names if not any(hasattr(place, name) for place in places)} == set()
