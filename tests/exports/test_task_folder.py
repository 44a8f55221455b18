"""Tasks of a model of several as classifiers of transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.encoding.test_task_model import TEXTS, tasks_on
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from nearfar.encoding.pretrained import quiet_transformers
from nearfar.errors import SettingError
from nearfar.exports.task_folder import export_task


@pytest.mark.parametrize(("pooling", "shared"), [("pooler", False), ("first", True)])
@pytest.mark.parametrize(("family", "task"), [("bert", "kind"), ("roberta", "kind"), ("bert", "mood")])
def test_an_exported_classifier_gives_the_same_logits(tiny, tmp_path, family, task, pooling, shared):
    """Both heads that can be exported, on both kinds of class heads; others may read the files."""
    opened = tasks_on(tiny(family), pooling, shared=shared)
    export_task(opened, task, tmp_path)
    with quiet_transformers(), torch.no_grad():
        network = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
        inputs = AutoTokenizer.from_pretrained(tmp_path)(TEXTS, padding=True, truncation=True, return_tensors="pt")
        logits = network(**inputs).logits.numpy()

    np.testing.assert_allclose(logits, opened.outputs(task, [TEXTS]), atol=1e-5)
    assert np.ptp(logits, axis=0).max() > 1e-3
    assert {oct(path.stat().st_mode)[-3:] for path in tmp_path.iterdir()} == {"644"}


@pytest.mark.parametrize(("family", "pooling", "shared"), [("electra", "first", True), ("distilbert", "mean", False)])
def test_where_no_setting_helps_none_is_named(tiny, tmp_path, family, pooling, shared):
    """Their own heads have another activation, or another layer."""
    opened = tasks_on(tiny(family), pooling, shared=shared)
    with pytest.raises(SettingError, match=f"head of {family} is of another kind") as caught:
        export_task(opened, "kind", tmp_path / "out")

    assert "encoder.pooling" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("pooling", "place"), [("first", "the first token"), ("last", "the last token")])
def test_where_a_setting_helps_it_is_named(tiny, tmp_path, pooling, place):
    """Another pooling, or the shared layer."""
    with pytest.raises(SettingError, match=rf'stands on {place}; train with encoder\.pooling = "pooler"'):
        export_task(tasks_on(tiny("roberta"), pooling), "kind", tmp_path / "out")
