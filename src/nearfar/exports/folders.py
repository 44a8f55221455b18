"""Which folders and files are exports, and which class opens them."""

from __future__ import annotations

import os
from pathlib import Path

from nearfar.exports import onnx_model, openvino_model, static_model
from nearfar.exports.exported_model import ExportedModel


def is_exported(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of an exported graph, or of the folder that has one and no model of nearfar."""
    return _kind(Path(path)) is not None


def open_exported(path: str | os.PathLike[str]) -> ExportedModel:
    """Open an export by the class of its format."""
    place = Path(path)
    match _kind(place):
        case "static":
            return static_model.StaticModel(place)
        case "openvino":
            return openvino_model.OpenVinoModel(place)
    return onnx_model.OnnxModel(place)


def _kind(place: Path) -> str | None:
    if place.suffix == ".onnx":
        return "onnx"
    if not place.is_dir():
        return "openvino" if place.name == openvino_model.FILE else None
    if (place / "nearfar.json").exists():
        return None
    if not (place / "config.json").exists():  # else another library has a graph beside the weights
        if (place / onnx_model.FILE).is_file():
            return "onnx"
        if (place / openvino_model.FILE).is_file():
            return "openvino"
    return "static" if static_model.is_static(place) else None
