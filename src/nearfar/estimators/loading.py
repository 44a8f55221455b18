"""``nearfar.load``: a saved model as an estimator."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING

from nearfar.estimators.estimator import parameters_of
from nearfar.estimators.folder import ModelFolder

if TYPE_CHECKING:
    from nearfar.estimators.classifier import Classifier
    from nearfar.estimators.encoder import Encoder


def load(path: str | os.PathLike[str]) -> Classifier | Encoder:
    """Open a model folder, also one saved by another library, or an encoder by name.

    Returns a fitted :class:`nearfar.Classifier` for a model with a class head, and else a :class:`nearfar.Encoder`.

    >>> import nearfar
    >>> nearfar.load("toy").encode(["a short text", "another one"]).shape
    (2, 64)
    """
    from nearfar.encoding import load as open_model
    from nearfar.estimators.classifier import Classifier
    from nearfar.estimators.encoder import Encoder

    model = open_model(os.fspath(path))
    folder = ModelFolder(Path(path), temporary=False)
    kind = Encoder if model.labels is None else Classifier
    parameters = parameters_of(folder, inspect.signature(kind).parameters)
    if kind is Encoder and not folder.path.is_dir():
        return Encoder(os.fspath(path))
    estimator = kind(**{"encoder": os.fspath(path), **parameters})
    estimator._open(folder, model)
    return estimator
