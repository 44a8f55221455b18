"""A model that was exported to OpenVINO, for use without torch: tokenizers, openvino and NumPy are enough."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import EncoderError, SettingError
from nearfar.exports.exported_model import CARD, EMBEDDING, TOKENIZER, GraphModel, read_card_file
from nearfar.exports.runtimes import import_openvino
from nearfar.exports.sums import check_sums

FILE = "openvino_model.xml"


@final
class OpenVinoModel(GraphModel):
    """A graph for OpenVINO, on the CPU.

    Args:
        path: the folder of the export, or the ``.xml`` file in it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        place = Path(path)
        file = place / FILE if place.is_dir() else place
        check_sums(file.parent, (file.name, file.with_suffix(".bin").name, CARD, TOKENIZER))
        super().__init__(file, read_card_file(file.parent))
        self._graph = _compiled(file)
        known = {name for output in self._graph.outputs for name in output.get_names()}
        missing = [name for name in (EMBEDDING, *(head.output for head in self.card.heads)) if name not in known]
        if missing:
            raise EncoderError(f"{file}: the graph has no output {missing[0]!r}, which its description names.")

    def _compute(self, output: str, feeds: dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self._graph(feeds)[output]
        return values


def _compiled(path: Path) -> Any:
    if importlib.util.find_spec("openvino") is None:
        raise SettingError("this model needs openvino, which is not installed: pip install openvino.")
    openvino = import_openvino()
    try:
        # one kind of arithmetic everywhere: OpenVINO would compute in bf16 where the processor has it
        return openvino.Core().compile_model(os.fspath(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    except Exception as cause:  # openvino raises RuntimeError and classes of its own
        first = str(cause).strip().splitlines()[-1] if str(cause).strip() else type(cause).__name__
        raise EncoderError(f"{path}: this graph cannot be opened ({first:.200}). Export the model again.") from cause
