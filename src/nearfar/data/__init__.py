"""Data files of all usual formats, and data in memory, to checked records."""

from __future__ import annotations

from nearfar.data.checks import Examination, compare, examine
from nearfar.data.memory import named_splits, read_memory
from nearfar.data.readers import Stream, columns_of, read, rows
from nearfar.data.records import Layout, Records
from nearfar.data.row_types import RowType, row_type_of
from nearfar.data.sources import samples
from nearfar.data.splits import SIZES, folds, held_out, holdout, limit, per_class
from nearfar.data.targets import (
    contradictions,
    contradictions_message,
    fractions,
    grades_of,
    pair_targets,
    positive_above,
    queries_without_positive,
    relevant_grade,
    score_range,
    target_problems,
    unit_scores,
    without_contradictions,
)

__all__ = [
    "SIZES",
    "Examination",
    "Layout",
    "Records",
    "RowType",
    "Stream",
    "columns_of",
    "compare",
    "contradictions",
    "contradictions_message",
    "examine",
    "folds",
    "fractions",
    "grades_of",
    "held_out",
    "holdout",
    "limit",
    "named_splits",
    "pair_targets",
    "per_class",
    "positive_above",
    "queries_without_positive",
    "read",
    "read_memory",
    "relevant_grade",
    "row_type_of",
    "rows",
    "samples",
    "score_range",
    "target_problems",
    "unit_scores",
    "without_contradictions",
]
