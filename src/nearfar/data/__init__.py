"""Reading data: from any usual file to checked rows, each with the line it came from."""

from __future__ import annotations

from nearfar.data.checks import Examination, compare, examine
from nearfar.data.ledger import CAP
from nearfar.data.places import Place, locate, samples
from nearfar.data.readers import read, rows
from nearfar.data.records import Layout, Records
from nearfar.data.splits import folds, limit, per_class, share

__all__ = [
    "CAP",
    "Examination",
    "Layout",
    "Place",
    "Records",
    "compare",
    "examine",
    "folds",
    "limit",
    "locate",
    "per_class",
    "read",
    "rows",
    "samples",
    "share",
]
