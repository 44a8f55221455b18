"""``nearfar.load``: a saved model as an estimator."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from nearfar.errors import SettingError
from nearfar.estimators.folder import ModelFolder

if TYPE_CHECKING:
    from nearfar.encoding.formats import Precision
    from nearfar.estimators.classifier import Classifier
    from nearfar.estimators.encoder import Encoder
    from nearfar.estimators.multitask import MultiTask
    from nearfar.exports.exported_model import ExportedModel

logger = logging.getLogger(__name__)


def load(
    path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | None = None,
    device: str | None = None,
    precision: Precision | None = None,
) -> Classifier | Encoder | MultiTask | ExportedModel:
    """Open a model folder, also one saved by another library, or an encoder by name.

    Returns a fitted `nearfar.Classifier` for a model with a class head, a model of several tasks
    for one that was trained on several, and else a `nearfar.Encoder`. A model that was exported (to ONNX, OpenVINO or
    static vectors) has the same ``predict``, ``predict_proba`` and ``embed``, and is used without torch.

    Args:
        path: a folder, a short name, or an id on the Hugging Face Hub; ``"owner/name@v1"`` names its revision, too.
        revision: a branch, a tag or a commit on the Hub.
        token: an access token for private repositories; None for that of ``hf auth login`` or ``HF_TOKEN``.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"``; None for a GPU where there is one.
        precision: the number format of matrix products on the CPU: ``"fp32"``, ``"bf16"``, ``"int8"``, or ``"auto"``
            for the fastest, which is measured once; None for bf16 on processors with units for it, else fp32.

    >>> import nearfar
    >>> nearfar.load("toy").encode(["a short text", "another one"]).shape
    (2, 64)
    """
    from nearfar.exports.folders import is_exported, open_exported

    if is_exported(path):
        if revision is not None:
            raise SettingError(f"revision {revision!r} is for a model on the hub; {os.fspath(path)} has none.")
        if device not in (None, "cpu"):
            raise SettingError(f"the device is {device!r}, and an exported model computes on the CPU.")
        if precision is not None:
            raise SettingError(f"precision is {precision!r}, and an exported model keeps the one it was exported in.")
        return open_exported(path)
    return open_estimator(path, revision=revision, token=token, device=device, precision=precision)


def open_estimator(
    path: str | os.PathLike[str],
    *,
    revision: str | None = None,
    token: str | None = None,
    device: str | None = None,
    precision: Precision | None = None,
) -> Classifier | Encoder | MultiTask:
    """Open a model that can be trained further, or an encoder by name."""
    from nearfar.encoding import load as open_model
    from nearfar.encoding.formats import use_precision
    from nearfar.encoding.task_model import is_task_model
    from nearfar.estimators.classifier import Classifier
    from nearfar.estimators.encoder import Encoder
    from nearfar.estimators.multitask import MultiTask
    from nearfar.recipe.training_texts import training_texts

    model = open_model(os.fspath(path), revision=revision, token=token, device=device)
    choice = use_precision(model, precision, own_texts=training_texts)
    logger.info("precision: %s (%s)", choice.form, choice.reason)
    kind: type[Classifier | Encoder | MultiTask] = Classifier
    fitted = {} if model.folder is None else ModelFolder(model.folder, temporary=False).settings()
    if fitted.get("estimator") == "Encoder" or (model.labels is None and not model.predicts_scores):
        kind = Encoder
    if is_task_model(model.card):
        kind = MultiTask
    return kind.of_model(model, os.fspath(path))
