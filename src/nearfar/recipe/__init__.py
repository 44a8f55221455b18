"""Recipes: the typed settings of a run, read from and written to TOML."""

from nearfar.recipe import objectives
from nearfar.recipe.capabilities import OBJECTIVES, Objective
from nearfar.recipe.class_objectives import CrossEntropy, CrossEntropySupCon, TripleEntropy
from nearfar.recipe.reader import Override, build_recipe, parse_override, read_recipe, resolve_paths
from nearfar.recipe.schema import Batches, Data, Encoder, Head, Recipe, Stage, Training
from nearfar.recipe.writer import to_toml

__all__ = [
    "OBJECTIVES",
    "Batches",
    "CrossEntropy",
    "CrossEntropySupCon",
    "Data",
    "Encoder",
    "Head",
    "Objective",
    "Override",
    "Recipe",
    "Stage",
    "Training",
    "TripleEntropy",
    "build_recipe",
    "objectives",
    "parse_override",
    "read_recipe",
    "resolve_paths",
    "to_toml",
]
