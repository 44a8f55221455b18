"""nearfar: fine-tune text encoders with contrastive and metric-learning objectives."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.estimators import Classifier as Classifier
    from nearfar.estimators import Encoder as Encoder
    from nearfar.estimators import compare as compare
    from nearfar.estimators import embed_files as embed_files
    from nearfar.estimators import load as load
    from nearfar.estimators import predict_files as predict_files
    from nearfar.estimators import train as train
    from nearfar.estimators import tune as tune
    from nearfar.evaluation.index import SearchIndex as SearchIndex
    from nearfar.recipe import Recipe as Recipe
    from nearfar.training.contracts import Callback as Callback

__version__ = "0.2.0"
__all__ = [
    "Callback",
    "Classifier",
    "Encoder",
    "Recipe",
    "SearchIndex",
    "__version__",
    "compare",
    "embed_files",
    "load",
    "predict_files",
    "train",
    "tune",
]

_MODULES = {
    "Callback": "nearfar.training.contracts",
    "Classifier": "nearfar.estimators",
    "Encoder": "nearfar.estimators",
    "Recipe": "nearfar.recipe",
    "SearchIndex": "nearfar.evaluation.index",
    "compare": "nearfar.estimators",
    "embed_files": "nearfar.estimators",
    "load": "nearfar.estimators.saved_model",
    "predict_files": "nearfar.estimators",
    "train": "nearfar.estimators",
    "tune": "nearfar.estimators",
}
"""Where the public names are: imported on first use, since torch takes seconds and `nearfar --help` must not."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'nearfar' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
