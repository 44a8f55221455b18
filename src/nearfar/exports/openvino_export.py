"""A trained model as an OpenVINO graph: the ONNX graph, converted."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from nearfar.encoding.model import Model
from nearfar.encoding.task_model import TaskModel
from nearfar.exports.exported_model import CARD, TOKENIZER
from nearfar.exports.heads import LabelType
from nearfar.exports.onnx_graph import export_onnx, quiet, require
from nearfar.exports.onnx_model import OnnxModel
from nearfar.exports.openvino_model import FILE
from nearfar.exports.runtimes import import_openvino
from nearfar.exports.sums import write_sums
from nearfar.files import atomic_folder


def export_openvino(
    model: Model, out: Path, *, tasks: TaskModel | None = None, label_type: LabelType = "str", int8: bool = False
) -> None:
    """Write a folder with the graph, its description and the tokenizer; a folder that is there is replaced."""
    require("onnx", "onnxscript", "onnxruntime", "openvino")
    openvino = import_openvino()
    with tempfile.TemporaryDirectory() as temporary, atomic_folder(out, out.with_name(f".{out.name}-export")) as folder:
        first = Path(temporary) / "onnx"
        export_onnx(model, first, tasks=tasks, label_type=label_type, int8=int8)
        source = OnnxModel(first, threads=1)
        with quiet():
            openvino.save_model(openvino.Core().read_model(source.path), folder / FILE, compress_to_fp16=False)
        shutil.copyfile(first / TOKENIZER, folder / TOKENIZER)
        (folder / CARD).write_text(json.dumps(source.card.to_json(), ensure_ascii=False, indent=2), encoding="utf-8")
        write_sums(folder, (FILE, Path(FILE).with_suffix(".bin").name, CARD, TOKENIZER))
        readme = (first / "README.md").read_text(encoding="utf-8")
        (folder / "README.md").write_text(
            readme.replace("in ONNX", "in OpenVINO").replace("model.onnx", FILE).replace("onnxruntime", "openvino"),
            encoding="utf-8",
        )
