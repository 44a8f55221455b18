"""What we want, in writing: the keys of a recipe, reading them, writing them."""

from nearfar.recipe.overrides import Override, parse_override
from nearfar.recipe.paths import resolve_paths
from nearfar.recipe.reading import build_recipe, read_recipe
from nearfar.recipe.schema import (
    OBJECTIVES,
    Batches,
    CrossEntropy,
    CrossEntropySupCon,
    Data,
    Encoder,
    Objective,
    Recipe,
    Training,
    TripleEntropy,
)
from nearfar.recipe.writing import to_toml

__all__ = [
    "OBJECTIVES",
    "Batches",
    "CrossEntropy",
    "CrossEntropySupCon",
    "Data",
    "Encoder",
    "Objective",
    "Override",
    "Recipe",
    "Training",
    "TripleEntropy",
    "build_recipe",
    "parse_override",
    "read_recipe",
    "resolve_paths",
    "to_toml",
]
