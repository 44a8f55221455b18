"""Weights to scores: metrics on arrays, and tasks that put a model to the test."""

from nearfar.evaluation.metrics import ClassReport, class_report
from nearfar.evaluation.tasks import classify, evaluate_classes

__all__ = ["ClassReport", "class_report", "classify", "evaluate_classes"]
