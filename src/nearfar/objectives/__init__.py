"""Vectors to one number: objectives are arithmetic on tensors, and know nothing of texts, files or encoders."""

from nearfar.objectives.cross_entropy import CrossEntropy, balanced_weights
from nearfar.objectives.soft_triple import SoftTriple
from nearfar.objectives.supcon import SupCon

__all__ = ["CrossEntropy", "SoftTriple", "SupCon", "balanced_weights"]
