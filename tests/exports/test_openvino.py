"""OpenVINO graphs give the numbers of the model they were made of, without torch."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from tests.exports.models import HEADS, LABELS, TEXTS, model_on

import nearfar
from nearfar.errors import EncoderError
from nearfar.exports.exported_model import CARD
from nearfar.exports.openvino_export import export_openvino
from nearfar.exports.openvino_model import FILE, OpenVinoModel
from nearfar.exports.sums import SUMS


def test_a_graph_gives_the_same_and_damaged_files_are_refused(tiny, tmp_path):
    """Any number of texts and tokens; cut files and missing descriptions have a reason."""
    model = model_on(tiny("bert"), head=HEADS["nearest-center"])
    model.model.temperature = 1.7
    export_openvino(model, tmp_path / "out")
    exported = nearfar.load(tmp_path / "out")
    assert isinstance(exported, OpenVinoModel)
    order = np.argsort(LABELS)
    for texts in (TEXTS, TEXTS[:1], TEXTS[2:5]):
        assert np.abs(model.probabilities(texts)[:, order] - exported.predict_proba(texts)).max() < 1e-5
        assert np.abs(model.embed(texts) - exported.embed(texts)).max() < 1e-5

    shutil.copytree(tmp_path / "out", tmp_path / "cut")
    raw = (tmp_path / "out" / FILE).read_bytes()
    (tmp_path / "cut" / FILE).write_bytes(raw[: len(raw) // 2])
    with pytest.raises(EncoderError, match="has changed since it was exported"):
        OpenVinoModel(tmp_path / "cut")
    (tmp_path / "cut" / SUMS).unlink()
    with pytest.raises(EncoderError, match="cannot be opened"):
        OpenVinoModel(tmp_path / "cut")
    (tmp_path / "cut" / CARD).unlink()
    with pytest.raises(EncoderError, match="description of the export is missing"):
        OpenVinoModel(tmp_path / "cut")
