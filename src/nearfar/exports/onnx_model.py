"""A model that was exported to ONNX, for use without torch: tokenizers, onnxruntime and NumPy are enough."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from nearfar.errors import EncoderError, SettingError
from nearfar.exports.exported_model import EMBEDDING, TOKENIZER, GraphModel, read_card
from nearfar.exports.heads import ExportedCard
from nearfar.exports.runtimes import import_onnxruntime
from nearfar.exports.sums import check_sums

FILE = "model.onnx"
METADATA = "nearfar"


@final
class OnnxModel(GraphModel):
    """A graph for onnxruntime.

    Args:
        path: the folder of the export, or the ``.onnx`` file in it.
        threads: how many threads compute; None leaves it to onnxruntime.
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int | None = None) -> None:
        place = Path(path)
        file = place / FILE if place.is_dir() else place
        if threads is not None and threads < 1:
            raise SettingError(f"threads must be 1 or more, got {threads}.")
        check_sums(file.parent, (file.name, TOKENIZER))
        self._session = _open_session(file, threads)
        super().__init__(file, _read_card(self._session, file))

    def _compute(self, output: str, feeds: dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        values: NDArray[np.float32] = self._session.run([output], feeds)[0]
        return values


def _open_session(path: Path, threads: int | None) -> Any:
    if not path.is_file():
        raise EncoderError(f"{path}: there is no such file; 'nearfar export MODEL --to onnx --out DIR' writes one.")
    if importlib.util.find_spec("onnxruntime") is None:
        raise SettingError("ONNX models need onnxruntime, which is not installed: pip install onnxruntime.")
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is wrong is said once, below
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    except Exception as cause:  # onnxruntime has a class for each status, and no common one
        first = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
        raise EncoderError(
            f"{path}: this ONNX file cannot be opened ({first:.200}). Export the model again."
        ) from cause


def _read_card(session: Any, path: Path) -> ExportedCard:
    text = session.get_modelmeta().custom_metadata_map.get(METADATA)
    if text is None:
        raise EncoderError(f"{path}: this graph was not exported by nearfar: it has no metadata {METADATA!r}.")
    card = read_card(text, path)
    known = {output.name for output in session.get_outputs()}
    missing = [name for name in (EMBEDDING, *(head.output for head in card.heads)) if name not in known]
    if missing:
        raise EncoderError(f"{path}: the graph has no output {missing[0]!r}, which its metadata names.")
    return card
