"""Exports in a virtual environment that has neither torch nor transformers: NumPy, tokenizers and what computes them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.exports.models import HEADS, TEXTS, model_on

import nearfar
from nearfar.exports.onnx_graph import export_onnx
from nearfar.exports.static_export import export_static

PACKAGES = ("numpy", "tokenizers", "safetensors", "onnxruntime", "nearfar")
SCRIPT = """
import importlib.util, json, sys
import nearfar
assert not any(importlib.util.find_spec(name) for name in ("torch", "transformers", "sklearn", "scipy", "typer", "rich"))
answers = {}
for path in sys.argv[1:]:
    model = nearfar.load(path)
    answers[path] = [model.predict(TEXTS).tolist(), model.embed(TEXTS).sum(axis=1).round(3).tolist()]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with links to the packages that an export needs, and nothing else."""
    place = tmp_path_factory.mktemp("environment") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent
        for entry in (folder, folder.with_name(f"{name}.libs")):
            if entry.exists():
                (site / entry.name).symlink_to(entry)
    return place / "bin" / "python"


def test_exports_predict_the_same_where_torch_is_not_installed(tiny, tmp_path, python):
    """A hidden import of anything else would be an error there."""
    model = model_on(tiny("bert"), head=HEADS["nearest-center"])
    export_onnx(model, tmp_path / "graph")
    export_static(model, tmp_path / "static", TEXTS * 3)
    places = [str(tmp_path / name) for name in ("graph", "static")]
    run = subprocess.run(
        [str(python), "-c", SCRIPT.replace("TEXTS", repr(TEXTS)), *places], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    for place, (labels, sums) in json.loads(run.stdout).items():
        opened = nearfar.load(place)
        assert labels == opened.predict(TEXTS).tolist()
        assert sums == pytest.approx(opened.embed(TEXTS).sum(axis=1).tolist(), abs=2e-3)
