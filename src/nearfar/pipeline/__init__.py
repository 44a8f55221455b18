"""Recipes to trained models: the only package that knows every part by name."""

from nearfar.pipeline.data import RunData, class_numbers, layout_of, read_data
from nearfar.pipeline.train import Summary, train

__all__ = ["RunData", "Summary", "class_numbers", "layout_of", "read_data", "train"]
