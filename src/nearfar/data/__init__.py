"""Reading data: from any usual file to checked rows, each with the line it came from."""

from __future__ import annotations

from nearfar.data.checks import Examination, compare, examine
from nearfar.data.issues import CAP
from nearfar.data.memory import named_splits, read_memory
from nearfar.data.readers import read, rows
from nearfar.data.records import Layout, Records
from nearfar.data.row_types import RowType, row_type_of
from nearfar.data.sources import Place, locate, samples
from nearfar.data.splits import SIZES, folds, limit, per_class, share
from nearfar.data.stream import Stream
from nearfar.data.targets import (
    consistent,
    contradictions,
    doubts,
    pair_targets,
    queries_without_positive,
    score_range,
    unit_scores,
)

__all__ = [
    "CAP",
    "SIZES",
    "Examination",
    "Layout",
    "Place",
    "Records",
    "RowType",
    "Stream",
    "compare",
    "consistent",
    "contradictions",
    "doubts",
    "examine",
    "folds",
    "limit",
    "locate",
    "named_splits",
    "pair_targets",
    "per_class",
    "queries_without_positive",
    "read",
    "read_memory",
    "row_type_of",
    "rows",
    "samples",
    "score_range",
    "share",
    "unit_scores",
]
