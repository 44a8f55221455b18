"""The Python interface: estimators with the contract of scikit-learn, and saved models. All of it is loaded late.

An exported model is opened by ``load`` without torch and scikit-learn, so each name is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.estimators.classifier import Classifier
    from nearfar.estimators.display import Chart, Page
    from nearfar.estimators.encoder import Encoder, Hit
    from nearfar.estimators.experiments import Comparison, Tuning, compare, tune
    from nearfar.estimators.file_runs import embed_files, predict_files
    from nearfar.estimators.multitask import MultiTask
    from nearfar.estimators.recipes import train
    from nearfar.estimators.saved_model import load

__all__ = [
    "Chart",
    "Classifier",
    "Comparison",
    "Encoder",
    "Hit",
    "MultiTask",
    "Page",
    "Tuning",
    "compare",
    "embed_files",
    "load",
    "predict_files",
    "train",
    "tune",
]

_MODULES = {
    "Chart": "display",
    "Classifier": "classifier",
    "Comparison": "experiments",
    "Encoder": "encoder",
    "Hit": "encoder",
    "MultiTask": "multitask",
    "Page": "display",
    "Tuning": "experiments",
    "compare": "experiments",
    "embed_files": "file_runs",
    "load": "saved_model",
    "predict_files": "file_runs",
    "train": "recipes",
    "tune": "experiments",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f"nearfar.estimators.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'nearfar.estimators' has no attribute {name!r}")
