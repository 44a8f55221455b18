"""What computes exported models sends no usage data: in a process of its own, with nothing that marks a test."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nearfar
from nearfar.encoding.model import Model
from nearfar.exports.onnx_graph import export_onnx
from nearfar.exports.openvino_export import export_openvino

SOURCES = Path(nearfar.__file__).parents[1]
OPEN = """
import sys
calls = []
sys.addaudithook(lambda event, _: event.startswith("socket.") and calls.append(event))
import nearfar
assert nearfar.load("exported").encode(["a text"]).shape[0] == 1
assert not calls, calls
assert {module}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("export", "runtime", "silent"),
    [
        (export_onnx, "onnxruntime", '"onnxruntime" in sys.modules'),
        (export_openvino, "openvino", '"openvino" in sys.modules and "openvino_telemetry" not in sys.modules'),
    ],
    ids=["onnxruntime", "openvino"],
)
def test_opening_a_model_leaves_no_id_and_asks_for_no_address(export, runtime, silent, tmp_path):
    if importlib.util.find_spec(runtime) is None:
        pytest.skip(f"{runtime} is not installed")
    export(Model.from_pretrained("toy"), tmp_path / "exported")
    home = tmp_path / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1"}
    code = OPEN.format(module=silent)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert [path for path in home.rglob("*") if path.is_file()] == []
