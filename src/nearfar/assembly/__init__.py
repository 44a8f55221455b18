"""Recipes to runs: the only place that knows every part by name."""

from nearfar.assembly.data import RunData, class_numbers, layout_of, read_data
from nearfar.assembly.output import write_whole
from nearfar.assembly.running import Summary, run

__all__ = ["RunData", "Summary", "class_numbers", "layout_of", "read_data", "run", "write_whole"]
